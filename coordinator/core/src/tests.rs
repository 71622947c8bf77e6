//! Tests of the core as a whole, one file for each part of it. `rig.rs` drives the core as its owner would and checks
//! every invariant after every event, so each test here is also a test of those.

mod access;
mod admin;
mod admission;
mod cancel;
mod checkpoint;
mod cluster;
mod declared;
mod ends;
mod explain;
mod gangs;
mod gpus;
mod guards;
mod health;
mod hearing;
mod link;
mod log;
mod moving;
mod overlaps;
mod overrides;
mod patience;
mod platforms;
mod preview;
mod random;
mod reconcile;
mod recovery;
mod require;
mod rig;
mod rules;
mod schedule;
mod submit;
mod suspend;
mod templates;
mod terms;
mod unsupervised;
mod validation;

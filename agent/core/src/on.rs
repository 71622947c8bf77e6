//! What follows from each thing that happens: a file for each of those who say it. State and what all of them do is
//! [`crate::core`]'s.

mod gpus;
mod link;
mod order;
mod pinning;
mod supervisor;
mod suspension;
mod tuning;

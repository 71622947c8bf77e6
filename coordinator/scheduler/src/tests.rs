//! What must hold of a scheduler whatever happens to it.

mod cases;
mod check;
mod harness;
mod judge;
mod judged;
mod random;
mod remedies;

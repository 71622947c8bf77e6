//! Properties of the scheduler that must always hold.

mod cases;
mod check;
mod harness;
mod judge;
mod judged;
mod random;
mod remedies;

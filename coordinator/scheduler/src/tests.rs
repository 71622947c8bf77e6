//! What must hold of a market whatever happens to it.

mod cases;
mod check;
mod judge;
mod judged;
mod random;
mod remedies;
mod trial;

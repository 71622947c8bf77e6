//! What must hold of a market whatever happens to it.

mod check;
mod random;

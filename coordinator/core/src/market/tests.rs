//! The published scenarios and random ones, played on a market alone.

mod random;
mod scenario;

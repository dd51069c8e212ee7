//! Elections on virtual time: the real `Elector` and the real `Permit`, over a store that is slow, hangs, loses answers,
//! answers conflicts, goes away and is deleted, in processes that pause, die and stop, with clocks up to 10 % fast or slow.
//!
//! Each history is drawn from its seed and runs on one thread without a runtime: the same seed gives the same history. See
//! the README for what is checked.

pub mod history;
pub mod plan;
pub mod process;
pub mod rng;
#[cfg(test)]
mod tests;
pub mod world;

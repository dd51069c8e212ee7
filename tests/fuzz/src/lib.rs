//! Bounded fuzzing of what files say: YAML → admission → objects → translation → bytes for Envoy.
//!
//! Contract: [`mutate::Mutator`] makes inputs that depend on nothing but the seed and the number of the input;
//! [`pipeline::Pipeline`] takes a text through everything. A panic, a result that depends on the way there, or an input
//! that takes longer than [`LONGEST`] is a finding.
//!
//! Limits: what Envoy thinks of the bytes is not asked here; `tests/e2e` does that for what is well-formed.

#![allow(clippy::print_stdout, reason = "tests say what they skip and measure")]

pub mod mutate;
pub mod pipeline;
pub mod seeds;

use std::time::Duration;

/// Longest time that one input may take, in a build without optimisation on a busy machine; the first of a kind reads its
/// definition and compiles its rules.
pub const LONGEST: Duration = Duration::from_secs(30);

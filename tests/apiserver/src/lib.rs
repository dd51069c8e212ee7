//! Leadership on a real API server: real processes, real faults, the audit log as the judge.
//!
//! [`replica`] starts processes that elect and write; [`judge`] reads from the audit log who wrote what and when;
//! [`stage`] is one lease with three replicas, each behind its own proxies.

#![allow(clippy::print_stdout, reason = "tests say what they skip and measure")]

pub mod judge;
pub mod replica;
pub mod stage;

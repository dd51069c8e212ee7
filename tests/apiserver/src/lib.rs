//! What needs a real API server: leadership by real processes with real faults, the watches, the statuses. The audit log is
//! the judge.
//!
//! [`replica`] starts processes that elect and write; [`judge`] reads from the audit log who wrote what and when;
//! [`stage`] is one lease with three replicas, each behind its own proxies. [`world`] is a server with our definitions;
//! [`plane`] the control plane that reads it and writes statuses to it, in this process; [`server`] the real one as a
//! process, [`envoy`] a proxy of it; [`ensemble`] several of the former, with [`balance`] as their Service,
//! [`reigns`] their judge.

#![allow(clippy::print_stdout, reason = "tests say what they skip and measure")]

pub mod balance;
pub mod ensemble;
pub mod envoy;
pub mod judge;
pub mod plane;
pub mod reigns;
pub mod replica;
pub mod server;
pub mod stage;
pub mod world;

//! The gateway as its users run it: the real binary, a real Envoy, real backends, real requests, all on loopback.
//!
//! [`Gateway`] runs `envoy-gateway standalone` in a scratch folder; [`client`] sends requests that are never retried;
//! [`rows`] checks tables of request → response from the files in `rows/`; [`wait`] waits for
//! what must happen.

#![allow(clippy::print_stdout, reason = "tests say what they skip and measure")]

pub mod client;
pub mod gateway;
pub mod rows;
pub mod surroundings;
pub mod wait;

pub use gateway::Gateway;
pub use surroundings::Surroundings;

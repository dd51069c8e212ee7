//! What the product relies on in Envoy, tried on a real one.
//!
//! A [`proxy::Proxy`] is an Envoy process on loopback. It takes its configuration from a [`hand::Hand`], an ADS server that sends
//! exactly what a test says and nothing else, or from a [`product::Product`], the server of this project. [`config`] makes the
//! resources, [`backend`] answers requests, and the clients of [`client`] never send a request twice: one that retries hides what is
//! looked for.
//!
//! Each test is named after a fact; `docs/envoy-facts.md` tells what follows from it.
//!
//! Limits: one worker thread per Envoy, one machine; times are told in the tests only where an order of magnitude matters.
//!
//! Source: the protocol as Envoy documents it ("xDS REST and gRPC protocol"), and what these tests measured with Envoy 1.40.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "tests say what they skip, and show Envoy's log when they fail"
)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

pub mod backend;
pub mod client;
pub mod config;
pub mod hand;
pub mod product;
pub mod proxy;
pub mod traffic;
pub mod world;

use std::{future::Future, time::Duration};

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The outcome of a future that must be ready in time.
///
/// # Panics
/// When it is not.
#[track_caller]
pub fn soon<F: Future>(what: &str, of: F) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        match tokio::time::timeout(PATIENCE, of).await {
            Ok(out) => out,
            Err(_) => panic!("{what}: not within {PATIENCE:?} ({caller})"),
        }
    }
}

/// Waits until something that tells nothing by itself (another process) is so.
///
/// # Panics
/// When it is not in time.
#[track_caller]
pub fn until<F: AsyncFnMut() -> bool>(what: &str, mut is: F) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let polled = async {
            while !is().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, polled).await.is_err() {
            panic!("{what}: not within {PATIENCE:?} ({caller})");
        }
    }
}

//! Waiting for what must happen, with a bound.

use std::{future::Future, time::Duration};

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Longest wait for anything that must happen.
pub const BOUND: Duration = Duration::from_secs(30);

/// Asks until it is so; tells how long that took.
///
/// # Errors
/// When it is not so within [`BOUND`], or asking fails.
pub async fn until<F: Future<Output = Result<bool>>>(what: &str, check: impl Fn() -> F) -> Result<Duration> {
    let from = Instant::now();
    loop {
        if check().await? {
            return Ok(from.elapsed());
        }
        if from.elapsed() > BOUND {
            bail!("{what}: not within {} s", BOUND.as_secs());
        }
        sleep(Duration::from_millis(5)).await;
    }
}

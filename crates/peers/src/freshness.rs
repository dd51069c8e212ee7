//! How long ago this replica was in touch with the API server.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout};

use crate::{EVERY, PATIENCE};

/// When this replica was in touch last. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Freshness(Arc<Mutex<Option<Instant>>>);

// === impl Freshness ===

impl Freshness {
    /// Never in touch so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What was asked at that instant has been answered.
    pub fn touch(&self, asked: Instant) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = (*last).max(Some(asked));
    }

    /// Time since what was answered last was asked; none: nothing was answered yet.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }
}

/// Asks the API server again and again, for ever. `ask` is true when it answered, and when what this replica serves follows
/// what it says.
pub async fn probe(freshness: Freshness, ask: impl AsyncFn() -> bool) {
    loop {
        let asked = Instant::now();
        if timeout(PATIENCE, ask()).await == Ok(true) {
            freshness.touch(asked);
        }
        sleep(EVERY).await;
    }
}

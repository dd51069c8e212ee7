//! How long a failing key waits: longer each time, up to a cap, for ever.

use rand::Rng;
use std::time::Duration;

/// Capped exponential back-off with jitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure, before jitter. Default 200 ms.
    pub first: Duration,
    /// Longest wait, before jitter. Default 30 s.
    pub cap: Duration,
}

// === impl Backoff ===

impl Backoff {
    /// Wait after that many failures in a row: `first × 2^(failures-1)`, at most `cap`, then a random part of it between a
    /// half and the whole.
    #[must_use]
    pub fn after(&self, failures: u32) -> Duration {
        let full = self.first.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(31))).min(self.cap);
        full.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(200), cap: Duration::from_secs(30) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_cap_and_stay_there() {
        let backoff = Backoff { first: Duration::from_millis(100), cap: Duration::from_secs(10) };
        for (failures, full) in
            [(1, 100), (2, 200), (5, 1_600), (7, 6_400), (8, 10_000), (1_000, 10_000), (u32::MAX, 10_000)]
        {
            for _ in 0..50 {
                let wait = backoff.after(failures).as_millis();
                assert!(wait >= full / 2 - 1 && wait <= full, "{failures} failures: {wait} ms, want up to {full}");
            }
        }
    }
}

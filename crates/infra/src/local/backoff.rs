//! How long to wait before the next try.

use std::time::Duration;

/// Doubling delays up to a cap, forgotten after a good time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first delay. Default 200 ms.
    pub first: Duration,
    /// The longest delay. Default 30 s.
    pub cap: Duration,
    /// A process that served for so long has earned a fresh start of the delays. Default 60 s.
    pub forget_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(200), cap: Duration::from_secs(30), forget_after: Duration::from_secs(60) }
    }
}

/// The state of one series of tries.
#[derive(Debug)]
pub(super) struct Tries {
    backoff: Backoff,
    failures: u32,
}

impl Tries {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, failures: 0 }
    }

    /// Counts a failure after `served` of good service; how long to wait before the next try.
    pub(super) fn failed(&mut self, served: Duration) -> Duration {
        if served >= self.backoff.forget_after {
            self.failures = 0;
        }
        let delay = self.backoff.first.saturating_mul(2u32.saturating_pow(self.failures)).min(self.backoff.cap);
        self.failures = self.failures.saturating_add(1);
        delay
    }

    /// What is wanted has changed: the past says nothing about it.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap_and_are_forgotten_after_good_service() {
        let mut tries = Tries::new(Backoff::default());
        let delays: Vec<u128> = (0..10).map(|_| tries.failed(Duration::ZERO).as_millis()).collect();
        assert_eq!(delays, [200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]);
        assert_eq!(tries.failed(Duration::from_secs(59)).as_secs(), 30);
        assert_eq!(tries.failed(Duration::from_secs(60)).as_millis(), 200);
        tries.failed(Duration::ZERO);
        tries.reset();
        assert_eq!(tries.failed(Duration::ZERO).as_millis(), 200);
        let mut long = Tries::new(Backoff::default());
        for _ in 0..100 {
            long.failed(Duration::ZERO);
        }
        assert_eq!(long.failed(Duration::ZERO).as_secs(), 30, "no overflow");
    }
}

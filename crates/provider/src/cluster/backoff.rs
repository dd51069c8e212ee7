//! How long to wait after failures in a row.

use std::time::Duration;

use rand::Rng;

const FIRST: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(30);

/// Waits after failures without an answer grow no further than this many of them make them: 1.6 s. Nobody is spared by more,
/// and a server that is back is noticed soon, however long it was away.
const UNANSWERED: u32 = 4;

/// Failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Failures {
    /// The server answered with an error.
    answered: u32,
    /// It did not answer.
    unanswered: u32,
}

impl Failures {
    /// One more; how long to wait before the next attempt.
    pub(super) fn one_more(&mut self, answered: bool) -> Duration {
        if answered {
            self.answered += 1;
            self.unanswered = 0;
            return after(self.answered);
        }
        self.unanswered += 1;
        after(self.unanswered.min(UNANSWERED))
    }

    /// All of them.
    pub(super) fn all(self) -> u32 {
        self.answered + self.unanswered
    }
}

/// 200 ms, doubled with each failure up to 30 s; of that, a random part between a half and the whole, so that replicas
/// and watches do not all come at once.
pub(super) fn after(failures: u32) -> Duration {
    let full = FIRST.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(20))).min(CAP);
    full.mul_f64(rand::rng().random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_away_is_asked_soon_and_one_that_refuses_is_spared() {
        let mut failures = Failures::default();
        for _ in 0..100 {
            assert!(failures.one_more(false) <= Duration::from_millis(1600));
        }
        assert!(failures.one_more(true) <= Duration::from_millis(200), "what was unanswered does not count");
        for _ in 0..100 {
            failures.one_more(true);
        }
        assert!(failures.one_more(true) >= CAP / 2);
    }
}

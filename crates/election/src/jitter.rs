//! Spreads attempts, so that many candidates do not knock at the same instant.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// A small repeatable generator (SplitMix64); nothing secret hangs on it.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

// === impl Jitter ===

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Seeded by the standard library's random hasher keys.
    pub(crate) fn random() -> Self {
        Self(RandomState::new().hash_one("jitter"))
    }

    /// Between 80 and 100 % of `time`: never longer, as the bounds on taking over count on it.
    pub(crate) fn shorten(&mut self, time: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let part = 800 + u32::try_from(z % 201).unwrap_or(200);
        time * part / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bounds_and_repeats() {
        let (mut a, mut b) = (Jitter::new(7), Jitter::new(7));
        let second = Duration::from_secs(1);
        let values: Vec<_> = (0..1000).map(|_| a.shorten(second)).collect();
        assert!(values.iter().all(|v| (Duration::from_millis(800)..=second).contains(v)));
        assert!(
            values.iter().any(|v| *v < Duration::from_millis(820))
                && values.iter().any(|v| *v > Duration::from_millis(980))
        );
        assert!(values.iter().all(|v| *v == b.shorten(second)));
        assert_ne!(Jitter::random().shorten(second * 1000), Jitter::random().shorten(second * 1001));
    }
}

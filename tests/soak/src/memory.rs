//! Memory of replicas over their lives. Pure.

/// A life must be so long to be judged, in seconds: what a start takes is given back by then.
const LONG: u64 = 60;
/// What may come on top of [`SHARE`], in KiB: pages that the allocator keeps, buffers of connections that come and go.
const SLACK: u64 = 8 * 1024;
/// Growth that is allowed, in percent.
const SHARE: u64 = 10;

/// A process from its start to its end.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Whose.
    pub(crate) user: String,
    /// `(second, KiB)`.
    pub(crate) samples: Vec<(u64, u64)>,
}

impl Life {
    /// Medians of the second and the last quarter of the life, in KiB; none when it was too short.
    pub(crate) fn quarters(&self) -> Option<(u64, u64)> {
        let (from, to) = (self.samples.first()?.0, self.samples.last()?.0);
        let length = to - from;
        if length < LONG {
            return None;
        }
        let median = |begin: u64, end: u64| {
            let within = |(at, _): &&(u64, u64)| (from + begin..=from + end).contains(at);
            let mut all: Vec<u64> = self.samples.iter().filter(within).map(|(_, kib)| *kib).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied()
        };
        Some((median(length / 4, length / 2)?, median(length * 3 / 4, length)?))
    }

    /// What is wrong with it.
    pub(crate) fn violation(&self) -> Option<String> {
        let (early, late) = self.quarters()?;
        let bound = early + early * SHARE / 100 + SLACK;
        (late > bound).then(|| format!("memory of {} grew from {early} to {late} KiB (bound {bound})", self.user))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(kib: impl Fn(u64) -> u64) -> Life {
        Life { user: "r".into(), samples: (0..120).map(|s| (s, kib(s))).collect() }
    }

    #[test]
    fn growth_is_seen_and_a_peak_or_a_start_is_none() {
        assert!(life(|s| 50_000 + s * 300).violation().is_some(), "a leak");
        assert_eq!(life(|s| if s < 20 { 20_000 + s * 2_000 } else { 60_000 }).violation(), None, "a start");
        assert_eq!(life(|s| if s == 100 { 200_000 } else { 60_000 }).violation(), None, "a peak");
        let short = Life { samples: life(|s| s * 10_000).samples[..30].to_vec(), user: "r".into() };
        assert_eq!(short.quarters(), None);
    }
}

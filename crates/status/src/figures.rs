//! What a writer did, as figures by kind of object.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use resources::Kind;

/// Upper bounds in seconds of the buckets of [`KindFigures::buckets`]; the last bucket has none.
pub const SECONDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Figures of a [`StatusWriter`](crate::StatusWriter) over all kinds. Counters only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Statuses written.
    pub written: u64,
    /// Statuses that were as wanted.
    pub unchanged: u64,
    /// Writes refused because the object had changed.
    pub conflicts: u64,
    /// Writes that failed for other reasons.
    pub failed: u64,
}

/// Figures of one kind. Counters only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindFigures {
    /// What became of the looks at its objects.
    pub figures: Figures,
    /// Seconds that its writes took together.
    pub seconds: f64,
    /// Writes by how long they took, each in one bucket of [`SECONDS`]; the last has the longer ones.
    pub buckets: [u64; SECONDS.len() + 1],
}

/// The counters of a writer, to be read elsewhere.
#[derive(Debug, Default)]
pub struct Counters(Mutex<BTreeMap<Kind, KindFigures>>);

/// What became of a look at a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Written,
    Unchanged,
    Conflict,
    Failed,
}

// === impl Counters ===

impl Counters {
    /// The figures now, over all kinds.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.lock().values().fold(Figures::default(), |sum, k| Figures {
            written: sum.written + k.figures.written,
            unchanged: sum.unchanged + k.figures.unchanged,
            conflicts: sum.conflicts + k.figures.conflicts,
            failed: sum.failed + k.figures.failed,
        })
    }

    /// The figures now, by kind.
    #[must_use]
    pub fn kinds(&self) -> BTreeMap<Kind, KindFigures> {
        self.lock().clone()
    }

    pub(crate) fn count(&self, kind: Kind, outcome: Outcome) {
        let mut table = self.lock();
        let figures = &mut table.entry(kind).or_default().figures;
        *match outcome {
            Outcome::Written => &mut figures.written,
            Outcome::Unchanged => &mut figures.unchanged,
            Outcome::Conflict => &mut figures.conflicts,
            Outcome::Failed => &mut figures.failed,
        } += 1;
    }

    pub(crate) fn took(&self, kind: Kind, time: Duration) {
        let seconds = time.as_secs_f64();
        let mut table = self.lock();
        let entry = table.entry(kind).or_default();
        entry.seconds += seconds;
        entry.buckets[SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(SECONDS.len())] += 1;
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, KindFigures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_write_is_in_one_bucket() {
        let counters = Counters::default();
        for millis in [1, 5, 6, 20_000] {
            counters.took(Kind::Gateway, Duration::from_millis(millis));
            counters.count(Kind::Gateway, Outcome::Written);
        }
        counters.count(Kind::HttpRoute, Outcome::Conflict);
        let kinds = counters.kinds();
        assert_eq!(kinds[&Kind::Gateway].buckets, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert!((kinds[&Kind::Gateway].seconds - 20.012).abs() < 1e-6);
        assert_eq!(counters.figures(), Figures { written: 4, conflicts: 1, ..Figures::default() });
    }
}

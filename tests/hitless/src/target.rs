//! What requests are aimed at, and where among it the next one goes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{Rng, seq::IndexedRandom};
use tokio::time::Instant;

use crate::{
    client::Place,
    expect::{Expect, Want},
};

/// A route counts as just added until so long after its first answer.
const EARLY: Duration = Duration::from_secs(3);
/// Of a hundred requests, those aimed at what is being changed right now.
const HOT: u32 = 65;

/// A host on a port, with what it is to do.
#[derive(Debug)]
pub(crate) struct Target {
    /// Port and server name.
    pub(crate) place: Place,
    /// Host.
    pub(crate) host: String,
    /// What is right.
    pub(crate) expect: Expect,
    early: Mutex<Option<Instant>>,
    quick: AtomicU64,
    slow: AtomicU64,
}

/// All targets, and those that are changing.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<Targets>);

#[derive(Debug, Default)]
struct Targets {
    alive: Vec<Arc<Target>>,
    hot: BTreeMap<usize, Arc<Target>>,
}

// === impl Target ===

impl Target {
    /// A target that is to do this; it counts as just added until [`Target::answers`].
    #[must_use]
    pub(crate) fn new(place: Place, host: String, want: Want) -> Self {
        let (quick, slow) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { place, host, expect: Expect::new(want), early: Mutex::default(), quick, slow }
    }

    /// A request is about to be sent.
    pub(crate) fn asked(&self, slow: bool) {
        if slow { &self.slow } else { &self.quick }.fetch_add(1, Ordering::SeqCst);
    }

    /// A request has ended.
    pub(crate) fn ended(&self, slow: bool) {
        if !slow {
            self.quick.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Quick requests that have not ended.
    #[must_use]
    pub(crate) fn quick(&self) -> u64 {
        self.quick.load(Ordering::SeqCst)
    }

    /// Slow requests ever, ended or not.
    #[must_use]
    pub(crate) fn slow(&self) -> u64 {
        self.slow.load(Ordering::SeqCst)
    }

    /// It answered for the first time.
    pub(crate) fn answers(&self, now: Instant) {
        *self.early.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + EARLY);
    }

    /// Whether it was just added.
    #[must_use]
    pub(crate) fn is_early(&self, now: Instant) -> bool {
        self.early.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(|until| now < until)
    }
}

// === impl Board ===

impl Board {
    /// Requests may be aimed at it.
    pub(crate) fn add(&self, target: &Arc<Target>) {
        self.lock().alive.push(Arc::clone(target));
    }

    /// No more requests are aimed at it.
    pub(crate) fn remove(&self, target: &Arc<Target>) {
        let mut targets = self.lock();
        targets.alive.retain(|t| !Arc::ptr_eq(t, target));
        targets.hot.retain(|_, t| !Arc::ptr_eq(t, target));
    }

    /// This lane changes it now.
    pub(crate) fn heat(&self, lane: usize, target: &Arc<Target>) {
        self.lock().hot.insert(lane, Arc::clone(target));
    }

    /// Where the next request goes: mostly where something changes.
    pub(crate) fn pick(&self, rng: &mut impl Rng) -> Option<Arc<Target>> {
        let targets = self.lock();
        if !targets.hot.is_empty() && rng.random_range(0..100) < HOT {
            let n = rng.random_range(0..targets.hot.len());
            return targets.hot.values().nth(n).cloned();
        }
        targets.alive.choose(rng).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Targets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What an election shows: plain values that `/metrics`, `/readyz` and the admin page export.

use crate::role::{Role, Term};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Upper bounds of the renew-latency buckets, in seconds.
pub const LATENCY_BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// State and counters of an election at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Whether this process leads: `leader_election_master_status`.
    pub leading: bool,
    /// Term of this process's leadership, while it leads.
    pub term: Option<Term>,
    /// Identity of the holder as last seen in the lease; this process's own while it leads by election.
    pub holder: Option<Arc<str>>,
    /// This process's identity; `None` without an election.
    pub identity: Option<Arc<str>>,
    /// Time until the leadership ends unless it is renewed; `None` as follower and without an election.
    pub time_left: Option<Duration>,
    /// How often this process began or stopped leading.
    pub transitions: u64,
    /// Why the last transition happened.
    pub last_reason: Option<Arc<str>>,
    /// Renewals that succeeded.
    pub renewals: u64,
    /// Attempts to take or renew the lease that failed: errors, conflicts and time-outs.
    pub failures: u64,
    /// The last failure, until an attempt succeeds.
    pub last_error: Option<Arc<str>>,
    /// Renewals that took at most `LATENCY_BUCKETS[i]` seconds, cumulative; the last entry counts all.
    pub latency_buckets: [u64; LATENCY_BUCKETS.len() + 1],
    /// Sum of the latencies of successful renewals, in seconds.
    pub latency_sum: f64,
    /// Latency of the last successful renewal.
    pub last_latency: Option<Duration>,
}

/// The shared counters behind [`Snapshot`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats(Arc<Mutex<Snapshot>>);

// === impl Stats ===

impl Stats {
    pub(crate) fn new(identity: Arc<str>) -> Self {
        Self(Arc::new(Mutex::new(Snapshot { identity: Some(identity), ..Snapshot::default() })))
    }

    /// For a role without an election.
    pub(crate) fn fixed() -> Self {
        Self::default()
    }

    pub(crate) fn snapshot(&self, role: &Role) -> Snapshot {
        let mut now = self.lock().clone();
        match role {
            Role::Leader(leadership) => {
                now.leading = true;
                now.term = Some(leadership.term());
                now.holder.clone_from(&now.identity);
                now.time_left = now.identity.is_some().then(|| leadership.time_left());
            }
            Role::Follower { leader } => {
                if leader.is_some() {
                    now.holder.clone_from(leader);
                }
            }
        }
        now
    }

    pub(crate) fn holder(&self, holder: Option<Arc<str>>) {
        self.lock().holder = holder;
    }

    pub(crate) fn renewed(&self, latency: Duration) {
        let mut now = self.lock();
        now.renewals += 1;
        now.last_error = None;
        let seconds = latency.as_secs_f64();
        for (bucket, limit) in LATENCY_BUCKETS.iter().enumerate() {
            if seconds <= *limit {
                now.latency_buckets[bucket] += 1;
            }
        }
        now.latency_buckets[LATENCY_BUCKETS.len()] += 1;
        now.latency_sum += seconds;
        now.last_latency = Some(latency);
    }

    pub(crate) fn failed(&self, why: Arc<str>) {
        let mut now = self.lock();
        now.failures += 1;
        now.last_error = Some(why);
    }

    pub(crate) fn answered(&self) {
        let mut now = self.lock();
        if now.last_error.is_some() {
            now.last_error = None;
        }
    }

    pub(crate) fn transition(&self, reason: Arc<str>) {
        let mut now = self.lock();
        now.transitions += 1;
        now.last_reason = Some(reason);
    }

    fn lock(&self) -> MutexGuard<'_, Snapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_cumulative_buckets() {
        let stats = Stats::new("a".into());
        stats.renewed(Duration::from_millis(20));
        stats.renewed(Duration::from_secs(9));
        let now = stats.snapshot(&Role::Follower { leader: None });
        assert_eq!(now.latency_buckets, [0, 1, 1, 1, 1, 1, 1, 1, 2]);
        assert!((now.latency_sum - 9.02).abs() < 1e-9);
        assert_eq!(now.renewals, 2);
    }
}

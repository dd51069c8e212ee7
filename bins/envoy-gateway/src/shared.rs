//! What the admin server, the probes and the metrics look at.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use election::RoleWatch;
use peers::{Agreement, Disagreement, Freshness, Peers, Refusal};
use prometheus_client::metrics::histogram::Histogram;
use provider::{Problems, cluster::ClusterHandle, last_good::LastGood};
use reconcile::Wanted;
use resources::ObjectKey;
use serde_json::Value;
use tokio::sync::watch;

use crate::{counted::Applied, engine::EngineHandle};

/// Handles to everything that can be looked at. Cloning shares.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// When the process started.
    pub(crate) started: Instant,
    /// Effective configuration, secrets redacted.
    pub(crate) config: Arc<Value>,
    /// The role channel.
    pub(crate) role: RoleWatch,
    /// The engine, to be asked for what it holds.
    pub(crate) engine: EngineHandle,
    /// Progress of the engine.
    pub(crate) progress: Arc<Progress>,
    /// Wanted xDS resources.
    pub(crate) cache: xds::Cache,
    /// Connected proxies.
    pub(crate) connections: xds::Connections,
    /// Counters of the xDS server.
    pub(crate) xds_metrics: xds::Metrics,
    /// Wanted statuses.
    pub(crate) statuses: Wanted<ObjectKey, Arc<ir::Status>>,
    /// Local proxies.
    pub(crate) proxies: Option<watch::Receiver<BTreeMap<String, infra::local::Status>>>,
    /// What is wrong with the resource files.
    pub(crate) problems: Option<Problems>,
    /// The cluster that is read, and what was written to it.
    pub(crate) watched: Option<Watched>,
    /// The other replicas.
    pub(crate) replicas: Option<Replicas>,
    /// The process is about to end.
    pub(crate) stopping: Arc<AtomicBool>,
}

/// What is known of the other replicas. Cloning shares.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    /// This replica's name among them.
    pub(crate) own: String,
    /// What they told.
    pub(crate) peers: Peers,
    /// How long ago this one was in touch with the API server.
    pub(crate) freshness: Freshness,
    /// What they and this one make of what they see.
    pub(crate) agreed: Agreed,
}

/// What replicas make of what they see. Cloning shares.
#[derive(Clone, Debug)]
pub(crate) struct Agreed(Arc<Mutex<Agreement>>, Instant);

/// A cluster that is read, and what was written to it.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// What was read.
    pub(crate) handle: ClusterHandle,
    /// Statuses that were written.
    pub(crate) statuses: Arc<status::Counters>,
    /// Statuses that others keep undoing.
    pub(crate) contested: status::Contested,
    /// Namespaces of other control planes with the same controller name.
    pub(crate) rivals: watch::Receiver<BTreeSet<String>>,
    /// Objects of fleets that were written.
    pub(crate) applied: Arc<Applied>,
    /// What goes wrong with fleets, where they are objects of the cluster.
    pub(crate) troubles: Option<infra::kubernetes::Troubles>,
}

/// How far the engine is.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Translated once from a complete view.
    pub(crate) translated: AtomicBool,
    /// How often "all that there was at the start has been told" was translated: the saved state says so, then the live one.
    pub(crate) synced: watch::Sender<u64>,
    /// The state on disk, where there is one.
    pub(crate) state: OnceLock<LastGood>,
    /// What proxies of this replica refused and is left out.
    pub(crate) left_out: Mutex<Vec<Refusal>>,
    /// Translations so far.
    pub(crate) translations: AtomicU64,
    /// Batches of changes that changed nothing, and cost no translation.
    pub(crate) without_effect: AtomicU64,
    /// Microseconds that the last translation took.
    pub(crate) last_micros: AtomicU64,
    /// How long translations took, in seconds.
    pub(crate) seconds: Histogram,
    /// Resources that could not be encoded now.
    pub(crate) encode_errors: AtomicU64,
    /// Configurations of groups made so far, and resources of theirs that could not be encoded.
    pub(crate) snapshots: AtomicU64,
    /// See `snapshots`.
    pub(crate) snapshot_errors: AtomicU64,
    /// Values handed on so far, by what they are: `xds-ir`, `infra-ir`, `httproute-status`.
    pub(crate) published: Mutex<BTreeMap<String, u64>>,
    /// Refusals by node and type.
    pub(crate) refused: Mutex<BTreeMap<(String, &'static str), u64>>,
}

// === impl Agreed ===

impl Agreed {
    /// Nothing is known yet.
    pub(crate) fn new() -> Self {
        Self(Arc::default(), Instant::now())
    }

    /// Reads or changes it; times are counted from the start of this process.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Agreement, Duration) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), self.1.elapsed())
    }

    /// Replicas that have seen the same as this one and make something else of it.
    pub(crate) fn disagreements(&self) -> Vec<Disagreement> {
        self.with(|agreement, now| agreement.disagreements(now).cloned().collect())
    }
}

// === impl Progress ===

impl Progress {
    /// Has translated what the cluster says, not only what was saved of it.
    pub(crate) fn is_live(&self) -> bool {
        self.is_live_with(*self.synced.borrow())
    }

    fn is_live_with(&self, synced: u64) -> bool {
        synced > self.state.get().map_or(0, LastGood::stale_batches)
    }

    /// Waits until [`Self::is_live`]; nothing is written before.
    pub(crate) async fn live(&self) {
        // The sender lives as long as `self`.
        let _ = self.synced.subscribe().wait_for(|n| self.is_live_with(*n)).await;
    }

    /// What proxies of this replica refused.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        self.left_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts what was handed on.
    pub(crate) fn count_published(&self, what: &str, n: usize) {
        if n > 0 {
            let mut table = self.published.lock().unwrap_or_else(PoisonError::into_inner);
            *table.entry(what.to_owned()).or_default() += n as u64;
        }
    }

    /// Counts a refusal.
    pub(crate) fn count_refused(&self, node: &str, kind: &'static str) {
        let mut table = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        *table.entry((node.to_owned(), kind)).or_default() += 1;
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            translated: AtomicBool::default(),
            synced: watch::Sender::new(0),
            state: OnceLock::new(),
            left_out: Mutex::default(),
            translations: AtomicU64::default(),
            without_effect: AtomicU64::default(),
            last_micros: AtomicU64::default(),
            seconds: Histogram::new(status::SECONDS),
            encode_errors: AtomicU64::default(),
            snapshots: AtomicU64::default(),
            snapshot_errors: AtomicU64::default(),
            published: Mutex::default(),
            refused: Mutex::default(),
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Ready: told everything, translated once, not about to end, and not handing proxies over to a fresher replica. The role
    /// plays no part.
    pub(crate) fn is_ready(&self) -> bool {
        let translated = self.progress.translated.load(Ordering::Acquire);
        translated && !self.stopping.load(Ordering::Acquire) && !self.hands_over()
    }

    /// Proxies are handed over to a fresher replica.
    pub(crate) fn hands_over(&self) -> bool {
        self.replicas.as_ref().is_some_and(|r| *r.peers.hand_over().borrow())
    }
}

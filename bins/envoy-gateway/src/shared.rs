//! What the admin server, the probes and the metrics look at.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use election::RoleWatch;
use prometheus_client::metrics::histogram::Histogram;
use provider::{Problems, cluster::ClusterHandle};
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
    /// The process is about to end.
    pub(crate) stopping: Arc<AtomicBool>,
}

/// A cluster that is read, and what was written to it.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// What was read.
    pub(crate) handle: ClusterHandle,
    /// Statuses that were written.
    pub(crate) statuses: Arc<status::Counters>,
    /// Objects of fleets that were written.
    pub(crate) applied: Arc<Applied>,
}

/// How far the engine is.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Translated once from a complete view.
    pub(crate) translated: AtomicBool,
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

// === impl Progress ===

impl Progress {
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
    /// Ready: told everything, translated once, and not about to end. The role plays no part.
    pub(crate) fn is_ready(&self) -> bool {
        self.progress.translated.load(Ordering::Acquire) && !self.stopping.load(Ordering::Acquire)
    }
}

//! What the admin server, the probes and the metrics look at.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use election::RoleWatch;
use provider::{Problems, cluster::ClusterHandle};
use reconcile::Wanted;
use resources::ObjectKey;
use serde_json::Value;
use tokio::sync::watch;

use crate::engine::EngineHandle;

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
    pub(crate) watched: Option<(ClusterHandle, Arc<status::Counters>)>,
    /// The process is about to end.
    pub(crate) stopping: Arc<AtomicBool>,
}

/// How far the engine is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Translated once from a complete view.
    pub(crate) translated: AtomicBool,
    /// Translations so far.
    pub(crate) translations: AtomicU64,
    /// Microseconds that the last one took.
    pub(crate) last_micros: AtomicU64,
    /// Microseconds that all took.
    pub(crate) total_micros: AtomicU64,
    /// Resources that could not be encoded now.
    pub(crate) encode_errors: AtomicU64,
}

// === impl Shared ===

impl Shared {
    /// Ready: told everything, translated once, and not about to end. The role plays no part.
    pub(crate) fn is_ready(&self) -> bool {
        self.progress.translated.load(Ordering::Acquire) && !self.stopping.load(Ordering::Acquire)
    }
}

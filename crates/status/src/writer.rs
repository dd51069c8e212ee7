//! Statuses: compare, then write.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use election::{Permit, WriteError};
use ir::Status;
use k8s_openapi::jiff::Timestamp;
use resources::{Kind, Object, ObjectKey, Observed, Seen};
use serde_json::{Map, Value, json};

use crate::{
    client::{Part, StatusClient, StatusError},
    complete::complete,
    facts::Facts,
    latest::Latest,
    merge,
};

/// Attempts at one write against others who write the same object; then the gate waits and tries again.
const ATTEMPTS: usize = 5;

/// Writes statuses behind the gate.
pub struct StatusWriter<C, O> {
    client: C,
    latest: Latest<O>,
    controller: Arc<str>,
    facts: Facts,
    now: fn() -> Timestamp,
    figures: Arc<Counters>,
}

/// Figures of a [`StatusWriter`]. Counters only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Statuses written.
    pub written: u64,
    /// Statuses that were as wanted.
    pub unchanged: u64,
    /// Writes refused because the object had changed.
    pub conflicts: u64,
}

/// The counters of a writer, to be read elsewhere.
#[derive(Debug, Default)]
pub struct Counters {
    written: AtomicU64,
    unchanged: AtomicU64,
    conflicts: AtomicU64,
}

// === impl StatusWriter ===

impl<C: StatusClient, O: Observed> StatusWriter<C, O> {
    /// A writer for the controller of that name; entries of others are not touched.
    #[must_use]
    pub fn new(client: C, observed: O, controller: impl Into<Arc<str>>, facts: Facts) -> Self {
        Self {
            client,
            latest: Latest::new(observed),
            controller: controller.into(),
            facts,
            now: Timestamp::now,
            figures: Arc::default(),
        }
    }

    /// Takes the time from elsewhere, for tests.
    #[must_use]
    pub fn with_clock(mut self, now: fn() -> Timestamp) -> Self {
        self.now = now;
        self
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        self.figures.clone()
    }

    /// Fields of the status that have to change.
    fn difference(&self, key: &ObjectKey, want: Option<&Status>, seen: &Seen) -> Map<String, Value> {
        let observed = parse(seen);
        let wanted = match want {
            Some(status) => {
                let facts = if key.kind == Kind::Gateway { self.facts.get(key) } else { None };
                complete(key, status, facts.as_ref(), seen, &observed)
            }
            None => match merge::none_of_ours(key.kind, &observed) {
                Some(wanted) => wanted,
                None => return Map::new(),
            },
        };
        // RFC 3339 in whole seconds, as Kubernetes keeps times.
        let now = (self.now)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        merge::difference(wanted, &observed, &self.controller, &now)
    }
}

fn parse(seen: &Seen) -> Map<String, Value> {
    let status = seen.status.as_deref().and_then(|s| serde_json::from_str(s).ok());
    match status {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

impl<C: StatusClient, O: Observed> reconcile::Sync for StatusWriter<C, O> {
    type Key = ObjectKey;
    type Value = Arc<Status>;
    type Error = StatusError;

    /// Objects with entries of ours: what of them nobody wants any more is removed.
    async fn owned(&self, permit: Permit<'_>) -> Result<Vec<ObjectKey>, WriteError<StatusError>> {
        drop(permit);
        let kinds = Kind::ALL.iter().filter(|k| merge::entry_field(**k).is_some());
        let own = |key: &ObjectKey| {
            let seen = self.latest.get(key);
            seen.is_some_and(|s| merge::has_own(key.kind, &parse(&s), &self.controller))
        };
        Ok(kinds.flat_map(|k| self.latest.observed.keys(*k)).filter(own).collect())
    }

    async fn sync(
        &self,
        permit: Permit<'_>,
        key: &ObjectKey,
        want: Option<&Arc<Status>>,
    ) -> Result<(), WriteError<StatusError>> {
        let Some(mut seen) = self.latest.get(key) else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            let status = self.difference(key, want.map(|s| &**s), &seen);
            if status.is_empty() {
                self.figures.unchanged.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            let body = json!({
                "metadata": {"uid": &*seen.uid, "resourceVersion": &*seen.resource_version},
                "status": status,
            });
            match permit.another()?.run(self.client.patch(key, Part::Status, &seen, body)).await {
                Ok(answer) => {
                    self.figures.written.fetch_add(1, Ordering::Relaxed);
                    self.latest.answered(key, answer);
                    return Ok(());
                }
                Err(WriteError::Write(StatusError::NotFound)) => return Ok(()),
                Err(WriteError::Write(StatusError::Conflict)) => {}
                Err(other) => return Err(other),
            }
            self.figures.conflicts.fetch_add(1, Ordering::Relaxed);
            match permit.another()?.run(self.client.read(key, &seen)).await {
                // Another object of the same name: its status follows when the watch shows it.
                Ok(now) if now.uid != seen.uid => return Ok(()),
                Ok(now) => seen = now,
                Err(WriteError::Write(StatusError::NotFound)) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
        Err(WriteError::Write(StatusError::Conflict))
    }
}

impl<C, O> fmt::Debug for StatusWriter<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusWriter").field("controller", &self.controller).finish_non_exhaustive()
    }
}

// === impl Counters ===

impl Counters {
    /// The figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            written: self.written.load(Ordering::Relaxed),
            unchanged: self.unchanged.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
        }
    }
}

/// The GatewayClass as last seen, if it is of that controller.
pub(crate) fn class_of<'a>(seen: &'a Seen, controller: &str) -> Option<&'a api::gateway::GatewayClass> {
    match &seen.object {
        Some(Object::GatewayClass(class)) if class.spec.controller_name == controller => Some(class),
        _ => None,
    }
}

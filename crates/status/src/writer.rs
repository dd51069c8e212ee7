//! Statuses: compare, then write.

use std::{fmt, sync::Arc, time::Instant};

use election::{Permit, WriteError};
use ir::Status;
use k8s_openapi::jiff::Timestamp;
use resources::{Kind, Object, ObjectKey, Observed, Seen};
use serde_json::{Map, Value, json};

use crate::{
    client::{Part, StatusClient, StatusError},
    complete::complete,
    contested::Contested,
    facts::Facts,
    figures::{Counters, Outcome},
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
    contested: Contested,
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
            contested: Contested::default(),
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

    /// What others keep undoing.
    #[must_use]
    pub fn contested(&self) -> Contested {
        self.contested.clone()
    }

    /// Fields of the status that are to be so.
    fn wanted(
        &self,
        key: &ObjectKey,
        want: Option<&Status>,
        seen: &Seen,
        observed: &Map<String, Value>,
    ) -> Map<String, Value> {
        match want {
            Some(status) => complete(key, status, &self.facts, seen, observed),
            None => merge::none_of_ours(key.kind, observed).unwrap_or_default(),
        }
    }

    /// Fields of the status that have to change.
    fn difference(
        &self,
        key: &ObjectKey,
        wanted: Map<String, Value>,
        observed: &Map<String, Value>,
    ) -> Map<String, Value> {
        // RFC 3339 in whole seconds, as Kubernetes keeps times.
        let now = (self.now)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        merge::difference(key.kind, wanted, observed, &self.controller, &now)
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
            let observed = parse(&seen);
            let wanted = self.wanted(key, want.map(|s| &**s), &seen, &observed);
            let status = self.difference(key, wanted.clone(), &observed);
            if status.is_empty() {
                self.figures.count(key.kind, Outcome::Unchanged);
                return Ok(());
            }
            if let Some(wait) = self.contested.wait(key, &seen.uid, &wanted) {
                return Err(WriteError::Write(StatusError::Contested(wait)));
            }
            let body = json!({
                "metadata": {"uid": &*seen.uid, "resourceVersion": &*seen.resource_version},
                "status": status,
            });
            let from = Instant::now();
            let answer = permit.another()?.run(self.client.patch(key, Part::Status, &seen, body)).await;
            self.figures.took(key.kind, from.elapsed());
            match answer {
                Ok(answer) => {
                    self.figures.count(key.kind, Outcome::Written);
                    self.contested.wrote(key, &seen.uid, &wanted);
                    self.latest.answered(key, answer);
                    return Ok(());
                }
                Err(WriteError::Write(StatusError::NotFound)) => return Ok(()),
                Err(WriteError::Write(StatusError::Conflict)) => self.figures.count(key.kind, Outcome::Conflict),
                Err(other) => {
                    self.figures.count(key.kind, Outcome::Failed);
                    return Err(other);
                }
            }
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

/// The GatewayClass as last seen, if it is of that controller.
pub(crate) fn class_of<'a>(seen: &'a Seen, controller: &str) -> Option<&'a api::gateway::GatewayClass> {
    match &seen.object {
        Some(Object::GatewayClass(class)) if class.spec.controller_name == controller => Some(class),
        _ => None,
    }
}

//! Counts what is written of the objects of fleets, object by object, as the Go project's control plane does.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use infra::kubernetes::{ClientError, InfraClient, Live, Object, ObjectRef};

/// What became of the writes of one object. Counters only rise.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Row {
    /// Writes that succeeded.
    pub(crate) done: u64,
    /// Writes that lost against others who wrote the object.
    pub(crate) conflicts: u64,
    /// Writes that failed for other reasons.
    pub(crate) failed: u64,
    /// Seconds that they took together.
    pub(crate) seconds: f64,
    /// How many took how long, by the bounds of [`status::SECONDS`]; the last took longer.
    pub(crate) buckets: [u64; status::SECONDS.len() + 1],
}

/// Creations and changes, and deletions, by object.
#[derive(Debug, Default)]
pub(crate) struct Applied(Mutex<[BTreeMap<ObjectRef, Row>; 2]>);

/// A client that counts.
pub(crate) struct Counted<C> {
    client: C,
    applied: Arc<Applied>,
}

// === impl Applied ===

impl Applied {
    /// Creations and changes by object.
    pub(crate) fn applies(&self) -> BTreeMap<ObjectRef, Row> {
        self.lock()[0].clone()
    }

    /// Deletions by object.
    pub(crate) fn deletions(&self) -> BTreeMap<ObjectRef, Row> {
        self.lock()[1].clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [BTreeMap<ObjectRef, Row>; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count<T>(&self, table: usize, at: &ObjectRef, outcome: &Result<T, ClientError>, took: Duration) {
        let seconds = took.as_secs_f64();
        let mut tables = self.lock();
        let row = tables[table].entry(at.clone()).or_default();
        *match outcome {
            Ok(_) => &mut row.done,
            Err(ClientError::Conflict | ClientError::Exists) => &mut row.conflicts,
            Err(_) => &mut row.failed,
        } += 1;
        row.seconds += seconds;
        row.buckets[status::SECONDS.iter().position(|b| seconds <= *b).unwrap_or(status::SECONDS.len())] += 1;
    }
}

// === impl Counted ===

impl<C> Counted<C> {
    /// Counts into that table.
    pub(crate) fn new(client: C, applied: Arc<Applied>) -> Self {
        Self { client, applied }
    }
}

impl<C: InfraClient> InfraClient for Counted<C> {
    async fn read(&self, at: &ObjectRef) -> Result<Live, ClientError> {
        self.client.read(at).await
    }

    async fn create(&self, object: &Object) -> Result<Live, ClientError> {
        let from = Instant::now();
        let outcome = self.client.create(object).await;
        self.applied.count(0, &object.at, &outcome, from.elapsed());
        outcome
    }

    async fn apply(&self, object: &Object, over: &Live) -> Result<Live, ClientError> {
        let from = Instant::now();
        let outcome = self.client.apply(object, over).await;
        self.applied.count(0, &object.at, &outcome, from.elapsed());
        outcome
    }

    async fn delete(&self, at: &ObjectRef, over: &Live) -> Result<(), ClientError> {
        let from = Instant::now();
        let outcome = self.client.delete(at, over).await;
        self.applied.count(1, at, &outcome, from.elapsed());
        outcome
    }
}

impl<C> fmt::Debug for Counted<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted").field("applied", &self.applied).finish_non_exhaustive()
    }
}

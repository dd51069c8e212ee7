//! A lease in memory that can fail in all the ways that the tests need.

use crate::{LeaseStore, Record, StoreError};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::Notify;

/// What the store does next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mood {
    /// Every call fails with this.
    pub(crate) error: Option<StoreError>,
    /// Calls are never answered.
    pub(crate) hang: bool,
    /// Stores are never answered; loads are.
    pub(crate) hang_stores: bool,
    /// The next store is done, but its answer is an error.
    pub(crate) lose_answer: bool,
    /// The next store is done, but never answered.
    pub(crate) swallow_answer: bool,
    /// Each call takes this long before it is done.
    pub(crate) delay: Duration,
}

#[derive(Debug, Default)]
struct State {
    lease: Option<(Record, u64)>,
    version: u64,
    mood: Mood,
    loads: u64,
    stores: Vec<Record>,
}

/// Shared by all candidates of a test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    free: Arc<Notify>,
}

impl Fake {
    pub(crate) fn mood(&self, change: impl FnOnce(&mut Mood)) {
        change(&mut self.state.lock().unwrap().mood);
    }

    pub(crate) fn record(&self) -> Option<Record> {
        self.state.lock().unwrap().lease.as_ref().map(|(record, _)| record.clone())
    }

    pub(crate) fn holder(&self) -> Option<String> {
        self.record()?.holder.map(|h| h.to_string())
    }

    /// Puts a record there from outside, or deletes the lease.
    pub(crate) fn put(&self, record: Option<Record>) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let version = state.version;
        state.lease = record.map(|record| (record, version));
    }

    /// A new version of the same record.
    pub(crate) fn touch(&self) {
        self.put(self.record());
    }

    pub(crate) fn loads(&self) -> u64 {
        self.state.lock().unwrap().loads
    }

    pub(crate) fn stores(&self) -> Vec<Record> {
        self.state.lock().unwrap().stores.clone()
    }

    async fn weather(&self) -> Result<(), StoreError> {
        let mood = self.state.lock().unwrap().mood.clone();
        if mood.hang {
            std::future::pending::<()>().await;
        }
        if !mood.delay.is_zero() {
            tokio::time::sleep(mood.delay).await;
        }
        mood.error.map_or(Ok(()), Err)
    }
}

impl LeaseStore for Fake {
    type Version = u64;

    async fn load(&self) -> Result<Option<(Record, u64)>, StoreError> {
        self.weather().await?;
        let mut state = self.state.lock().unwrap();
        state.loads += 1;
        Ok(state.lease.clone())
    }

    async fn store(&self, record: Record, over: Option<u64>) -> Result<u64, StoreError> {
        self.weather().await?;
        if self.state.lock().unwrap().mood.hang_stores {
            std::future::pending::<()>().await;
        }
        let (version, mood) = {
            let mut state = self.state.lock().unwrap();
            if state.lease.as_ref().map(|(_, version)| *version) != over {
                return Err(StoreError::Conflict);
            }
            state.version += 1;
            let version = state.version;
            state.stores.push(record.clone());
            if record.holder.is_none() {
                self.free.notify_waiters();
            }
            state.lease = Some((record, version));
            let mood = state.mood.clone();
            state.mood.lose_answer = false;
            state.mood.swallow_answer = false;
            (version, mood)
        };
        if mood.swallow_answer {
            std::future::pending::<()>().await;
        }
        if mood.lose_answer { Err(StoreError::Unavailable("answer lost".into())) } else { Ok(version) }
    }

    async fn vacated(&self) {
        self.free.notified().await;
    }
}

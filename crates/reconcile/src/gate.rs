//! The loop that writes: only as leader, only differences, each key on its own.

use crate::{
    backoff::Backoff,
    wanted::{Done, Job, Wanted},
};
use election::{Leadership, Permit, RoleWatch, Term, WriteError};
use futures::stream::{FuturesUnordered, StreamExt};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Debug, Display},
    future::Future,
};
use tokio::time::Instant;

/// What a writer supplies: bring one key to its wanted value.
pub trait Sync: Send + 'static {
    /// Names what is written.
    type Key: Ord + Clone + Debug + Send + 'static;
    /// The wanted value.
    type Value: Clone + Send + 'static;
    /// Why a write failed.
    type Error: Display + Send;

    /// Lists what is owned on the other side, once in every leadership and beside the writes: what of it nobody wants is then
    /// wanted gone, although this process may never have seen it being wanted. Called when [`Wanted::complete`] has been. By
    /// default nothing is owned.
    ///
    /// An error is tried again with back-off, and never read as "nothing is owned". A term found stamped on an owned object
    /// belongs into [`RoleWatch::outrank`].
    fn owned(
        &self,
        permit: Permit<'_>,
    ) -> impl Future<Output = Result<Vec<Self::Key>, WriteError<Self::Error>>> + Send {
        drop(permit);
        std::future::ready(Ok(Vec::new()))
    }

    /// Compares `want` with what is there and writes only a difference; `None` wants the key gone. Returns once the other
    /// side has confirmed, or nothing had to be done.
    ///
    /// Every request goes through [`Permit::run`]; for several requests take [`Permit::another`] for each.
    fn sync(
        &self,
        permit: Permit<'_>,
        key: &Self::Key,
        want: Option<&Self::Value>,
    ) -> impl Future<Output = Result<(), WriteError<Self::Error>>> + Send;
}

/// The gate: a [`Wanted`] table, a writer, and the role that decides whether it writes.
#[derive(Debug)]
pub struct Gated<S: Sync> {
    sync: S,
    wanted: Wanted<S::Key, S::Value>,
    role: RoleWatch,
    backoff: Backoff,
    concurrency: usize,
}

/// Keys that failed, ordered by when they are due again.
#[derive(Debug)]
struct Delayed<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: BTreeMap<K, Instant>,
}

// === impl Gated ===

impl<S: Sync> Gated<S> {
    /// A gate that writes one key at a time.
    pub fn new(sync: S, wanted: Wanted<S::Key, S::Value>, role: RoleWatch, backoff: Backoff) -> Self {
        Self { sync, wanted, role, backoff, concurrency: 1 }
    }

    /// Writes up to `keys` different keys at once (at least one). Never two writes of the same key.
    #[must_use]
    pub fn with_concurrency(mut self, keys: usize) -> Self {
        self.concurrency = keys.max(1);
        self
    }

    /// Runs until `stop` resolves; then the writes under way are waited for, none is begun, and the role watch is dropped.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut last: Option<Term> = None;
        loop {
            let leadership = tokio::select! {
                biased;
                () = &mut stop => return,
                leadership = self.role.elected(last) => leadership,
            };
            last = Some(leadership.term());
            self.wanted.begin(); // what was missed as follower, and what another leader wrote
            let flow = self.lead(&leadership, &mut stop).await;
            self.wanted.end();
            if flow.is_break() {
                return;
            }
        }
    }

    /// Writes for as long as the leadership lasts. Breaks when stopped.
    async fn lead(
        &self,
        leadership: &Leadership,
        mut stop: impl Future<Output = ()> + Unpin,
    ) -> std::ops::ControlFlow<()> {
        let ended = leadership.ended();
        tokio::pin!(ended);
        let mut running = FuturesUnordered::new();
        let mut busy = BTreeSet::new();
        let mut delayed = Delayed { by_time: BTreeSet::new(), by_key: BTreeMap::new() };
        let owned = self.adopt(leadership);
        tokio::pin!(owned);
        let mut listed = false;
        let mut flow = None;
        loop {
            while flow.is_none() && running.len() < self.concurrency {
                let Some(job) = self.wanted.take(&busy) else { break };
                delayed.forget(&job.key);
                busy.insert(job.key.clone());
                running.push(self.write(leadership, job));
            }
            if running.is_empty()
                && let Some(flow) = flow
            {
                return flow;
            }
            let retry = delayed.next();
            tokio::select! {
                biased;
                () = &mut stop, if flow != Some(std::ops::ControlFlow::Break(())) => flow = Some(std::ops::ControlFlow::Break(())),
                () = &mut ended, if flow.is_none() => flow = Some(std::ops::ControlFlow::Continue(())),
                Some((key, failed)) = running.next(), if !running.is_empty() => {
                    busy.remove(&key);
                    if let Some(failures) = failed {
                        delayed.add(key, Instant::now() + self.backoff.after(failures));
                    }
                }
                () = &mut owned, if !listed && flow.is_none() => listed = true,
                () = self.wanted.woken(), if flow.is_none() => {}
                () = at(retry), if flow.is_none() => {
                    for key in delayed.due(Instant::now()) {
                        self.wanted.mark(key);
                    }
                }
            }
        }
    }

    /// Lists what is owned and wants gone what nobody wants, retrying until it works or the leadership ends.
    async fn adopt(&self, leadership: &Leadership) {
        self.wanted.completed().await;
        let mut failures = 0;
        loop {
            let Ok(permit) = leadership.permit() else { return };
            match self.sync.owned(permit).await {
                Ok(keys) => return self.wanted.want_gone_unless_known(keys),
                Err(WriteError::NotLeader(_) | WriteError::Overrun) => return,
                Err(WriteError::Write(error)) => {
                    failures += 1;
                    tracing::warn!(%error, failures, "cannot list what is owned; trying again");
                    tokio::time::sleep(self.backoff.after(failures)).await;
                }
            }
        }
    }

    async fn write(&self, leadership: &Leadership, job: Job<S::Key, S::Value>) -> (S::Key, Option<u32>) {
        // The permit is taken here, at the write, not when the leadership began.
        let result = match leadership.permit() {
            Ok(permit) => self.sync.sync(permit, &job.key, job.want.as_ref()).await,
            Err(over) => Err(over.into()),
        };
        let done = match result {
            Ok(()) => Done::Confirmed,
            Err(WriteError::NotLeader(_) | WriteError::Overrun) => Done::Interrupted,
            Err(WriteError::Write(error)) => {
                tracing::warn!(key = ?job.key, %error, failures = job.failures + 1, "write failed; trying again");
                Done::Failed(error.to_string().into())
            }
        };
        let again = self.wanted.settle(&job.key, job.revision, done);
        (job.key, again)
    }
}

/// Sleeps until `when`; for ever if there is nothing to wait for.
async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

// === impl Delayed ===

impl<K: Ord + Clone> Delayed<K> {
    fn add(&mut self, key: K, when: Instant) {
        self.forget(&key);
        self.by_time.insert((when, key.clone()));
        self.by_key.insert(key, when);
    }

    fn forget(&mut self, key: &K) {
        if let Some(when) = self.by_key.remove(key) {
            self.by_time.remove(&(when, key.clone()));
        }
    }

    fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(when, _)| *when)
    }

    fn due(&mut self, now: Instant) -> Vec<K> {
        let mut due = Vec::new();
        while self.next().is_some_and(|when| when <= now) {
            let (_, key) = self.by_time.pop_first().expect("invariant: there is a first one");
            self.by_key.remove(&key);
            due.push(key);
        }
        due
    }
}

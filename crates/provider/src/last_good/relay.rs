//! Between the source and the engine.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, mem,
    sync::atomic::Ordering,
};

use resources::{Change, ObjectKey};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{Instant, sleep},
};
use tracing::{error, info, warn};

use super::{LONGEST, LastGood, Options, Origin, Saved, file};
use crate::Source;

/// Looks for signs of life in each span of waiting.
const LOOKS: u32 = 10;

/// A number that is another one when the source has got further.
pub(super) type Signs = Box<dyn Fn() -> u64 + Send + Sync>;

/// A source that tells the saved state when the source behind it has nothing to tell.
pub struct Remembering<S> {
    source: S,
    relay: Relay,
}

struct Relay {
    signs: Signs,
    options: Options,
    state: LastGood,
    /// What the engine has of the saved state.
    stale: BTreeSet<ObjectKey>,
    /// What the source told before it was complete.
    early: Vec<Change>,
}

// === impl Remembering ===

impl<S> Remembering<S> {
    pub(super) fn new(source: S, signs: Signs, options: Options, state: LastGood) -> Self {
        Self { source, relay: Relay { signs, options, state, stale: BTreeSet::new(), early: Vec::new() } }
    }
}

impl<S: fmt::Debug> fmt::Debug for Remembering<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembering")
            .field("source", &self.source)
            .field("options", &self.relay.options)
            .finish_non_exhaustive()
    }
}

impl<S: Source> Source for Remembering<S> {
    async fn run(self, out: mpsc::Sender<Vec<Change>>) {
        let (tell, told) = mpsc::channel(1);
        // Either ends the other by dropping its end of the channel.
        tokio::join!(self.source.run(tell), self.relay.run(told, out));
    }
}

// === impl Relay ===

impl Relay {
    async fn run(mut self, mut told: mpsc::Receiver<Vec<Change>>, out: mpsc::Sender<Vec<Change>>) {
        // Until the source is complete.
        let mut patient = true;
        let start = Instant::now();
        loop {
            let batch = tokio::select! {
                biased;
                () = out.closed() => return,
                batch = told.recv() => batch,
                saved = self.saved(start), if patient => {
                    patient = false;
                    let Some(saved) = saved else { continue };
                    if out.send(self.stale(saved)).await.is_err() {
                        return;
                    }
                    continue;
                }
            };
            let Some(batch) = batch else { return };
            let Some(batch) = self.take(batch) else { continue };
            patient = false;
            if out.send(batch).await.is_err() {
                return;
            }
        }
    }

    /// What was saved, once the source has shown no sign of life for as long as the options say.
    async fn saved(&self, start: Instant) -> Option<Saved> {
        let (mut last, mut seen) = (Instant::now(), (self.signs)());
        while last.elapsed() < self.options.after && start.elapsed() < LONGEST {
            sleep(self.options.after / LOOKS).await;
            let now = (self.signs)();
            if now != seen {
                (last, seen) = (Instant::now(), now);
            }
        }
        let options = self.options.clone();
        let load = move || file::load(&options.folder, &options.controller, &(options.secret)());
        let folder = self.options.folder.display();
        match spawn_blocking(load).await {
            Ok(Ok(Some(saved))) => Some(saved),
            Ok(Ok(None)) => {
                warn!(%folder, "the API server is away and no state was saved: proxies get nothing until it is back");
                None
            }
            Ok(Err(refused)) => {
                error!(%folder, error = %refused, "the API server is away and the saved state is refused");
                self.state.figures_mut().refused = Some(refused.to_string());
                None
            }
            Err(panic) => {
                error!(%folder, error = %panic, "reading the saved state ended unexpectedly");
                None
            }
        }
    }

    fn stale(&mut self, saved: Saved) -> Vec<Change> {
        warn!(
            since = %saved.at, objects = saved.objects.len(),
            "the API server is away: the saved state is served, nothing is written"
        );
        self.state.0.stale_batches.store(1, Ordering::Release);
        self.state.0.origin.send_replace(Origin::Stale { since: saved.at });
        self.stale = saved.objects.keys().cloned().collect();
        let mut batch: Vec<Change> = saved.objects.into_iter().map(|(k, o)| Change::Upsert(k, o)).collect();
        batch.push(Change::Synced);
        batch
    }

    /// Notes what the source tells; returns what the engine is to be told. Nothing before the source is complete: its state
    /// is told at once, without what only the saved state had.
    fn take(&mut self, batch: Vec<Change>) -> Option<Vec<Change>> {
        let mut table = self.state.table();
        if table.live {
            for change in &batch {
                table.note(change);
            }
            drop(table);
            self.state.0.changed.notify_one();
            return Some(batch);
        }
        self.early.extend(batch);
        if !self.early.iter().any(|c| matches!(c, Change::Synced)) {
            return None;
        }
        let mut batch = mem::take(&mut self.early);
        table.live = true;
        for change in &batch {
            table.note(change);
        }
        table.dirty = true;
        let gone: Vec<_> = mem::take(&mut self.stale).into_iter().filter(|k| !table.objects.contains_key(k)).collect();
        drop(table);
        if self.state.origin() != Origin::Nothing {
            info!(gone = gone.len(), "the API server is back: the live state replaces the saved one");
        }
        // Before `Synced`, so that whoever acts on it sees the whole.
        batch.splice(0..0, gone.into_iter().map(Change::Remove));
        self.state.0.origin.send_replace(Origin::Live);
        self.state.0.changed.notify_one();
        Some(batch)
    }
}

// === impl Table ===

impl super::Table {
    fn note(&mut self, change: &Change) {
        let objects: &mut BTreeMap<_, _> = &mut self.objects;
        match change {
            Change::Upsert(key, object) => {
                objects.insert(key.clone(), object.clone());
                self.dirty = true;
            }
            Change::Remove(key) => {
                objects.remove(key);
                self.dirty = true;
            }
            Change::Synced | Change::Exclude(..) | Change::Readmit(_) => {}
        }
    }
}

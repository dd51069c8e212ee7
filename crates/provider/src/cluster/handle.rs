//! What others may look at while the source runs: the objects as last seen, figures, what cannot be read.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use resources::{Kind, ObjectKey, Observed, Seen};
use tokio::sync::{Notify, watch};

use super::{
    decode::{Content, Item, is_root},
    state::Feed,
};

/// Looks at a [`ClusterSource`](super::ClusterSource) that runs elsewhere. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct ClusterHandle(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    table: Mutex<Table>,
    touched: Notify,
    synced: watch::Sender<bool>,
    figures: Mutex<Figures>,
    seen: Mutex<Option<u128>>,
}

#[derive(Debug, Default)]
struct Table {
    seen: BTreeMap<ObjectKey, Seen>,
    /// Objects of which the status, or the object itself, is another one since somebody asked.
    touched: BTreeSet<ObjectKey>,
}

/// Figures of the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// By kind: those that the server has.
    pub kinds: BTreeMap<Kind, KindFigures>,
    /// Kinds that the server does not have.
    pub absent: BTreeSet<Kind>,
    /// Batches handed over.
    pub batches: u64,
    /// Objects that the engine has.
    pub told: u64,
    /// Errors of discovery: it is not known then which kinds there are.
    pub discovery_errors: u64,
    /// Everything that there was at the start has been told.
    pub synced: bool,
    /// Objects whose last version cannot be read, and why; an older version of theirs may be in force.
    pub broken: BTreeMap<ObjectKey, String>,
}

/// Figures of one kind. Counters only rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindFigures {
    /// Complete lists.
    pub lists: u64,
    /// Events of watches.
    pub events: u64,
    /// Lists and watches that failed.
    pub errors: u64,
    /// Single objects fetched (Secrets and ConfigMaps).
    pub fetched: u64,
    /// Fetches that failed.
    pub fetch_errors: u64,
}

/// Where a kind is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Served {
    pub(super) api_version: Arc<str>,
    pub(super) plural: Arc<str>,
}

// === impl ClusterHandle ===

impl ClusterHandle {
    /// Waits until the status of an object, or an object itself, is another one; tells which. Never more than one entry
    /// for each object, however often it changed.
    pub async fn touched(&self) -> BTreeSet<ObjectKey> {
        loop {
            let touched = mem::take(&mut self.table().touched);
            if !touched.is_empty() {
                return touched;
            }
            self.0.touched.notified().await;
        }
    }

    /// Waits until everything that there was at the start has been told.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.synced.subscribe().wait_for(|synced| *synced).await;
    }

    pub(super) fn set_synced(&self) {
        self.0.synced.send_replace(true);
    }

    /// A digest of the objects that were told, by UID and resourceVersion: equal in two processes that were told the same
    /// versions. None before everything was told, and while something is on its way.
    #[must_use]
    pub fn seen(&self) -> Option<u128> {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_seen(&self, seen: Option<u128>) {
        *self.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// Figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures_mut().clone()
    }

    pub(super) fn figures_mut(&self) -> MutexGuard<'_, Figures> {
        self.0.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self, kind: Kind, change: impl FnOnce(&mut KindFigures)) {
        change(self.figures_mut().kinds.entry(kind).or_default());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes everything that a watch covers.
    pub(super) fn listed(&self, feed: &Feed, items: &[Item], served: &Served) {
        if !is_root(feed.kind) {
            return;
        }
        {
            let mut table = self.table();
            let there: BTreeSet<&ObjectKey> = items.iter().map(|i| &i.key).collect();
            let from = ObjectKey::new(feed.kind, feed.namespace.as_deref().unwrap_or_default(), "");
            let inside = table
                .seen
                .range(from..)
                .map(|(k, _)| k)
                .take_while(|k| k.kind == feed.kind && feed.namespace.as_ref().is_none_or(|n| *n == k.namespace));
            let gone: Vec<ObjectKey> = inside.filter(|k| !there.contains(k)).cloned().collect();
            for key in gone {
                table.remove(&key);
            }
            for item in items {
                table.note(item, served);
            }
        }
        self.0.touched.notify_one();
    }

    /// Notes an object.
    pub(super) fn applied(&self, item: &Item, served: &Served) {
        if is_root(item.key.kind) {
            self.table().note(item, served);
            self.0.touched.notify_one();
        }
    }

    /// Notes that an object is gone.
    pub(super) fn deleted(&self, key: &ObjectKey) {
        self.table().remove(key);
        self.0.touched.notify_one();
    }
}

impl Observed for ClusterHandle {
    fn observed(&self, key: &ObjectKey) -> Option<Seen> {
        self.table().seen.get(key).cloned()
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        let table = self.table();
        table
            .seen
            .range(ObjectKey::new(kind, "", "")..)
            .map(|(k, _)| k)
            .take_while(|k| k.kind == kind)
            .cloned()
            .collect()
    }
}

// === impl Table ===

impl Table {
    fn note(&mut self, item: &Item, served: &Served) {
        let Content::Full(full) = &item.content else { return };
        let old = self.seen.get(&item.key);
        let same = |o: &Seen| o.uid == item.uid && o.status == full.status && o.finalizers == full.finalizers;
        if !old.is_some_and(same) {
            self.touched.insert(item.key.clone());
        }
        let last_good = old.filter(|o| o.uid == item.uid).and_then(|o| o.object.clone());
        let seen = Seen {
            api_version: served.api_version.clone(),
            plural: served.plural.clone(),
            uid: item.uid.clone(),
            resource_version: item.resource_version.clone(),
            status: full.status.clone(),
            finalizers: full.finalizers.clone(),
            deleting: full.deleting,
            object: full.object.as_ref().ok().cloned().or(last_good),
        };
        self.seen.insert(item.key.clone(), seen);
    }

    fn remove(&mut self, key: &ObjectKey) {
        if self.seen.remove(key).is_some() {
            self.touched.insert(key.clone());
        }
    }
}

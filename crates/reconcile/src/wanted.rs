//! The latest wanted value of each key: never a queue of events.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::{Notify, watch};

/// Latest wanted value of each key; `None` means wanted gone. Cheap to clone, shared by publishers and the gate.
///
/// Its size is the number of live keys and, on the leader, of the keys wanted gone until their deletion is confirmed. A
/// follower forgets a key that is wanted gone at once: the next leader finds what is left of it with
/// [`Sync::owned`](crate::Sync::owned). How often a value was published leaves no trace, so a table does not grow with events.
#[derive(Debug)]
pub struct Wanted<K, V>(Arc<Shared<K, V>>);

#[derive(Debug)]
struct Shared<K, V> {
    table: Mutex<Table<K, V>>,
    wake: Notify,
    complete: watch::Sender<bool>,
}

#[derive(Debug)]
struct Table<K, V> {
    entries: BTreeMap<K, Entry<V>>,
    due: BTreeSet<K>,
    /// Whether the gate writes. If not, what is wanted gone is not kept.
    leading: bool,
}

#[derive(Debug)]
struct Entry<V> {
    want: Option<V>,
    /// Counts the values published for this key, to tell whether the one that was written is still the latest.
    revision: u64,
    /// Whether this value was written and confirmed in the current leadership.
    done: bool,
    failures: u32,
    last_error: Option<Arc<str>>,
}

/// What a status page says about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState<K> {
    /// The key.
    pub key: K,
    /// Whether the latest value has not been written yet, as far as this process knows.
    pub pending: bool,
    /// Whether the key is wanted gone.
    pub gone: bool,
    /// Failed attempts since the last success.
    pub failures: u32,
    /// The last error, until the key succeeds.
    pub last_error: Option<Arc<str>>,
}

/// A key taken for writing.
pub(crate) struct Job<K, V> {
    pub(crate) key: K,
    pub(crate) want: Option<V>,
    pub(crate) revision: u64,
    pub(crate) failures: u32,
}

/// How a write went.
pub(crate) enum Done {
    /// Written, or already so.
    Confirmed,
    /// Failed; due again later.
    Failed(Arc<str>),
    /// Not done: the leadership ended.
    Interrupted,
}

// === impl Wanted ===

impl<K: Ord + Clone, V> Wanted<K, V> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let table = Table { entries: BTreeMap::new(), due: BTreeSet::new(), leading: false };
        Self(Arc::new(Shared { table: Mutex::new(table), wake: Notify::new(), complete: watch::Sender::new(false) }))
    }

    /// Replaces the wanted values of the given keys; `None` wants the key gone. Never waits.
    pub fn publish(&self, changes: impl IntoIterator<Item = (K, Option<V>)>) {
        let mut table = self.lock();
        for (key, want) in changes {
            if want.is_none() && !table.leading {
                table.entries.remove(&key);
                table.due.remove(&key);
                continue;
            }
            match table.entries.get_mut(&key) {
                Some(entry) => {
                    entry.want = want;
                    entry.revision += 1;
                    entry.done = false;
                    entry.failures = 0;
                }
                None => {
                    let fresh = Entry { want, revision: 0, done: false, failures: 0, last_error: None };
                    table.entries.insert(key.clone(), fresh);
                }
            }
            table.due.insert(key);
        }
        drop(table);
        self.0.wake.notify_one();
    }

    /// Replaces the whole table: keys that `all` does not name become wanted gone.
    pub fn publish_all(&self, all: impl IntoIterator<Item = (K, V)>) {
        let all: BTreeMap<K, V> = all.into_iter().collect();
        let gone: Vec<K> = self.lock().entries.keys().filter(|k| !all.contains_key(k)).cloned().collect();
        self.publish(gone.into_iter().map(|k| (k, None)).chain(all.into_iter().map(|(k, v)| (k, Some(v)))));
        self.complete();
    }

    /// Tells that everything that is wanted has been published once. Only from then on is something that is owned and not in
    /// the table unwanted: a process that has just started does not delete what it has not read yet.
    pub fn complete(&self) {
        self.0.complete.send_if_modified(|complete| !std::mem::replace(complete, true));
    }

    /// Has the given keys written again, for a writer that saw the other side differ from what is wanted. Unknown keys are
    /// ignored.
    pub fn recheck<'k>(&self, keys: impl IntoIterator<Item = &'k K>)
    where
        K: 'k,
    {
        let mut table = self.lock();
        for key in keys {
            if let Some(entry) = table.entries.get_mut(key) {
                entry.done = false;
                table.due.insert(key.clone());
            }
        }
        drop(table);
        self.0.wake.notify_one();
    }

    /// The latest wanted value of a key; none where it is not in the table or wanted gone.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<V>
    where
        V: Clone,
    {
        self.lock().entries.get(key)?.want.clone()
    }

    /// Keys in the table, wanted or wanted gone.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries.len()
    }

    /// Whether the table holds no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keys whose latest value has not been written by this process in its current leadership. On a follower: all.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.lock().entries.values().filter(|e| !e.done).count()
    }

    /// Keys whose last attempt failed.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.lock().entries.values().filter(|e| e.last_error.is_some()).count()
    }

    /// State of every key, in order.
    #[must_use]
    pub fn states(&self) -> Vec<KeyState<K>> {
        let table = self.lock();
        let states = table.entries.iter().map(|(key, e)| KeyState {
            key: key.clone(),
            pending: !e.done,
            gone: e.want.is_none(),
            failures: e.failures,
            last_error: e.last_error.clone(),
        });
        states.collect()
    }

    /// The latest wanted values of the keys that are not wanted gone, in order.
    #[must_use]
    pub fn values(&self) -> BTreeMap<K, V>
    where
        V: Clone,
    {
        self.lock().entries.iter().filter_map(|(k, e)| Some((k.clone(), e.want.clone()?))).collect()
    }

    /// Resolves once something may have become due.
    pub(crate) async fn woken(&self) {
        self.0.wake.notified().await;
    }

    /// Resolves when [`complete`](Self::complete) was called.
    pub(crate) async fn completed(&self) {
        let mut complete = self.0.complete.subscribe();
        // The sender lives as long as `self`.
        let _ = complete.wait_for(|complete| *complete).await;
    }

    /// A leadership begins: everything is to be compared and written again, as nothing is known of what was written before.
    pub(crate) fn begin(&self) {
        let mut table = self.lock();
        let Table { entries, due, leading } = &mut *table;
        *leading = true;
        for entry in entries.values_mut() {
            entry.done = false;
            entry.failures = 0;
        }
        *due = entries.keys().cloned().collect();
    }

    /// A leadership is over: nothing is written, and what is wanted gone is forgotten.
    pub(crate) fn end(&self) {
        let mut table = self.lock();
        let Table { entries, due, leading } = &mut *table;
        *leading = false;
        entries.retain(|_, entry| entry.want.is_some());
        for entry in entries.values_mut() {
            entry.done = false;
        }
        due.clear();
    }

    /// Wants gone those of the owned keys that the table does not know.
    pub(crate) fn want_gone_unless_known(&self, owned: Vec<K>) {
        let unknown: Vec<K> = {
            let table = self.lock();
            owned.into_iter().filter(|k| !table.entries.contains_key(k)).collect()
        };
        self.publish(unknown.into_iter().map(|k| (k, None)));
    }

    pub(crate) fn mark(&self, key: K) {
        let mut table = self.lock();
        if table.entries.contains_key(&key) {
            table.due.insert(key);
        }
    }

    /// Takes the next due key that `busy` does not name.
    pub(crate) fn take(&self, busy: &BTreeSet<K>) -> Option<Job<K, V>>
    where
        V: Clone,
    {
        let mut table = self.lock();
        let key = table.due.iter().find(|k| !busy.contains(k)).cloned()?;
        table.due.remove(&key);
        let entry = table.entries.get(&key).expect("invariant: a due key is in the table");
        Some(Job { want: entry.want.clone(), revision: entry.revision, failures: entry.failures, key })
    }

    /// Notes how the write of `revision` went. Returns how often the key has failed if it is to be tried again later.
    pub(crate) fn settle(&self, key: &K, revision: u64, done: Done) -> Option<u32> {
        let mut table = self.lock();
        let entry = table.entries.get_mut(key)?;
        match done {
            Done::Confirmed => {
                entry.last_error = None;
                if entry.revision == revision {
                    entry.done = true;
                    entry.failures = 0;
                    if entry.want.is_none() {
                        // Gone and confirmed: nothing is left to remember.
                        table.entries.remove(key);
                        table.due.remove(key);
                    }
                }
                None
            }
            Done::Failed(why) => {
                entry.last_error = Some(why);
                if entry.revision != revision {
                    return None; // a newer value is due already, at once
                }
                entry.failures = entry.failures.saturating_add(1);
                Some(entry.failures)
            }
            Done::Interrupted => {
                table.due.insert(key.clone());
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table<K, V>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> Clone for Wanted<K, V> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Ord + Clone, V> Default for Wanted<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confirmed => "Confirmed",
            Self::Failed(_) => "Failed",
            Self::Interrupted => "Interrupted",
        })
    }
}

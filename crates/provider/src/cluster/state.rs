//! What was seen of the cluster, and which of it the engine is told when. No I/O and no clock: events in, batches out.
//!
//! Invariant: an object leaves the state only because a watch said that it is deleted, or because a complete list did not
//! hold it. Errors do not get here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::core::{Selector, SelectorExt};
use resources::{Change, Kind, Object, ObjectKey};

use super::{
    decode::{Content, Item, is_lazy, is_shared},
    references::{Chosen, Links, References},
};

/// One watch: a kind, everywhere or in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Feed {
    pub(super) kind: Kind,
    pub(super) namespace: Option<Arc<str>>,
}

/// What the tasks around the state tell it.
#[derive(Debug)]
pub(super) enum Event {
    /// The watches that there have to be now; `complete` when it is known of every kind whether the server has it.
    Feeds { feeds: BTreeSet<Feed>, complete: bool },
    /// Everything that a watch covers.
    Listed(Feed, Vec<Item>),
    /// We may not read what a watch covers.
    Forbidden(Feed),
    /// An object is new or different.
    Applied(Item),
    /// An object was deleted.
    Deleted(ObjectKey),
    /// Content of an object of which only metadata is watched; the version that was asked for, and what came.
    Fetched { key: ObjectKey, asked: Arc<str>, got: Option<Item> },
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Namespaces that count, beside our own; all if none.
    selector: Option<Selector>,
    /// Name of our controller; everything counts if none.
    controller: Option<Arc<str>>,
    /// Watches, and whether each has listed.
    feeds: BTreeMap<Feed, bool>,
    /// It is known of every kind whether the server has it.
    complete: bool,
    entries: BTreeMap<ObjectKey, Entry>,
    refs: References,
    /// EndpointSlices by Service or ServiceImport.
    slices: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    fetched: BTreeMap<ObjectKey, Fetched>,
    fetching: BTreeMap<ObjectKey, Arc<str>>,
    /// Objects of which it is open whether the engine has to be told something.
    dirty: BTreeSet<ObjectKey>,
    told: BTreeMap<ObjectKey, Object>,
    /// A number for each version that was told, and their sum: equal where the same versions were told, in whatever order.
    versions: BTreeMap<ObjectKey, u128>,
    sum: u128,
    synced: bool,
    /// Objects whose last version cannot be read, and why.
    broken: BTreeMap<ObjectKey, String>,
}

#[derive(Debug)]
struct Entry {
    uid: Arc<str>,
    resource_version: Arc<str>,
    object: Option<Object>,
    slice_of: Option<ObjectKey>,
}

#[derive(Debug)]
struct Fetched {
    uid: Arc<str>,
    /// Version that was asked for and version that came.
    versions: [Arc<str>; 2],
    /// None: it was not there any more.
    object: Option<Object>,
}

// === impl State ===

impl State {
    /// Everything counts, or what is in the namespaces that the selector chooses and in our own; of that what hangs on
    /// classes of the controller of this name. `always` counts in any case.
    pub(super) fn new(
        selector: Option<(Selector, Arc<str>)>,
        controller: Option<Arc<str>>,
        always: &BTreeSet<ObjectKey>,
    ) -> Self {
        let mut state = Self { controller, ..Self::default() };
        if let Some((selector, own)) = selector {
            state.selector = Some(selector);
            state.refs.chosen = Some(Chosen { own, names: BTreeSet::new() });
        }
        // Nothing can be called so: it stands for the control plane itself.
        let own = ObjectKey::new(Kind::Namespace, "", "");
        state.refs.tell(&own, always, &mut state.dirty);
        state
    }

    /// Takes an event in.
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Feeds { feeds, complete } => {
                let listed = std::mem::take(&mut self.feeds);
                self.feeds = feeds.into_iter().map(|f| (f.clone(), listed.get(&f) == Some(&true))).collect();
                self.complete |= complete;
            }
            Event::Listed(feed, items) => {
                let there: BTreeSet<&ObjectKey> = items.iter().map(|i| &i.key).collect();
                let gone: Vec<ObjectKey> = self.of_feed(&feed).filter(|k| !there.contains(k)).cloned().collect();
                for key in gone {
                    self.remove(&key);
                }
                for item in items {
                    self.upsert(item);
                }
                if let Some(listed) = self.feeds.get_mut(&feed) {
                    *listed = true;
                }
            }
            // Addresses of Nodes are a help; all else is needed, and waited for.
            Event::Forbidden(feed) => {
                if let Some(listed) = self.feeds.get_mut(&feed).filter(|_| feed.kind == Kind::Node) {
                    *listed = true;
                }
            }
            Event::Applied(item) => self.upsert(item),
            Event::Deleted(key) => self.remove(&key),
            Event::Fetched { key, asked, got } => self.store(key, asked, got),
        }
    }

    fn of_feed<'a>(&'a self, feed: &'a Feed) -> impl Iterator<Item = &'a ObjectKey> {
        let from = ObjectKey::new(feed.kind, feed.namespace.as_deref().unwrap_or_default(), "");
        self.entries
            .range(from..)
            .map(|(k, _)| k)
            .take_while(move |k| k.kind == feed.kind && feed.namespace.as_ref().is_none_or(|n| *n == k.namespace))
    }

    fn upsert(&mut self, item: Item) {
        let Item { key, uid, resource_version, content } = item;
        let Content::Full(full) = content else {
            let entry = Entry { uid, resource_version, object: None, slice_of: None };
            self.entries.insert(key.clone(), entry);
            if self.refs.any(&key) || self.told.contains_key(&key) {
                self.dirty.insert(key);
            }
            return;
        };
        let object = match full.object {
            Ok(object) => {
                self.broken.remove(&key);
                Some(object)
            }
            Err(why) => {
                tracing::warn!(%key, why, "an object cannot be read; its last good version stays in force");
                self.broken.insert(key.clone(), why);
                // Of another object of the same name there is no last good version.
                let last = self.entries.get(&key).filter(|e| e.uid == uid);
                last.and_then(|e| e.object.clone())
            }
        };
        if key.kind == Kind::Namespace {
            self.choose(&key, object.as_ref());
        }
        if !self.broken.contains_key(&key) {
            let Links { root, parents, refers } = full.links;
            let root = root || self.is_root(&key, object.as_ref());
            self.refs.see(&key, Links { root, parents, refers }, &mut self.dirty);
        }
        if let Some(owner) = &full.slice_of {
            self.slices.entry(owner.clone()).or_default().insert(key.clone());
        }
        let old =
            self.entries.insert(key.clone(), Entry { uid, resource_version, object, slice_of: full.slice_of.clone() });
        if let Some(owner) = old.and_then(|o| o.slice_of).filter(|o| Some(o) != full.slice_of.as_ref()) {
            self.forget_slice(&owner, &key);
        }
        self.dirty.insert(key);
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(old) = self.entries.remove(key) else { return };
        if let Some(owner) = old.slice_of {
            self.forget_slice(&owner, key);
        }
        self.broken.remove(key);
        self.fetched.remove(key);
        self.fetching.remove(key);
        self.refs.see(key, Links::default(), &mut self.dirty);
        if key.kind == Kind::Namespace {
            self.choose(key, None);
        }
        self.dirty.insert(key.clone());
    }

    fn forget_slice(&mut self, owner: &ObjectKey, slice: &ObjectKey) {
        if let Some(slices) = self.slices.get_mut(owner) {
            slices.remove(slice);
            if slices.is_empty() {
                self.slices.remove(owner);
            }
        }
    }

    /// A namespace came, changed or went: what is in it may count now, or not any more.
    fn choose(&mut self, namespace: &ObjectKey, object: Option<&Object>) {
        let Some(selector) = &self.selector else { return };
        let chosen = matches!(object, Some(Object::Namespace(n))
            if selector.matches(&n.metadata.labels.clone().unwrap_or_default()));
        self.refs.choose(&namespace.name, chosen, &mut self.dirty);
    }

    /// Counts whatever others say.
    fn is_root(&self, key: &ObjectKey, object: Option<&Object>) -> bool {
        match (&self.controller, object) {
            (Some(ours), Some(Object::GatewayClass(class))) => class.spec.controller_name == **ours,
            (Some(_), _) => false,
            (None, _) => !is_shared(key.kind),
        }
    }

    fn store(&mut self, key: ObjectKey, asked: Arc<str>, got: Option<Item>) {
        if self.fetching.get(&key) == Some(&asked) {
            self.fetching.remove(&key);
        }
        // Deleted, or not referred to any more: nobody waits for it.
        let Some(entry) = self.entries.get(&key) else { return };
        if !self.refs.any(&key) {
            return;
        }
        let (uid, came, object) = match got {
            Some(Item { uid, resource_version, content: Content::Full(full), .. }) => {
                (uid, resource_version, full.object.ok())
            }
            _ => (entry.uid.clone(), asked.clone(), None),
        };
        self.fetched.insert(key.clone(), Fetched { uid, versions: [asked, came], object });
        self.dirty.insert(key);
    }

    fn relevant(&self, key: &ObjectKey, entry: &Entry) -> bool {
        match key.kind {
            Kind::EndpointSlice => entry.slice_of.as_ref().is_some_and(|owner| self.refs.any(owner)),
            _ => self.refs.any(key),
        }
    }

    /// What the engine has to know of the object.
    fn visible(&self, key: &ObjectKey) -> Option<&Object> {
        let entry = self.entries.get(key)?;
        if !self.relevant(key, entry) {
            return None;
        }
        if is_lazy(key.kind) { self.fetched.get(key)?.object.as_ref() } else { entry.object.as_ref() }
    }

    /// The content of the object is to be had, but has not come yet.
    fn awaited(&self, key: &ObjectKey) -> bool {
        is_lazy(key.kind)
            && self.refs.in_scope(key)
            && self.entries.get(key).is_some_and(|e| self.fetched.get(key).is_none_or(|f| f.uid != e.uid))
    }

    /// What has to be fetched, with the version that is to be asked for. Each is told once.
    pub(super) fn next_fetches(&mut self) -> Vec<(ObjectKey, Arc<str>)> {
        let mut out = Vec::new();
        for key in self.dirty.iter().filter(|k| is_lazy(k.kind)) {
            let Some(entry) = self.entries.get(key) else { continue };
            let known = self.fetched.get(key).is_some_and(|f| f.versions.contains(&entry.resource_version));
            let asked = self.fetching.get(key) == Some(&entry.resource_version);
            if !known && !asked && self.refs.any(key) {
                out.push((key.clone(), entry.resource_version.clone()));
            }
        }
        self.fetching.extend(out.iter().cloned());
        out
    }

    /// Everything that there was at the start is here.
    fn ready(&self) -> bool {
        self.complete && self.feeds.values().all(|listed| *listed) && self.fetching.is_empty()
    }

    /// Something may have to be told.
    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty() || (!self.synced && self.ready())
    }

    /// Watches that have not listed yet; for the log.
    pub(super) fn missing(&self) -> Vec<String> {
        let of = |f: &Feed| match &f.namespace {
            Some(ns) => format!("{} in {ns}", f.kind),
            None => f.kind.to_string(),
        };
        let fetching = self.fetching.keys().map(ToString::to_string);
        self.feeds.iter().filter(|(_, listed)| !**listed).map(|(f, _)| of(f)).chain(fetching).collect()
    }

    /// Whether the engine has been told everything that there was at the start.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Objects whose last version cannot be read, and why.
    pub(super) fn broken(&self) -> &BTreeMap<ObjectKey, String> {
        &self.broken
    }

    /// What the engine has.
    #[cfg(test)]
    pub(super) fn told_objects(&self) -> &BTreeMap<ObjectKey, Object> {
        &self.told
    }

    /// Number of objects that the engine has.
    pub(super) fn told(&self) -> usize {
        self.told.len()
    }

    /// Equal in two processes whose engines were told the same versions of the same objects; none while something is on its
    /// way.
    pub(super) fn seen(&self) -> Option<u128> {
        (self.synced && self.dirty.is_empty() && self.fetching.is_empty()).then_some(self.sum)
    }

    /// Counts the version of an object that is told, or that it is told no more.
    fn count_version(&mut self, key: &ObjectKey) {
        let new = self.entries.get(key).filter(|_| self.told.contains_key(key)).map(|entry| number(key, entry));
        let old = match new {
            Some(new) => self.versions.insert(key.clone(), new),
            None => self.versions.remove(key),
        };
        self.sum = self.sum.wrapping_sub(old.unwrap_or_default()).wrapping_add(new.unwrap_or_default());
    }

    /// Differences to what the engine has. An object that refers to something that is being fetched is kept back, in the
    /// version that the engine has, until that is here.
    pub(super) fn flush(&mut self) -> Vec<Change> {
        let mut out = Vec::new();
        if !self.synced && !self.ready() {
            return out;
        }
        // Slices follow what they belong to.
        let slices: Vec<ObjectKey> = self.dirty.iter().filter_map(|k| self.slices.get(k)).flatten().cloned().collect();
        self.dirty.extend(slices);
        let mut held = BTreeSet::new();
        while let Some(key) = self.dirty.pop_first() {
            if is_lazy(key.kind) && !self.refs.any(&key) {
                self.fetched.remove(&key);
            }
            let mut turned = BTreeSet::new();
            match (self.told.get(&key), self.visible(&key)) {
                (_, Some(_)) if self.refs.of(&key).any(|t| self.awaited(t)) => {
                    held.insert(key);
                    continue;
                }
                (Some(old), Some(new)) if old == new => self.refs.settle(&key, &mut turned),
                (_, Some(new)) => {
                    let new = new.clone();
                    out.push(Change::Upsert(key.clone(), new.clone()));
                    self.told.insert(key.clone(), new);
                    self.refs.settle(&key, &mut turned);
                }
                // Its new version is on its way.
                (Some(_), None) if self.awaited(&key) && self.refs.any(&key) => {}
                (Some(_), None) => {
                    out.push(Change::Remove(key.clone()));
                    self.told.remove(&key);
                    self.refs.tell(&key, &BTreeSet::new(), &mut turned);
                }
                (None, None) => {}
            }
            self.count_version(&key);
            for target in turned {
                self.dirty.extend(self.slices.get(&target).into_iter().flatten().cloned());
                self.dirty.insert(target);
            }
        }
        self.dirty = held;
        if !self.synced {
            self.synced = true;
            out.push(Change::Synced);
        }
        out
    }
}

/// FNV-1a of kind, namespace, name, UID and version, which is the same in every process.
fn number(key: &ObjectKey, entry: &Entry) -> u128 {
    let parts = [key.kind.as_str(), &key.namespace, &key.name, &entry.uid, &entry.resource_version];
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0]));
    let (basis, prime) = (0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, 0x0100_0000_0000_0000_0000_013b_u128);
    bytes.fold(basis, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(prime))
}

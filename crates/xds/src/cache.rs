//! The wanted configuration of every node group, shared by all streams.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard},
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    Name, NodeGroup, Resource, TypeUrl,
    session::Doubt,
    snapshot::{Snapshot, digest_of},
};

/// For how many proxies the cache remembers what is in doubt after their stream ended.
const NODES: usize = 4_096;

/// The wanted resources by node group. Cloning gives another handle of the same cache.
#[derive(Clone, Debug, Default)]
pub struct Cache(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    groups: Mutex<BTreeMap<NodeGroup, Arc<Group>>>,
    doubts: Mutex<Doubts>,
}

/// What is in doubt, by group and node.
type Doubts = BTreeMap<(NodeGroup, Arc<str>), Vec<Doubt>>;

/// One node group: its snapshot and the signal that it changed.
#[derive(Debug, Default)]
pub(crate) struct Group {
    snapshot: RwLock<Snapshot>,
    changed: watch::Sender<u64>,
    drain: Mutex<Option<Duration>>,
}

impl Group {
    /// The drain time of its proxies, where they have one of their own.
    pub(crate) fn drain_time(&self) -> Option<Duration> {
        *lock(&self.drain)
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Snapshot> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}

impl Cache {
    /// An empty cache: every stream is met with silence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies the changes of one group as one step: `Some` sets a resource, `None` removes it.
    ///
    /// The first call for a group must carry its complete configuration (it may be empty): until then proxies of that group are told
    /// nothing, because an empty answer would delete what a running proxy has. Resources whose version and hints did not change
    /// cost nothing. Never blocks on a stream.
    pub fn update(&self, group: NodeGroup, changes: BTreeMap<(TypeUrl, Name), Option<Resource>>) {
        let group = self.group(&group);
        let revision = {
            let mut snapshot = group.snapshot.write().unwrap_or_else(PoisonError::into_inner);
            if !snapshot.apply(changes) {
                return;
            }
            snapshot.revision()
        };
        group.changed.send_replace(revision);
    }

    /// Says how long the proxies of a group drain listeners, where that is another time than [`Config::drain_time`](crate::Config);
    /// `None` takes it back. It holds for streams that are opened from then on: a proxy that runs was started with the time of before.
    pub fn set_drain_time(&self, group: &NodeGroup, drain: Option<Duration>) {
        *lock(&self.group(group).drain) = drain;
    }

    /// Forgets a group whose gateway is gone. Its streams stay open and are told nothing more.
    pub fn remove(&self, group: &NodeGroup) {
        {
            let mut groups = lock(&self.0.groups);
            if let Some(known) = groups.get(group) {
                known.snapshot.write().unwrap_or_else(PoisonError::into_inner).clear();
                // While streams hold it, it stays: a later configuration of the same group must reach them.
                if Arc::strong_count(known) == 1 {
                    groups.remove(group);
                }
            }
        }
        lock(&self.0.doubts).retain(|(of, _), _| of != group);
    }

    /// The groups that have a configuration.
    pub fn groups(&self) -> Vec<NodeGroup> {
        let groups = lock(&self.0.groups);
        groups.iter().filter(|(_, of)| of.read().is_complete()).map(|(name, _)| name.clone()).collect()
    }

    /// Everything that proxies of a group are to have, `None` before the first complete update.
    pub fn resources(&self, group: &NodeGroup) -> Option<BTreeMap<(TypeUrl, Name), Resource>> {
        let group = lock(&self.0.groups).get(group).cloned()?;
        let snapshot = group.read();
        snapshot.is_complete().then(|| {
            TypeUrl::ALL
                .into_iter()
                .flat_map(|kind| snapshot.iter(kind).map(move |(name, of)| ((kind, name), of)))
                .map(|((kind, name), resource)| ((kind, name.clone()), resource.clone()))
                .collect()
        })
    }

    /// The digest of each type's resources: equal on replicas that hold equal configurations.
    pub fn digests(&self, group: &NodeGroup) -> Option<BTreeMap<TypeUrl, Arc<str>>> {
        let group = lock(&self.0.groups).get(group).cloned()?;
        let snapshot = group.read();
        snapshot
            .is_complete()
            .then(|| TypeUrl::ALL.into_iter().map(|kind| (kind, snapshot.digest(kind).clone())).collect())
    }

    /// One digest of the configurations of all groups: equal on replicas that hold the same.
    pub fn digest(&self) -> Arc<str> {
        let all: Vec<_> = self.groups().into_iter().filter_map(|g| Some((self.digests(&g)?, g))).collect();
        let rows = all.iter().flat_map(|(digests, group)| {
            digests.iter().map(move |(kind, digest)| (format!("{group} {}", kind.as_str()), digest.clone()))
        });
        let rows: Vec<_> = rows.collect();
        digest_of(rows.iter().map(|(of, digest)| (of.as_str(), &**digest)))
    }

    pub(crate) fn group(&self, name: &NodeGroup) -> Arc<Group> {
        lock(&self.0.groups).entry(name.clone()).or_default().clone()
    }

    /// A stream ends: a group that never had a configuration and that nobody else waits for is forgotten, so that proxies with
    /// made-up names do not fill the memory.
    pub(crate) fn release(&self, name: &NodeGroup, group: Arc<Group>) {
        let mut groups = lock(&self.0.groups);
        let ours = groups.get(name).is_some_and(|known| Arc::ptr_eq(known, &group));
        if ours && !group.read().is_complete() && Arc::strong_count(&group) <= 2 {
            groups.remove(name);
        }
    }

    /// Remembers what a proxy may hold although it will not say so when it comes back (see [`Cache::take_doubts`]).
    pub(crate) fn remember_doubts(&self, of: (NodeGroup, Arc<str>), doubts: Vec<Doubt>) {
        let mut known = lock(&self.0.doubts);
        if doubts.is_empty() {
            return;
        }
        if known.len() >= NODES && !known.contains_key(&of) {
            known.pop_first();
        }
        known.insert(of, doubts);
    }

    /// What an earlier stream of this proxy left in doubt: sent, and refused as part of a response or not answered. Envoy keeps the
    /// good parts of a refused response but leaves them out of `initial_resource_versions`.
    pub(crate) fn take_doubts(&self, of: &(NodeGroup, Arc<str>)) -> Vec<Doubt> {
        lock(&self.0.doubts).remove(of).unwrap_or_default()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hints;

    fn one(name: &str, body: &'static str) -> BTreeMap<(TypeUrl, Name), Option<Resource>> {
        let resource = Resource::new(body, Hints::Unknown);
        BTreeMap::from([((TypeUrl::Cluster, name.into()), Some(resource))])
    }

    #[test]
    fn a_group_is_known_from_its_first_update_until_it_is_removed() {
        let cache = Cache::new();
        let group = NodeGroup::from("ns/gw");
        assert_eq!(cache.resources(&group), None);
        cache.update(group.clone(), one("a", "1"));
        assert_eq!(cache.groups(), std::slice::from_ref(&group));
        assert_eq!(cache.resources(&group).unwrap().len(), 1);
        cache.remove(&group);
        assert_eq!(cache.resources(&group), None);
        assert!(cache.groups().is_empty());
    }

    #[test]
    fn groups_that_only_a_stream_named_go_with_it() {
        let cache = Cache::new();
        let name = NodeGroup::from("made/up");
        let first = cache.group(&name);
        let second = cache.group(&name);
        cache.release(&name, first);
        assert_eq!(lock(&cache.0.groups).len(), 1, "another stream waits for it");
        cache.release(&name, second);
        assert_eq!(lock(&cache.0.groups).len(), 0);
    }

    #[test]
    fn a_removed_group_reaches_its_streams_when_it_comes_back() {
        let cache = Cache::new();
        let name = NodeGroup::from("ns/gw");
        cache.update(name.clone(), one("a", "1"));
        let stream = cache.group(&name);
        let seen = stream.read().revision();
        cache.remove(&name);
        assert!(!stream.read().is_complete());
        cache.update(name.clone(), one("b", "1"));
        assert!(stream.read().is_complete());
        assert!(seen < stream.read().floor(), "the stream must compare everything");
    }

    #[test]
    fn memory_of_doubts_is_bounded() {
        let cache = Cache::new();
        for at in 0..NODES + 5 {
            let node = (NodeGroup::from("g"), Arc::from(format!("node-{at:05}")));
            cache.remember_doubts(node, vec![Doubt { kind: TypeUrl::Cluster, name: "c".into(), version: None }]);
        }
        assert_eq!(lock(&cache.0.doubts).len(), NODES);
        let last = (NodeGroup::from("g"), Arc::from("node-04100"));
        assert_eq!(cache.take_doubts(&last).len(), 1);
        assert!(cache.take_doubts(&last).is_empty());
    }
}

//! What a translation yields: whole, and as differences.

use std::{collections::BTreeMap, sync::Arc};

use resources::ObjectKey;

use crate::{Cluster, Endpoints, Listener, Name, Proxy, ReadyListener, RouteTable, Secret, Status};

/// Type of an xDS resource, in the order in which Envoy needs them when they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XdsKind {
    /// Cluster (CDS).
    Cluster,
    /// ClusterLoadAssignment (EDS).
    Endpoints,
    /// Listener (LDS).
    Listener,
    /// RouteConfiguration (RDS).
    RouteTable,
    /// Secret (SDS).
    Secret,
}

/// One xDS resource as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum XdsValue {
    /// A cluster.
    Cluster(Arc<Cluster>),
    /// Endpoints of a cluster.
    Endpoints(Arc<Endpoints>),
    /// A listener.
    Listener(Arc<Listener>),
    /// The listener for readiness probes.
    Ready(Arc<ReadyListener>),
    /// A route table.
    RouteTable(Arc<RouteTable>),
    /// A secret.
    Secret(Arc<Secret>),
}

/// Key of a resource inside its group: type and name.
pub type XdsKey = (XdsKind, Name);

/// All resources of one group of proxies (node cluster `NS/GW`, or the class name when Gateways are merged).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Resources by type and name.
    pub resources: BTreeMap<XdsKey, XdsValue>,
}

/// Everything that follows from a state of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Full {
    /// xDS by group.
    pub groups: BTreeMap<Name, Group>,
    /// Wanted fleets by group.
    pub infra: BTreeMap<Name, Arc<Proxy>>,
    /// Wanted statuses by object.
    pub statuses: BTreeMap<ObjectKey, Arc<Status>>,
}

/// Differences between two states; `None` stands for gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translation {
    /// Changed resources per group.
    pub xds: BTreeMap<Name, BTreeMap<XdsKey, Option<XdsValue>>>,
    /// Groups that are gone.
    pub gone: Vec<Name>,
    /// Changed fleets.
    pub infra: BTreeMap<Name, Option<Arc<Proxy>>>,
    /// Changed statuses.
    pub statuses: BTreeMap<ObjectKey, Option<Arc<Status>>>,
}

// === impl XdsValue ===

impl XdsValue {
    /// Type and name.
    #[must_use]
    pub fn key(&self) -> XdsKey {
        match self {
            Self::Cluster(c) => (XdsKind::Cluster, c.name.clone()),
            Self::Endpoints(e) => (XdsKind::Endpoints, e.cluster.clone()),
            Self::Listener(l) => (XdsKind::Listener, l.name.clone()),
            Self::Ready(r) => (XdsKind::Listener, r.name()),
            Self::RouteTable(r) => (XdsKind::RouteTable, r.name.clone()),
            Self::Secret(s) => (XdsKind::Secret, s.name.clone()),
        }
    }
}

// === impl Group ===

impl Group {
    /// Adds a resource; an equal name replaces.
    pub fn insert(&mut self, value: XdsValue) {
        self.resources.insert(value.key(), value);
    }
}

// === impl Translation ===

impl Translation {
    /// What leads from `old` to `new`.
    #[must_use]
    pub fn between(old: &Full, new: &Full) -> Self {
        let mut out = Self::default();
        for (name, group) in &new.groups {
            let empty = Group::default();
            let before = old.groups.get(name).unwrap_or(&empty);
            let changes = difference(&before.resources, &group.resources);
            // A group that is new is told even when it is empty: it is complete from now on.
            if !changes.is_empty() || !old.groups.contains_key(name) {
                out.xds.insert(name.clone(), changes);
            }
        }
        out.gone = old.groups.keys().filter(|k| !new.groups.contains_key(*k)).cloned().collect();
        out.infra = difference(&old.infra, &new.infra);
        out.statuses = difference(&old.statuses, &new.statuses);
        out
    }

    /// Nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.xds.is_empty() && self.gone.is_empty() && self.infra.is_empty() && self.statuses.is_empty()
    }
}

impl Full {
    /// Applies differences.
    pub fn apply(&mut self, delta: &Translation) {
        for name in &delta.gone {
            self.groups.remove(name);
        }
        for (name, changes) in &delta.xds {
            let group = self.groups.entry(name.clone()).or_default();
            merge(&mut group.resources, changes);
        }
        merge(&mut self.infra, &delta.infra);
        merge(&mut self.statuses, &delta.statuses);
    }
}

fn difference<K: Ord + Clone, V: PartialEq + Clone>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
) -> BTreeMap<K, Option<V>> {
    let changed = new.iter().filter(|(k, v)| old.get(*k) != Some(*v)).map(|(k, v)| (k.clone(), Some(v.clone())));
    let gone = old.keys().filter(|k| !new.contains_key(*k)).map(|k| (k.clone(), None));
    changed.chain(gone).collect()
}

fn merge<K: Ord + Clone, V: Clone>(state: &mut BTreeMap<K, V>, changes: &BTreeMap<K, Option<V>>) {
    for (k, v) in changes {
        match v {
            Some(v) => state.insert(k.clone(), v.clone()),
            None => state.remove(k),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(name: &str) -> XdsValue {
        XdsValue::Endpoints(Arc::new(Endpoints { cluster: name.into(), localities: vec![] }))
    }

    #[test]
    fn differences_lead_from_old_to_new() {
        let mut old = Full::default();
        old.groups.entry("a".into()).or_default().insert(endpoints("x"));
        old.groups.entry("b".into()).or_default().insert(endpoints("y"));
        let mut new = Full::default();
        new.groups.entry("a".into()).or_default().insert(endpoints("z"));
        new.groups.entry("c".into()).or_default();
        let delta = Translation::between(&old, &new);
        assert_eq!(delta.gone, ["b".into()]);
        assert_eq!(delta.xds.len(), 2, "an empty new group is told");
        let mut state = old;
        state.apply(&delta);
        assert_eq!(state, new);
        assert!(Translation::between(&state, &new).is_empty());
    }
}

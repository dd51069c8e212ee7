//! The latest version of every object.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{Change, Kind, Kinded, Object, ObjectKey};

/// Holds the latest version of each object, in the order of keys.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: BTreeMap<ObjectKey, Object>,
    /// Objects that are left out, and why.
    excluded: BTreeMap<ObjectKey, Arc<str>>,
}

// === impl Store ===

impl Store {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a change in; tells whether anything is different now.
    pub fn apply(&mut self, change: Change) -> bool {
        match change {
            Change::Upsert(key, object) => match self.objects.get(&key) {
                Some(old) if *old == object => false,
                old => {
                    if old.is_none_or(|old| !old.same_generation(&object)) {
                        self.try_again(&key);
                    }
                    self.objects.insert(key, object);
                    true
                }
            },
            Change::Remove(key) => {
                self.try_again(&key);
                self.objects.remove(&key).is_some()
            }
            Change::Synced => false,
            Change::Exclude(key, why) => {
                self.objects.contains_key(&key) && self.excluded.insert(key, why.clone()) != Some(why)
            }
            Change::Readmit(key) => self.excluded.remove(&key).is_some(),
        }
    }

    /// Of a batch, the changes that make a difference here: of several versions of an object the last, and none that is
    /// there already. What is said of leaving objects out stays in its place among the versions of its object.
    #[must_use]
    pub fn differences(&self, batch: Vec<Change>) -> Vec<Change> {
        let mut last = BTreeMap::new();
        let mut ordered = BTreeSet::new();
        for (i, change) in batch.iter().enumerate() {
            match change {
                Change::Upsert(key, _) | Change::Remove(key) => drop(last.insert(key.clone(), i)),
                Change::Exclude(key, _) | Change::Readmit(key) => drop(ordered.insert(key.clone())),
                Change::Synced => {}
            }
        }
        let differs = |i: usize, change: &Change| match change {
            Change::Upsert(key, object) => {
                ordered.contains(key) || (last.get(key) == Some(&i) && self.objects.get(key) != Some(object))
            }
            Change::Remove(key) => {
                ordered.contains(key) || (last.get(key) == Some(&i) && self.objects.contains_key(key))
            }
            Change::Exclude(key, why) => {
                last.contains_key(key) || (self.objects.contains_key(key) && self.excluded.get(key) != Some(why))
            }
            Change::Readmit(key) => last.contains_key(key) || self.excluded.contains_key(key),
            Change::Synced => true,
        };
        batch.into_iter().enumerate().filter(|(i, c)| differs(*i, c)).map(|(_, c)| c).collect()
    }

    /// The object of that type and name.
    #[must_use]
    pub fn get<T: Kinded>(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(&ObjectKey::new(T::KIND, namespace, name)).and_then(T::from_object)
    }

    /// Ends the exclusion of an object that changes, and of those in its namespace that may refer to it: what Envoy refused
    /// may have come from there.
    fn try_again(&mut self, changed: &ObjectKey) {
        let referred = matches!(
            changed.kind,
            Kind::HttpRouteFilter
                | Kind::Backend
                | Kind::BackendTlsPolicy
                | Kind::BackendTrafficPolicy
                | Kind::SecurityPolicy
                | Kind::EnvoyExtensionPolicy
        );
        self.excluded.retain(|key, _| key != changed && !(referred && key.namespace == changed.namespace));
    }

    /// Why the object is left out, if it is: Envoy refused what it asks for and it has not changed since.
    #[must_use]
    pub fn exclusion(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.excluded.get(key)
    }

    /// All objects of a type, by namespace and name.
    pub fn all<T: Kinded + 'static>(&self) -> impl Iterator<Item = &Arc<T>> {
        self.of_kind(T::KIND, "").filter_map(|(_, o)| T::from_object(o))
    }

    /// All objects of a type in a namespace, by name.
    pub fn in_namespace<'a, T: Kinded + 'static>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<T>> {
        self.of_kind(T::KIND, namespace)
            .take_while(move |(k, _)| &*k.namespace == namespace)
            .filter_map(|(_, o)| T::from_object(o))
    }

    /// Everything, by kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        self.objects.iter()
    }

    /// Number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// No object at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    fn of_kind(&self, kind: Kind, from_namespace: &str) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        self.objects.range(ObjectKey::new(kind, from_namespace, "")..).take_while(move |(k, _)| k.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;

    use super::*;

    fn namespace(name: &str) -> (ObjectKey, Object) {
        let value = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Object::from_value(value).unwrap()
    }

    #[test]
    fn same_state_whatever_the_order() {
        let (mut a, mut b) = (Store::new(), Store::new());
        for n in ["x", "y"] {
            let (k, o) = namespace(n);
            assert!(a.apply(Change::Upsert(k, o)));
        }
        for n in ["y", "x", "y"] {
            let (k, o) = namespace(n);
            b.apply(Change::Upsert(k, o));
        }
        let names = |s: &Store| s.all::<Namespace>().map(|n| n.metadata.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&a), names(&b));
        assert_eq!(a.len(), 2);
    }

    #[test]
    fn what_is_left_out_comes_back_when_it_changes() {
        let mut s = Store::new();
        let version = |generation: Option<i64>, label: &str| {
            let value = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "x", "generation": generation, "labels": {"l": label}}});
            Object::from_value(value).unwrap()
        };
        let (key, first) = version(Some(1), "a");
        assert!(!s.apply(Change::Exclude(key.clone(), "bad".into())), "nothing to leave out");
        s.apply(Change::Upsert(key.clone(), first));
        assert!(s.apply(Change::Exclude(key.clone(), "bad".into())));
        assert!(!s.apply(Change::Exclude(key.clone(), "bad".into())));
        s.apply(Change::Upsert(key.clone(), version(Some(1), "b").1));
        assert!(s.exclusion(&key).is_some(), "a status or label is no change of what it asks for");
        s.apply(Change::Upsert(key.clone(), version(Some(2), "b").1));
        assert!(s.exclusion(&key).is_none());
        // Objects from files have no generation: any change counts.
        s.apply(Change::Upsert(key.clone(), version(None, "a").1));
        s.apply(Change::Exclude(key.clone(), "bad".into()));
        s.apply(Change::Upsert(key.clone(), version(None, "b").1));
        assert!(s.exclusion(&key).is_none());
        s.apply(Change::Upsert(key.clone(), version(None, "c").1));
        s.apply(Change::Exclude(key.clone(), "bad".into()));
        assert!(s.apply(Change::Readmit(key.clone())));
        assert!(s.exclusion(&key).is_none());
    }

    #[test]
    fn an_equal_object_is_no_change_and_a_removal_of_nothing_neither() {
        let mut s = Store::new();
        let (k, o) = namespace("x");
        assert!(s.apply(Change::Upsert(k.clone(), o.clone())));
        assert!(!s.apply(Change::Upsert(k.clone(), o)));
        assert!(s.get::<Namespace>("", "x").is_some());
        assert!(s.apply(Change::Remove(k.clone())));
        assert!(!s.apply(Change::Remove(k)));
        assert!(s.get::<Namespace>("", "x").is_none());
    }

    #[test]
    fn of_a_batch_only_what_makes_a_difference_is_left() {
        let mut s = Store::new();
        let version = |name: &str, label: &str| {
            let value = serde_json::json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"l": label}}});
            Object::from_value(value).unwrap()
        };
        let up = |name: &str, label: &str| {
            let (key, object) = version(name, label);
            Change::Upsert(key, object)
        };
        let key = |name: &str| version(name, "").0;
        s.apply(up("x", "a"));
        let words = |changes: Vec<Change>| {
            let word = |c: Change| match c {
                Change::Upsert(k, o) => {
                    format!("+{} {:?}", k.name, o.metadata().labels.clone().unwrap().get("l").unwrap())
                }
                Change::Remove(k) => format!("-{}", k.name),
                Change::Exclude(k, _) => format!("x{}", k.name),
                Change::Readmit(k) => format!("r{}", k.name),
                Change::Synced => "synced".to_owned(),
            };
            changes.into_iter().map(word).collect::<Vec<_>>()
        };
        assert!(s.differences(vec![up("x", "a"), up("x", "b"), up("x", "a"), Change::Remove(key("y"))]).is_empty());
        assert_eq!(words(s.differences(vec![up("x", "b"), up("y", "a"), up("x", "c")])), ["+y \"a\"", "+x \"c\""]);
        assert_eq!(
            words(s.differences(vec![up("y", "a"), Change::Remove(key("y")), Change::Remove(key("x"))])),
            ["-x"]
        );
        assert!(s.differences(vec![Change::Readmit(key("x")), Change::Exclude(key("y"), "bad".into())]).is_empty());
        // What is left out and changes: in order, and with the same end as one by one.
        let batch = vec![Change::Exclude(key("x"), "bad".into()), up("x", "b"), Change::Synced];
        let left = s.differences(batch.clone());
        assert_eq!(words(left.clone()), ["xx", "+x \"b\"", "synced"]);
        let mut other = s.clone();
        for change in batch {
            s.apply(change);
        }
        for change in left {
            other.apply(change);
        }
        assert_eq!(s.exclusion(&key("x")), other.exclusion(&key("x")));
        assert!(s.iter().eq(other.iter()));
    }
}

//! The latest version of every object.

use std::{collections::BTreeMap, sync::Arc};

use crate::{Change, Kind, Kinded, Object, ObjectKey};

/// Holds the latest version of each object, in the order of keys.
#[derive(Clone, Debug, Default)]
pub struct Store {
    objects: BTreeMap<ObjectKey, Object>,
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
                _ => {
                    self.objects.insert(key, object);
                    true
                }
            },
            Change::Remove(key) => self.objects.remove(&key).is_some(),
            Change::Synced => false,
        }
    }

    /// The object of that type and name.
    #[must_use]
    pub fn get<T: Kinded>(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.objects.get(&ObjectKey::new(T::KIND, namespace, name)).and_then(T::from_object)
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
        self.objects
            .range(ObjectKey::new(kind, from_namespace, "")..)
            .take_while(move |(k, _)| k.kind == kind)
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
}

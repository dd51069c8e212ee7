//! From what the API server sends to what is kept: one object at a time, so that a broken one harms no other.

use std::sync::Arc;

use kube::core::{DynamicObject, ObjectMeta};
use resources::{Kind, Object, ObjectKey};
use serde_json::{Map, Value, json};

use super::references::{Links, links};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Labels by which the Service of a fleet of ours is known.
const FLEET_LABELS: [&str; 2] =
    ["gateway.envoyproxy.io/owning-gateway-name", "gateway.envoyproxy.io/owning-gatewayclass"];
/// Labels of Services that say whose fleet they belong to.
const OWN_PREFIXES: [&str; 2] = ["gateway.envoyproxy.io/", "app.kubernetes.io/"];
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const IMPORT_LABEL: &str = "multicluster.kubernetes.io/service-name";

/// An object as a watch told it.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) key: ObjectKey,
    pub(super) uid: Arc<str>,
    pub(super) resource_version: Arc<str>,
    pub(super) content: Content,
}

/// What a watch tells about an object.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Metadata only.
    Meta,
    /// All of it.
    Full(Box<Full>),
}

/// A whole object.
#[derive(Clone, Debug)]
pub(super) struct Full {
    /// The object without what changes with every write, or why it cannot be read.
    pub(super) object: Result<Object, String>,
    /// Its status as JSON.
    pub(super) status: Option<Arc<str>>,
    /// What it hangs on and refers to.
    pub(super) links: Links,
    /// Service or ServiceImport whose endpoints it holds.
    pub(super) slice_of: Option<ObjectKey>,
    pub(super) finalizers: Arc<[String]>,
    pub(super) deleting: bool,
}

/// Key of an object by its metadata.
pub(super) fn key(kind: Kind, meta: &ObjectMeta) -> ObjectKey {
    let namespace = if kind.is_namespaced() { meta.namespace.as_deref().unwrap_or_default() } else { "" };
    ObjectKey::new(kind, namespace, meta.name.as_deref().unwrap_or_default())
}

/// An object of which only the metadata was sent.
pub(super) fn meta(kind: Kind, meta: &ObjectMeta) -> Item {
    Item {
        key: key(kind, meta),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        resource_version: meta.resource_version.as_deref().unwrap_or_default().into(),
        content: Content::Meta,
    }
}

/// A whole object.
pub(super) fn full(kind: Kind, api_version: &str, mut object: DynamicObject) -> Item {
    let item = meta(kind, &object.metadata);
    let labels = object.metadata.labels.clone().unwrap_or_default();
    let finalizers: Arc<[String]> = object.metadata.finalizers.clone().unwrap_or_default().into();
    let deleting = object.metadata.deletion_timestamp.is_some();
    let mut found = match object.data.get("spec") {
        Some(spec) if is_root(kind) => links(&item.key, spec),
        _ => Links::default(),
    };
    // Services of fleets of ours, and what is small and concerns all.
    let of_fleet = kind == Kind::Service && FLEET_LABELS.iter().any(|l| labels.contains_key(*l));
    found.root |= of_fleet || kind == Kind::Node;
    let slice_of = (kind == Kind::EndpointSlice)
        .then(|| {
            let of = |label: &str, kind| labels.get(label).map(|n| ObjectKey::new(kind, &item.key.namespace, n));
            of(SERVICE_LABEL, Kind::Service).or_else(|| of(IMPORT_LABEL, Kind::ServiceImport))
        })
        .flatten();
    let status = trim(kind, &mut object);
    let decoded = decode(api_version, kind, object);
    let full = Full { object: decoded, status, links: found, slice_of, finalizers, deleting };
    Item { content: Content::Full(Box::new(full)), ..item }
}

/// Kinds that matter without anyone referring to them.
pub(super) fn is_root(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Service
            | Kind::ServiceImport
            | Kind::EndpointSlice
            | Kind::Secret
            | Kind::ConfigMap
            | Kind::Namespace
            | Kind::Node
    )
}

/// Kinds of which there are many that have nothing to do with us.
pub(super) fn is_shared(kind: Kind) -> bool {
    matches!(kind, Kind::Service | Kind::ServiceImport | Kind::EndpointSlice | Kind::Secret | Kind::ConfigMap)
}

/// Kinds of which only metadata is watched.
pub(super) fn is_lazy(kind: Kind) -> bool {
    matches!(kind, Kind::Secret | Kind::ConfigMap)
}

/// Removes what no translation reads and what changes with every write, so that only real changes count. Returns the
/// status.
fn trim(kind: Kind, object: &mut DynamicObject) -> Option<Arc<str>> {
    let meta = &mut object.metadata;
    meta.managed_fields = None;
    meta.resource_version = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove(LAST_APPLIED);
        if annotations.is_empty() {
            meta.annotations = None;
        }
    }
    let data = object.data.as_object_mut()?;
    match kind {
        Kind::Namespace => {
            meta.annotations = None;
            data.clear();
            None
        }
        Kind::Node => {
            meta.annotations = None;
            let addresses = data.get("status").and_then(|s| s.get("addresses")).cloned();
            data.clear();
            data.extend(addresses.map(|a| ("status".to_owned(), json!({"addresses": a}))));
            None
        }
        Kind::EndpointSlice => {
            meta.annotations = None;
            meta.generation = None;
            keep_labels(meta, |l| [SERVICE_LABEL, IMPORT_LABEL].contains(&l));
            if let Some(Value::Array(endpoints)) = data.get_mut("endpoints") {
                endpoints.iter_mut().filter_map(Value::as_object_mut).for_each(|e| drop(e.remove("targetRef")));
            }
            None
        }
        Kind::Service => {
            keep_labels(meta, |l| OWN_PREFIXES.iter().any(|p| l.starts_with(p)));
            None
        }
        _ => data.remove("status").map(|s| s.to_string().into()),
    }
}

fn keep_labels(meta: &mut ObjectMeta, keep: impl Fn(&str) -> bool) {
    if let Some(labels) = &mut meta.labels {
        labels.retain(|l, _| keep(l));
        if labels.is_empty() {
            meta.labels = None;
        }
    }
}

fn decode(api_version: &str, kind: Kind, object: DynamicObject) -> Result<Object, String> {
    let metadata = serde_json::to_value(&object.metadata).map_err(|e| e.to_string())?;
    let mut fields = match object.data {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.as_str().into());
    fields.insert("metadata".to_owned(), metadata);
    Object::from_value(Value::Object(fields)).map(|(_, object)| object).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> DynamicObject {
        serde_json::from_value(value).unwrap()
    }

    fn route(status: Value) -> Value {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": "r", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 2,
                "managedFields": [{"manager": "x"}], "annotations": {LAST_APPLIED: "{}"}},
            "spec": {"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]},
            "status": status,
        })
    }

    fn of(item: Item) -> Full {
        match item.content {
            Content::Full(full) => *full,
            Content::Meta => panic!("whole"),
        }
    }

    #[test]
    fn a_write_of_the_status_is_no_change_of_the_object() {
        let [one, two] = [json!({"parents": []}), json!({"parents": [{"x": 1}]})].map(|status| {
            let mut value = route(status);
            value["metadata"]["resourceVersion"] = "8".into();
            of(full(Kind::HttpRoute, "gateway.networking.k8s.io/v1", object(value)))
        });
        assert_eq!(one.object, two.object);
        assert_ne!(one.status, two.status);
        let refers = [ObjectKey::new(Kind::Service, "ns", "web"), ObjectKey::new(Kind::Namespace, "", "ns")];
        assert_eq!(one.links.refers, refers.into());
        let item = full(Kind::HttpRoute, "gateway.networking.k8s.io/v1", object(route(json!({}))));
        assert_eq!((&*item.uid, &*item.resource_version), ("u", "7"));
    }

    #[test]
    fn what_cannot_be_read_says_why_and_keeps_its_key() {
        let mut value = route(json!({}));
        value["spec"]["rules"] = "none".into();
        let item = full(Kind::HttpRoute, "gateway.networking.k8s.io/v1", object(value));
        assert_eq!(item.key, ObjectKey::new(Kind::HttpRoute, "ns", "r"));
        let why = of(item).object.unwrap_err();
        assert!(why.contains("HTTPRoute ns/r"), "{why}");
    }

    #[test]
    fn items_of_lists_have_no_type_of_their_own() {
        let value = json!({"metadata": {"name": "s", "namespace": "ns", "labels": {SERVICE_LABEL: "web"},
            "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "now"}},
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod"}}]});
        let slice = of(full(Kind::EndpointSlice, "discovery.k8s.io/v1", object(value)));
        assert_eq!(slice.slice_of, Some(ObjectKey::new(Kind::Service, "ns", "web")));
        let Ok(Object::EndpointSlice(slice)) = slice.object else { panic!("{:?}", slice.object) };
        assert!(slice.metadata.annotations.is_none() && slice.endpoints[0].target_ref.is_none());
        assert_eq!(slice.endpoints[0].addresses, ["10.0.0.1"]);
    }

    #[test]
    fn services_of_fleets_count_and_only_labels_of_ours_are_kept() {
        let value =
            json!({"metadata": {"name": "envoy", "namespace": "ns", "labels": {FLEET_LABELS[0]: "gw", "a": "b"}}});
        let fleet = of(full(Kind::Service, "v1", object(value)));
        assert!(fleet.links.root);
        let Ok(Object::Service(service)) = fleet.object else { panic!("{:?}", fleet.object) };
        assert_eq!(service.metadata.labels.clone().unwrap().into_keys().collect::<Vec<_>>(), [FLEET_LABELS[0]]);
        let value = json!({"metadata": {"name": "web", "namespace": "ns", "labels": {"a": "b"}}});
        assert!(!of(full(Kind::Service, "v1", object(value))).links.root);
    }
}

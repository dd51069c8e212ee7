//! The finished definition of a kind.
//!
//! [`shared::finish`](crate::shared::finish) removes what Rust types leave in every schema. This module adds what the
//! published definitions say about types that come from `k8s-openapi` and that these do not say about themselves:
//! defaults, lists with keys, maps that are replaced as a whole, both types of an int-or-string. Lists without a type
//! are atomic by Kubernetes' own default and stay so.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::Value;

/// Form of a Kubernetes quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Longest description in bytes that is kept whole; of longer ones, the first sentence is.
const DESCRIPTION: usize = 200;

/// Fields of pods with a default: the field above, the field, the default as JSON.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("azureDisk", "fsType", r#""ext4""#),
    ("azureDisk", "readOnly", "false"),
    ("fileKeyRef", "optional", "false"),
    ("iscsi", "iscsiInterface", r#""default""#),
    ("ports", "protocol", r#""TCP""#),
    ("rbd", "keyring", r#""/etc/ceph/keyring""#),
    ("rbd", "pool", r#""rbd""#),
    ("rbd", "user", r#""admin""#),
    ("scaleIO", "fsType", r#""xfs""#),
    ("scaleIO", "storageMode", r#""ThinProvisioned""#),
];

/// Lists of pods that are maps or sets: the field above, the list, its keys (none for a set).
const LISTS: &[(&str, &str, &[&str])] = &[
    ("exitCodes", "values", &[]),
    ("initContainers", "env", &["name"]),
    ("initContainers", "ports", &["containerPort", "protocol"]),
    ("initContainers", "volumeDevices", &["devicePath"]),
    ("initContainers", "volumeMounts", &["mountPath"]),
    ("resources", "claims", &["name"]),
];

/// References to a Secret or ConfigMap, whose name defaults to nothing.
const NAMED: &[&str] = &[
    "configMap",
    "configMapKeyRef",
    "configMapRef",
    "imagePullSecrets",
    "nodePublishSecretRef",
    "secret",
    "secretKeyRef",
    "secretRef",
];

/// Objects besides [`NAMED`] that are replaced as a whole by server-side apply.
const ATOMIC: &[&str] = &[
    "dataSource",
    "fieldRef",
    "fileKeyRef",
    "labelSelector",
    "namespaceSelector",
    "nodeSelectorTerms",
    "preference",
    "resourceFieldRef",
    "selector",
];

/// Definition of kind `K` as it is installed.
pub(super) fn definition<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            adapt("", "", schema);
        }
    }
    crate::shared::finish(crd)
}

/// Adapts the schema of the field `name` in the field `above`, and all that is below.
fn adapt(above: &str, name: &str, schema: &mut JSONSchemaProps) {
    match schema.format.as_deref() {
        Some("uint8" | "uint16" | "uint32") => schema.format = Some("int32".to_owned()),
        Some("uint64") => schema.format = Some("int64".to_owned()),
        Some("float" | "double") => schema.format = None,
        _ => {}
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        int_or_string(name, schema);
    }
    if let Some(text) = &mut schema.description {
        shorten(text);
    }
    match schema.type_.as_deref() {
        Some("object") => object(name, schema),
        Some("array") => list(above, name, schema),
        // A header's value may be any text here: it can hold command operators.
        Some("string") if matches!(above, "add" | "addIfAbsent" | "set" | "headers") && name == "value" => {
            schema.pattern = None;
        }
        _ => {}
    }
    if let Some((.., value)) = DEFAULTS.iter().find(|(a, n, _)| (*a, *n) == (above, name)) {
        schema.default = Some(JSON(serde_json::from_str(value).expect("a default in the table is JSON")));
    }
    if let Some(properties) = &mut schema.properties {
        for (inner, property) in properties {
            adapt(name, inner, property);
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        adapt(above, name, items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        adapt(above, name, values);
    }
}

fn object(name: &str, schema: &mut JSONSchemaProps) {
    let has = |field: &str| schema.properties.as_ref().is_some_and(|p| p.contains_key(field));
    if NAMED.contains(&name) && has("name") {
        schema.x_kubernetes_map_type = Some("atomic".to_owned());
        schema.required = schema.required.take().map(|mut required| {
            required.retain(|field| field != "name");
            required
        });
        schema.required.take_if(|required| required.is_empty());
        if let Some(field) = schema.properties.as_mut().and_then(|p| p.get_mut("name")) {
            field.default = Some(JSON(Value::from("")));
        }
    } else if ATOMIC.contains(&name) || has("nodeSelectorTerms") {
        schema.x_kubernetes_map_type = Some("atomic".to_owned());
    } else if has("generateName") {
        // Object metadata, which an API server checks by itself.
        schema.properties = None;
    } else if name == "grpc" && has("port") {
        // A probe of a container.
        if let Some(field) = schema.properties.as_mut().and_then(|p| p.get_mut("service")) {
            field.default = Some(JSON(Value::from("")));
        }
    }
}

fn list(above: &str, name: &str, schema: &mut JSONSchemaProps) {
    if let Some((.., keys)) = LISTS.iter().find(|(a, n, _)| (*a, *n) == (above, name)) {
        schema.x_kubernetes_list_type = Some(if keys.is_empty() { "set" } else { "map" }.to_owned());
        schema.x_kubernetes_list_map_keys = (!keys.is_empty()).then(|| keys.iter().map(|k| (*k).to_owned()).collect());
    }
}

/// Names both types, and gives quantities their pattern besides one of the field's own.
fn int_or_string(name: &str, schema: &mut JSONSchemaProps) {
    let of_type = |name: &str| JSONSchemaProps { type_: Some(name.to_owned()), ..Default::default() };
    let of_pattern = |pattern: String| JSONSchemaProps { pattern: Some(pattern), ..Default::default() };
    schema.any_of = Some(vec![of_type("integer"), of_type("string")]);
    if matches!(name, "maxSurge" | "maxUnavailable" | "minAvailable" | "port") {
        return;
    }
    match schema.pattern.take() {
        Some(own) => schema.all_of = Some(vec![of_pattern(QUANTITY.to_owned()), of_pattern(own)]),
        None => schema.pattern = Some(QUANTITY.to_owned()),
    }
}

/// Cuts a long description after its first sentence.
fn shorten(text: &mut String) {
    if text.len() > DESCRIPTION {
        let sentence = text.find(". ").map_or(text.len(), |at| at + 1);
        let line = text.find('\n').unwrap_or(text.len());
        text.truncate(sentence.min(line));
    }
}

//! The finished definition of a kind.
//!
//! [`shared::finish`](crate::shared::finish) removes what Rust types leave in every schema. This module adds what the
//! published definitions say about types that come from `k8s-openapi` and that these do not say about themselves.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// Form of a Kubernetes quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Longest description in bytes that is kept whole; of longer ones, the first sentence is.
const DESCRIPTION: usize = 200;

/// Definition of kind `K` as it is installed.
pub(super) fn definition<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            adapt("", schema);
        }
    }
    crate::shared::finish(crd)
}

/// Adapts the schema of the field `name` and all that is below.
fn adapt(name: &str, schema: &mut JSONSchemaProps) {
    match schema.format.as_deref() {
        Some("uint8" | "uint16" | "uint32") => schema.format = Some("int32".to_owned()),
        Some("uint64") => schema.format = Some("int64".to_owned()),
        Some("float") => schema.format = None,
        _ => {}
    }
    if schema.x_kubernetes_int_or_string == Some(true) {
        int_or_string(name, schema);
    }
    if let Some(text) = &mut schema.description {
        shorten(text);
    }
    if let Some(properties) = &mut schema.properties {
        for (name, property) in properties {
            adapt(name, property);
        }
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        adapt(name, items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        adapt(name, values);
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
        let end = text.find(". ").map_or(text.len(), |at| at + 1).min(text.find("\n").unwrap_or(text.len()));
        text.truncate(end);
    }
}

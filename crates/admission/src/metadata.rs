//! Checks of an object's metadata.

use serde_json::Value;

use crate::error::{ErrorType, FieldError};
use crate::kinds::{Kind, NameRule};
use crate::names;

/// Checks that there is a name; when `strict`, also how name, namespace, labels and annotations are written. Without a
/// kind, the name is checked as that of most objects.
pub(crate) fn check(object: &Value, kind: Option<&Kind>, strict: bool, errors: &mut Vec<FieldError>) {
    let text = |key: &str| object.pointer(&format!("/metadata/{key}")).and_then(Value::as_str).unwrap_or_default();
    if strict {
        check_texts(object, kind, errors);
    }
    // Nothing refers to an EndpointSlice by its name.
    let nameless = !strict && object.get("kind").is_some_and(|kind| kind == "EndpointSlice");
    if text("name").is_empty() && text("generateName").is_empty() && !nameless {
        let detail = "name or generateName is required";
        errors.push(FieldError::new("metadata.name", ErrorType::Required, None, detail));
    }
}

fn check_texts(object: &Value, kind: Option<&Kind>, errors: &mut Vec<FieldError>) {
    let text =
        |key: &str| object.pointer(&format!("/metadata/{key}")).and_then(Value::as_str).filter(|t| !t.is_empty());
    let mut invalid = |path: String, value: &str, detail: &str| {
        errors.push(FieldError::new(path, ErrorType::Invalid, Some(value.into()), detail));
    };
    let rule = match kind.map_or(NameRule::Subdomain, |kind| kind.names) {
        NameRule::Subdomain => names::dns1123_subdomain,
        NameRule::Label => names::dns1123_label,
        NameRule::Dns1035 => names::dns1035_label,
    };
    if let Some(name) = text("name")
        && let Some(detail) = rule(name)
    {
        invalid("metadata.name".to_owned(), name, detail);
    }
    if let Some(namespace) = text("namespace")
        && let Some(detail) = names::dns1123_label(namespace)
    {
        invalid("metadata.namespace".to_owned(), namespace, detail);
    }
    let map = |key: &str| object.pointer(&format!("/metadata/{key}")).and_then(Value::as_object).into_iter().flatten();
    for (key, value) in map("labels") {
        if let Some(detail) = names::qualified_name(key) {
            invalid("metadata.labels".to_owned(), key, detail);
        }
        if let Some(value) = value.as_str()
            && let Some(detail) = names::label_value(value)
        {
            invalid("metadata.labels".to_owned(), value, detail);
        }
    }
    for (key, _) in map("annotations") {
        if let Some(detail) = names::qualified_name(&key.to_lowercase()) {
            invalid("metadata.annotations".to_owned(), key, detail);
        }
    }
}

/// Whether metadata holds nulls, such as the `creationTimestamp: null` that generated manifests have.
pub(crate) fn has_nulls(object: &Value) -> bool {
    object.get("metadata").and_then(Value::as_object).is_some_and(|fields| fields.values().any(Value::is_null))
}

/// A copy of the object without nulls in metadata.
pub(crate) fn without_nulls(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

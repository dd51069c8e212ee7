//! What is particular to the core kinds that a gateway reads.

use base64::Engine as _;
use serde_json::Value;

use crate::error::{ErrorType, FieldError};
use crate::names;
use crate::path::Path;

/// Drops nulls, which decoding takes for absent fields, and moves `stringData` of a Secret into `data`.
pub(crate) fn convert(kind: &str, object: &mut Value) {
    if let Value::Object(fields) = object {
        for (name, field) in fields.iter_mut() {
            if name != "metadata" {
                drop_nulls(field);
            }
        }
        fields.retain(|_, field| !field.is_null());
    }
    if kind == "Secret" {
        move_string_data(object);
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Moves texts only: anything else stays, to be refused as the wrong type.
fn move_string_data(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    let movable = |texts: &Value| texts.as_object().is_some_and(|texts| texts.values().all(Value::is_string));
    if !fields.get("stringData").is_some_and(movable) || fields.get("data").is_some_and(|data| !data.is_object()) {
        return;
    }
    let Some(Value::Object(texts)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| Value::Object(serde_json::Map::new()));
    for (key, text) in texts {
        let bytes = text.as_str().unwrap_or_default().as_bytes();
        data[key] = base64::engine::general_purpose::STANDARD.encode(bytes).into();
    }
}

/// Checks bounds that the schema of a core kind does not carry.
pub(crate) fn check(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let mut path = Path::default();
    match kind {
        "Service" => path.field("spec", |path| {
            let ports = object.pointer("/spec/ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            path.field("ports", |path| check_service_ports(ports, path, errors));
        }),
        "EndpointSlice" => path.field("ports", |path| {
            let ports = object.get("ports").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            for (i, port) in ports.iter().enumerate() {
                path.index(i, |path| check_port(port, "port", path, errors));
            }
        }),
        _ => {}
    }
    if matches!(kind, "Secret" | "ConfigMap") {
        for field in ["data", "binaryData"] {
            for (key, _) in object.get(field).and_then(Value::as_object).into_iter().flatten() {
                let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
                if key.is_empty() || key.len() > 253 || !key.bytes().all(good) || matches!(key.as_str(), "." | "..") {
                    let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
                    let error = FieldError::new(
                        format!("{field}[{key}]"),
                        ErrorType::Invalid,
                        Some(key.as_str().into()),
                        detail,
                    );
                    errors.push(error);
                }
            }
        }
    }
}

fn check_service_ports(ports: &[Value], path: &mut Path, errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::BTreeSet::new();
    for (i, port) in ports.iter().enumerate() {
        path.index(i, |path| {
            let name = port.get("name").and_then(Value::as_str).unwrap_or_default();
            if name.is_empty() && ports.len() > 1 {
                path.field("name", |path| {
                    errors.push(FieldError::new(path.as_str(), ErrorType::Required, None, ""));
                });
            }
            if !name.is_empty()
                && let Some(detail) = names::port_name(name)
            {
                path.field("name", |path| {
                    errors.push(FieldError::new(path.as_str(), ErrorType::Invalid, Some(name.into()), detail));
                });
            }
            if !name.is_empty() && !seen.insert(name.to_owned()) {
                path.field("name", |path| {
                    errors.push(FieldError::new(path.as_str(), ErrorType::Duplicate, Some(name.into()), ""));
                });
            }
            check_port(port, "port", path, errors);
            check_port(port, "targetPort", path, errors);
        });
    }
}

fn check_port(port: &Value, field: &str, path: &mut Path, errors: &mut Vec<FieldError>) {
    if let Some(number) = port.get(field).and_then(Value::as_i64)
        && !(1..=65535).contains(&number)
    {
        path.field(field, |path| {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::new(path.as_str(), ErrorType::Invalid, Some(number.into()), detail));
        });
    }
}

//! Message to JSON.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use prost::bytes::Bytes;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Value};
use serde_json::{Map, Value as Json, json};

use super::{JsonError, decode, is_special, short};

/// Spelling of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// `camelCase`, as the JSON mapping of protobuf has it.
    Json,
    /// `snake_case`, as the definitions and Envoy's documentation have it.
    Proto,
}

pub(super) fn message(m: &DynamicMessage, names: Names) -> Result<Json, JsonError> {
    let descriptor = m.descriptor();
    match descriptor.full_name() {
        "google.protobuf.Any" => any(&text(m, "type_url"), &bytes(m, "value"), names),
        "google.protobuf.Duration" => Ok(duration(integer(m, "seconds"), integer(m, "nanos")).into()),
        name if is_special(name) => {
            // Wrappers, structs, timestamps and masks have no `Any` in them.
            serde_json::to_value(m).map_err(|e| JsonError::Field { path: name.to_owned(), problem: e.to_string() })
        }
        _ => Ok(Json::Object(fields(m, names)?)),
    }
}

fn fields(m: &DynamicMessage, names: Names) -> Result<Map<String, Json>, JsonError> {
    let name = |field: &FieldDescriptor| match names {
        Names::Json => field.json_name().to_owned(),
        Names::Proto => field.name().to_owned(),
    };
    m.fields().map(|(field, value)| Ok((name(&field), field_value(&field, value, names)?))).collect()
}

fn field_value(field: &FieldDescriptor, v: &Value, names: Names) -> Result<Json, JsonError> {
    match v {
        Value::List(items) => {
            items.iter().map(|i| value(&field.kind(), i, names)).collect::<Result<Vec<_>, _>>().map(Json::Array)
        }
        Value::Map(entries) => {
            let kind = field.kind();
            let content = match kind.as_message() {
                Some(entry) => entry.map_entry_value_field().kind(),
                None => kind,
            };
            let mut sorted: Vec<_> = entries.iter().map(|(k, v)| (key(k), v)).collect();
            sorted.sort_by(|a, b| a.0.cmp(&b.0));
            sorted
                .into_iter()
                .map(|(k, v)| Ok((k, value(&content, v, names)?)))
                .collect::<Result<Map<_, _>, _>>()
                .map(Json::Object)
        }
        single => value(&field.kind(), single, names),
    }
}

fn value(kind: &Kind, v: &Value, names: Names) -> Result<Json, JsonError> {
    Ok(match v {
        Value::Bool(b) => (*b).into(),
        Value::I32(n) => (*n).into(),
        Value::U32(n) => (*n).into(),
        Value::I64(n) => n.to_string().into(),
        Value::U64(n) => n.to_string().into(),
        // The shortest text that reads back as the same f32, as a number.
        Value::F32(n) => float(n.to_string().parse().unwrap_or(f64::NAN)),
        Value::F64(n) => float(*n),
        Value::String(s) => s.as_str().into(),
        Value::Bytes(b) => BASE64_STANDARD.encode(b).into(),
        Value::EnumNumber(n) => enumeration(kind, *n),
        Value::Message(m) => message(m, names)?,
        Value::List(_) | Value::Map(_) => Json::Null,
    })
}

fn enumeration(kind: &Kind, number: i32) -> Json {
    match kind.as_enum() {
        Some(e) if e.full_name() == "google.protobuf.NullValue" => Json::Null,
        Some(e) => e.get_value(number).map_or_else(|| number.into(), |v| v.name().into()),
        None => number.into(),
    }
}

fn float(n: f64) -> Json {
    if n.is_nan() {
        "NaN".into()
    } else if n.is_infinite() {
        if n > 0.0 { "Infinity".into() } else { "-Infinity".into() }
    } else if n.fract() == 0.0 && n.abs() < 1e15 {
        // Without the ".0": so Go writes it, and Envoy's users compare text.
        json!(n as i64)
    } else {
        json!(n)
    }
}

fn key(k: &MapKey) -> String {
    match k {
        MapKey::Bool(b) => b.to_string(),
        MapKey::I32(n) => n.to_string(),
        MapKey::I64(n) => n.to_string(),
        MapKey::U32(n) => n.to_string(),
        MapKey::U64(n) => n.to_string(),
        MapKey::String(s) => s.clone(),
    }
}

fn any(type_url: &str, value: &[u8], names: Names) -> Result<Json, JsonError> {
    let name = short(type_url);
    let mut out = Map::new();
    if type_url.is_empty() {
        return Ok(Json::Object(out));
    }
    out.insert("@type".to_owned(), type_url.into());
    match decode(name, value) {
        Err(JsonError::UnknownType(_)) => {
            out.insert("value".to_owned(), BASE64_STANDARD.encode(value).into());
        }
        Err(e) => return Err(e),
        Ok(m) if is_special(name) => {
            out.insert("value".to_owned(), message(&m, names)?);
        }
        Ok(m) => out.extend(fields(&m, names)?),
    }
    Ok(Json::Object(out))
}

/// With three, six or nine digits after the point, or none.
fn duration(seconds: i64, nanos: i64) -> String {
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let (seconds, nanos) = (seconds.unsigned_abs(), nanos.unsigned_abs());
    if nanos == 0 {
        format!("{sign}{seconds}s")
    } else if nanos % 1_000_000 == 0 {
        format!("{sign}{seconds}.{:03}s", nanos / 1_000_000)
    } else if nanos % 1_000 == 0 {
        format!("{sign}{seconds}.{:06}s", nanos / 1_000)
    } else {
        format!("{sign}{seconds}.{nanos:09}s")
    }
}

fn integer(m: &DynamicMessage, field: &str) -> i64 {
    match m.get_field_by_name(field).as_deref() {
        Some(Value::I64(n)) => *n,
        Some(Value::I32(n)) => i64::from(*n),
        _ => 0,
    }
}

fn text(m: &DynamicMessage, field: &str) -> String {
    m.get_field_by_name(field).and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn bytes(m: &DynamicMessage, field: &str) -> Bytes {
    m.get_field_by_name(field).and_then(|v| v.as_bytes().cloned()).unwrap_or_default()
}

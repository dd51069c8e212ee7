//! JSON to message.

use std::collections::HashMap;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use prost::Message;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde::de::DeserializeSeed as _;
use serde_json::{Map, Value as Json};

use super::{JsonError, descriptor, is_special, short};

/// Standard or URL alphabet, with or without padding.
const PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, PADDING);
const URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, PADDING);

fn fails<T>(path: &str, problem: impl Into<String>) -> Result<T, JsonError> {
    let path = if path.is_empty() { "." } else { path };
    Err(JsonError::Field { path: path.to_owned(), problem: problem.into() })
}

pub(super) fn message(d: &MessageDescriptor, json: &Json, path: &str) -> Result<DynamicMessage, JsonError> {
    match d.full_name() {
        "google.protobuf.Any" => any(d, json, path),
        // Wrappers, structs, durations and the like have no `Any` in them.
        name if is_special(name) => d.clone().deserialize(json).or_else(|e| fails(path, e.to_string())),
        _ => match json {
            Json::Object(object) => fields(d, object, path),
            _ => fails(path, "is no object"),
        },
    }
}

fn fields(d: &MessageDescriptor, object: &Map<String, Json>, path: &str) -> Result<DynamicMessage, JsonError> {
    let mut out = DynamicMessage::new(d.clone());
    for (name, json) in object {
        let path = format!("{path}.{name}");
        let Some(field) = d.get_field_by_json_name(name).or_else(|| d.get_field_by_name(name)) else {
            return fails(&path, format!("{} has no such field", d.full_name()));
        };
        // `null` is the value of a `google.protobuf.Value`, and absence of anything else.
        let is_value = field.kind().as_message().is_some_and(|m| m.full_name() == "google.protobuf.Value");
        if json.is_null() && !is_value {
            continue;
        }
        if let Some(other) = field.containing_oneof().and_then(|o| o.fields().find(|f| out.has_field(f))) {
            return fails(&path, format!("only one of {name} and {} may be set", other.json_name()));
        }
        out.set_field(&field, field_value(&field, json, &path)?);
    }
    Ok(out)
}

fn field_value(field: &FieldDescriptor, json: &Json, path: &str) -> Result<Value, JsonError> {
    let kind = field.kind();
    if field.is_map() {
        let (Json::Object(object), Some(entry)) = (json, kind.as_message()) else {
            return fails(path, "is no object");
        };
        let (keys, values) = (entry.map_entry_key_field().kind(), entry.map_entry_value_field().kind());
        let entries = object.iter().map(|(k, v)| {
            let path = format!("{path}[{k}]");
            Ok((key(&keys, k, &path)?, value(&values, v, &path)?))
        });
        return entries.collect::<Result<HashMap<_, _>, _>>().map(Value::Map);
    }
    if field.is_list() {
        let Json::Array(items) = json else { return fails(path, "is no list") };
        let items = items.iter().enumerate().map(|(i, v)| value(&kind, v, &format!("{path}[{i}]")));
        return items.collect::<Result<Vec<_>, _>>().map(Value::List);
    }
    value(&kind, json, path)
}

fn value(kind: &Kind, json: &Json, path: &str) -> Result<Value, JsonError> {
    let wrong = || JsonError::Field { path: path.to_owned(), problem: format!("{json} is no {kind:?}") };
    Ok(match kind {
        Kind::Message(d) => Value::Message(message(d, json, path)?),
        Kind::Bool => Value::Bool(json.as_bool().ok_or_else(wrong)?),
        Kind::String => Value::String(json.as_str().ok_or_else(wrong)?.to_owned()),
        Kind::Bytes => {
            let text = json.as_str().ok_or_else(wrong)?;
            let bytes = STANDARD.decode(text).or_else(|_| URL.decode(text)).map_err(|_| wrong())?;
            Value::Bytes(bytes.into())
        }
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(number(json).ok_or_else(wrong)?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(number(json).ok_or_else(wrong)?),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(number(json).ok_or_else(wrong)?),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(number(json).ok_or_else(wrong)?),
        Kind::Float => Value::F32(number::<f32>(json).ok_or_else(wrong)?),
        Kind::Double => Value::F64(number(json).ok_or_else(wrong)?),
        Kind::Enum(e) => Value::EnumNumber(match json {
            Json::String(name) => e.get_value_by_name(name).ok_or_else(wrong)?.number(),
            Json::Null if e.full_name() == "google.protobuf.NullValue" => 0,
            _ => number(json).ok_or_else(wrong)?,
        }),
    })
}

/// A number, or its text. Text that a float is written in, such as `1.0`, is an integer where it has no fraction.
fn number<T: std::str::FromStr>(json: &Json) -> Option<T> {
    let text = match json {
        Json::Number(n) => n.to_string(),
        Json::String(s) => match s.as_str() {
            "Infinity" => "inf".to_owned(),
            "-Infinity" => "-inf".to_owned(),
            other => other.to_owned(),
        },
        _ => return None,
    };
    text.parse().ok().or_else(|| {
        let float: f64 = text.parse().ok()?;
        (float.fract() == 0.0).then(|| format!("{float:.0}").parse().ok())?
    })
}

fn key(kind: &Kind, text: &str, path: &str) -> Result<MapKey, JsonError> {
    let wrong = || JsonError::Field { path: path.to_owned(), problem: format!("{text:?} is no {kind:?}") };
    Ok(match kind {
        Kind::String => MapKey::String(text.to_owned()),
        Kind::Bool => MapKey::Bool(text.parse().map_err(|_| wrong())?),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => MapKey::I32(text.parse().map_err(|_| wrong())?),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => MapKey::I64(text.parse().map_err(|_| wrong())?),
        Kind::Uint32 | Kind::Fixed32 => MapKey::U32(text.parse().map_err(|_| wrong())?),
        Kind::Uint64 | Kind::Fixed64 => MapKey::U64(text.parse().map_err(|_| wrong())?),
        _ => return Err(wrong()),
    })
}

fn any(d: &MessageDescriptor, json: &Json, path: &str) -> Result<DynamicMessage, JsonError> {
    let Json::Object(object) = json else { return fails(path, "is no object") };
    let mut out = DynamicMessage::new(d.clone());
    let type_url = match object.get("@type") {
        Some(Json::String(url)) => url,
        Some(_) => return fails(path, "@type is no text"),
        None if object.is_empty() => return Ok(out),
        None => return fails(path, "has no @type"),
    };
    let name = short(type_url);
    let bytes = match descriptor(name) {
        Err(_) => match (object.get("value"), object.len()) {
            (Some(Json::String(text)), 2) => {
                STANDARD.decode(text).or_else(|_| fails(path, "the value of an unknown type has to be base64"))?
            }
            _ => return fails(path, format!("type {name} is not known")),
        },
        Ok(inner) if is_special(name) => {
            let value = object.get("value").unwrap_or(&Json::Null);
            message(&inner, value, &format!("{path}.value"))?.encode_to_vec()
        }
        Ok(inner) => {
            let mut rest = object.clone();
            rest.remove("@type");
            fields(&inner, &rest, path)?.encode_to_vec()
        }
    };
    out.set_field_by_name("type_url", Value::String(type_url.clone()));
    out.set_field_by_name("value", Value::Bytes(bytes.into()));
    Ok(out)
}

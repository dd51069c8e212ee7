//! Canonical protobuf JSON of Envoy's messages, with all that is nested in `Any`, both ways.
//!
//! [`to_value`] writes what Go's `protojson` writes: names in camelCase, 64-bit integers as text, durations as `"1.500s"`,
//! `Any` as an object with `@type`. [`from_value`] reads that and Envoy's own spelling (snake_case, numbers for enums).
//! An `Any` of a type that is not known becomes `{"@type": …, "value": base64}`, and is read back from that.
//!
//! The descriptors of all messages are loaded once, at the first use.

mod read;
mod write;

use std::sync::OnceLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Value;

/// Why a message cannot be turned to JSON or back.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// There is no message of this name.
    #[error("{0}: no such message")]
    UnknownType(String),
    /// The bytes are no message of the type.
    #[error("{name}: {source}")]
    Decode {
        /// Full name of the message.
        name: String,
        /// What is wrong.
        source: prost::DecodeError,
    },
    /// The JSON does not fit the message.
    #[error("{path}: {problem}")]
    Field {
        /// Path of the field.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

static DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/envoy.fds"));

/// Descriptors of all messages that Envoy knows, loaded at the first call.
#[must_use]
pub fn pool() -> &'static DescriptorPool {
    static POOL: OnceLock<DescriptorPool> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).expect("invariant: protoc wrote the descriptors"))
}

/// The JSON of an encoded message.
///
/// # Errors
/// When there is no message of that name or the bytes are none.
pub fn to_value(full_name: &str, bytes: &[u8]) -> Result<Value, JsonError> {
    write::message(&decode(full_name, bytes)?, write::Names::Json)
}

/// The JSON of an encoded message with names in snake_case, as Envoy's documentation and its users spell them.
///
/// # Errors
/// As [`to_value`].
pub fn to_proto_value(full_name: &str, bytes: &[u8]) -> Result<Value, JsonError> {
    write::message(&decode(full_name, bytes)?, write::Names::Proto)
}

/// Encodes a message that is given as JSON; maps are in the order of their keys.
///
/// # Errors
/// When there is no message of that name, or a field that the message does not have or whose value does not fit.
pub fn from_value(full_name: &str, value: &Value) -> Result<Vec<u8>, JsonError> {
    let message = read::message(&descriptor(full_name)?, value, "")?;
    Ok(crate::wire::ordered(full_name, message.encode_to_vec()))
}

fn decode(full_name: &str, bytes: &[u8]) -> Result<DynamicMessage, JsonError> {
    DynamicMessage::decode(descriptor(full_name)?, bytes)
        .map_err(|source| JsonError::Decode { name: full_name.to_owned(), source })
}

fn descriptor(full_name: &str) -> Result<MessageDescriptor, JsonError> {
    pool().get_message_by_name(full_name).ok_or_else(|| JsonError::UnknownType(full_name.to_owned()))
}

/// Full name of a message from its type URL.
pub(crate) fn short(type_url: &str) -> &str {
    type_url.rsplit('/').next().unwrap_or_default()
}

/// Messages whose JSON is not an object of their fields.
fn is_special(full_name: &str) -> bool {
    let Some(name) = full_name.strip_prefix("google.protobuf.") else { return false };
    matches!(
        name,
        "Duration"
            | "Timestamp"
            | "FieldMask"
            | "Struct"
            | "Value"
            | "ListValue"
            | "Empty"
            | "Any"
            | "BoolValue"
            | "StringValue"
            | "BytesValue"
            | "DoubleValue"
            | "FloatValue"
            | "Int32Value"
            | "Int64Value"
            | "UInt32Value"
            | "UInt64Value"
    )
}

#[cfg(test)]
mod tests;

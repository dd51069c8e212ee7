//! Short forms of protobuf values that every resource needs.

use envoy_types::pb::{
    envoy::config::core::v3::{
        AggregatedConfigSource, ApiVersion, ConfigSource, Metadata, TypedExtensionConfig,
        config_source::ConfigSourceSpecifier,
    },
    google::protobuf::{Any, BoolValue, Duration, ListValue, Struct, UInt32Value, UInt64Value, Value, value::Kind},
};
use ir::{Millis, Origin, PolicyRef};
use prost::{Message, Name};

/// An `Any`. Its maps are brought into order with those of the resource that it ends up in.
pub(crate) fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

/// An extension by name and settings.
pub(crate) fn extension<M: Message + Name>(name: &str, message: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(message)) }
}

pub(crate) fn duration(time: Millis) -> Duration {
    Duration {
        // No u64 of milliseconds has more seconds than an i64 holds.
        seconds: i64::try_from(time.0 / 1000).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.0 % 1000).unwrap_or_default() * 1_000_000,
    }
}

pub(crate) fn u32_value(value: u32) -> Option<UInt32Value> {
    Some(UInt32Value { value })
}

pub(crate) fn u64_value(value: u64) -> Option<UInt64Value> {
    Some(UInt64Value { value })
}

pub(crate) fn bool_value(value: bool) -> Option<BoolValue> {
    Some(BoolValue { value })
}

/// Resources come over the stream that is open already.
pub(crate) fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3 as i32,
        config_source_specifier: Some(ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}

/// As [`ads`], and what uses the resource waits for it for as long as it takes: a listener opens when its routes and
/// certificates are there, never without.
pub(crate) fn ads_without_timeout() -> ConfigSource {
    ConfigSource { initial_fetch_timeout: Some(Duration::default()), ..ads() }
}

/// Metadata under `envoy-gateway`: the object that a resource comes from.
pub(crate) fn origin(origin: &Origin) -> Metadata {
    origin_with(origin, &[])
}

/// The same with the policies that have a part in the resource.
pub(crate) fn origin_with(origin: &Origin, policies: &[PolicyRef]) -> Metadata {
    let mut fields =
        vec![("kind", text(origin.kind)), ("namespace", text(&origin.namespace)), ("name", text(&origin.name))];
    fields.retain(|(_, v)| v.kind != Some(Kind::StringValue(String::new())));
    if let Some(section) = &origin.section {
        fields.push(("sectionName", text(section)));
    }
    if !origin.annotations.is_empty() {
        fields.push(("annotations", object(origin.annotations.iter().map(|(k, v)| (&**k, text(v))))));
    }
    let list = |values| Value { kind: Some(Kind::ListValue(ListValue { values })) };
    let mut all = vec![("resources", list(vec![object(fields)]))];
    if !policies.is_empty() {
        let policy = |p: &PolicyRef| {
            object([("kind", text(p.kind)), ("namespace", text(&p.namespace)), ("name", text(&p.name))])
        };
        all.push(("policies", list(policies.iter().map(policy).collect())));
    }
    Metadata { filter_metadata: [("envoy-gateway".to_owned(), structure(all))].into(), ..Default::default() }
}

pub(crate) fn text(s: &str) -> Value {
    Value { kind: Some(Kind::StringValue(s.to_owned())) }
}

pub(crate) fn object<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value { kind: Some(Kind::StructValue(structure(fields))) }
}

pub(crate) fn structure<'a>(fields: impl IntoIterator<Item = (&'a str, Value)>) -> Struct {
    Struct { fields: fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect() }
}

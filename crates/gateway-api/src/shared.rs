//! Building blocks of all kinds: open enumerations, schemas that several kinds repeat, the finished definition of a kind.

use std::borrow::Cow;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

/// Declares an enumeration of strings that stays open.
///
/// Each variant is written `Name` or `Name = "wire-form"`; the wire form defaults to the variant's name. The generated
/// type has one more variant, `Unknown(String)`, which keeps any other text as it came, so that a value from a newer
/// release decodes and encodes unchanged. The JSON schema lists the known values only: refusing others is the API
/// server's (or `admission`'s) part.
///
/// Generated items: `as_str`, `KNOWN` (the wire forms in declaration order), `is_known`, `Display`, `From<&str>`,
/// `From<String>`, serde and `JsonSchema`. Ordering and equality are those of the wire form.
///
/// Attributes pass through, so `#[derive(Default)]` on the enumeration with `#[default]` on a variant works.
///
/// ```
/// gateway_api::open_enum! {
///     /// Which way.
///     pub enum Direction {
///         /// Up.
///         Up,
///         /// Down.
///         Down = "down",
///     }
/// }
/// let back: Direction = serde_json::from_str("\"sideways\"").unwrap();
/// assert_eq!(back, Direction::Unknown("sideways".into()));
/// assert_eq!(Direction::Down.as_str(), "down");
/// ```
#[macro_export]
macro_rules! open_enum {
    (@wire $variant:ident) => { stringify!($variant) };
    (@wire $variant:ident $wire:literal) => { $wire };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident $(= $wire:literal)? ),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $vis enum $name {
            $( $(#[$vmeta])* $variant, )+
            /// A value this release does not know, kept as it came.
            Unknown(String),
        }

        impl $name {
            /// The known values in their wire form.
            $vis const KNOWN: &'static [&'static str] = &[ $( $crate::open_enum!(@wire $variant $($wire)?) ),+ ];

            /// The value in its wire form.
            $vis fn as_str(&self) -> &str {
                match self {
                    $( Self::$variant => $crate::open_enum!(@wire $variant $($wire)?), )+
                    Self::Unknown(other) => other,
                }
            }

            /// False for a value that this release does not know.
            $vis fn is_known(&self) -> bool {
                !matches!(self, Self::Unknown(_))
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::convert::From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $( $crate::open_enum!(@wire $variant $($wire)?) => Self::$variant, )+
                    other => Self::Unknown(other.to_owned()),
                }
            }
        }

        impl ::std::convert::From<String> for $name {
            fn from(text: String) -> Self {
                match text.as_str() {
                    $( $crate::open_enum!(@wire $variant $($wire)?) => Self::$variant, )+
                    _ => Self::Unknown(text),
                }
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                <String as ::serde::Deserialize>::deserialize(deserializer).map(Self::from)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                ::std::borrow::Cow::Borrowed(stringify!($name))
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $crate::shared::enum_schema(Self::KNOWN)
            }
        }
    };
}

/// Schema of a string that is one of `known`; what [`open_enum!`] generates.
pub fn enum_schema(known: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": known })
}

/// Schema of a `conditions` list: a map keyed by `type` with at most eight entries, bounds as in Kubernetes' own
/// definition of a condition. For `#[schemars(schema_with = "…")]`.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "description": "Latest observations of the state, one for each type.",
        "type": "array",
        "maxItems": 8,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": condition(),
    })
}

/// Schema of a `conditions` list without a bound on its length, otherwise as [`conditions`].
pub fn conditions_unbounded(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = conditions(generator);
    schema.remove("maxItems");
    schema
}

fn condition() -> Schema {
    json_schema!({
        "description": "One aspect of the state of an object.",
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {
                "description": "When the status last changed.",
                "type": "string",
                "format": "date-time",
            },
            "message": { "description": "Explanation for people; may be empty.", "type": "string", "maxLength": 32768 },
            "observedGeneration": {
                "description": "Generation of the object that this was seen at.",
                "type": "integer",
                "format": "int64",
                "minimum": 0,
            },
            "reason": {
                "description": "Cause of the last change, one word in CamelCase.",
                "type": "string",
                "minLength": 1,
                "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": { "description": "True, False or Unknown.", "type": "string", "enum": ["True", "False", "Unknown"] },
            "type": {
                "description": "Which aspect.",
                "type": "string",
                "maxLength": 316,
                "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
        },
    })
}

/// Schema of an arbitrary JSON value that is kept as it is. For `#[schemars(schema_with = "…")]` on a
/// `serde_json::Value`.
pub fn any_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// The definition of kind `K` as it is installed: `K::crd()` without the traces that Rust types leave in a schema.
///
/// * `nullable` and null among enumerated values (from `Option`) are dropped: a null field is an absent field, as in
///   the published definitions.
/// * `apiVersion`, `kind` and `metadata` are described at the top.
/// * an `example` of the form `{"oneOf": […]}` (likewise `anyOf`, `allOf`, `not`) becomes that keyword: kube moves
///   properties out of the branches of a `oneOf`, so types carry branches there, by
///   `#[schemars(extend("example" = {"oneOf": […]}))]`.
/// * number formats that Kubernetes does not know are dropped.
pub fn definition<K: CustomResourceExt>() -> CustomResourceDefinition {
    finish(K::crd())
}

/// The clean-up behind [`definition`], for a definition that is already at hand (several versions merged, say).
pub fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            clean(schema);
            let top = schema.properties.get_or_insert_default();
            for (name, type_, description) in [
                ("apiVersion", "string", Some("Group and version of this representation.")),
                ("kind", "string", Some("Kind of the object.")),
                // An API server takes nothing here but the type.
                ("metadata", "object", None),
            ] {
                top.entry(name.to_owned()).or_insert_with(|| JSONSchemaProps {
                    type_: Some(type_.to_owned()),
                    description: description.map(str::to_owned),
                    ..Default::default()
                });
            }
        }
    }
    crd
}

fn clean(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    schema.title = None;
    place_branches(schema);
    if let Some(values) = &mut schema.enum_ {
        values.retain(|value| !value.0.is_null());
    }
    if schema.format.as_deref().is_some_and(|f| f.starts_with("uint")) {
        schema.format = None;
    }
    if let Some(properties) = &mut schema.properties {
        properties.values_mut().for_each(clean);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => clean(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(clean),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        clean(values);
    }
    for branches in [&mut schema.all_of, &mut schema.any_of, &mut schema.one_of] {
        branches.iter_mut().flatten().for_each(clean);
    }
    if let Some(not) = &mut schema.not {
        clean(not);
    }
}

/// Moves branches out of `example`; any other example stays.
fn place_branches(schema: &mut JSONSchemaProps) {
    let Some(serde_json::Value::Object(carried)) = schema.example.as_ref().map(|example| &example.0) else { return };
    if carried.is_empty() || !carried.keys().all(|k| matches!(k.as_str(), "oneOf" | "anyOf" | "allOf" | "not")) {
        return;
    }
    let branches: JSONSchemaProps =
        serde_json::from_value(serde_json::Value::Object(carried.clone())).expect("carried branches are schemas");
    schema.example = None;
    schema.one_of = branches.one_of.or(schema.one_of.take());
    schema.any_of = branches.any_of.or(schema.any_of.take());
    schema.all_of = branches.all_of.or(schema.all_of.take());
    schema.not = branches.not.or(schema.not.take());
}

/// Reads a Gateway API duration (GEP-2257): up to four parts of up to five digits, each with the unit `h`, `m`, `s` or
/// `ms`, such as `1h30m` or `500ms`.
///
/// # Errors
/// [`InvalidDuration`] when the text has another form.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, InvalidDuration> {
    let invalid = || InvalidDuration(text.to_owned());
    let mut rest = text;
    let mut millis: u64 = 0;
    let mut parts = 0;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || digits > 5 || parts == 4 {
            return Err(invalid());
        }
        let number: u64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (unit, scale) = if rest.starts_with("ms") {
            (2, 1)
        } else {
            match rest.as_bytes().first() {
                Some(b'h') => (1, 3_600_000),
                Some(b'm') => (1, 60_000),
                Some(b's') => (1, 1_000),
                _ => return Err(invalid()),
            }
        };
        rest = &rest[unit..];
        millis += number * scale;
        parts += 1;
    }
    if parts == 0 { Err(invalid()) } else { Ok(std::time::Duration::from_millis(millis)) }
}

/// A text that is not a Gateway API duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid duration {0:?}: expected up to four numbers with the unit h, m, s or ms, such as \"1h30m\" or \"500ms\""
)]
pub struct InvalidDuration(pub String);

/// Group and kind as one text, `Kind.group` or `Kind` for the core group: how messages name a kind.
pub fn group_kind<'a>(group: &str, kind: &'a str) -> Cow<'a, str> {
    if group.is_empty() { Cow::Borrowed(kind) } else { Cow::Owned(format!("{kind}.{group}")) }
}

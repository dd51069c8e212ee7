//! Schemas of single fields that many Gateway API types repeat, for `#[schemars(schema_with = "…")]`.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A DNS label.
macro_rules! label {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
    };
}

/// A DNS name: labels with dots between them.
macro_rules! subdomain {
    () => {
        concat!(label!(), r"(\.", label!(), ")*")
    };
}

/// What may follow the domain in a controller's or an implementation's own name.
macro_rules! domain_path {
    () => {
        concat!(subdomain!(), r"\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$")
    };
}

fn text(min: Option<u32>, max: u32, pattern: Option<&str>) -> Schema {
    let mut schema = json_schema!({ "type": "string", "maxLength": max });
    if let Some(min) = min {
        schema.insert("minLength".into(), min.into());
    }
    if let Some(pattern) = pattern {
        schema.insert("pattern".into(), pattern.into());
    }
    schema
}

fn list(items: Schema) -> Schema {
    json_schema!({ "type": "array", "items": items })
}

/// API group, empty for the core group.
pub fn group(_: &mut SchemaGenerator) -> Schema {
    text(None, 253, Some(concat!("^$|^", subdomain!(), "$")))
}

/// Kind of an object.
pub fn kind(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 63, Some("^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"))
}

/// Name of an object.
pub fn object_name(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 253, None)
}

/// Name of a namespace.
pub fn namespace(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 63, Some(concat!("^", label!(), "$")))
}

/// Name of a part of an object, also an exact host name.
pub fn section_name(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 253, Some(concat!("^", subdomain!(), "$")))
}

/// Host name, its first label possibly `*`.
pub fn hostname(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 253, Some(concat!(r"^(\*\.)?", subdomain!(), "$")))
}

/// List of [`hostname`]s.
pub fn hostnames(generator: &mut SchemaGenerator) -> Schema {
    list(hostname(generator))
}

/// Name of a controller: a domain and a path.
pub fn controller_name(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 253, Some(concat!("^", domain_path!())))
}

/// Kind of an address.
pub fn address_type(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 253, Some(concat!("^Hostname|IPAddress|NamedAddress|", domain_path!())))
}

/// Name of an HTTP header.
pub fn header_name(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 256, Some(r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$"))
}

/// List of [`header_name`]s.
pub fn header_names(generator: &mut SchemaGenerator) -> Schema {
    list(header_name(generator))
}

/// Value of an HTTP header.
pub fn header_value(_: &mut SchemaGenerator) -> Schema {
    text(Some(1), 4096, Some(r"^[!-~]+([\t ]?[!-~]+)*$"))
}

/// Duration as GEP-2257 writes it; read by [`parse_duration`](crate::shared::parse_duration).
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$" })
}

/// Whole number without a stated width.
pub fn integer(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer" })
}

/// List of HTTP status codes that stand for errors.
pub fn status_codes(_: &mut SchemaGenerator) -> Schema {
    list(json_schema!({ "type": "integer", "minimum": 400, "maximum": 599 }))
}

/// Map of at most 16 free texts, as annotations and options are.
pub fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "string", "minLength": 0, "maxLength": 4096 },
    })
}

/// Map of at most 8 labels.
pub fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {
            "type": "string",
            "minLength": 0,
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}

/// Rules for the keys of a map of labels or annotations; `what` is the word for one of them in messages.
pub(super) fn key_rules(what: &str) -> Value {
    let capital = if what == "label" { "Label" } else { "Annotation" };
    json!([
        {
            "rule": concat!(
                r#"self.all(key, key.matches(r"""^("#, subdomain!(),
                r#"/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$"""))"#
            ),
            "message": format!(
                "{capital} keys must be in the form of an optional DNS subdomain prefix followed by a required name \
                 segment of up to 63 characters."
            ),
        },
        {
            "rule": r#"self.all(key, key.split("/")[0].size() < 253)"#,
            "message": format!(
                "If specified, the {what} key's prefix must be a DNS subdomain not longer than 253 characters in total."
            ),
        },
    ])
}

/// Rules for `parentRefs`: several references to one parent must name different parts of it.
pub(super) fn unique_parents() -> Value {
    // The two rules of the definition differ in white space before one bracket.
    let same = |space: &str| {
        format!(
            "p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.__namespace__) || \
             p1.__namespace__ == '') && (!has(p2.__namespace__) || p2.__namespace__ == '')) || \
             (has(p1.__namespace__) && has(p2.__namespace__) && p1.__namespace__ == p2.__namespace__{space}))"
        )
    };
    json!([
        {
            "rule": format!(
                "self.all(p1, self.all(p2, {} ? ((!has(p1.sectionName) || p1.sectionName == '') == \
                 (!has(p2.sectionName) || p2.sectionName == '') && (!has(p1.port) || p1.port == 0) == \
                 (!has(p2.port) || p2.port == 0)): true))",
                same("")
            ),
            "message": "sectionName or port must be specified when parentRefs includes 2 or more references to the \
                        same parent",
        },
        {
            "rule": format!(
                "self.all(p1, self.exists_one(p2, {} && (((!has(p1.sectionName) || p1.sectionName == '') && \
                 (!has(p2.sectionName) || p2.sectionName == '')) || ( has(p1.sectionName) && has(p2.sectionName) && \
                 p1.sectionName == p2.sectionName)) && (((!has(p1.port) || p1.port == 0) && (!has(p2.port) || \
                 p2.port == 0)) || (has(p1.port) && has(p2.port) && p1.port == p2.port))))",
                same(" ")
            ),
            "message": "sectionName or port must be unique when parentRefs includes 2 or more references to the same \
                        parent",
        },
    ])
}

/// Rules for the `rules` of a route: at most 128 matches in all, counted by `count` for rule number `i`, and names
/// that differ.
pub(super) fn match_limits(count: impl Fn(usize) -> String) -> Value {
    let total = (0..16).map(|i| format!("(self.size() > {i} ? {} : 0)", count(i))).collect::<Vec<_>>().join(" + ");
    json!([
        {
            "rule": format!("{total} <= 128"),
            "message": "While 16 rules and 64 matches per rule are allowed, the total number of matches across all \
                        rules in a route must be less than 128",
        },
        {
            "rule": "self.all(l1, !has(l1.name) || self.exists_one(l2, has(l2.name) && l1.name == l2.name))",
            "message": "Rule name must be unique within the route",
        },
    ])
}

//! A structural schema, read once into a form that is quick to walk.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde_json::Value;

use crate::rules::Rule;

/// Types a schema can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    fn read(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }
}

/// How entries of a list are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListType {
    Atomic,
    Set,
    Map(Vec<String>),
}

/// An expression that is compiled when a value first has to match it.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Whether the text matches somewhere; `None` when the expression is not valid.
    pub(crate) fn is_match(&self, text: &str) -> Option<bool> {
        self.compiled.get_or_init(|| Regex::new(&self.text).ok()).as_ref().map(|regex| regex.is_match(text))
    }
}

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) type_: Option<Type>,
    pub(crate) nullable: bool,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) format: Option<String>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) pattern: Option<Arc<Pattern>>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) required: Vec<String>,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) items: Option<Box<Node>>,
    /// Schema of values under keys that are not in `properties`.
    pub(crate) additional: Option<Box<Node>>,
    /// Whether keys that are not in `properties` are allowed without a schema.
    pub(crate) additional_any: bool,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
    pub(crate) list_type: Option<ListType>,
    pub(crate) default: Option<Value>,
    pub(crate) rules: Vec<Rule>,
    /// Whether this node or one below has rules: others need no walk.
    pub(crate) rules_below: bool,
}

/// Reads schemas, sharing equal patterns.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    patterns: BTreeMap<String, Arc<Pattern>>,
}

impl Reader {
    /// Reads a schema in its JSON form.
    pub(crate) fn read(&mut self, schema: &Value) -> Node {
        let number = |key: &str| schema.get(key).and_then(Value::as_f64);
        let count = |key: &str| schema.get(key).and_then(|v| v.as_u64().or_else(|| v.as_f64().map(|f| f as u64)));
        let flag = |key: &str| schema.get(key).and_then(Value::as_bool).unwrap_or(false);
        let texts = |key: &str| -> Vec<String> {
            let list = schema.get(key).and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let type_ = schema.get("type").and_then(Value::as_str).and_then(Type::read);
        let mut node = Node {
            type_,
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            format: schema.get("format").and_then(Value::as_str).map(str::to_owned),
            enumeration: schema.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            pattern: schema.get("pattern").and_then(Value::as_str).map(|text| self.pattern(text)),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            minimum: number("minimum"),
            maximum: number("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: texts("required"),
            default: schema.get("default").cloned(),
            list_type: match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => Some(ListType::Set),
                Some("map") => Some(ListType::Map(texts("x-kubernetes-list-map-keys"))),
                Some("atomic") => Some(ListType::Atomic),
                _ => None,
            },
            rules: Rule::read(schema.get("x-kubernetes-validations")),
            ..Node::default()
        };
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            node.properties.insert(name.clone(), self.read(property));
        }
        node.items = schema.get("items").filter(|v| v.is_object()).map(|v| Box::new(self.read(v)));
        match schema.get("additionalProperties") {
            Some(Value::Bool(true)) => node.additional_any = true,
            Some(values) if values.is_object() => node.additional = Some(Box::new(self.read(values))),
            _ => {}
        }
        for (key, list) in [("allOf", &mut node.all_of), ("anyOf", &mut node.any_of), ("oneOf", &mut node.one_of)] {
            for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
                list.push(self.read(branch));
            }
        }
        node.not = schema.get("not").filter(|v| v.is_object()).map(|v| Box::new(self.read(v)));
        node.rules_below = !node.rules.is_empty()
            || node.properties.values().any(|n| n.rules_below)
            || node.items.as_ref().is_some_and(|n| n.rules_below)
            || node.additional.as_ref().is_some_and(|n| n.rules_below);
        node
    }

    fn pattern(&mut self, text: &str) -> Arc<Pattern> {
        self.patterns
            .entry(text.to_owned())
            .or_insert_with(|| Arc::new(Pattern { text: text.to_owned(), compiled: OnceLock::new() }))
            .clone()
    }
}

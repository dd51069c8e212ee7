//! Environment variables that override fields of the file.
//!
//! `ENVOY_GATEWAY__PROVIDER__KUBERNETES__LEADERELECTION__LEASEDURATION=20s` sets
//! `provider.kubernetes.leaderElection.leaseDuration`. Case does not count in names, nor do `-` and `_`; a number is a
//! position in a list. Lists of texts or numbers are written with commas; any list or mapping may be written as JSON.

use std::collections::BTreeMap;

use config::Source;
use serde_json::{Map, Value};

use crate::error::{Problem, SettingsError};
use crate::path::{FieldPath, Step};
use crate::schema::{Node, Shape};

/// What the name of each variable starts with.
pub const PREFIX: &str = "ENVOY_GATEWAY";
/// What stands between the parts of a variable's name.
pub const SEPARATOR: &str = "__";

/// Which field was set by which variable.
pub(crate) type Overridden = Vec<(FieldPath, String)>;

/// Writes the overrides of `env` into `tree`, those of whole sections before those of their fields.
///
/// # Errors
/// [`SettingsError::Environment`] with a problem for each variable that names no field or whose value does not fit.
pub(crate) fn apply(
    tree: &mut Value,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Overridden, SettingsError> {
    let mut problems = Vec::new();
    let variables = ours(env, &mut problems);
    let mut settings = Vec::new();
    for (name, text) in variables {
        let target = name.get(PREFIX.len() + SEPARATOR.len()..).unwrap_or_default();
        match locate(target).and_then(|(path, node)| Ok((read(&text, node)?, path))) {
            Ok((value, path)) => settings.push((path, name, value)),
            Err((field, reason, remedy)) => problems.push(Problem {
                origin: origin(&name),
                field,
                value: Some(Value::String(text).to_string()),
                reason,
                remedy,
            }),
        }
    }
    settings.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let mut overridden = Vec::new();
    for (path, name, value) in settings {
        let shown = value.to_string();
        match put(tree, &path.0, value) {
            Ok(()) => overridden.push((path, name)),
            Err(reason) => problems.push(Problem {
                origin: origin(&name),
                field: path.to_string(),
                value: Some(shown),
                reason,
                remedy: "correct the file there, or count list positions from 0 without gaps".to_owned(),
            }),
        }
    }
    problems.sort_by(|a, b| a.origin.cmp(&b.origin));
    if problems.is_empty() { Ok(overridden) } else { Err(SettingsError::Environment(problems)) }
}

pub(crate) fn origin(variable: &str) -> String {
    format!("environment variable {variable}")
}

/// The variables that are meant for us, by name. `config` decides which these are and that case does not count.
fn ours(env: impl Iterator<Item = (String, String)>, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut candidates = config::Map::new();
    for (name, value) in env {
        let key = name.to_lowercase().replace(SEPARATOR, ".");
        if let Some(other) = names.insert(key, name.clone()).filter(|other| *other != name) {
            // Only ours matter; `config` has not chosen yet, so the prefix is compared here.
            if name.to_lowercase().starts_with(&format!("{PREFIX}{SEPARATOR}").to_lowercase()) {
                problems.push(Problem {
                    origin: origin(&name),
                    field: "(name)".to_owned(),
                    value: None,
                    reason: format!("it means the same field as the variable {other}"),
                    remedy: "unset one of them".to_owned(),
                });
            }
        }
        candidates.insert(name, value);
    }
    let environment = config::Environment::with_prefix(PREFIX)
        .prefix_separator(SEPARATOR)
        .separator(SEPARATOR)
        .source(Some(candidates));
    let chosen = environment.collect().expect("texts that are Unicode are collected without an error");
    let prefix = format!("{PREFIX}.").to_lowercase();
    chosen
        .into_iter()
        .filter_map(|(key, value)| {
            let name = names.get(&format!("{prefix}{key}"))?.clone();
            Some((name, value.into_string().expect("values of the environment are texts")))
        })
        .collect()
}

type Mistake = (String, String, String);

/// The field that a variable's name without the prefix means.
fn locate(target: &str) -> Result<(FieldPath, Node), Mistake> {
    let mut path = FieldPath::default();
    let mut node = Node::root();
    for part in target.split(SEPARATOR) {
        let unknown = |remedy: String| {
            (path.clone().key(part).to_string(), "no field of the configuration has this name".to_owned(), remedy)
        };
        if part.is_empty() {
            return Err(unknown(format!("write names between the separators {SEPARATOR:?}")));
        }
        if let Some((name, field)) = node.field_in_any_case(part) {
            path = path.key(name);
            node = field;
        } else if let Some((index, item)) = part.parse().ok().zip(node.item()) {
            path.0.push(Step::Index(index));
            node = item;
        } else if let Some(values) = node.free_values() {
            path = path.key(part);
            node = values;
        } else if node.item().is_some() {
            return Err(unknown("write the position in the list, from 0".to_owned()));
        } else if let Some(near) = node.nearest(part) {
            return Err(unknown(format!("{near} may be meant; else unset the variable")));
        } else {
            let fields: Vec<_> = node.fields().collect();
            return Err(unknown(match fields.is_empty() {
                true => "there is nothing below that field; unset the variable".to_owned(),
                false => format!("the fields there are {}; correct the name or unset the variable", fields.join(", ")),
            }));
        }
    }
    Ok((path, node))
}

/// A value of the node's type out of a variable's text.
fn read(text: &str, node: Node) -> Result<Value, Mistake> {
    let shape = node.shape();
    let mistake = |reason: &str, remedy: &str| ("(value)".to_owned(), reason.to_owned(), remedy.to_owned());
    let structured = |remedy: &str| {
        serde_json::from_str(text).map_err(|error| mistake(&format!("the value is no JSON: {error}"), remedy))
    };
    match shape {
        Shape::Text => Ok(Value::from(text)),
        Shape::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            _ => Err(mistake("the value is neither true nor false", shape.remedy())),
        },
        Shape::Integer => {
            text.parse::<i64>().map(Value::from).map_err(|_| mistake("the value is no whole number", shape.remedy()))
        }
        Shape::Number => text
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .map(Value::from)
            .ok_or_else(|| mistake("the value is no number", shape.remedy())),
        Shape::IntegerOrText => Ok(text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from)),
        Shape::Any => Ok(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))),
        Shape::Object => structured("write it as JSON, {…}, or set its fields one by one"),
        Shape::List if text.trim_start().starts_with('[') => structured("write the list with commas or as JSON, […]"),
        Shape::List => {
            let item = node.item().filter(|item| !matches!(item.shape(), Shape::Object | Shape::List));
            let item = item.ok_or_else(|| {
                mistake("the list is one of mappings", "write it as JSON, […], or set its fields one by one")
            })?;
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            parts.map(|part| read(part, item)).collect::<Result<Vec<_>, _>>().map(Value::Array)
        }
    }
}

/// Sets a value, making sections on the way.
fn put(tree: &mut Value, steps: &[Step], value: Value) -> Result<(), String> {
    let Some((first, rest)) = steps.split_first() else {
        *tree = value;
        return Ok(());
    };
    let slot = match first {
        Step::Key(key) => {
            if tree.is_null() {
                *tree = Value::Object(Map::new());
            }
            let fields = tree.as_object_mut().ok_or("the file has no mapping where the field belongs")?;
            fields.entry(key.clone()).or_insert(Value::Null)
        }
        Step::Index(index) => {
            if tree.is_null() {
                *tree = Value::Array(Vec::new());
            }
            let items = tree.as_array_mut().ok_or("the file has no list where the position belongs")?;
            if *index == items.len() {
                items.push(Value::Null);
            }
            let length = items.len();
            items.get_mut(*index).ok_or_else(|| format!("the list has {length} entries so far"))?
        }
    };
    put(slot, rest, value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn overlay(mut tree: Value, env: &[(&str, &str)]) -> Result<Value, Vec<String>> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        match apply(&mut tree, env) {
            Ok(_) => Ok(tree),
            Err(error) => Err(error.problems().iter().map(Problem::to_string).collect()),
        }
    }

    #[test]
    fn every_type_of_value() {
        let tree = overlay(
            json!({ "provider": { "kubernetes": { "leaderElection": { "leaseDuration": "15s", "retryPeriod": "2s" } } } }),
            &[
                ("ENVOY_GATEWAY__PROVIDER__KUBERNETES__LEADERELECTION__LEASEDURATION", "20s"),
                ("ENVOY_GATEWAY__PROVIDER__KUBERNETES__LEADERELECTION__DISABLE", "TRUE"),
                ("ENVOY_GATEWAY__PROVIDER__KUBERNETES__CLIENT__RATELIMIT__QPS", "7"),
                ("ENVOY_GATEWAY__PROVIDER__KUBERNETES__WATCH__NAMESPACES", "a, b,c"),
                ("envoy_gateway__xdsServer__max_receive_message_size", "8Mi"),
                ("ENVOY_GATEWAY__LOGGING__LEVEL__XDS_SERVER", "debug"),
                ("ENVOY_GATEWAY__RUNTIMEFLAGS__ENABLED", "[\"XDSNameSchemeV2\"]"),
                ("ENVOY_GATEWAY__EXTENSIONMANAGERS__0__NAME", "one"),
                ("ENVOY_GATEWAY__EXTENSIONMANAGERS__1", "{\"name\":\"two\"}"),
                ("ENVOY_GATEWAY__EXTENSIONMANAGERS__1__FAILOPEN", "true"),
                ("ENVOY_GATEWAY__PROVIDER__KUBERNETES__WATCH__NAMESPACESELECTOR__MATCHLABELS__Team", "Edge"),
                ("PATH", "/bin"),
                ("ENVOY_GATEWAY_NAMESPACE", "not ours: one underscore"),
            ],
        );
        assert_eq!(
            tree.unwrap(),
            json!({
                "provider": { "kubernetes": {
                    "leaderElection": { "leaseDuration": "20s", "retryPeriod": "2s", "disable": true },
                    "client": { "rateLimit": { "qps": 7 } },
                    "watch": { "namespaces": ["a", "b", "c"], "namespaceSelector": { "matchLabels": { "Team": "Edge" } } },
                } },
                "xdsServer": { "maxReceiveMessageSize": "8Mi" },
                "logging": { "level": { "xds-server": "debug" } },
                "runtimeFlags": { "enabled": ["XDSNameSchemeV2"] },
                "extensionManagers": [{ "name": "one" }, { "name": "two", "failOpen": true }],
            })
        );
    }

    #[test]
    fn names_the_variable_that_means_nothing() {
        assert_eq!(
            overlay(json!({}), &[("ENVOY_GATEWAY__PROVDER__TYPE", "Kubernetes")]).unwrap_err(),
            [
                "environment variable ENVOY_GATEWAY__PROVDER__TYPE: PROVDER: no field of the configuration has this name (found \"Kubernetes\"); provider may be meant; else unset the variable"
            ]
        );
        for name in ["ENVOY_GATEWAY__", "ENVOY_GATEWAY____ADMIN", "ENVOY_GATEWAY__ADMIN__ADDRESS__HOST__MORE"] {
            let problems = overlay(json!({}), &[(name, "x")]).unwrap_err();
            assert!(problems[0].starts_with(&format!("environment variable {name}: ")), "{problems:?}");
        }
    }

    #[test]
    fn names_the_variable_whose_value_does_not_fit() {
        let problems = overlay(
            json!({}),
            &[
                ("ENVOY_GATEWAY__ADMIN__ENABLEPPROF", "yes"),
                ("ENVOY_GATEWAY__ADMIN__ADDRESS__PORT", "http"),
                ("ENVOY_GATEWAY__ADMIN__ADDRESS", "localhost"),
                ("ENVOY_GATEWAY__EXTENSIONMANAGERS", "a,b"),
                ("ENVOY_GATEWAY__EXTENSIONMANAGERS__2__NAME", "third"),
            ],
        )
        .unwrap_err();
        assert_eq!(problems.len(), 5, "{problems:#?}");
        assert!(problems[0].contains("ADDRESS: (value): the value is no JSON"), "{}", problems[0]);
        assert!(problems[1].ends_with("the value is no whole number (found \"http\"); write a whole number"));
        assert!(problems[2].ends_with("the value is neither true nor false (found \"yes\"); write true or false"));
        assert!(problems[3].contains("the list is one of mappings"));
        assert!(problems[4].contains("extensionManagers[2].name: the list has 0 entries so far"));
    }

    #[test]
    fn two_spellings_of_one_field_are_refused() {
        let problems = overlay(
            json!({}),
            &[("ENVOY_GATEWAY__ADMIN__ENABLEPPROF", "true"), ("envoy_gateway__admin__enablePprof", "false")],
        )
        .unwrap_err();
        assert!(problems[0].contains("it means the same field as the variable ENVOY_GATEWAY__ADMIN__ENABLEPPROF"));
    }
}

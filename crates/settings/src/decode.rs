//! From text to a typed configuration: one document, the right kind, fields of the right type.

use api::config::{API_VERSION, EnvoyGateway, KIND};
use serde_json::Value;

use crate::error::{Problem, SettingsError};
use crate::overrides::{self, Overridden};
use crate::path::FieldPath;
use crate::schema::Node;

/// What problems need to know about where values came from.
#[derive(Debug)]
pub(crate) struct Provenance {
    pub(crate) source: String,
    pub(crate) overridden: Overridden,
    pub(crate) tree: Value,
}

impl Provenance {
    /// A problem of `field`, with what was found there.
    pub(crate) fn problem(&self, field: &str, reason: impl Into<String>, remedy: impl Into<String>) -> Problem {
        let path = FieldPath::parse(field);
        Problem {
            origin: self.variable(&path).unwrap_or_else(|| self.source.clone()),
            field: field.to_owned(),
            value: path.find(&self.tree).filter(|value| !value.is_null()).map(shown),
            reason: reason.into(),
            remedy: remedy.into(),
        }
    }

    /// A problem of several fields together, told of the first: a variable that set any of them is its origin.
    pub(crate) fn joint_problem(
        &self,
        fields: &[String],
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Problem {
        let mut problem = self.problem(fields.first().map_or("", String::as_str), reason, remedy);
        if let Some(origin) = fields.iter().find_map(|field| self.variable(&FieldPath::parse(field))) {
            problem.origin = origin;
        }
        problem
    }

    fn variable(&self, path: &FieldPath) -> Option<String> {
        let setting = self.overridden.iter().rev().find(|(set, _)| path.is_within(set));
        setting.map(|(_, name)| overrides::origin(name))
    }
}

/// A value as it is shown to people: short, without passwords.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => Value::String(without_password(text)).to_string(),
        Value::Object(fields) => format!("a mapping of {} fields", fields.len()),
        Value::Array(items) => format!("a list of {} entries", items.len()),
        other => other.to_string(),
    };
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// `scheme://user:password@host` with the user's part masked, in each part of a comma list.
fn without_password(text: &str) -> String {
    let masked = text.split(',').map(|part| match (part.find("://"), part.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => format!("{}***{}", &part[..scheme + 3], &part[at..]),
        _ => part.to_owned(),
    });
    masked.collect::<Vec<_>>().join(",")
}

/// The document as a tree.
pub(crate) fn tree(text: &str, source: &str) -> Result<Value, SettingsError> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| {
        let location = error.location();
        SettingsError::Syntax {
            file: source.to_owned(),
            line: location.map_or(0, |at| at.line()),
            column: location.map_or(0, |at| at.column()),
            reason: error.without_snippet().to_string(),
        }
    })?;
    check_kind(&tree, source)?;
    Ok(tree)
}

fn check_kind(tree: &Value, source: &str) -> Result<(), SettingsError> {
    let mut problems = Vec::new();
    for (field, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
        let found = tree.get(field).filter(|value| !value.is_null());
        if found.and_then(Value::as_str) == Some(expected) {
            continue;
        }
        problems.push(Problem {
            origin: source.to_owned(),
            field: field.to_owned(),
            value: found.map(shown),
            reason: if found.is_some() { "this is no configuration of this program" } else { "the field is missing" }
                .to_owned(),
            remedy: format!("write {field}: {expected}"),
        });
    }
    if problems.is_empty() { Ok(()) } else { Err(SettingsError::Decode(problems)) }
}

/// Drops null fields: a field without a value is an absent field. What is kept as it is (`value` of a patch) stays.
pub(crate) fn drop_nulls(tree: &mut Value) {
    match tree {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.iter_mut().filter(|(name, _)| *name != "value").for_each(|(_, value)| drop_nulls(value));
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The typed configuration, and warnings of fields that it does not have.
pub(crate) fn decode(provenance: &Provenance) -> Result<(EnvoyGateway, Vec<Problem>), SettingsError> {
    let problems = check_levels(provenance);
    if !problems.is_empty() {
        return Err(SettingsError::Decode(problems));
    }
    let mut unknown = Vec::new();
    let mut record = |path: serde_ignored::Path<'_>| unknown.push(FieldPath::from(&path));
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(&provenance.tree, &mut track);
    let deserializer = serde_ignored::Deserializer::new(deserializer, &mut record);
    let decoded = <EnvoyGateway as serde::Deserialize>::deserialize(deserializer);
    let config = decoded.map_err(|error| {
        let path = FieldPath::from(&track.path());
        SettingsError::Decode(vec![mistyped(provenance, path, &error.to_string())])
    })?;
    Ok((config, unknown.iter().map(|path| unknown_field(provenance, path)).collect()))
}

/// Components and levels of logging, one problem for each entry: a typed decode names neither.
fn check_levels(provenance: &Provenance) -> Vec<Problem> {
    let at = FieldPath::parse("logging.level");
    let entries = at.find(&provenance.tree).and_then(Value::as_object);
    let wrong = entries.into_iter().flatten().filter_map(|(component, level)| {
        let field = at.clone().key(component);
        let node = Node::at(&at)?;
        let (reason, known) = match node.field(component) {
            None => ("there is no such component", node.fields().collect::<Vec<_>>()),
            Some(node) if level.as_str().is_some_and(|level| node.values().contains(&level)) => return None,
            Some(node) => ("the value is none of those known", node.values()),
        };
        Some(provenance.problem(&field.to_string(), reason, format!("write one of {}", known.join(", "))))
    });
    wrong.collect()
}

fn mistyped(provenance: &Provenance, path: FieldPath, message: &str) -> Problem {
    if let Some(name) = message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
        let path = path.key(name);
        let values = Node::at(&path).map(Node::values).unwrap_or_default();
        let remedy = match values.is_empty() {
            true => "add it".to_owned(),
            false => format!("add it with one of {}", values.join(", ")),
        };
        return provenance.problem(&path.to_string(), "the field is missing", remedy);
    }
    let node = Node::at(&path);
    let values = node.map(Node::values).unwrap_or_default();
    if message.starts_with("unknown variant") && !values.is_empty() {
        let remedy = format!("write one of {}", values.join(", "));
        return provenance.problem(&path.to_string(), "the value is none of those known", remedy);
    }
    let (reason, remedy) = match message.split_once(": write ") {
        Some((reason, remedy)) => (reason, format!("write {remedy}")),
        None => (message, node.map_or("write another value", |node| node.shape().remedy()).to_owned()),
    };
    provenance.problem(&path.to_string(), reason, remedy)
}

fn unknown_field(provenance: &Provenance, path: &FieldPath) -> Problem {
    let mut parent = path.clone();
    let near = match parent.0.pop() {
        Some(crate::path::Step::Key(name)) => Node::at(&parent).and_then(|node| node.nearest(&name)),
        _ => None,
    };
    let remedy = near.map_or_else(|| "remove it".to_owned(), |near| format!("{near} may be meant; else remove it"));
    provenance.problem(&path.to_string(), "there is no such field, so it has no effect", remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_masked() {
        assert_eq!(without_password("redis://user:secret@host:6379"), "redis://***@host:6379");
        assert_eq!(without_password("a:1,rediss://:p@w@b:2"), "a:1,rediss://***@b:2");
        assert_eq!(without_password("host:6379"), "host:6379");
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(shown(&Value::from("x".repeat(500))).chars().count(), 121);
    }
}

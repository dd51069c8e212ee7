//! What happens to an object before it is judged: unknown fields are found, nulls dropped, defaults filled in.

use serde_json::{Map, Value};

use crate::error::{ErrorType, FieldError};
use crate::path::Path;
use crate::schema::Node;

/// Names every field that the schema does not have. A name one slip away from a known one is told as a guess.
pub(crate) fn unknown_fields(node: &Node, value: &Value, path: &mut Path, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(property) = node.properties.get(name) {
                    path.field(name, |path| unknown_fields(property, field, path, errors));
                } else if let Some(additional) = &node.additional {
                    path.field(name, |path| unknown_fields(additional, field, path, errors));
                } else if !node.preserve_unknown && !node.additional_any {
                    let detail = match closest(name, node.properties.keys()) {
                        Some(known) => format!("did you mean \"{known}\"?"),
                        None => String::new(),
                    };
                    path.field(name, |path| {
                        errors.push(FieldError::new(path.as_str(), ErrorType::Unknown, None, detail));
                    });
                }
            }
        }
        Value::Array(items) => {
            let none = Node::default();
            if node.items.is_some() || !node.preserve_unknown {
                let node = node.items.as_deref().unwrap_or(&none);
                for (i, item) in items.iter().enumerate() {
                    path.index(i, |path| unknown_fields(node, item, path, errors));
                }
            }
        }
        _ => {}
    }
}

/// The known name within an edit distance of two (one for short names), case apart.
fn closest<'a>(name: &str, known: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let limit = if name.len() < 6 { 1 } else { 2 };
    known
        .map(|candidate| (distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate.as_str()))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Characters to replace, insert, drop or swap with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Drops null fields that the schema neither allows nor has a default for, and fills in defaults, also within defaults.
pub(crate) fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => fill_fields(node, fields, |_| true),
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| fill(node, item));
            }
        }
        _ => {}
    }
}

/// As [`fill`] for the fields of an object that `chosen` names.
pub(crate) fn fill_fields(node: &Node, fields: &mut Map<String, Value>, chosen: impl Fn(&str) -> bool) {
    fields.retain(|name, field| {
        let schema = node.properties.get(name).or(node.additional.as_deref());
        !(chosen(name) && field.is_null() && schema.is_some_and(|schema| !schema.nullable))
    });
    for (name, property) in node.properties.iter().filter(|(name, _)| chosen(name)) {
        if let Some(default) = &property.default
            && !fields.contains_key(name)
        {
            fields.insert(name.clone(), default.clone());
        }
    }
    for (name, field) in fields.iter_mut().filter(|(name, _)| chosen(name)) {
        if let Some(schema) = node.properties.get(name).or(node.additional.as_deref()) {
            fill(schema, field);
        }
    }
}

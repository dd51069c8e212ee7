//! Checks of values against a schema: types, enumerations, bounds, patterns, formats, and the uniqueness that list
//! types promise.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{ErrorType, FieldError};
use crate::formats;
use crate::path::Path;
use crate::schema::{ListType, Node, Type};

/// What is checked beside types, bounds and patterns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checks {
    /// That required fields are there.
    pub(crate) required: bool,
    /// That entries of sets and maps differ.
    pub(crate) unique: bool,
}

/// Checks `value` against `node` and all that is below.
pub(crate) fn check(checks: Checks, node: &Node, value: &Value, path: &mut Path, errors: &mut Vec<FieldError>) {
    let shaped = has_type(node, value);
    if !shaped {
        let wanted = match node.type_ {
            _ if node.int_or_string => "integer or string",
            Some(type_) => type_.as_str(),
            None => "any",
        };
        let found = type_name(value);
        let detail = format!("{} in body must be of type {wanted}: \"{found}\"", path.as_str());
        errors.push(FieldError::new(path.as_str(), ErrorType::TypeInvalid, Some(found.into()), detail));
    }
    let free = node.enumeration.is_empty() || value.is_null() && shaped;
    if !free && !node.enumeration.contains(value) {
        let known = |value: &Value| if value.is_string() { value.to_string() } else { format!("\"{value}\"") };
        let known = node.enumeration.iter().map(known).collect::<Vec<_>>().join(", ");
        let detail = format!("supported values: {known}");
        errors.push(FieldError::new(path.as_str(), ErrorType::NotSupported, Some(value.clone()), detail));
    }
    if !shaped || value.is_null() {
        return;
    }
    match value {
        Value::Object(_) => check_object(checks, node, value, path, errors),
        Value::Array(items) => check_list(checks, node, items, path, errors),
        Value::String(text) => check_text(node, text, path, errors),
        Value::Number(_) => check_number(node, value, path, errors),
        _ => {}
    }
    check_branches(checks, node, value, path, errors);
}

fn has_type(node: &Node, value: &Value) -> bool {
    if value.is_null() {
        return node.nullable || (node.type_.is_none() && !node.int_or_string);
    }
    let integral = |value: &Value| value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|f| f.fract() == 0.0);
    if node.int_or_string {
        return value.is_string() || integral(value);
    }
    match node.type_ {
        None => true,
        Some(Type::Object) => value.is_object(),
        Some(Type::Array) => value.is_array(),
        Some(Type::String) => value.is_string(),
        Some(Type::Boolean) => value.is_boolean(),
        Some(Type::Number) => value.is_number(),
        Some(Type::Integer) => integral(value),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The value itself when it is short to tell, else the name of its type, as the API server shows it.
pub(crate) fn brief(value: &Value) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) => Value::from(type_name(value)),
        _ => value.clone(),
    }
}

fn invalid(path: &Path, value: Value, detail: String) -> FieldError {
    FieldError::new(path.as_str(), ErrorType::Invalid, Some(value), detail)
}

/// Bounds before the pattern, and only the first that is broken; the format in any case.
fn check_text(node: &Node, text: &str, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.as_str();
    if let Some(error) = broken_bound(node, text, path) {
        errors.push(error);
    } else if let Some(pattern) = &node.pattern {
        match pattern.is_match(text) {
            Some(true) => {}
            Some(false) => {
                errors.push(invalid(path, text.into(), format!("{at} in body should match '{}'", pattern.text)));
            }
            None => errors.push(FieldError::new(
                at,
                ErrorType::Internal,
                None,
                format!("the schema's pattern '{}' is not a valid expression", pattern.text),
            )),
        }
    }
    if let Some(format) = &node.format
        && !formats::text_has(format, text)
    {
        errors.push(invalid(path, text.into(), format!("{at} in body must be of type {format}: {text:?}")));
    }
}

fn broken_bound(node: &Node, text: &str, path: &Path) -> Option<FieldError> {
    let at = path.as_str();
    if node.min_length.is_none() && node.max_length.is_none() {
        return None;
    }
    let length = text.chars().count() as u64;
    if let Some(max) = node.max_length.filter(|max| length > *max) {
        return Some(FieldError::new(at, ErrorType::TooLong, None, format!("may not be more than {max} bytes")));
    }
    let min = node.min_length.filter(|min| length < *min)?;
    Some(invalid(path, text.into(), format!("{at} in body should be at least {min} chars long")))
}

/// Only the first bound that is broken is told.
fn check_number(node: &Node, value: &Value, path: &Path, errors: &mut Vec<FieldError>) {
    let at = path.as_str();
    let Some(number) = value.as_f64() else { return };
    if let Some(of) = node.multiple_of.filter(|of| *of > 0.0 && (number / of).fract() != 0.0) {
        errors.push(invalid(path, value.clone(), format!("{at} in body should be a multiple of {of}")));
    } else if let Some(max) = node.maximum
        && (number > max || node.exclusive_maximum && number == max)
    {
        let or_equal = if node.exclusive_maximum { "" } else { " or equal to" };
        errors.push(invalid(path, value.clone(), format!("{at} in body should be less than{or_equal} {max}")));
    } else if let Some(min) = node.minimum
        && (number < min || node.exclusive_minimum && number == min)
    {
        let or_equal = if node.exclusive_minimum { "" } else { " or equal to" };
        errors.push(invalid(path, value.clone(), format!("{at} in body should be greater than{or_equal} {min}")));
    } else if let Some(format) = &node.format
        && let Some((min, max)) = formats::number_range(format)
        && !(min..=max).contains(&number)
    {
        let detail = format!("{at} in body must fit into {format}: it should be between {min} and {max}");
        errors.push(invalid(path, value.clone(), detail));
    }
}

fn check_list(checks: Checks, node: &Node, items: &[Value], path: &mut Path, errors: &mut Vec<FieldError>) {
    let count = items.len() as u64;
    if let Some(min) = node.min_items.filter(|min| count < *min) {
        let detail = format!("{} in body should have at least {min} items", path.as_str());
        errors.push(invalid(path, count.into(), detail));
    }
    if let Some(max) = node.max_items.filter(|max| count > *max) {
        let detail = at_most(max);
        errors.push(FieldError::new(path.as_str(), ErrorType::TooMany, Some(count.into()), detail));
    }
    if let Some(node) = &node.items {
        for (i, item) in items.iter().enumerate() {
            path.index(i, |path| check(checks, node, item, path, errors));
        }
    }
    if !checks.unique {
        return;
    }
    match &node.list_type {
        Some(ListType::Set) => duplicates(items.iter().cloned(), path, errors),
        Some(ListType::Map(keys)) => match items.iter().position(|item| !item.is_object() && !item.is_null()) {
            Some(i) => path.index(i, |path| {
                let detail = "must be an object for an array of list-type map";
                errors.push(invalid(path, brief(&items[i]), detail.to_owned()));
            }),
            None => duplicates(items.iter().map(|item| key_of(node, keys, item)), path, errors),
        },
        _ if node.unique_items => duplicates(items.iter().cloned(), path, errors),
        _ => {}
    }
}

/// The keys of a list entry, with defaults in place of keys that are absent.
fn key_of(node: &Node, keys: &[String], item: &Value) -> Value {
    let properties = node.items.as_ref().map(|items| &items.properties);
    keys.iter()
        .filter_map(|key| {
            let default = || properties.and_then(|p| p.get(key)).and_then(|p| p.default.as_ref());
            item.get(key).or_else(default).map(|value| (key.clone(), value.clone()))
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What a list or map with too many entries should have.
fn at_most(max: u64) -> String {
    format!("must have at most {max} item{}", if max == 1 { "" } else { "s" })
}

/// Names each repeated entry once, where it is first repeated.
fn duplicates(keys: impl Iterator<Item = Value>, path: &mut Path, errors: &mut Vec<FieldError>) {
    let mut seen = BTreeMap::new();
    for (i, key) in keys.enumerate() {
        let times = seen.entry(key.to_string()).or_insert(0);
        *times += 1;
        if *times == 2 {
            path.index(i, |path| {
                errors.push(FieldError::new(path.as_str(), ErrorType::Duplicate, Some(key), ""));
            });
        }
    }
}

fn check_object(checks: Checks, node: &Node, value: &Value, path: &mut Path, errors: &mut Vec<FieldError>) {
    let Some(fields) = value.as_object() else { return };
    for name in node.required.iter().filter(|_| checks.required) {
        if !fields.contains_key(name) {
            path.field(name, |path| errors.push(FieldError::new(path.as_str(), ErrorType::Required, None, "")));
        }
    }
    let count = fields.len() as u64;
    if let Some(min) = node.min_properties.filter(|min| count < *min) {
        let detail = format!("{} in body should have at least {min} properties", path.as_str());
        errors.push(invalid(path, count.into(), detail));
    }
    if let Some(max) = node.max_properties.filter(|max| count > *max) {
        let detail = at_most(max);
        errors.push(FieldError::new(path.as_str(), ErrorType::TooMany, Some(count.into()), detail));
    }
    for (name, field) in fields {
        if let Some(node) = node.properties.get(name).or(node.additional.as_deref()) {
            path.field(name, |path| check(checks, node, field, path, errors));
        }
    }
}

fn check_branches(checks: Checks, node: &Node, value: &Value, path: &mut Path, errors: &mut Vec<FieldError>) {
    for branch in &node.all_of {
        check(checks, branch, value, path, errors);
    }
    for (branches, one, what) in [
        (&node.any_of, false, "must validate at least one schema (anyOf)"),
        (&node.one_of, true, "must validate one and only one schema (oneOf)"),
    ] {
        if branches.is_empty() {
            continue;
        }
        let mut met = 0;
        let mut best: Option<Vec<FieldError>> = None;
        for branch in branches {
            let mut found = Vec::new();
            check(checks, branch, value, path, &mut found);
            if found.is_empty() {
                met += 1;
            } else if best.as_ref().is_none_or(|best| fields_of(&found) < fields_of(best)) {
                best = Some(found);
            }
        }
        if met == 0 || one && met > 1 {
            let found = if met == 0 { "none" } else { "more than one" };
            let detail = format!("\"{}\" {what}. Found {found} valid", path.as_str());
            errors.push(invalid(path, brief(value), detail));
            if met == 0 {
                errors.extend(best.into_iter().flatten());
            }
        }
    }
    if let Some(not) = &node.not {
        let mut found = Vec::new();
        check(checks, not, value, path, &mut found);
        if found.is_empty() {
            let detail = format!("\"{}\" must not validate the schema (not)", path.as_str());
            errors.push(invalid(path, brief(value), detail));
        }
    }
}

/// How many fields the errors are about: the branch with the fewest is the one that was meant.
fn fields_of(errors: &[FieldError]) -> usize {
    errors.iter().map(|error| error.path.as_str()).collect::<std::collections::BTreeSet<_>>().len()
}

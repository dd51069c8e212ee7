//! Statuses made comparable: by object, by parent or ancestor, by listener, by condition type.
//!
//! Status and reason of a condition count, its message is told apart. What later stages of the other write (addresses,
//! `Programmed` of a Gateway, `SupportedVersion` of a GatewayClass) and times are left out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Objects by `Kind namespace/name`.
pub type Statuses = BTreeMap<String, Value>;

/// Makes statuses comparable. `generations` holds the objects (`Kind namespace/name`) whose input has a generation.
#[must_use]
pub fn level(documents: &[Value], generations: &dyn Fn(&str) -> bool) -> Statuses {
    let mut out = Statuses::new();
    for document in documents {
        let key = key(document);
        let kind = document["kind"].as_str().unwrap_or_default();
        let mut status = document["status"].clone();
        if let Value::Object(fields) = &mut status {
            fields.remove("addresses");
        }
        let status = object(kind, status, generations(&key));
        if !status.as_object().is_none_or(Map::is_empty) {
            out.insert(key, status);
        }
    }
    out
}

/// `Kind namespace/name` of an object.
#[must_use]
pub fn key(document: &Value) -> String {
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

fn object(kind: &str, status: Value, generation: bool) -> Value {
    let Value::Object(fields) = status else { return Value::Null };
    let mut out = Map::new();
    for (name, value) in fields {
        let value = match (&*name, value) {
            ("conditions", v) => {
                let mut conditions = conditions(v, generation);
                match kind {
                    "Gateway" => conditions.remove("Programmed"),
                    "GatewayClass" => conditions.remove("SupportedVersion"),
                    _ => None,
                };
                Value::Object(conditions)
            }
            ("listeners", Value::Array(items)) => {
                keyed(items, |i| i["name"].as_str().unwrap_or_default().to_owned(), |i| entry(i, &["name"], generation))
            }
            ("parents", Value::Array(items)) => keyed(
                items,
                |i| reference(&i["parentRef"], &i["controllerName"]),
                |i| entry(i, &["parentRef", "controllerName"], generation),
            ),
            ("ancestors", Value::Array(items)) => keyed(
                items,
                |i| reference(&i["ancestorRef"], &i["controllerName"]),
                |i| entry(i, &["ancestorRef", "controllerName"], generation),
            ),
            (_, v) => v,
        };
        if !value.is_null() && !value.as_object().is_some_and(Map::is_empty) {
            out.insert(name, value);
        }
    }
    Value::Object(out)
}

fn keyed(items: Vec<Value>, key: impl Fn(&Value) -> String, content: impl Fn(Value) -> Value) -> Value {
    let mut out = Map::new();
    for item in items {
        let mut key = key(&item);
        while out.contains_key(&key) {
            key.push_str(" (again)");
        }
        out.insert(key, content(item));
    }
    Value::Object(out)
}

/// An entry of a list without the fields that its key is made of.
fn entry(item: Value, key: &[&str], generation: bool) -> Value {
    let Value::Object(mut fields) = item else { return item };
    fields.retain(|k, v| !key.contains(&k.as_str()) && !v.is_null());
    if let Some(value) = fields.remove("conditions") {
        fields.insert("conditions".to_owned(), Value::Object(conditions(value, generation)));
    }
    match fields.get_mut("supportedKinds") {
        Some(Value::Array(kinds)) if !kinds.is_empty() => kinds.sort_by_cached_key(ToString::to_string),
        _ => {
            fields.remove("supportedKinds");
        }
    }
    Value::Object(fields)
}

fn conditions(value: Value, generation: bool) -> Map<String, Value> {
    let Value::Array(items) = value else { return Map::new() };
    items
        .into_iter()
        .map(|item| {
            let mut condition = json!({"status": item["status"], "reason": item["reason"], "message": item["message"]});
            if generation {
                condition["observedGeneration"] = item["observedGeneration"].clone();
            }
            (item["type"].as_str().unwrap_or_default().to_owned(), condition)
        })
        .collect()
}

/// A reference with group and kind filled in.
fn reference(reference: &Value, controller: &Value) -> String {
    let text = |field: &str, default: &str| reference[field].as_str().unwrap_or(default).to_owned();
    let mut out = format!(
        "{}/{} {}/{}",
        text("group", "gateway.networking.k8s.io"),
        text("kind", "Gateway"),
        text("namespace", ""),
        text("name", "")
    );
    for field in ["sectionName", "port"] {
        if let Some(value) = reference.get(field).filter(|v| !v.is_null()) {
            out.push_str(&format!(" {field} {value}"));
        }
    }
    format!("{out} by {}", controller.as_str().unwrap_or_default())
}

/// The same without the messages: what counts.
#[must_use]
pub fn without_messages(statuses: &Statuses) -> Value {
    fn strip(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let is_condition = fields.contains_key("reason") && fields.contains_key("status");
                let kept = fields.iter().filter(|(k, _)| !(is_condition && *k == "message"));
                Value::Object(kept.map(|(k, v)| (k.clone(), strip(v))).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(strip).collect()),
            other => other.clone(),
        }
    }
    Value::Object(statuses.iter().map(|(k, v)| (k.clone(), strip(v))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": null, "observedGeneration": 3})
    }

    fn route(parents: Value) -> Value {
        json!({"kind": "HTTPRoute", "metadata": {"name": "r", "namespace": "n"}, "status": {"parents": parents}})
    }

    fn parent(name: &str, conditions: Value) -> Value {
        json!({"parentRef": {"name": name}, "controllerName": "c", "conditions": conditions})
    }

    fn counted(document: Value) -> Value {
        without_messages(&level(&[document], &|_| false))
    }

    #[test]
    fn order_and_spelled_out_defaults_do_not_count() {
        let (a, b) = (condition("A", "True", "R", "m"), condition("B", "False", "S", "m"));
        let one = route(json!([parent("x", json!([a, b])), parent("y", json!([a]))]));
        let mut other = route(json!([parent("y", json!([a])), parent("x", json!([b, a]))]));
        other["status"]["parents"][0]["parentRef"] =
            json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "y"});
        assert_eq!(counted(one), counted(other));
    }

    #[test]
    fn status_reason_and_parents_count_messages_are_told_apart() {
        let with = |c: Value| route(json!([parent("x", json!([c]))]));
        let base = counted(with(condition("A", "True", "R", "m")));
        assert_eq!(base, counted(with(condition("A", "True", "R", "other"))));
        assert_ne!(base, counted(with(condition("A", "False", "R", "m"))));
        assert_ne!(base, counted(with(condition("A", "True", "Q", "m"))));
        assert_ne!(base, counted(with(condition("B", "True", "R", "m"))));
        assert_ne!(base, counted(route(json!([parent("y", json!([condition("A", "True", "R", "m")]))]))));
        let all = |m: &str| level(&[with(condition("A", "True", "R", m))], &|_| false);
        assert_ne!(all("m"), all("other"));
    }

    #[test]
    fn generations_count_where_the_input_has_one() {
        let document = route(json!([parent("x", json!([condition("A", "True", "R", "m")]))]));
        let mut newer = document.clone();
        newer["status"]["parents"][0]["conditions"][0]["observedGeneration"] = json!(4);
        let level = |d: &Value, g: bool| super::level(std::slice::from_ref(d), &move |_| g);
        assert_eq!(level(&document, false), level(&newer, false));
        assert_ne!(level(&document, true), level(&newer, true));
    }

    #[test]
    fn later_stages_are_left_out_but_nothing_else() {
        let gateway = |conditions: Value, attached: u32| {
            json!({
                "kind": "Gateway", "metadata": {"name": "g", "namespace": "n"},
                "status": {"conditions": conditions, "addresses": [{"value": "1.1.1.1"}],
                    "listeners": [{"name": "l", "attachedRoutes": attached, "supportedKinds": [], "conditions": []}]}
            })
        };
        let programmed = condition("Programmed", "True", "Programmed", "m");
        assert_eq!(counted(gateway(json!([programmed]), 1)), counted(gateway(json!([]), 1)));
        assert_ne!(counted(gateway(json!([]), 1)), counted(gateway(json!([]), 2)));
        let accepted = condition("Accepted", "False", "Invalid", "m");
        assert_ne!(counted(gateway(json!([accepted]), 1)), counted(gateway(json!([]), 1)));
    }
}

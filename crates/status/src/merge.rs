//! What has to change of a status: compared field by field with what is there. Entries and conditions of others stay where
//! they are; a time moves only when the status of its condition does.

use resources::Kind;
use serde_json::{Map, Value, json};

/// Types of the conditions of Gateways, ListenerSets and GatewayClasses that this controller may have written. Others are
/// someone else's and stay.
const OWN_CONDITIONS: &[&str] = &[
    "Accepted",
    "AttachedListenerSets",
    "Conflicted",
    "InsecureFrontendValidationMode",
    "OverlappingTLSConfig",
    "Programmed",
    "Ready",
    "ResolvedRefs",
    "Scheduled",
    crate::complete::CONTROLLER_CONFLICT,
];

/// Entries that the API server takes.
const MAX_PARENTS: usize = 32;
const MAX_ANCESTORS: usize = 16;
/// Bytes that the API server takes for the message of a condition.
const MAX_MESSAGE: usize = 32_768;

/// Fields of the status that differ, with the value that they are to have (`null`: none). Empty: nothing is to be written.
pub(crate) fn difference(
    kind: Kind,
    wanted: Map<String, Value>,
    observed: &Map<String, Value>,
    controller: &str,
    now: &str,
) -> Map<String, Value> {
    // Entries of an EnvoyProxy name no controller: they are all those of who wants some.
    let (controller, most) =
        if kind == Kind::EnvoyProxy { (None, usize::MAX) } else { (Some(controller), MAX_ANCESTORS) };
    let mut out = Map::new();
    for (field, value) in wanted {
        let old = observed.get(&field).unwrap_or(&Value::Null);
        let new = match (field.as_str(), value) {
            ("parents", Value::Array(v)) => entries(v, list(old), "parentRef", MAX_PARENTS, controller, now),
            ("ancestors", Value::Array(v)) => entries(v, list(old), "ancestorRef", most, controller, now),
            ("conditions", Value::Array(v)) => conditions(v, list(old), Some(OWN_CONDITIONS), now),
            ("listeners", Value::Array(v)) => listeners(v, list(old), now),
            (_, value) => value,
        };
        // Absent and empty are the same where the schema asks for no list.
        let both_empty = matches!(&new, Value::Array(a) if a.is_empty()) && old.is_null() && field == "listeners";
        if *old != new && !both_empty {
            out.insert(field, new);
        }
    }
    out
}

/// What is wanted of an object of which nothing is wanted any more: no entry of ours. `None` for kinds whose status is
/// one controller's alone: that of an object which is not ours is not touched.
pub(crate) fn none_of_ours(kind: Kind, observed: &Map<String, Value>) -> Option<Map<String, Value>> {
    let field = if kind == Kind::EnvoyProxy { "ancestors" } else { entry_field(kind)?.0 };
    observed.get(field)?;
    Some(Map::from_iter([(field.to_owned(), json!([]))]))
}

/// Has an entry of ours.
pub(crate) fn has_own(kind: Kind, observed: &Map<String, Value>, controller: &str) -> bool {
    entry_field(kind).is_some_and(|(field, _)| {
        list(observed.get(field).unwrap_or(&Value::Null)).iter().any(|e| e["controllerName"] == controller)
    })
}

/// The list of a kind whose status has an entry for each parent or ancestor, and what its reference is called.
pub(crate) fn entry_field(kind: Kind) -> Option<(&'static str, &'static str)> {
    match kind {
        Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => {
            Some(("parents", "parentRef"))
        }
        Kind::BackendTlsPolicy
        | Kind::ClientTrafficPolicy
        | Kind::BackendTrafficPolicy
        | Kind::SecurityPolicy
        | Kind::EnvoyExtensionPolicy
        | Kind::EnvoyPatchPolicy => Some(("ancestors", "ancestorRef")),
        _ => None,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn entries(wanted: Vec<Value>, old: &[Value], field: &str, max: usize, controller: Option<&str>, now: &str) -> Value {
    let own = |entry: &Value| controller.is_none_or(|c| entry["controllerName"] == c);
    let mut wanted: Vec<Option<Value>> = wanted.into_iter().map(Some).collect();
    let mut out: Vec<Value> = Vec::new();
    for entry in old {
        if !own(entry) {
            out.push(entry.clone());
            continue;
        }
        let same = |w: &Option<Value>| w.as_ref().is_some_and(|w| reference(&w[field]) == reference(&entry[field]));
        let Some(mut new) = wanted.iter().position(same).and_then(|i| wanted[i].take()) else { continue };
        new["conditions"] = conditions(owned_list(&mut new), list(&entry["conditions"]), None, now);
        // The server fills defaults in: that is no difference.
        new[field] = entry[field].clone();
        out.push(new);
    }
    for mut new in wanted.into_iter().flatten() {
        new["conditions"] = conditions(owned_list(&mut new), &[], None, now);
        out.push(new);
    }
    // Others keep theirs; of ours the last ones do not fit.
    while out.len() > max {
        match out.iter().rposition(own) {
            Some(last) => drop(out.remove(last)),
            None => break,
        }
    }
    out.into()
}

fn owned_list(entry: &mut Value) -> Vec<Value> {
    match entry["conditions"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// A reference with its defaults.
fn reference(value: &Value) -> ([Option<&str>; 5], Option<i64>) {
    let text = |field: &str| value[field].as_str().filter(|t| !t.is_empty());
    let texts = [
        text("group").or(Some("gateway.networking.k8s.io")),
        text("kind").or(Some("Gateway")),
        text("namespace"),
        text("name"),
        text("sectionName"),
    ];
    (texts, value["port"].as_i64())
}

fn listeners(wanted: Vec<Value>, old: &[Value], now: &str) -> Value {
    let with_times = |mut new: Value| {
        let before = old.iter().find(|o| o["name"] == new["name"]);
        let before = before.map(|o| list(&o["conditions"])).unwrap_or_default();
        new["conditions"] = conditions(owned_list(&mut new), before, None, now);
        new
    };
    wanted.into_iter().map(with_times).collect()
}

/// Conditions in the order in which they are; of types that `own` does not name, those that are there.
fn conditions(wanted: Vec<Value>, old: &[Value], own: Option<&[&str]>, now: &str) -> Value {
    let mut wanted: Vec<Option<Value>> = wanted.into_iter().map(Some).collect();
    let mut out: Vec<Value> = Vec::new();
    for before in old {
        let same = |w: &Option<Value>| w.as_ref().is_some_and(|w| w["type"] == before["type"]);
        match wanted.iter().position(same).and_then(|i| wanted[i].take()) {
            Some(new) => out.push(timed(new, Some(before), now)),
            None => {
                let kind = before["type"].as_str().unwrap_or_default();
                if own.is_some_and(|own| !own.contains(&kind)) {
                    out.push(before.clone());
                }
            }
        }
    }
    out.extend(wanted.into_iter().flatten().map(|new| timed(new, None, now)));
    out.into()
}

fn timed(mut new: Value, before: Option<&Value>, now: &str) -> Value {
    if let Some(text) = new["message"].as_str().filter(|t| t.len() > MAX_MESSAGE) {
        let end = (0..=MAX_MESSAGE - 3).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default();
        new["message"] = format!("{}...", &text[..end]).into();
    }
    let since = before.filter(|b| b["status"] == new["status"]).and_then(|b| b["lastTransitionTime"].as_str());
    new["lastTransitionTime"] = since.unwrap_or(now).into();
    new
}

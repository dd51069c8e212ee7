//! From a wanted status to the fields that are written: what translation cannot know is added here, as it was told by
//! others. Nothing is concluded but that a Gateway without a fault of its own is accepted as far as its listeners are, and
//! that one that is not accepted, or has no fleet, is not programmed.

use ir::{ConditionStatus, ListenerStatus, Status};
use resources::{Kind, Object, ObjectKey, Seen};
use serde_json::{Map, Value, json};

use crate::{
    facts::{Facts, FleetFacts},
    features::supported,
    render::render,
};

/// Condition of a GatewayClass while several control planes have its controller name.
pub(crate) const CONTROLLER_CONFLICT: &str = "gateway.envoyproxy.io/ControllerConflict";

/// Addresses that the API server takes.
const MAX_ADDRESSES: usize = 16;

/// All fields of the status that are ours, without times; `null` for those that are to be absent.
pub(crate) fn complete(
    key: &ObjectKey,
    status: &Status,
    facts: &Facts,
    seen: &Seen,
    observed: &Map<String, Value>,
) -> Map<String, Value> {
    let Value::Object(mut out) = render(status, key) else { return Map::new() };
    match key.kind {
        Kind::GatewayClass => {
            let features = supported(facts.beside()).iter().map(|name| json!({"name": name})).collect();
            out.insert("supportedFeatures".to_owned(), features);
            if let (Some(message), Some(Value::Array(conditions))) = (facts.contested(key), out.get_mut("conditions")) {
                let mut condition = json!({"type": CONTROLLER_CONFLICT, "status": "True", "reason": "ControllerNameInUse", "message": message});
                if let Some(generation) = conditions.iter().find_map(|c| c["observedGeneration"].as_i64()) {
                    condition["observedGeneration"] = generation.into();
                }
                conditions.push(condition);
            }
        }
        Kind::Gateway => gateway(status, facts.get(key).as_ref(), seen, observed, &mut out),
        Kind::ListenerSet => {
            out.entry("listeners").or_insert_with(|| json!([]));
        }
        _ => {}
    }
    out
}

fn gateway(
    status: &Status,
    facts: Option<&FleetFacts>,
    seen: &Seen,
    observed: &Map<String, Value>,
    out: &mut Map<String, Value>,
) {
    let generation = generation(status).or_else(|| match &seen.object {
        Some(Object::Gateway(g)) => g.metadata.generation,
        _ => None,
    });
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        let mut condition = json!({"type": kind, "status": status, "reason": reason, "message": message});
        if let Some(generation) = generation {
            condition["observedGeneration"] = generation.into();
        }
        condition
    };
    let conditions = out.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(conditions) = conditions else { return };
    let accepted = conditions.iter().find(|c| c["type"] == "Accepted").map(|c| c["status"] == "True");
    let accepted = accepted.unwrap_or_else(|| {
        let listeners = if let Status::Gateway { listeners, .. } = status { &listeners[..] } else { &[] };
        let (accepted, reason, message) = by_listeners(listeners);
        conditions.insert(0, condition("Accepted", if accepted { "True" } else { "False" }, reason, &message));
        accepted
    });
    if !conditions.iter().any(|c| c["type"] == "Programmed") {
        let before = observed.get("conditions").and_then(Value::as_array).into_iter().flatten();
        let before = before.into_iter().find(|c| c["type"] == "Programmed" && c["status"] != "Unknown");
        let text = |c: &Value, field: &str| c[field].as_str().unwrap_or_default().to_owned();
        conditions.push(match (facts, before) {
            _ if !accepted => {
                condition("Programmed", "False", "Invalid", "The Gateway is not accepted; see its condition Accepted")
            }
            (Some(f), _) => condition("Programmed", f.status.as_str(), f.reason, &f.message),
            (None, Some(c)) => condition("Programmed", &text(c, "status"), &text(c, "reason"), &text(c, "message")),
            (None, None) => {
                let message = "The Gateway has no address yet: its proxies have not been set up";
                condition("Programmed", "False", "AddressNotAssigned", message)
            }
        });
    }
    out.entry("listeners").or_insert_with(|| json!([]));
    out.entry("attachedListenerSets").or_insert(Value::Null);
    if let Some(facts) = facts {
        let addresses = facts.addresses.iter().take(MAX_ADDRESSES);
        let addresses: Vec<_> = addresses.map(|a| json!({"type": a.kind, "value": a.value})).collect();
        out.insert("addresses".to_owned(), if addresses.is_empty() { Value::Null } else { addresses.into() });
    }
}

/// The generation that the status was concluded from.
fn generation(status: &Status) -> Option<i64> {
    let Status::Gateway { conditions, listeners, .. } = status else { return None };
    conditions.iter().chain(listeners.iter().flat_map(|l| &l.conditions)).find_map(|c| c.observed_generation)
}

/// Whether a Gateway is accepted by its listeners: it is when one of them is, or when it has none of its own.
fn by_listeners(listeners: &[ListenerStatus]) -> (bool, &'static str, String) {
    let accepts =
        |l: &&ListenerStatus| l.conditions.iter().any(|c| c.kind == "Accepted" && c.status == ConditionStatus::True);
    let not: Vec<&str> = listeners.iter().filter(|l| !accepts(l)).map(|l| &*l.name).collect();
    if not.is_empty() {
        (true, "Accepted", "The Gateway is accepted".to_owned())
    } else if not.len() < listeners.len() {
        (true, "ListenersNotValid", format!("Not every listener is valid; see the conditions of {}", not.join(", ")))
    } else {
        (false, "ListenersNotValid", format!("No listener is valid; see the conditions of {}", not.join(", ")))
    }
}

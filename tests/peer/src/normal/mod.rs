//! Two correct outputs made comparable: what must not count as a difference is levelled, nothing else.
//!
//! Levelled: spelling of JSON (both sides pass through the typed message), the order of lists that Envoy treats as sets
//! ([`sets`]), absent fields against defaults, a few empty messages, the layout of PEM ([`pem`]), statistics prefixes
//! that no user sets, and generated hash suffixes ([`hashes`]). Names, the order of routes, filters, access logs, header
//! changes of one header, weights, time-outs, certificates are not.

mod hashes;
mod pem;
mod sets;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The lists of a group, each with the message that it holds and the field that names a resource.
pub const LISTS: [(&str, &str, &str); 5] = [
    ("clusters", "envoy.config.cluster.v3.Cluster", "name"),
    ("endpoints", "envoy.config.endpoint.v3.ClusterLoadAssignment", "clusterName"),
    ("listeners", "envoy.config.listener.v3.Listener", "name"),
    ("routes", "envoy.config.route.v3.RouteConfiguration", "name"),
    ("secrets", "envoy.extensions.transport_sockets.tls.v3.Secret", "name"),
];

/// The resources of a group by list and name, each as it is compared.
pub type Group = BTreeMap<(&'static str, String), Value>;

/// Makes a group of the tree `{clusters: […], endpoints: […], …}` comparable.
///
/// # Errors
/// A resource that is no message of its list's type, or a list that is not known, with its path.
pub fn group(tree: &Value) -> Result<Group, String> {
    let Value::Object(lists) = tree else { return Err("a group is no map".to_owned()) };
    let mut out = Group::new();
    for (list, items) in lists {
        let Some((list, message, name_field)) = LISTS.iter().find(|(l, _, _)| l == list) else {
            return Err(format!("{list}: no such list"));
        };
        for item in items.as_array().into_iter().flatten() {
            let typed = typed(message, item).map_err(|e| format!("{list}{e}"))?;
            let name = typed.get(name_field).and_then(Value::as_str).unwrap_or_default().to_owned();
            // The same twice is as good as once.
            if out.get(&(*list, name.clone())).is_some_and(|other| *other != typed) {
                return Err(format!("{list} {name}: there twice, and not the same"));
            }
            out.insert((list, name), typed);
        }
    }
    hashes::rename(&mut out);
    for ((list, _), resource) in &mut out {
        level(resource);
        if *list == "secrets" {
            pem::level(resource);
        }
        sets::sort(resource);
    }
    Ok(out)
}

/// Through the typed message and back: one spelling, no defaults.
fn typed(message: &str, item: &Value) -> Result<Value, String> {
    let bytes = envoy::json::from_value(message, item).map_err(|e| e.to_string())?;
    envoy::json::to_value(message, &bytes).map_err(|e| e.to_string())
}

/// Empty messages that Envoy reads like absent ones.
const EMPTY_LIKE_ABSENT: [&str; 4] = ["commonLbConfig", "localityConfig", "metadata", "googleRe2"];

/// Filters whose statistics prefix no user sets.
const INTERNAL_STATS: [&str; 3] =
    [".ext_proc.v3.ExternalProcessor", ".rbac.v3.RBAC", ".local_ratelimit.v3.LocalRateLimit"];

fn level(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|k, v| !(EMPTY_LIKE_ABSENT.contains(&k.as_str()) && is_empty(v)));
            let internal = type_of(fields).is_some_and(|t| INTERNAL_STATS.iter().any(|s| t.ends_with(s)));
            if internal && type_of(fields).is_some_and(|t| t.contains(".filters.http.")) {
                fields.remove("statPrefix");
                fields.remove("rulesStatPrefix");
            }
            fields.values_mut().for_each(level);
        }
        Value::Array(items) => items.iter_mut().for_each(level),
        _ => {}
    }
}

fn is_empty(v: &Value) -> bool {
    v.as_object().is_some_and(Map::is_empty)
}

fn type_of(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("@type").and_then(Value::as_str)
}

#[cfg(test)]
mod tests;

//! The order of lists that Envoy treats as sets.

use serde_json::{Map, Value};

/// Lists whose order means nothing wherever they are.
const SETS: [&str; 6] =
    ["virtualHosts", "domains", "lbEndpoints", "filterChains", "serverNames", "allowOriginStringMatch"];

/// Header changes: the order counts among those of one header only.
const HEADERS: [&str; 2] = ["requestHeadersToAdd", "responseHeadersToAdd"];

/// Texts that are lists with commas between, of a CORS policy.
const COMMA_LISTS: [&str; 3] = ["allowMethods", "allowHeaders", "exposeHeaders"];

/// Brings every set into the order of its members' JSON, from the inside out.
pub(super) fn sort(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(sort);
            fields.iter_mut().for_each(|(name, value)| field(name, value));
            cors(fields);
            assignment(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

fn field(name: &str, value: &mut Value) {
    match value {
        Value::Array(items) if SETS.contains(&name) => sort_by_json(items),
        Value::Array(items) if HEADERS.contains(&name) => {
            items.sort_by_key(|h| h["header"]["key"].as_str().unwrap_or_default().to_ascii_lowercase());
        }
        Value::Object(inner) if name == "weightedClusters" => {
            if let Some(Value::Array(clusters)) = inner.get_mut("clusters") {
                sort_by_json(clusters);
            }
        }
        // filterMetadata["envoy-gateway"].resources
        Value::Object(inner) if name == "envoy-gateway" => {
            if let Some(Value::Array(resources)) = inner.get_mut("resources") {
                sort_by_json(resources);
            }
        }
        _ => {}
    }
}

fn cors(fields: &mut Map<String, Value>) {
    if !super::type_of(fields).is_some_and(|t| t.ends_with(".cors.v3.CorsPolicy")) {
        return;
    }
    for name in COMMA_LISTS {
        if let Some(Value::String(text)) = fields.get_mut(name) {
            let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
            parts.sort_unstable();
            *text = parts.join(",");
        }
    }
}

/// The localities of one priority are a set; the priorities are not.
fn assignment(fields: &mut Map<String, Value>) {
    if let Some(Value::Array(localities)) =
        fields.get_mut("endpoints").filter(|v| v[0].get("lbEndpoints").is_some() || v[0].get("locality").is_some())
    {
        localities.sort_by_cached_key(|l| (l["priority"].as_u64().unwrap_or(0), json(l)));
    }
}

/// By name where there is one, so that a difference is told of the member that has it.
fn sort_by_json(items: &mut [Value]) {
    items.sort_by_cached_key(|v| (v.get("name").map(json), json(v)));
}

/// JSON with the keys of every map in order.
fn json(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut parts: Vec<String> = fields.iter().map(|(k, v)| format!("{k:?}:{}", json(v))).collect();
            parts.sort();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(json).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

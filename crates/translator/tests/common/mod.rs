//! What the tests share: objects from YAML, a fixture, a request evaluator, a readable picture of a translation.

#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses a part of it")]

pub mod picture;
pub mod request;

use resources::{Change, Object};
use serde_json::Value;
use translator::{Config, ExtensionApis, translate};

/// A class, namespaces, two Services with two pods each, and a Gateway with one HTTP listener for all.
pub const FIXTURE: &str = include_str!("fixture.yaml");

pub fn config() -> Config {
    let extension_apis = ExtensionApis { backend: true, ..ExtensionApis::default() };
    Config { extension_apis, ..Config::default() }
}

/// Documents of a YAML text as changes.
pub fn changes(yaml: &str) -> Vec<Change> {
    let mut out = Vec::new();
    for part in yaml.split("\n---") {
        let value: Value = serde_saphyr::from_str(part.trim_start_matches("---")).expect("YAML");
        if !value.is_null() {
            let (key, object) = Object::from_value(value).expect("an object");
            out.push(Change::Upsert(key, object));
        }
    }
    out
}

/// The fixture and more.
pub fn with_fixture(yaml: &str) -> Vec<Change> {
    let mut all = changes(FIXTURE);
    all.extend(changes(yaml));
    all
}

pub fn full(yaml: &str) -> ir::Full {
    translate(with_fixture(yaml), &config())
}

/// An HTTPRoute of team-a at the fixture's Gateway, from its spec without parents.
pub fn route(name: &str, created: &str, spec: Value) -> Vec<Change> {
    route_in("team-a", name, created, spec)
}

pub fn route_in(namespace: &str, name: &str, created: &str, mut spec: Value) -> Vec<Change> {
    if spec.get("parentRefs").is_none() {
        spec["parentRefs"] = serde_json::json!([{"name": "gw", "namespace": "infra"}]);
    }
    let object = serde_json::json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created, "generation": 1},
        "spec": spec,
    });
    upsert(object)
}

pub fn upsert(object: Value) -> Vec<Change> {
    let (key, object) = Object::from_value(object).expect("an object");
    vec![Change::Upsert(key, object)]
}

pub fn state(parts: &[Vec<Change>]) -> ir::Full {
    translate(changes(FIXTURE).into_iter().chain(parts.iter().flatten().cloned()), &config())
}

/// A condition of a route at its first parent: status and reason, and the message.
pub fn route_condition(full: &ir::Full, namespace: &str, name: &str, kind: &str) -> Option<(String, String)> {
    let key = resources::ObjectKey::new(resources::Kind::HttpRoute, namespace, name);
    let ir::Status::Route { parents } = &**full.statuses.get(&key)? else { return None };
    let c = parents.first()?.conditions.iter().find(|c| c.kind == kind)?;
    Some((format!("{}/{}", c.status.as_str(), c.reason), c.message.clone()))
}

/// A listener of a Gateway's status.
pub fn listener(full: &ir::Full, namespace: &str, gateway: &str, name: &str) -> ir::ListenerStatus {
    let key = resources::ObjectKey::new(resources::Kind::Gateway, namespace, gateway);
    let ir::Status::Gateway { listeners, .. } = &*full.statuses[&key] else { panic!("{key} is no Gateway") };
    listeners.iter().find(|l| &*l.name == name).expect("the listener").clone()
}

/// Conditions in short: `Accepted=True/Accepted`.
pub fn short(conditions: &[ir::Condition]) -> Vec<String> {
    conditions.iter().map(|c| format!("{}={}/{}", c.kind, c.status.as_str(), c.reason)).collect()
}

//! EnvoyProxies: what is wrong with them is told to them and to the classes and Gateways that name them.

#[path = "../../translator/tests/common/mod.rs"]
mod common;

use common::{short, state, upsert};
use ir::{Full, Status};
use resources::{Change, Kind, ObjectKey};
use serde_json::{Value, json};

fn class(proxy: &str) -> Vec<Change> {
    upsert(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "own", "generation": 4},
        "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller", "parametersRef":
            {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "namespace": "infra", "name": proxy}}}))
}

fn gateway(name: &str, proxy: &str) -> Vec<Change> {
    upsert(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": name, "namespace": "infra", "generation": 2},
        "spec": {"gatewayClassName": "own", "listeners": [{"name": "http", "protocol": "HTTP", "port": 8080}],
            "infrastructure": {"parametersRef": {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": proxy}}}}))
}

fn proxy(name: &str, spec: &Value) -> Vec<Change> {
    upsert(json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy",
        "metadata": {"name": name, "namespace": "infra", "generation": 7}, "spec": spec}))
}

fn logs(sink: &Value) -> Value {
    json!({"telemetry": {"accessLog": {"settings": [{"sinks": [sink]}]}}})
}

/// Ancestors of an EnvoyProxy as `Kind name: conditions`.
fn told(full: &Full, name: &str) -> Vec<String> {
    let Some(status) = full.statuses.get(&ObjectKey::new(Kind::EnvoyProxy, "infra", name)) else { return Vec::new() };
    let Status::EnvoyProxy { ancestors } = &**status else { panic!("{status:?}") };
    let entry = |a: &ir::AncestorStatus| {
        assert_eq!(a.conditions[0].observed_generation, Some(7));
        let kind = a.ancestor_ref.kind.as_deref().unwrap_or_default();
        format!("{kind} {}: {}", a.ancestor_ref.name, short(&a.conditions).join(" "))
    };
    ancestors.iter().map(entry).collect()
}

fn conditions(full: &Full, kind: Kind, namespace: &str, name: &str) -> Vec<ir::Condition> {
    match full.statuses.get(&ObjectKey::new(kind, namespace, name)).map(|s| &**s) {
        Some(Status::Gateway { conditions, .. } | Status::GatewayClass { conditions }) => conditions.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn those_that_name_it_are_its_ancestors() {
    let full = state(&[
        class("shared"),
        gateway("a", "shared"),
        gateway("b", "mine"),
        proxy("shared", &json!({})),
        proxy("mine", &json!({})),
        proxy("nobodys", &json!({})),
    ]);
    assert_eq!(
        told(&full, "shared"),
        ["Gateway a: Accepted=True/Accepted", "GatewayClass own: Accepted=True/Accepted"]
    );
    assert_eq!(told(&full, "mine"), ["Gateway b: Accepted=True/Accepted"]);
    assert_eq!(told(&full, "nobodys"), Vec::<String>::new(), "an EnvoyProxy that nobody names is told nothing");
}

#[test]
fn one_that_makes_no_sense_says_so_and_holds_up_only_who_names_it() {
    let bad = logs(&json!({"type": "File"}));
    let full = state(&[
        class("good"),
        gateway("a", "bad"),
        gateway("b", "good"),
        proxy("bad", &bad),
        proxy("good", &json!({})),
    ]);
    assert_eq!(told(&full, "bad"), ["Gateway a: Accepted=False/InvalidParameters"]);
    let of = conditions(&full, Kind::Gateway, "infra", "a");
    assert_eq!(short(&of), ["Accepted=False/InvalidParameters"]);
    let field = "EnvoyProxy infra/bad: spec.telemetry.accessLog.settings[0].sinks[0].file is missing";
    assert!(of[0].message.contains(field), "{}", of[0].message);
    assert!(conditions(&full, Kind::Gateway, "infra", "b").is_empty(), "the other is fine");
    // A class that names it is not accepted, so its Gateways are nobody's.
    let full = state(&[class("bad"), gateway("b", "good"), proxy("bad", &bad), proxy("good", &json!({}))]);
    assert_eq!(told(&full, "bad"), ["GatewayClass own: Accepted=False/InvalidParameters"]);
    assert_eq!(short(&conditions(&full, Kind::GatewayClass, "", "own")), ["Accepted=False/InvalidParameters"]);
}

#[test]
fn a_collector_that_is_not_there_is_told_to_the_gateway_which_goes_on() {
    let sink = |namespace: &str| {
        logs(&json!({"type": "OpenTelemetry", "openTelemetry":
            {"backendRefs": [{"name": "collector", "namespace": namespace, "port": 4317}]}}))
    };
    let service = upsert(json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "collector", "namespace": "there"}, "spec": {"ports": [{"port": 4317}]}}));
    let full = state(&[
        class("there"),
        gateway("a", "there"),
        gateway("b", "away"),
        proxy("there", &sink("there")),
        proxy("away", &sink("away")),
        service,
    ]);
    assert!(conditions(&full, Kind::Gateway, "infra", "a").is_empty());
    let of = conditions(&full, Kind::Gateway, "infra", "b");
    assert_eq!(short(&of), ["Accepted=False/InvalidParameters"]);
    assert!(of[0].message.contains("backendRefs[0]: Service away/collector does not exist"), "{}", of[0].message);
    assert_eq!(told(&full, "away"), ["Gateway b: Accepted=True/Accepted"], "the EnvoyProxy itself is valid");
    assert!(full.infra.contains_key("infra/b"), "it has its fleet nevertheless");
}

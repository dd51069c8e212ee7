//! BackendTrafficPolicies: which holds where, what it does, and that a bad one harms no other.

#[path = "../../translator/tests/common/mod.rs"]
mod common;

use common::{route, state, upsert};
use ir::{Action, Cluster, Forward, Full, Millis, Probe, Route, Status, XdsValue};
use resources::{Change, Kind, ObjectKey};
use serde_json::{Value, json};

const OLD: &str = "2024-01-01T00:00:00Z";
const NEW: &str = "2024-06-01T00:00:00Z";

/// A policy of a namespace for one target, `Kind/name` or `Kind/name/section`.
fn policy(namespace: &str, name: &str, created: &str, target: &str, mut spec: Value) -> Vec<Change> {
    let mut parts = target.split('/');
    let mut reference = json!({"group": "gateway.networking.k8s.io", "kind": parts.next(), "name": parts.next()});
    if let Some(section) = parts.next() {
        reference["sectionName"] = section.into();
    }
    spec["targetRefs"] = json!([reference]);
    upsert(json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": created, "generation": 1}, "spec": spec}))
}

fn shop(name: &str) -> Vec<Change> {
    let rule = |rule: &str, path: &str| json!({"name": rule, "matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web-1", "port": 8080}]});
    let host = format!("{name}.example.test");
    route(name, OLD, json!({"hostnames": [host], "rules": [rule("all", "/"), rule("pay", "/pay")]}))
}

fn values(full: &Full) -> impl Iterator<Item = &XdsValue> {
    full.groups["infra/gw"].resources.values()
}

fn cluster<'f>(full: &'f Full, name: &str) -> &'f Cluster {
    let of = |v: &'f XdsValue| match v {
        XdsValue::Cluster(c) if &*c.name == name => Some(&**c),
        _ => None,
    };
    values(full).find_map(of).expect("the cluster is there")
}

fn entry<'f>(full: &'f Full, host: &str, rule: usize) -> &'f Route {
    let of = |v: &'f XdsValue| match v {
        XdsValue::RouteTable(t) => Some(t.virtual_hosts.iter()),
        _ => None,
    };
    let part = format!("/rule/{rule}/");
    let mut routes = values(full).filter_map(of).flatten().filter(|h| &*h.domains[0] == host).flat_map(|h| &h.routes);
    routes.find(|r| r.name.contains(&part)).expect("the route is there")
}

fn forward<'f>(full: &'f Full, host: &str, rule: usize) -> &'f Forward {
    match &entry(full, host, rule).action {
        Action::Forward(f) => f,
        other => panic!("{other:?}"),
    }
}

/// Conditions of a policy as `TYPE=STATUS/REASON`, by ancestor, and their messages.
fn told(full: &Full, namespace: &str, name: &str) -> Vec<(String, Vec<String>, String)> {
    let key = ObjectKey::new(Kind::BackendTrafficPolicy, namespace, name);
    let Some(Status::Policy { ancestors }) = full.statuses.get(&key).map(|s| &**s) else { return Vec::new() };
    let entry = |a: &ir::ParentStatus| {
        let section = a.parent.section_name.as_deref().map(|s| format!("/{s}")).unwrap_or_default();
        let conditions =
            a.conditions.iter().map(|c| format!("{}={}/{}", c.kind, c.status.as_str(), c.reason)).collect();
        let messages: Vec<_> = a.conditions.iter().map(|c| c.message.as_str()).collect();
        (format!("{}{section}", a.parent.name), conditions, messages.join("\n"))
    };
    ancestors.iter().map(entry).collect()
}

fn conditions(full: &Full, namespace: &str, name: &str) -> Vec<String> {
    told(full, namespace, name).into_iter().flat_map(|(_, c, _)| c).collect()
}

fn timeout(seconds: u32) -> Value {
    json!({"timeout": {"http": {"requestTimeout": format!("{seconds}s")}}})
}

#[test]
fn health_checks_and_outlier_detection_reach_the_cluster() {
    let health = json!({"healthCheck": {
        "active": {"type": "HTTP", "interval": "5s", "timeout": "1s", "http": {"path": "/up", "expectedStatuses": [200, 201, 404]}},
        "passive": {"consecutive5XxErrors": 7, "baseEjectionTime": "9s"}}});
    let full = state(&[shop("a"), policy("team-a", "p", OLD, "HTTPRoute/a", health)]);
    let settings = &cluster(&full, "httproute/team-a/a/rule/0").settings;
    let check = settings.active_check.as_ref().expect("it is probed");
    assert_eq!((check.interval, check.timeout), (Millis(5_000), Millis(1_000)));
    let Probe::Http(probe) = &check.probe else { panic!("{check:?}") };
    assert_eq!(probe.host.as_deref(), Some("a.example.test"), "probes name a host of the route");
    assert_eq!(probe.expected, [200, 201, 404]);
    let outliers = settings.outliers.as_ref().expect("requests are watched");
    assert_eq!((outliers.consecutive_5xx, outliers.base_ejection), (Some(7), Some(Millis(9_000))));
    let told = told(&full, "team-a", "p");
    assert_eq!(told[0].1, ["Accepted=True/Accepted"]);
    let encoded = envoy::encode(&XdsValue::Cluster(cluster(&full, "httproute/team-a/a/rule/0").clone().into()));
    let envoy::Hints::Cluster { warms, .. } = encoded.expect("Envoy takes it").hints else { panic!() };
    assert!(warms, "a cluster that is probed takes traffic well only once it was");
}

#[test]
fn the_closest_policy_holds_and_the_wider_ones_are_told() {
    let full = state(&[
        shop("a"),
        shop("b"),
        policy("infra", "gateway", OLD, "Gateway/gw", timeout(1)),
        policy("team-a", "route", OLD, "HTTPRoute/a", timeout(2)),
        policy("team-a", "rule", OLD, "HTTPRoute/a/pay", timeout(3)),
    ]);
    let seconds = |host, rule| forward(&full, host, rule).timeout.map(|t| t.0 / 1000);
    assert_eq!(seconds("a.example.test", 1), Some(3));
    assert_eq!(seconds("a.example.test", 0), Some(2));
    assert_eq!(seconds("b.example.test", 0), Some(1));
    assert_eq!(&*entry(&full, "a.example.test", 1).policies[0].name, "rule");
    let overridden = "Overridden=True/Overridden".to_owned();
    assert!(conditions(&full, "infra", "gateway").contains(&overridden));
    assert!(conditions(&full, "team-a", "route").contains(&overridden));
    assert!(!conditions(&full, "team-a", "rule").contains(&overridden));
}

#[test]
fn of_two_policies_for_one_target_the_older_holds() {
    let both = [
        policy("team-a", "z-old", OLD, "HTTPRoute/a", timeout(1)),
        policy("team-a", "a-new", NEW, "HTTPRoute/a", timeout(2)),
    ];
    for order in [[0, 1], [1, 0]] {
        let full = state(&[shop("a"), both[order[0]].clone(), both[order[1]].clone()]);
        assert_eq!(forward(&full, "a.example.test", 0).timeout, Some(Millis(1_000)));
        let (_, conditions, message) = &told(&full, "team-a", "a-new")[0];
        assert_eq!(conditions[..], ["Accepted=False/Conflicted"]);
        assert!(message.contains("BackendTrafficPolicy team-a/z-old"), "{message}");
    }
}

#[test]
fn a_policy_that_makes_no_sense_closes_its_routes_and_no_others() {
    let full = state(&[
        shop("a"),
        shop("b"),
        policy("team-a", "bad", OLD, "HTTPRoute/a", json!({"connection": {"bufferLimit": "1T"}})),
        policy("team-a", "good", OLD, "HTTPRoute/b", timeout(4)),
    ]);
    assert!(matches!(entry(&full, "a.example.test", 0).action, Action::Respond { status: 500, .. }));
    assert_eq!(forward(&full, "b.example.test", 0).timeout, Some(Millis(4_000)));
    let (_, conditions, message) = &told(&full, "team-a", "bad")[0];
    assert_eq!(conditions[..], ["Accepted=False/Invalid"]);
    assert!(message.contains("spec.connection.bufferLimit") && message.contains("1T"), "{message}");
    assert_eq!(self::conditions(&full, "team-a", "good"), ["Accepted=True/Accepted"]);
}

#[test]
fn a_limit_that_is_not_supported_closes_rather_than_lets_all_through() {
    let rule = json!({"limit": {"requests": 1, "unit": "Hour"}});
    let limit = json!({"rateLimit": {"global": {"rules": [rule]}}});
    let full = state(&[shop("a"), policy("team-a", "p", OLD, "HTTPRoute/a", limit)]);
    assert!(matches!(entry(&full, "a.example.test", 0).action, Action::Respond { status: 500, .. }));
    let limit = json!({"rateLimit": {"local": {"rules": [rule]}}});
    let full = state(&[shop("a"), policy("team-a", "p", OLD, "HTTPRoute/a", limit)]);
    assert!(matches!(entry(&full, "a.example.test", 0).features[..], [ir::Feature::LocalRateLimit(_)]));
}

#[test]
fn a_policy_can_be_merged_with_that_of_the_gateway() {
    let mut child = timeout(2);
    child["mergeType"] = "StrategicMerge".into();
    child["httpUpgrade"] = json!([{"type": "spdy/3.1"}]);
    let parent = json!({"timeout": {"tcp": {"connectTimeout": "3s"}, "http": {"requestTimeout": "9s"}},
        "httpUpgrade": [{"type": "websocket"}]});
    let full = state(&[
        shop("a"),
        policy("infra", "parent", OLD, "Gateway/gw", parent),
        policy("team-a", "child", OLD, "HTTPRoute/a", child),
    ]);
    assert_eq!(cluster(&full, "httproute/team-a/a/rule/0").connect_timeout, Millis(3_000));
    let forward = forward(&full, "a.example.test", 0);
    assert_eq!(forward.timeout, Some(Millis(2_000)));
    let upgrades: Vec<_> = forward.upgrades.iter().map(|u| &*u.protocol).collect();
    assert_eq!(upgrades, ["spdy/3.1", "websocket"]);
    assert!(conditions(&full, "team-a", "child").contains(&"Merged=True/Merged".to_owned()));
    assert!(conditions(&full, "infra", "parent").contains(&"Merged=True/Merged".to_owned()));
}

#[test]
fn labels_select_targets_and_other_namespaces_need_a_grant() {
    let labelled = |namespace: &str, name: &str| {
        let rule = json!({"backendRefs": [{"name": "web-1", "port": 8080}]});
        upsert(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": OLD, "labels": {"tier": "gold"}},
            "spec": {"parentRefs": [{"name": "gw", "namespace": "infra"}], "hostnames": [format!("{namespace}-{name}.test")],
                "rules": [rule]}}))
    };
    let policy = upsert(json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy",
        "metadata": {"name": "gold", "namespace": "infra", "creationTimestamp": OLD},
        "spec": {"timeout": {"http": {"requestTimeout": "5s"}}, "targetSelectors": [{"kind": "HTTPRoute",
            "namespaces": {"from": "All"}, "matchLabels": {"tier": "gold"}}]}}));
    let grant = upsert(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant",
        "metadata": {"name": "g", "namespace": "team-a"},
        "spec": {"from": [{"group": "gateway.envoyproxy.io", "kind": "BackendTrafficPolicy", "namespace": "infra"}],
            "to": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]}}));
    let without = state(&[labelled("team-a", "r"), policy.clone()]);
    assert_eq!(forward(&without, "team-a-r.test", 0).timeout, None);
    assert!(told(&without, "infra", "gold").is_empty(), "nothing of ours is concerned");
    let with = state(&[labelled("team-a", "r"), shop("a"), policy, grant]);
    assert_eq!(forward(&with, "team-a-r.test", 0).timeout, Some(Millis(5_000)));
    assert_eq!(forward(&with, "a.example.test", 0).timeout, None, "it has no such label");
}

#[test]
fn a_policy_that_envoy_refused_closes_its_routes_until_it_changes() {
    let mut changes: Vec<Change> = [shop("a"), policy("team-a", "p", OLD, "HTTPRoute/a", timeout(2))].concat();
    changes.push(Change::Exclude(ObjectKey::new(Kind::BackendTrafficPolicy, "team-a", "p"), "no such thing".into()));
    let full = state(&[changes]);
    assert!(matches!(entry(&full, "a.example.test", 0).action, Action::Respond { status: 500, .. }));
    assert!(told(&full, "team-a", "p")[0].2.contains("no such thing"));
}

#[test]
fn a_section_that_is_not_there_is_told() {
    let full = state(&[
        shop("a"),
        policy("team-a", "p", OLD, "HTTPRoute/a/nothing", timeout(2)),
        policy("infra", "q", OLD, "Gateway/gw/nothing", timeout(2)),
    ]);
    assert_eq!(conditions(&full, "team-a", "p"), ["Accepted=False/TargetNotFound"]);
    assert_eq!(told(&full, "infra", "q")[0].0, "gw/nothing");
    assert_eq!(forward(&full, "a.example.test", 0).timeout, None);
}

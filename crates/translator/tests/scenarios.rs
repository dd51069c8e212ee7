//! Failures that users of gateways met, by kind of fault: what is right is asked of the translation with requests.

mod common;

use common::{listener, request::Request, route, route_condition, short, state, upsert};
use serde_json::json;

const OLD: &str = "2024-01-01T00:00:00Z";
const NEW: &str = "2024-06-01T00:00:00Z";

fn backend(name: &str) -> serde_json::Value {
    json!([{"name": name, "port": 8080}])
}

fn ask(full: &ir::Full, request: &Request<'_>) -> String {
    common::request::answer(full, request)
}

fn tenant(name: &str, created: &str, kind: &str, value: &str, to: &str) -> Vec<resources::Change> {
    let header = json!({"name": "x-tenant", "type": kind, "value": value});
    let rule = json!({"matches": [{"path": {"value": "/"}, "headers": [header]}], "backendRefs": backend(to)});
    route(name, created, json!({"hostnames": ["api.example.test"], "rules": [rule]}))
}

#[test]
fn s06_an_exact_header_goes_before_an_expression_whatever_the_age() {
    for (any, one) in [(OLD, NEW), (NEW, OLD)] {
        let full = state(&[
            tenant("r-any", any, "RegularExpression", ".*", "web-2"),
            tenant("r-one", one, "Exact", "t1", "web-1"),
        ]);
        let with = |t| Request::get("api.example.test", "/x").header("x-tenant", t);
        assert_eq!(ask(&full, &with("t1")), "web-1");
        assert_eq!(ask(&full, &with("t9")), "web-2");
        assert_eq!(ask(&full, &Request::get("api.example.test", "/x")), "404");
    }
}

#[test]
fn s07_a_route_without_hostnames_serves_those_of_its_listeners() {
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "infra"},
        "spec": {"gatewayClassName": "gc", "listeners": [
            {"name": "apex", "protocol": "HTTP", "port": 80, "hostname": "dev.example.test",
             "allowedRoutes": {"namespaces": {"from": "All"}}},
            {"name": "sub", "protocol": "HTTP", "port": 80, "hostname": "*.dev.example.test",
             "allowedRoutes": {"namespaces": {"from": "All"}}},
        ]},
    });
    let path = |p: &str| json!([{"path": {"type": "PathPrefix", "value": p}}]);
    let full = state(&[
        upsert(gateway),
        route("auth", OLD, json!({"rules": [{"matches": path("/oauth"), "backendRefs": backend("web-1")}]})),
        route(
            "app",
            NEW,
            json!({"hostnames": ["a.dev.example.test"], "rules": [{"matches": path("/"), "backendRefs": backend("web-2")}]}),
        ),
    ]);
    for (host, path, right) in [
        ("dev.example.test", "/oauth", "web-1"),
        ("b.dev.example.test", "/oauth", "web-1"),
        ("a.dev.example.test", "/x", "web-2"),
        ("a.dev.example.test", "/oauth", "web-2"),
        ("other.test", "/oauth", "404"),
        ("dev.example.test", "/x", "404"),
    ] {
        assert_eq!(ask(&full, &Request::get(host, path)), right, "{host}{path}");
    }
    assert_eq!(listener(&full, "infra", "gw", "apex").attached_routes, 1);
    assert_eq!(listener(&full, "infra", "gw", "sub").attached_routes, 2);
}

#[test]
fn s08_a_pattern_that_envoy_refuses_harms_its_route_only() {
    let ok = |path: &str| {
        let matches = json!([{"path": {"type": "PathPrefix", "value": path}}]);
        route("ok", OLD, json!({"rules": [{"matches": matches, "backendRefs": backend("web-2")}]}))
    };
    for (pattern, says) in [
        ("*.foo", "missing argument to repetition operator"),
        ("/v(?x) a", "invalid perl operator"),
        ("/a{1001}", "invalid repetition size"),
    ] {
        let by_path = json!([{"path": {"type": "RegularExpression", "value": pattern}}]);
        let by_header = json!([{"headers": [{"name": "h", "type": "RegularExpression", "value": pattern}]}]);
        let by_query = json!([{"queryParams": [{"name": "q", "type": "RegularExpression", "value": pattern}]}]);
        for matches in [by_path, by_header, by_query] {
            let rule = json!({"matches": matches, "backendRefs": backend("web-1")});
            let bad = route("bad", NEW, json!({"rules": [rule]}));
            let full = state(&[bad.clone(), ok("/ok")]);
            let (accepted, message) = route_condition(&full, "team-a", "bad", "Accepted").expect("a condition");
            assert_eq!(accepted, "False/UnsupportedValue");
            for part in ["spec.rules[0].matches[0]", pattern, says] {
                assert!(message.contains(part), "{message} names {part}");
            }
            assert_eq!(ask(&full, &Request::get("x.test", "/ok")), "web-2");
            assert_eq!(ask(&state(&[bad, ok("/ok2")]), &Request::get("x.test", "/ok2")), "web-2");
        }
    }
}

#[test]
fn s09_of_equal_matches_the_oldest_answers_and_the_others_are_told() {
    let pay = |name: &str, created: &str, to: &str| {
        let matches = json!([{"path": {"type": "Exact", "value": "/pay"}}]);
        let rule = json!({"matches": matches, "backendRefs": backend(to)});
        route(name, created, json!({"hostnames": ["shop.example.test"], "rules": [rule]}))
    };
    let request = Request::get("shop.example.test", "/pay");
    let (old, new) = (pay("r-old", OLD, "web-1"), pay("r-new", NEW, "web-2"));
    assert_eq!(ask(&state(&[old.clone(), new.clone()]), &request), "web-1");
    let full = state(&[new.clone(), old]);
    assert_eq!(ask(&full, &request), "web-1");
    let (told, message) = route_condition(&full, "team-a", "r-new", "RouteRulesOverlap").expect("it is told");
    assert_eq!(told, "True/RouteRulesOverlap");
    assert!(message.contains("HTTPRoute team-a/r-old"), "{message}");
    assert_eq!(ask(&state(std::slice::from_ref(&new)), &request), "web-2");
    // A newcomer is told; what the others were told stays.
    let old = pay("r-old", OLD, "web-1");
    let newest = pay("r-newest", "2024-07-01T00:00:00Z", "web-2");
    let more = state(&[old, new, newest]);
    for name in ["r-old", "r-new"] {
        let told = |full| route_condition(full, "team-a", name, "RouteRulesOverlap");
        assert_eq!(told(&more), told(&full), "{name}");
    }
    let (_, message) = route_condition(&more, "team-a", "r-newest", "RouteRulesOverlap").expect("it is told");
    assert!(message.contains("HTTPRoute team-a/r-old") && !message.contains("r-new,"), "{message}");
    // With the same age the first by namespace and name answers.
    let (a, b) = (pay("a", OLD, "web-2"), pay("b", OLD, "web-1"));
    assert_eq!(ask(&state(&[b, a]), &request), "web-2");
}

#[test]
fn s18_no_endpoints_is_503_and_keeps_its_share() {
    let scaled = |addresses: &[&str]| {
        let endpoints: Vec<_> =
            addresses.iter().map(|a| json!({"addresses": [a], "conditions": {"ready": true}})).collect();
        upsert(json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-1-x", "namespace": "team-a", "labels": {"kubernetes.io/service-name": "web-1"}},
            "addressType": "IPv4", "ports": [{"name": "web", "port": 3000, "protocol": "TCP"}], "endpoints": endpoints,
        }))
    };
    let only = route("r", OLD, json!({"rules": [{"backendRefs": backend("web-1")}]}));
    let request = Request::get("x.test", "/");
    let full = state(&[only.clone(), scaled(&[])]);
    assert_eq!(ask(&full, &request), "status 503");
    let of = |kind: &str| route_condition(&full, "team-a", "r", kind).map(|(c, _)| c);
    assert_eq!(of("Accepted").as_deref(), Some("True/Accepted"));
    assert_eq!(of("ResolvedRefs").as_deref(), Some("True/ResolvedRefs"));
    assert_eq!(of("BackendsAvailable").as_deref(), Some("False/EndpointsNotFound"));
    assert_eq!(ask(&state(&[only, scaled(&["10.1.0.9"])]), &request), "web-1");
    let halves = json!([{"name": "web-1", "port": 8080, "weight": 50}, {"name": "web-2", "port": 8080, "weight": 50}]);
    let half = route("r", OLD, json!({"rules": [{"backendRefs": halves}]}));
    assert_eq!(ask(&state(&[half, scaled(&[])]), &request), "503 50, web-2 50");
}

/// A Secret with a certificate for `host`, and the key of another pair if `foreign`.
fn secret(name: &str, host: &str, foreign: bool) -> Vec<resources::Change> {
    let pair = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a pair");
    let other = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a pair");
    let key = if foreign { &other.signing_key } else { &pair.signing_key };
    upsert(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "infra"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": pair.cert.pem(), "tls.key": key.serialize_pem()},
    }))
}

#[test]
fn s10_a_key_of_another_pair_harms_its_listener_only() {
    let listeners: Vec<_> = (1..=32)
        .map(|i| {
            json!({"name": format!("h{i:02}"), "protocol": "HTTPS", "port": 443, "hostname": format!("h{i:02}.example.test"),
                   "tls": {"certificateRefs": [{"name": format!("s{i:02}")}]}})
        })
        .collect();
    let gateway = upsert(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "infra"},
        "spec": {"gatewayClassName": "gc", "listeners": listeners},
    }));
    let secrets = |bad: Option<usize>| -> Vec<_> {
        (1..=32).flat_map(|i| secret(&format!("s{i:02}"), &format!("h{i:02}.example.test"), bad == Some(i))).collect()
    };
    let full = state(&[gateway.clone(), secrets(Some(7))]);
    let bad = listener(&full, "infra", "gw", "h07");
    let conditions = short(&bad.conditions);
    assert!(conditions.contains(&"ResolvedRefs=False/InvalidCertificateRef".to_owned()), "{conditions:?}");
    assert!(conditions.contains(&"Programmed=False/Invalid".to_owned()), "{conditions:?}");
    let message = &bad.conditions.iter().find(|c| c.kind == "ResolvedRefs").expect("it is told").message;
    assert!(message.contains("Secret infra/s07") && message.contains("does not belong"), "{message}");
    let kinds = |full: &ir::Full, kind: ir::XdsKind| {
        full.groups["infra/gw"].resources.keys().filter(|(k, _)| *k == kind).count()
    };
    assert_eq!(kinds(&full, ir::XdsKind::Secret), 31);
    for i in (1..=32).filter(|i| *i != 7) {
        let fine = short(&listener(&full, "infra", "gw", &format!("h{i:02}")).conditions);
        assert!(fine.contains(&"Programmed=True/Programmed".to_owned()), "{fine:?}");
    }
    let repaired = state(&[gateway, secrets(None)]);
    assert_eq!(kinds(&repaired, ir::XdsKind::Secret), 32);
}

//! What decoding and encoding of the Gateway API kinds promises.

use gateway_api::shared::parse_duration;
use gateway_api::{
    BackendTLSPolicy, Gateway, HTTPRoute, HTTPRouteFilterType, PathMatchType, RouteNamespaces, TLSRoute, definitions,
};
use kube::Resource;
use serde_json::json;
use std::time::Duration;

#[test]
fn an_unknown_enum_value_or_field_does_not_break_a_list() {
    let list: kube::core::ObjectList<HTTPRoute> = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRouteList", "metadata": {},
        "items": [{
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r"},
            "spec": {"rules": [{
                "matches": [{"path": {"type": "Fuzzy", "value": "/"}, "of": "later"}],
                "filters": [{"type": "Telepathy"}],
            }]},
        }],
    }))
    .unwrap();
    let rule = &list.items[0].spec.rules[0];
    let path = rule.matches[0].path.as_ref().unwrap();
    assert_eq!(path.type_, Some(PathMatchType::Unknown("Fuzzy".into())));
    assert_eq!(rule.filters[0].type_, HTTPRouteFilterType::Unknown("Telepathy".into()));
    assert_eq!(serde_json::to_value(&list.items[0]).unwrap()["spec"]["rules"][0]["filters"][0]["type"], "Telepathy");
}

#[test]
fn objects_encode_as_they_decode() {
    let object = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "r", "namespace": "n"},
        "spec": {
            "parentRefs": [{"name": "g", "sectionName": "http"}],
            "hostnames": ["a.example"],
            "rules": [{
                "name": "one",
                "matches": [{"path": {"type": "Exact", "value": "/a"}, "method": "GET",
                             "headers": [{"name": "x", "value": "y"}], "queryParams": [{"name": "q", "value": "1"}]}],
                "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "a", "value": "b"}], "remove": ["c"]}}],
                "backendRefs": [{"name": "s", "port": 80, "weight": 3, "filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "h"}}]}],
                "timeouts": {"request": "10s"},
            }],
        },
    });
    let route: HTTPRoute = serde_json::from_value(object.clone()).unwrap();
    let backend = &route.spec.rules[0].backend_refs[0];
    assert_eq!((backend.name.as_str(), backend.port, backend.weight), ("s", Some(80), Some(3)));
    assert_eq!(serde_json::to_value(&route).unwrap(), object);

    let policy = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "BackendTLSPolicy", "metadata": {"name": "p"},
        "spec": {
            "targetRefs": [{"group": "", "kind": "Service", "name": "s", "sectionName": "https"}],
            "validation": {"hostname": "h", "wellKnownCACertificates": "System",
                           "subjectAltNames": [{"type": "URI", "uri": "spiffe://a/b"}]},
        },
    });
    let typed: BackendTLSPolicy = serde_json::from_value(policy.clone()).unwrap();
    assert_eq!(typed.spec.target_refs[0].name, "s");
    assert_eq!(serde_json::to_value(&typed).unwrap(), policy);
}

#[test]
fn older_versions_decode_into_the_same_type() {
    let route: TLSRoute = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TLSRoute", "metadata": {"name": "r"},
        "spec": {"rules": [{"backendRefs": [{"name": "s", "port": 1}]}]},
    }))
    .unwrap();
    assert!(route.spec.hostnames.is_empty());
    let crds = definitions();
    let tls = crds.iter().find(|c| c.spec.names.kind == "TLSRoute").unwrap();
    let versions: Vec<_> = tls.spec.versions.iter().map(|v| (v.name.as_str(), v.storage)).collect();
    assert_eq!(versions, [("v1", true), ("v1alpha3", false), ("v1alpha2", false)]);
}

#[test]
fn defaults_are_in_the_schema_not_in_decoding() {
    let gateway: Gateway = serde_json::from_value(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": "g"},
        "spec": {"gatewayClassName": "c", "listeners": [{"name": "l", "port": 80, "protocol": "HTTP"}]},
    }))
    .unwrap();
    assert_eq!(gateway.spec.listeners[0].allowed_routes, None);
    assert_eq!(RouteNamespaces::default().from, None);
    assert_eq!(Gateway::kind(&()), "Gateway");
    let crds = definitions();
    let schema =
        serde_json::to_value(&crds.iter().find(|c| c.spec.names.kind == "Gateway").unwrap().spec.versions[0].schema);
    let default = schema.unwrap();
    let default = default
        .pointer("/openAPIV3Schema/properties/spec/properties/listeners/items/properties/allowedRoutes/default")
        .unwrap();
    assert_eq!(default, &json!({"namespaces": {"from": "Same"}}));
}

#[test]
fn durations_follow_gep_2257() {
    for (text, millis) in
        [("0s", 0), ("1h30m", 5_400_000), ("500ms", 500), ("1s1ms", 1001), ("99999h", 359_996_400_000)]
    {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
    }
    for text in ["", "1", "-1s", "1.5s", "1d", "100000s", "1h1m1s1ms1h", "s", "1 s", "1us"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

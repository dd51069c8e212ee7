//! What admission does to objects, rule by rule.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests are tests")]

use admission::{Admission, ErrorType, Refused};
use serde_json::{Value, json};

fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "x", "namespace": "n" }, "spec": spec })
}

fn gateway_api(kind: &str, spec: Value) -> Value {
    object("gateway.networking.k8s.io/v1", kind, spec)
}

fn route(rules: Value) -> Value {
    gateway_api("HTTPRoute", json!({ "rules": rules }))
}

fn gateway(listeners: Value) -> Value {
    gateway_api("Gateway", json!({ "gatewayClassName": "c", "listeners": listeners }))
}

fn refusal(object: Value) -> Refused {
    *Admission::new().admit(object).expect_err("the object is wrong")
}

/// Texts of the errors, in their order.
fn errors(object: Value) -> Vec<String> {
    refusal(object).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_filled_in_at_every_depth_and_once() {
    let admission = Admission::new();
    let admitted =
        admission.admit(route(json!([{ "matches": [{}], "backendRefs": [{ "name": "s", "port": 1 }] }, {}]))).unwrap();
    assert_eq!(
        admitted["spec"]["rules"],
        json!([
            {
                "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
                "backendRefs": [{ "group": "", "kind": "Service", "name": "s", "port": 1, "weight": 1 }],
            },
            { "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }] },
        ])
    );
    assert_eq!(admission.admit(admitted.clone()).unwrap(), admitted, "a stored object comes back unchanged");

    let admitted = admission.admit(gateway(json!([{ "name": "l", "port": 80, "protocol": "HTTP" }]))).unwrap();
    assert_eq!(admitted["spec"]["listeners"][0]["allowedRoutes"], json!({ "namespaces": { "from": "Same" } }));
    assert!(admitted.get("status").is_none(), "a status is not made up");
    let admitted = admission.admit(gateway_api("HTTPRoute", json!({}))).unwrap();
    assert_eq!(
        admitted["spec"]["rules"][0]["matches"][0]["path"]["value"], "/",
        "defaults are filled in inside defaults"
    );
}

#[test]
fn nulls_are_absent_fields() {
    let admitted = Admission::new().admit(route(json!([{ "name": null, "matches": null, "filters": null }]))).unwrap();
    assert_eq!(admitted["spec"]["rules"], json!([{ "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }] }]));
    let mut object = route(json!([{}]));
    object["metadata"]["creationTimestamp"] = Value::Null;
    assert!(Admission::new().admit(object).is_ok(), "generated manifests have this");
}

#[test]
fn unknown_fields_are_refused_with_a_guess() {
    assert_eq!(
        errors(route(json!([{ "backendRef": [], "matchs": [{ "unheardOf": 1 }] }]))),
        [
            "spec.rules[0].backendRef: Unknown field: did you mean \"backendRefs\"?",
            "spec.rules[0].matchs: Unknown field: did you mean \"matches\"?",
        ]
    );
    let mut object = route(json!([{}]));
    object["metadata"]["lables"] = json!({});
    object["sepc"] = json!({});
    assert_eq!(
        errors(object),
        ["metadata.lables: Unknown field: did you mean \"labels\"?", "sepc: Unknown field: did you mean \"spec\"?"]
    );
}

#[test]
fn shapes_are_checked_with_the_api_servers_words() {
    assert_eq!(
        errors(gateway(json!([{ "name": "l", "port": "80", "protocol": "HTTP" }]))),
        [
            "spec.listeners[0].port: Invalid value: \"string\": spec.listeners[0].port in body must be of type integer: \"string\""
        ]
    );
    assert_eq!(
        errors(gateway(json!([{ "port": 70000, "protocol": "HTTP", "hostname": "-a", "name": "" }]))),
        [
            "spec.listeners[0].hostname: Invalid value: \"-a\": spec.listeners[0].hostname in body should match \
             '^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'",
            "spec.listeners[0].name: Invalid value: \"\": spec.listeners[0].name in body should be at least 1 chars long",
            "spec.listeners[0].port: Invalid value: 70000: spec.listeners[0].port in body should be less than or equal \
             to 65535",
        ]
    );
    assert_eq!(
        errors(gateway_api("Gateway", json!({ "listeners": [] }))).len(),
        2,
        "a required field and a short list"
    );
    let many: Vec<Value> =
        (0..65).map(|i| json!({ "name": format!("l{i}"), "port": i + 1, "protocol": "HTTP" })).collect();
    assert_eq!(errors(gateway(many.into())), ["spec.listeners: Too many: 65: must have at most 64 items"]);
    assert_eq!(
        errors(route(json!([{ "filters": [{ "type": "Nonsense" }] }]))),
        [
            "spec.rules[0].filters[0].type: Unsupported value: \"Nonsense\": supported values: \"RequestHeaderModifier\", \
          \"ResponseHeaderModifier\", \"RequestMirror\", \"RequestRedirect\", \"URLRewrite\", \"ExtensionRef\", \"CORS\", \
          \"ExternalAuth\""
        ]
    );
    assert_eq!(
        errors(gateway_api("Gateway", json!("text")))[0],
        "spec: Invalid value: \"string\": spec in body must be of type object: \"string\""
    );
    assert_eq!(
        errors(gateway_api("GatewayClass", json!({ "controllerName": "a/b", "description": "x".repeat(65) })))[0],
        "spec.description: Too long: may not be more than 64 bytes"
    );
}

#[test]
fn rules_are_evaluated_where_the_shape_is_right() {
    for (object, expected) in [
        (
            route(json!([{ "matches": [{ "path": { "type": "Exact", "value": "/a//b" } }] }])),
            "spec.rules[0].matches[0].path: Invalid value: \"object\": must not contain '//' when type one of ['Exact', \
             'PathPrefix']",
        ),
        (
            route(json!([{ "matches": [{ "path": { "value": "/a b" } }] }])),
            "spec.rules[0].matches[0].path: Invalid value: \"object\": must only contain valid characters (matching \
             ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$) for types ['Exact', 'PathPrefix']",
        ),
        (
            route(json!([{ "backendRefs": [{ "name": "s" }] }])),
            "spec.rules[0].backendRefs[0]: Invalid value: \"object\": Must have port for Service reference",
        ),
        (
            route(json!([{ "timeouts": { "request": "1s", "backendRequest": "1500ms" } }])),
            "spec.rules[0].timeouts: Invalid value: \"object\": backendRequest timeout cannot be longer than request timeout",
        ),
        (
            route(
                json!([{ "filters": [{ "type": "URLRewrite", "urlRewrite": { "path": { "type": "ReplacePrefixMatch", "replacePrefixMatch": "/" } } }], "matches": [{}, {}] }]),
            ),
            "spec.rules[0]: Invalid value: \"object\": When using URLRewrite filter with path.replacePrefixMatch, exactly \
             one PathPrefix match must be specified",
        ),
        (
            gateway_api("HTTPRoute", json!({ "parentRefs": [{ "name": "g" }, { "name": "g", "namespace": "" }] })),
            "spec.parentRefs[1].namespace: Invalid value: \"\": spec.parentRefs[1].namespace in body should be at least 1 \
             chars long",
        ),
        (
            gateway_api(
                "HTTPRoute",
                json!({ "parentRefs": [{ "name": "g", "namespace": "a" }, { "name": "g", "namespace": "a" }] }),
            ),
            "spec.parentRefs: Invalid value: \"array\": sectionName or port must be unique when parentRefs includes 2 or \
             more references to the same parent",
        ),
        (
            gateway(
                json!([{ "name": "a", "port": 1, "protocol": "HTTP" }, { "name": "b", "port": 1, "protocol": "HTTP" }]),
            ),
            "spec.listeners: Invalid value: \"array\": Combination of port, protocol and hostname must be unique for each \
             listener",
        ),
        (
            gateway(json!([{ "name": "a", "port": 1, "protocol": "HTTPS", "tls": {} }])),
            "spec.listeners[0].tls: Invalid value: \"object\": no such key evaluating rule: \
             certificateRefs or options must be specified when mode is Terminate",
        ),
        (
            gateway_api(
                "TLSRoute",
                json!({ "hostnames": ["10.0.0.1"], "rules": [{ "backendRefs": [{ "name": "s", "port": 1 }] }] }),
            ),
            "spec.hostnames: Invalid value: \"array\": Hostnames cannot contain an IP",
        ),
        (
            gateway_api(
                "BackendTLSPolicy",
                json!({ "targetRefs": [{ "group": "", "kind": "Service", "name": "s" }], "validation": { "hostname": "h" } }),
            ),
            "spec.validation: Invalid value: \"object\": must specify either CACertificateRefs or WellKnownCACertificates",
        ),
    ] {
        let kind = object["kind"].clone();
        assert_eq!(errors(object).first().map(String::as_str), Some(expected), "{kind}");
    }
    let wrong_shape = errors(route(json!([{ "backendRefs": [{ "name": "s", "group": 1 }] }])));
    assert_eq!(wrong_shape.len(), 1, "rules wait for the shape: {wrong_shape:?}");
    let terminated = json!([{ "name": "a", "port": 1, "protocol": "HTTPS", "tls": { "options": { "a/b": "c" } } }]);
    assert!(Admission::new().admit(gateway(terminated)).is_ok(), "one side of an `or` may fail to evaluate");
    assert!(
        Admission::new().admit(gateway_api("GatewayClass", json!({ "controllerName": "a.b/c" }))).is_ok(),
        "rules that compare with the previous state do not concern a new object"
    );
}

#[test]
fn addresses_have_the_form_of_their_type() {
    let with = |addresses: Value| {
        let listeners = json!([{ "name": "l", "port": 80, "protocol": "HTTP" }]);
        gateway_api("Gateway", json!({ "gatewayClassName": "c", "listeners": listeners, "addresses": addresses }))
    };
    for good in [json!([{ "value": "10.0.0.1" }]), json!([{ "type": "Hostname", "value": "a.b" }]), json!([{}])] {
        assert!(Admission::new().admit(with(good.clone())).is_ok(), "{good}");
    }
    let found = errors(with(json!([{ "value": "300.0.0.1" }])));
    assert!(found[0].starts_with("spec.addresses[0]: Invalid value") && found[0].contains("(oneOf)"), "{found:?}");
}

#[test]
fn versions_have_their_own_schema() {
    let rules =
        json!([{ "backendRefs": [{ "name": "s", "port": 1 }] }, { "backendRefs": [{ "name": "s", "port": 2 }] }]);
    let old = object("gateway.networking.k8s.io/v1alpha2", "TCPRoute", json!({ "rules": rules.clone() }));
    assert!(Admission::new().admit(old).is_ok());
    assert_eq!(
        errors(gateway_api("TCPRoute", json!({ "rules": rules }))),
        ["spec.rules: Too many: 2: must have at most 1 item"]
    );
    assert_eq!(
        errors(object("gateway.networking.k8s.io/v9", "HTTPRoute", json!({}))),
        ["apiVersion: Invalid value: no matches for kind \"HTTPRoute\" in version \"gateway.networking.k8s.io/v9\""]
    );
    assert_eq!(
        errors(object("gateway.networking.k8s.io/v1", "HTPRoute", json!({}))),
        ["kind: Invalid value: no matches for kind \"HTPRoute\" in version \"gateway.networking.k8s.io/v1\""]
    );
    assert_eq!(errors(json!({ "metadata": {} })), ["apiVersion: Required value", "kind: Required value"]);
}

#[test]
fn objects_of_other_groups_pass_as_they_are() {
    let other = object("foo.example.io/v1", "Bar", json!({ "any": [null, 1] }));
    assert_eq!(Admission::new().admit(other.clone()).unwrap(), other);
    let mut nameless = other;
    nameless["metadata"] = json!({});
    assert_eq!(errors(nameless), ["metadata.name: Required value: name or generateName is required"]);
}

#[test]
fn kinds_of_an_extension_can_be_made_known() {
    let definition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "bars.foo.example.io" },
        "spec": {
            "group": "foo.example.io", "scope": "Namespaced", "names": { "kind": "Bar", "plural": "bars" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object",
                "properties": { "spec": {
                    "type": "object",
                    "properties": {
                        "size": { "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true, "pattern": "^[0-9]+Mi$" },
                        "min__max": { "type": "integer", "default": 3 },
                        "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                        "names": { "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string" } },
                    },
                    "x-kubernetes-validations": [{
                        "rule": "self.min__underscores__max > 2", "fieldPath": ".min__max",
                        "reason": "FieldValueForbidden", "messageExpression": "'is ' + string(self.min__underscores__max)",
                    }],
                } },
            } } }],
        },
    }))
    .unwrap();
    let admission = Admission::strict().with(definition);
    let judge = |spec: Value| -> Vec<String> {
        match admission.admit(object("foo.example.io/v1", "Bar", spec)) {
            Ok(_) => Vec::new(),
            Err(refused) => refused.errors.iter().map(ToString::to_string).collect(),
        }
    };
    assert_eq!(judge(json!({ "size": "5Mi", "any": { "a": { "b": 1 } } })), Vec::<String>::new());
    assert_eq!(judge(json!({ "size": 5 })), Vec::<String>::new());
    assert_eq!(
        judge(json!({ "size": "5" })),
        ["spec.size: Invalid value: \"5\": spec.size in body should match '^[0-9]+Mi$'"]
    );
    assert_eq!(judge(json!({ "size": 1.5 })).len(), 1);
    assert_eq!(judge(json!({ "names": ["a", "b", "a"] })), ["spec.names[2]: Duplicate value: \"a\""]);
    assert_eq!(judge(json!({ "min__max": 1 })), ["spec.min__max: Forbidden: is 1"]);
}

#[test]
fn status_is_checked_when_it_is_there() {
    let mut object = route(json!([{}]));
    object["status"] = json!({ "parents": [{ "controllerName": "a/b", "parentRef": { "name": "g" }, "conditions": [
        { "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "yesterday" },
        { "type": "ResolvedRefs", "status": "Maybe", "reason": "R", "message": "" },
    ] }] });
    assert_eq!(
        errors(object),
        [
            "status.parents[0].conditions[0].lastTransitionTime: Invalid value: \"yesterday\": \
             status.parents[0].conditions[0].lastTransitionTime in body must be of type date-time: \"yesterday\"",
            "status.parents[0].conditions[1].lastTransitionTime: Required value",
            "status.parents[0].conditions[1].status: Unsupported value: \"Maybe\": supported values: \"False\", \"True\", \
             \"Unknown\"",
        ]
        .map(|line| line.replace("\"False\", \"True\", \"Unknown\"", "\"True\", \"False\", \"Unknown\""))
    );
}

#[test]
fn core_kinds_are_decoded() {
    let service = |spec: Value| object("v1", "Service", spec);
    assert_eq!(
        errors(service(json!({ "ports": [{ "port": "http" }], "selektor": {} }))),
        [
            "spec.selektor: Unknown field: did you mean \"selector\"?",
            "spec.ports[0].port: Invalid value: \"string\": spec.ports[0].port in body must be of type integer: \"string\"",
        ]
    );
    assert!(Admission::new().admit(service(json!({ "ports": [{ "port": 80, "targetPort": "http" }] }))).is_ok());
    let slice = json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": { "name": "e" },
        "endpoints": [{ "addresses": "10.0.0.1" }], "ports": null });
    assert_eq!(
        errors(slice),
        [
            "endpoints[0].addresses: Invalid value: \"string\": endpoints[0].addresses in body must be of type array: \"string\""
        ]
    );
    let secret =
        |data: Value| json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s" }, "data": data });
    assert_eq!(errors(secret(json!({ "a": "not base64" })))[0].split(": ").next(), Some("data.a"));
    let mut with_texts = secret(json!({ "a": "b2xk", "b": "Yg==" }));
    with_texts["stringData"] = json!({ "a": "new" });
    assert_eq!(Admission::new().admit(with_texts).unwrap()["data"], json!({ "a": "bmV3", "b": "Yg==" }));
}

#[test]
fn only_the_strict_form_minds_what_does_no_harm_in_files() {
    let strict = |object: Value| -> Vec<String> {
        assert!(Admission::new().admit(object.clone()).is_ok(), "{object}");
        let refused = Admission::strict().admit(object).expect_err("a cluster refuses it");
        refused.errors.iter().map(|e| format!("{} {}", e.path, e.kind.as_str())).collect()
    };
    let mut named = route(json!([{}]));
    named["metadata"] =
        json!({ "name": "Shop", "namespace": "a.b", "labels": { "a b": "c d" }, "annotations": { "/": "" } });
    assert_eq!(
        strict(named),
        [
            "metadata.name Invalid value",
            "metadata.namespace Invalid value",
            "metadata.labels Invalid value",
            "metadata.labels Invalid value",
            "metadata.annotations Invalid value",
        ]
    );
    let twice = json!([{ "filters": [{ "type": "RequestHeaderModifier", "requestHeaderModifier": {
        "set": [{ "name": "a", "value": "1" }, { "name": "a", "value": "2" }], "remove": ["b", "b"] } }] }]);
    assert_eq!(
        strict(route(twice)),
        [
            "spec.rules[0].filters[0].requestHeaderModifier.remove[1] Duplicate value",
            "spec.rules[0].filters[0].requestHeaderModifier.set[1] Duplicate value",
        ]
    );
    let ports = json!({ "ports": [{ "port": 0, "name": "a" }, { "port": 80 }, { "port": 81, "name": "a" }] });
    assert_eq!(
        strict(object("v1", "Service", ports)),
        ["spec.ports[0].port Invalid value", "spec.ports[1].name Required value", "spec.ports[2].name Duplicate value"]
    );
}

#[test]
fn a_namespace_on_a_cluster_wide_kind_is_dropped() {
    let admitted = Admission::new().admit(gateway_api("GatewayClass", json!({ "controllerName": "a.b/c" }))).unwrap();
    assert_eq!(admitted["metadata"], json!({ "name": "x" }));
}

#[test]
fn a_refusal_names_the_object() {
    let refused = refusal(route(json!([{ "name": 1 }])));
    assert_eq!(
        (refused.kind.as_str(), refused.namespace.as_deref(), refused.name.as_str()),
        ("HTTPRoute", Some("n"), "x")
    );
    assert_eq!(refused.errors[0].kind, ErrorType::TypeInvalid);
    assert_eq!(
        refused.to_string(),
        "HTTPRoute.gateway.networking.k8s.io \"n/x\" is invalid: spec.rules[0].name: Invalid value: \"integer\": \
         spec.rules[0].name in body must be of type string: \"integer\""
    );
    assert_eq!(
        refusal(json!({ "kind": "Service" })).to_string(),
        "Service \"\" is invalid: apiVersion: Required value"
    );
}

#[test]
fn one_admission_serves_many_threads() {
    let admission = Admission::new();
    std::thread::scope(|scope| {
        for i in 0..4 {
            let admission = &admission;
            scope.spawn(move || {
                for j in 0..5 {
                    let path = format!("/{i}/{j}");
                    assert!(admission.admit(route(json!([{ "matches": [{ "path": { "value": path } }] }]))).is_ok());
                }
            });
        }
    });
}

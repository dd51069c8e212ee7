//! Objects of `gateway.envoyproxy.io` decode and encode without loss, whatever release they come from.

#[path = "../../gateway-api/tests/common/mod.rs"]
mod common;

use api::envoygateway::*;
use kube::core::ObjectList;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Decodes and encodes `object` as its kind says; `None` for a kind of another group.
fn round_trip(object: &Value) -> Option<Result<Value, String>> {
    fn through<K: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, String> {
        let typed: K = serde_json::from_value(object.clone()).map_err(|e| e.to_string())?;
        serde_json::to_value(typed).map_err(|e| e.to_string())
    }
    if object["apiVersion"] != "gateway.envoyproxy.io/v1alpha1" {
        return None;
    }
    Some(match object["kind"].as_str()? {
        "Backend" => through::<Backend>(object),
        "BackendTrafficPolicy" => through::<BackendTrafficPolicy>(object),
        "ClientTrafficPolicy" => through::<ClientTrafficPolicy>(object),
        "EnvoyExtensionPolicy" => through::<EnvoyExtensionPolicy>(object),
        "EnvoyPatchPolicy" => through::<EnvoyPatchPolicy>(object),
        "EnvoyProxy" => through::<EnvoyProxy>(object),
        "HTTPRouteFilter" => through::<HTTPRouteFilter>(object),
        "SecurityPolicy" => through::<SecurityPolicy>(object),
        other => Err(format!("unknown kind {other}")),
    })
}

/// The paths at which `after` lacks or changes something of `before`. Empty lists and objects are as good as absent,
/// and quantities may change from numbers to texts.
fn losses(path: &str, before: &Value, after: &Value, out: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(b), _) => {
            for (key, value) in b {
                losses(&format!("{path}.{key}"), value, &after[key], out);
            }
        }
        (Value::Array(b), _) => {
            for (i, value) in b.iter().enumerate() {
                losses(&format!("{path}[{i}]"), value, &after[i], out);
            }
        }
        (Value::Number(n), Value::String(s)) if n.to_string() == *s => {}
        (Value::Number(n), Value::Number(m)) if n.as_f64() == m.as_f64() => {}
        (Value::Null, _) => {}
        _ if before == after => {}
        _ => out.push(format!("{path}: {before} became {after}")),
    }
}

#[test]
fn every_reference_object_survives() {
    let Some(folder) = common::peer_data() else {
        println!("skipped: no peer data");
        return;
    };
    let refused = std::fs::read_to_string(folder.join("sets/refused.txt")).unwrap();
    let (mut objects, mut wrong) = (0, Vec::new());
    for case in std::fs::read_dir(folder.join("cases")).unwrap() {
        let case = case.unwrap();
        let name = case.file_name().into_string().unwrap();
        let text = std::fs::read_to_string(case.path().join("in.yaml")).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            let Some(after) = round_trip(&object) else { continue };
            objects += 1;
            let mut lost = Vec::new();
            match after {
                Ok(after) => losses(object["kind"].as_str().unwrap(), &object, &after, &mut lost),
                // An API server keeps objects without a required field out.
                Err(error) if error.contains("missing field") && refused.lines().any(|line| line == name) => {}
                Err(error) => lost.push(error),
            }
            wrong.extend(lost.into_iter().map(|l| format!("{name}: {l}")));
        }
    }
    println!("{objects} objects, {} losses", wrong.len());
    assert!(objects > 0);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_value_from_a_newer_release_does_not_break_a_list() {
    let backend = |name: &str, type_: &str| {
        json!({
            "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "Backend",
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "type": type_, "endpoints": [{ "ip": { "address": "10.0.0.1", "port": 80 } }], "later": 1 },
        })
    };
    let list: ObjectList<Backend> = serde_json::from_value(json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendList", "metadata": {},
        "items": [backend("known", "Endpoints"), backend("newer", "Teleport")],
    }))
    .unwrap();
    let types: Vec<_> = list.items.iter().map(|b| b.spec.type_.clone()).collect();
    assert_eq!(types, [Some(BackendType::Endpoints), Some(BackendType::Unknown("Teleport".into()))]);
    let after = serde_json::to_value(&list.items[1]).unwrap();
    assert_eq!(after["spec"]["type"], "Teleport");
    assert!(after["spec"].get("fallback").is_none(), "an absent field stays absent: {after}");
}

#[test]
fn embedded_types_are_flat_on_the_wire() {
    let object = json!({
        "targetRefs": [{ "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg" }],
        "extProc": [{
            "backendRefs": [{ "name": "processor", "port": 9002, "weight": 1 }],
            "backendSettings": { "timeout": { "tcp": { "connectTimeout": "1s" } } },
            "messageTimeout": "5s",
        }],
    });
    let spec: EnvoyExtensionPolicySpec = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(spec.target_refs[0].name, "eg", "read through the embedding type");
    let backend = &spec.ext_proc[0].backend;
    assert_eq!((backend.backend_refs[0].port, backend.backend_refs[0].weight), (Some(9002), Some(1)));
    assert_eq!(spec.ext_proc[0].message_timeout.as_ref().unwrap().get().unwrap().as_secs(), 5);
    assert_eq!(serde_json::to_value(spec).unwrap(), object);
}

#[test]
fn enums_of_the_schema_are_those_of_the_types() {
    let definitions = serde_json::to_value(api::envoygateway::definitions()).unwrap();
    let spec = |kind: usize| {
        definitions[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone()
    };
    let balancer = spec(1)["properties"]["loadBalancer"]["properties"]["type"].clone();
    assert_eq!(balancer["enum"], json!(LoadBalancerType::KNOWN));
    let slow_start = spec(1)["properties"]["loadBalancer"]["x-kubernetes-validations"].clone();
    assert!(slow_start.to_string().contains("SlowStart"), "{slow_start}");
}

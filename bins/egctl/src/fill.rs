//! What a cluster would add to the input: addresses of Services.
//!
//! In a cluster, EndpointSlices tell the addresses behind a Service. Files rarely have them; a Service without any is
//! reached at its own address then.

use std::collections::{BTreeMap, BTreeSet};

use admission::Admission;
use anyhow::Result;
use resources::{Change, Kind, Object, ObjectKey};
use serde_json::{Value, json};

use crate::offline::Objects;

/// Address of a Service that is not in the input.
const MISSING: &str = "1.2.3.4";

/// Adds an EndpointSlice for each Service that has an address and no slice. With `missing`, Services that backend references
/// name and that are not there are added first.
///
/// # Errors
/// When an object has no form in JSON.
pub(crate) fn services(objects: &mut Objects, admission: &Admission, missing: bool) -> Result<()> {
    let mut there: BTreeMap<ObjectKey, Value> = BTreeMap::new();
    let mut sliced = BTreeSet::new();
    let mut referred: BTreeMap<(String, String), BTreeSet<u64>> = BTreeMap::new();
    for change in &objects.changes {
        let Change::Upsert(key, object) = change else { continue };
        let value = object.to_value()?;
        match object {
            Object::Service(_) => drop(there.insert(key.clone(), value)),
            Object::EndpointSlice(slice) => {
                let of = slice.metadata.labels.as_ref().and_then(|l| l.get("kubernetes.io/service-name"));
                sliced.extend(of.map(|name| ObjectKey::new(Kind::Service, &key.namespace, name)));
            }
            _ => backends(&value, &key.namespace, &mut referred),
        }
    }
    if missing {
        for ((namespace, name), ports) in referred {
            let key = ObjectKey::new(Kind::Service, &namespace, &name);
            if there.contains_key(&key) {
                continue;
            }
            let ports: Vec<Value> = ports.iter().map(|p| json!({"name": format!("port-{p}"), "port": p})).collect();
            let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
                "spec": {"clusterIP": MISSING, "ports": ports}});
            objects.add(service.clone(), admission, &|_| String::new());
            there.insert(key, service);
        }
    }
    for (key, service) in there.iter().filter(|(k, _)| !sliced.contains(*k)) {
        let address = service["spec"]["clusterIP"].as_str().unwrap_or_default();
        if address.is_empty() || address == "None" {
            continue;
        }
        let ports: Vec<Value> = service["spec"]["ports"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|p| json!({"name": p["name"].as_str().unwrap_or_default(), "port": p["port"], "protocol": p["protocol"].as_str().unwrap_or("TCP")}))
            .collect();
        let family = if address.contains(':') { "IPv6" } else { "IPv4" };
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {"name": format!("{}-by-address", key.name), "namespace": &*key.namespace,
                "labels": {"kubernetes.io/service-name": &*key.name}},
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}], "ports": ports});
        objects.add(slice, admission, &|_| String::new());
    }
    Ok(())
}

/// Services and their ports that the backend references in `value` name.
fn backends(value: &Value, namespace: &str, out: &mut BTreeMap<(String, String), BTreeSet<u64>>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match &**name {
                    "backendRefs" => value.as_array().into_iter().flatten().for_each(|r| reference(r, namespace, out)),
                    "backendRef" => reference(value, namespace, out),
                    _ => {}
                }
                backends(value, namespace, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|i| backends(i, namespace, out)),
        _ => {}
    }
}

fn reference(r: &Value, namespace: &str, out: &mut BTreeMap<(String, String), BTreeSet<u64>>) {
    let text = |field: &str, default: &str| r[field].as_str().unwrap_or(default).to_owned();
    if (text("group", ""), text("kind", "Service")) != (String::new(), "Service".to_owned()) {
        return;
    }
    if let (Some(name), Some(port)) = (r["name"].as_str(), r["port"].as_u64()) {
        out.entry((text("namespace", namespace), name.to_owned())).or_default().insert(port);
    }
}

//! Kubernetes objects of fleets, made comparable.
//!
//! Objects are told apart by kind, namespace and name. Free are names of images, uids, the order of command-line options and
//! the wording of the bootstrap, which is compared as a tree; everything else counts, selectors, ports, probes, volumes,
//! security contexts and owners among it.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, anyhow};
use api::config::EnvoyGateway;
use envoy::bootstrap::{Bootstrap, XdsServer};
use infra::kubernetes::Options;
use serde_json::{Map, Value};

use crate::diff;

/// Stands for the CAs of an installation.
const CA: &str = "CA-CERT-PLACEHOLDER";

/// Gives owners of fleets the uids that the recorded objects name: recorded input has none.
pub fn identify(documents: &mut [Value]) {
    for document in documents {
        let uid = match document["kind"].as_str() {
            Some("GatewayClass") => "00000000-0000-0000-0000-000000000001",
            Some("Gateway") => "00000000-0000-0000-0000-000000000002",
            _ => continue,
        };
        if document["metadata"].is_object() && document["metadata"]["uid"].is_null() {
            document["metadata"]["uid"] = uid.into();
        }
    }
}

/// The objects of all fleets.
///
/// # Errors
/// When a fleet cannot be rendered.
pub fn render(full: &ir::Full, settings: &EnvoyGateway) -> Result<Vec<Value>> {
    let options =
        Options { ca: CA.to_owned(), ..Options::from_settings(settings, "envoy-gateway-system", "envoy-gateway") };
    let mut out = Vec::new();
    for proxy in full.infra.values() {
        let server = XdsServer::in_cluster(&options.xds_host(), options.gateway_namespaces);
        let bootstrap = Bootstrap::text_of_fleet(proxy, server, options.zones).map_err(|e| anyhow!("{e}"))?;
        out.extend(infra::kubernetes::render(proxy, &bootstrap, &options)?.into_iter().map(|o| o.tree));
    }
    Ok(out)
}

/// What of the recorded objects is not so in ours, up to `limit` for each object; none when all are equal.
///
/// # Errors
/// When a bootstrap is no YAML.
pub fn compare(want: &[Value], got: &[Value], limit: usize) -> Result<Vec<String>> {
    let (want, got) = (level(want)?, level(got)?);
    let mut out = Vec::new();
    for key in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
        match (want.get(key), got.get(key)) {
            (Some(a), Some(b)) => out.extend(diff::paths(a, b, limit).into_iter().map(|d| format!("{key}{d}"))),
            (Some(_), None) => out.push(format!("{key}: missing")),
            (None, _) => out.push(format!("{key}: unexpected")),
        }
    }
    Ok(out)
}

fn level(objects: &[Value]) -> Result<BTreeMap<String, Value>> {
    let mut out = BTreeMap::new();
    for object in objects {
        let mut object = object.clone();
        let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let key = format!("{} {}/{}", text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
        for owner in object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut).into_iter().flatten()
        {
            owner.as_object_mut().map(|o| o.remove("uid"));
        }
        for list in ["containers", "initContainers"] {
            let containers = object.pointer_mut(&format!("/spec/template/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(container) = container.as_object_mut() {
                    container.remove("image");
                    // An empty message, which the typed form of the recording always has.
                    if container.get("resources").and_then(Value::as_object).is_some_and(Map::is_empty) {
                        container.remove("resources");
                    }
                }
                if container["name"] == "envoy" {
                    container["args"] = arguments(&container["args"])?;
                }
            }
        }
        out.insert(key, object);
    }
    Ok(out)
}

/// Options with their values; the bootstrap as a tree.
fn arguments(list: &Value) -> Result<Value> {
    let list: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut out = Map::new();
    let mut rest = list.iter().peekable();
    while let Some(option) = rest.next() {
        let value = rest.next_if(|next| !next.starts_with("--"));
        let value = match (*option, value) {
            ("--config-yaml", Some(text)) => {
                serde_saphyr::from_str(text).map_err(|e| anyhow!("the bootstrap is no YAML: {e}"))?
            }
            (_, Some(value)) => Value::from(*value),
            (_, None) => Value::Bool(true),
        };
        out.insert((*option).to_owned(), value);
    }
    Ok(Value::Object(out))
}

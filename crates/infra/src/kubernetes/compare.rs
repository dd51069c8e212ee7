//! What of a wanted object differs from the one that is there, and what is left as it is although the wording differs.

use std::collections::BTreeSet;

use serde_json::Value;

use resources::quantity;

use super::object::{Live, Object, ObjectKind};

/// Label with the term of the leader that wrote last. No part of any comparison. A label and no annotation: a changed
/// annotation of a Deployment is a new generation of it.
pub(super) const TERM: &str = "gateway.envoyproxy.io/infra-term";
/// Label with a digest of what was wanted when it was written last: when it is another one, something that was wanted
/// may not be any more.
pub(super) const DIGEST: &str = "gateway.envoyproxy.io/infra-digest";

/// Label with the version of the control plane that wrote last. No part of any comparison either: a new release writes
/// nothing because it is one.
pub(super) const VERSION: &str = "gateway.envoyproxy.io/infra-version";

/// Label with a digest of the control plane that wrote, where several may have fleets in one namespace.
pub(super) const CONTROLLER: &str = "gateway.envoyproxy.io/infra-controller";

/// Takes over from the object that is there what is free to be as it is:
///
/// * a bootstrap that says the same in other words;
/// * the selector, which cannot be changed, with the labels that it looks for;
/// * images that nobody asked for (`default_images`: container, image), as long as nothing else of the pods changes: a new
///   release is no reason to replace proxies.
pub(super) fn adopt(object: &mut Object, live: &Live, default_images: &[(&str, &str)]) {
    if !matches!(object.at.kind, ObjectKind::Deployment | ObjectKind::DaemonSet) {
        return;
    }
    let old = &live.tree["spec"];
    if let Some(selector) = old.pointer("/selector/matchLabels").and_then(Value::as_object) {
        let spec = &mut object.tree["spec"];
        spec["selector"]["matchLabels"] = Value::Object(selector.clone());
        if let Some(labels) = spec.pointer_mut("/template/metadata/labels").and_then(Value::as_object_mut) {
            labels.extend(selector.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
    let Some(new) = containers(&mut object.tree) else { return };
    for container in &mut *new {
        if let Some(old) = container_of(&live.tree, &container["name"]) {
            keep_bootstrap(container, old);
        }
    }
    // As the pods would be with the images that they have.
    let mut kept = object.tree["spec"]["template"].clone();
    for container in kept.pointer_mut("/spec/containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let is_default = |(name, image): &&(&str, &str)| container["name"] == *name && container["image"] == *image;
        if default_images.iter().any(|d| is_default(&d))
            && let Some(old) = container_of(&live.tree, &container["name"])
        {
            container["image"] = old["image"].clone();
        }
    }
    if covers(&live.tree["spec"]["template"], &kept, "") {
        object.tree["spec"]["template"] = kept;
    }
}

fn containers(tree: &mut Value) -> Option<&mut Vec<Value>> {
    tree.pointer_mut("/spec/template/spec/containers")?.as_array_mut()
}

fn container_of<'a>(tree: &'a Value, name: &Value) -> Option<&'a Value> {
    tree.pointer("/spec/template/spec/containers")?.as_array()?.iter().find(|c| c["name"] == *name)
}

/// The text of the bootstrap stays if it says the same.
fn keep_bootstrap(container: &mut Value, old: &Value) {
    const OPTION: &str = "--config-yaml";
    let text = |args: &Value| {
        let args = args.as_array()?;
        args.iter().position(|a| a == OPTION).map(|i| i + 1).filter(|i| *i < args.len())
    };
    let (Some(at), Some(old_at)) = (text(&container["args"]), text(&old["args"])) else { return };
    let (new, old) = (container["args"][at].as_str(), old["args"][old_at].as_str());
    let (Some(new), Some(old)) = (new, old) else { return };
    let parse = |text: &str| serde_saphyr::from_str::<Value>(text).ok();
    if new != old && parse(new).is_some_and(|n| parse(old) == Some(n)) {
        container["args"][at] = old.into();
    }
}

/// Everything that `wanted` says is so in `live`; what it does not say, such as the server's defaults, may be anything.
#[must_use]
pub(super) fn covers(live: &Value, wanted: &Value, field: &str) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => wanted.iter().all(|(name, value)| match live.get(name) {
            Some(live) => covers(live, value, if is_amounts(field) { field } else { name }),
            // The server drops what is empty.
            None => value.as_object().is_some_and(serde_json::Map::is_empty) && name != "emptyDir",
        }),
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(l, w)| covers(l, w, field))
        }
        (Value::String(l), Value::String(w)) if l != w && (is_amounts(field) || is_amount(field)) => {
            matches!((quantity::milli(l), quantity::milli(w)), (Some(l), Some(w)) if l == w)
        }
        (live, wanted) => live == wanted,
    }
}

fn is_amounts(field: &str) -> bool {
    matches!(field, "limits" | "requests")
}

fn is_amount(field: &str) -> bool {
    matches!(field, "sizeLimit" | "averageValue" | "storage" | "divisor")
}

/// The object as it is applied, stamped, and the digest of it.
pub(super) fn digest(object: &Object) -> String {
    hex(&object.tree.to_string())
}

/// The first sixteen hexadecimal digits of the SHA-256: a value for a label.
pub(super) fn hex(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect()
}

/// Adds the labels of the writer.
pub(super) fn stamp(object: &mut Object, term: u64, digest: &str) {
    let metadata = &mut object.tree["metadata"];
    metadata["labels"][TERM] = term.to_string().into();
    metadata["labels"][DIGEST] = digest.into();
}

/// Every port that a wanted Service has is one that the Service has which is there; so for all other kinds.
pub(super) fn has_ports(live: &Live, wanted: &Object) -> bool {
    let ports = |tree: &Value| -> BTreeSet<(String, String)> {
        let ports = tree.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten();
        let protocol = |p: &Value| p["protocol"].as_str().unwrap_or("TCP").to_owned();
        ports.map(|p| (p["port"].to_string(), protocol(p))).collect()
    };
    wanted.at.kind != ObjectKind::Service || ports(&wanted.tree).is_subset(&ports(&live.tree))
}

/// The object that is there is as wanted.
pub(super) fn same(live: &Live, wanted: &Object, digest: &str) -> bool {
    live.label(DIGEST) == Some(digest) && covers(&live.tree, &wanted.tree, "")
}

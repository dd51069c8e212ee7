//! Merging of trees as the Kubernetes API does it: JSON merge patch, and strategic merge.
//!
//! Source: RFC 7386; the Kubernetes documentation of strategic merge patches with their directives (`$patch`,
//! `$retainKeys`, `$deleteFromPrimitiveList`), and the merge keys that the API reference gives for each list.

use serde_json::{Map, Value};

/// Merges by RFC 7386: maps are merged, `null` removes, everything else replaces.
pub fn json(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(name);
        } else {
            json(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Merges as a strategic merge patch: as [`json`], but lists that have a merge key are merged item by item; those of the
/// patch come first. Lists without one replace.
pub fn strategic(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            *target = Value::Object(patch.iter().filter(|(k, _)| !k.starts_with('$')).map(cloned).collect());
            return;
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return;
        }
        _ => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(fields) = target else { return };
    if let Some(retained) = patch.get("$retainKeys").and_then(Value::as_array) {
        fields.retain(|name, _| retained.iter().any(|r| r == name.as_str()));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(Value::Array(have)), Value::Array(gone)) = (fields.get_mut(list), value) {
                have.retain(|item| !gone.contains(item));
            }
        } else if name.starts_with('$') {
        } else if value.is_null() {
            fields.remove(name);
        } else if let (Some(keys), Value::Array(items)) = (keys(name), value) {
            let have = match fields.remove(name) {
                Some(Value::Array(have)) => have,
                _ => Vec::new(),
            };
            fields.insert(name.clone(), Value::Array(list(keys, have, items)));
        } else if name == "finalizers"
            && let (Some(Value::Array(have)), Value::Array(items)) = (fields.get_mut(name), value)
        {
            let new: Vec<_> = items.iter().filter(|i| !have.contains(i)).cloned().collect();
            have.extend(new);
        } else {
            strategic(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

fn cloned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// Fields that tell the items of a list apart; the first that an item of the patch has counts.
fn keys(list: &str) -> Option<&'static [&'static str]> {
    Some(match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "imagePullSecrets"
        | "secrets"
        | "resourceClaims"
        | "schedulingGates" => &["name"],
        // Of a container, and of a Service.
        "ports" => &["containerPort", "port"],
        "volumeMounts" => &["mountPath"],
        "volumeDevices" => &["devicePath"],
        "hostAliases" => &["ip"],
        "topologySpreadConstraints" => &["topologyKey"],
        "ownerReferences" => &["uid"],
        _ => return None,
    })
}

fn list(keys: &[&str], have: Vec<Value>, patch: &[Value]) -> Vec<Value> {
    let order: Vec<Value> = have.clone();
    let key = |item: &Value| keys.iter().find(|k| item.get(**k).is_some()).map(|k| (*k, item[*k].clone()));
    let same = |a: &Value, b: &Value| key(a).is_some() && key(a) == key(b);
    if patch.iter().any(|i| i["$patch"] == "replace") {
        return patch.iter().filter(|i| i.get("$patch").is_none()).cloned().collect();
    }
    let mut rest = have;
    let mut merged: Vec<Value> = Vec::new();
    for item in patch {
        let found = rest.iter().position(|h| same(h, item)).map(|i| rest.remove(i));
        if item["$patch"] == "delete" {
            continue;
        }
        match found {
            Some(mut old) => {
                strategic(&mut old, item);
                merged.push(old);
            }
            None => {
                let mut new = Value::Object(Map::new());
                strategic(&mut new, item);
                merged.push(new);
            }
        }
    }
    // What both had keeps its order; of others the patch's come first.
    let place = |item: &Value| order.iter().position(|o| same(o, item));
    let (mut left, mut right) = (rest.into_iter().peekable(), merged.into_iter().peekable());
    let mut out = Vec::new();
    loop {
        let from_left = match (left.peek(), right.peek()) {
            (None, None) => return out,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(l), Some(r)) => matches!((place(l), place(r)), (Some(l), Some(r)) if l < r),
        };
        out.extend(if from_left { left.next() } else { right.next() });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn merged(mut target: Value, patch: Value) -> Value {
        strategic(&mut target, &patch);
        target
    }

    #[test]
    fn a_json_merge_patch_is_as_rfc_7386_says() {
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (mut target, patch, wanted) in rows {
            json(&mut target, &patch);
            assert_eq!(target, wanted, "{patch}");
        }
    }

    #[test]
    fn lists_with_a_key_are_merged_and_the_patch_comes_first() {
        let pod = json!({"containers": [{"name": "envoy", "image": "e", "args": ["x"]}, {"name": "shutdown-manager"}],
            "volumes": [{"name": "certs"}, {"name": "sds"}], "tolerations": [{"key": "a"}]});
        let patch = json!({"containers": [{"name": "envoy", "image": "f", "args": ["y"]}, {"name": "side"}],
            "volumes": [{"name": "own"}], "tolerations": [{"key": "b"}], "hostNetwork": true});
        assert_eq!(
            merged(pod, patch),
            json!({"containers": [{"name": "envoy", "image": "f", "args": ["y"]}, {"name": "side"}, {"name": "shutdown-manager"}],
                "volumes": [{"name": "own"}, {"name": "certs"}, {"name": "sds"}], "tolerations": [{"key": "b"}], "hostNetwork": true})
        );
    }

    #[test]
    fn ports_are_told_apart_by_what_they_have() {
        let service = json!({"ports": [{"port": 80, "name": "http-80"}]});
        let patch = json!({"ports": [{"port": 19001, "name": "metrics"}, {"port": 80, "nodePort": 30080}]});
        assert_eq!(
            merged(service, patch),
            json!({"ports": [{"port": 19001, "name": "metrics"}, {"port": 80, "name": "http-80", "nodePort": 30080}]})
        );
    }

    #[test]
    fn directives_remove_and_replace() {
        let target = json!({"volumes": [{"name": "a"}, {"name": "b"}], "env": [{"name": "x"}],
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "args": ["1", "2"], "labels": {"a": "1"}});
        let patch = json!({"volumes": [{"$patch": "delete", "name": "a"}], "env": [{"$patch": "replace"}, {"name": "y"}],
            "strategy": {"$retainKeys": ["type"], "type": "Recreate"}, "$deleteFromPrimitiveList/args": ["1"],
            "labels": {"$patch": "replace", "b": "2"}, "gone": null});
        assert_eq!(
            merged(target, patch),
            json!({"volumes": [{"name": "b"}], "env": [{"name": "y"}], "strategy": {"type": "Recreate"}, "args": ["2"],
                "labels": {"b": "2"}})
        );
    }
}

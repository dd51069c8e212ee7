//! Objects of a rendered chart in a form in which what does not matter is equal.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Options};

/// Objects by `Kind namespace/name`.
pub type Objects = BTreeMap<String, Value>;

/// The objects in a text of documents. Of a key that occurs twice the last counts, as with the parsers of Go.
///
/// # Errors
/// When a document is no YAML or no object.
pub fn parse(text: &str) -> Result<Objects> {
    let mut options = Options::default();
    options.duplicate_keys = DuplicateKeyPolicy::LastWins;
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)?;
    let objects = documents.into_iter().filter(|d| !d.is_null()).map(|d| Ok((name(&d)?, d)));
    objects.collect()
}

fn name(object: &Value) -> Result<String> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str);
    let kind = text("/kind").with_context(|| format!("no kind: {object}"))?;
    let name = text("/metadata/name").with_context(|| format!("no name: {object}"))?;
    Ok(match text("/metadata/namespace") {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    })
}

/// Differences of `ours` from `golden`, one line for each. Versions of the chart are not compared, files in ConfigMaps
/// are compared as YAML, and the rules of roles as sets of single rights.
#[must_use]
pub fn differences(golden: &Objects, ours: &Objects) -> Vec<String> {
    let mut out = Vec::new();
    let names: BTreeSet<&String> = golden.keys().chain(ours.keys()).collect();
    for name in names {
        match (golden.get(name), ours.get(name)) {
            (Some(_), None) => out.push(format!("{name}: without it")),
            (None, Some(_)) => out.push(format!("{name}: with it")),
            (Some(a), Some(b)) => values(name, &plain(a), &plain(b), &mut out),
            (None, None) => {}
        }
    }
    out
}

fn values(at: &str, golden: &Value, ours: &Value, out: &mut Vec<String>) {
    match (golden, ours) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let at = if at.contains(": ") { format!("{at}.{key}") } else { format!("{at}: {key}") };
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => values(&at, a, b, out),
                    (Some(a), None) => out.push(format!("{at}: {a} in golden, nothing in ours")),
                    (None, Some(b)) => out.push(format!("{at}: nothing in golden, {b} in ours")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                values(&format!("{at}[{i}]"), a, b, out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{at}: {a} in golden, {b} in ours")),
    }
}

/// The object with what does not matter taken out.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.retain(|key, value| key != "creationTimestamp" || !value.is_null());
        if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
            labels.remove("helm.sh/chart");
            labels.remove("app.kubernetes.io/version");
        }
    }
    if object["kind"] == "ConfigMap" {
        for text in object["data"].as_object_mut().into_iter().flat_map(|d| d.values_mut()) {
            if let Some(tree) = text.as_str().and_then(|t| serde_saphyr::from_str(t).ok()) {
                *text = tree;
            }
        }
    }
    if matches!(object["kind"].as_str(), Some("Role" | "ClusterRole")) {
        object["rules"] = rights(&object).into_iter().map(|r| (r, Value::from("granted"))).collect();
    }
    object
}

/// Single rights that a role grants: `verb group/resource`, with the name where it is for one object only.
#[must_use]
pub fn rights(role: &Value) -> BTreeSet<String> {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().into_iter().flatten();
        list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let mut out = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(rule, "apiGroups") {
            for resource in texts(rule, "resources") {
                for verb in texts(rule, "verbs") {
                    let names = texts(rule, "resourceNames");
                    let of = if names.is_empty() { String::new() } else { format!(" {}", names.join(",")) };
                    out.insert(format!("{verb} {group}/{resource}{of}"));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLE: &str = "kind: Role\nmetadata: {name: r, namespace: ns}\nrules:\n- {apiGroups: [''], resources: [pods], verbs: [get, list]}\n";

    #[test]
    fn what_does_not_matter_is_equal() {
        let golden = "kind: ConfigMap\nmetadata: {name: c, creationTimestamp: null, labels: {helm.sh/chart: a-1, x: y}}\ndata: {f: 'a: {b: 1}'}\n";
        let ours = "kind: ConfigMap\nmetadata: {name: c, labels: {helm.sh/chart: a-2, x: y}}\ndata:\n  f: |\n    a:\n      b: 1\n";
        assert_eq!(differences(&parse(golden).unwrap(), &parse(ours).unwrap()), Vec::<String>::new());
        let split =
            ROLE.replace("verbs: [get, list]}", "verbs: [list]}\n- {apiGroups: [''], resources: [pods], verbs: [get]}");
        assert_eq!(differences(&parse(ROLE).unwrap(), &parse(&split).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn what_matters_is_told() {
        let golden = format!(
            "{ROLE}---\nkind: A\nmetadata: {{name: a}}\nspec: {{x: 1, y: [1, 2], z: 1}}\n---\nkind: B\nmetadata: {{name: b}}\n"
        );
        let ours = format!(
            "{}---\nkind: A\nmetadata: {{name: a}}\nspec: {{x: 2, y: [1, 3], w: 1}}\n---\nkind: C\nmetadata: {{name: c}}\n",
            ROLE.replace("list]", "watch]")
        );
        let want = [
            "A a: spec.w: nothing in golden, 1 in ours",
            "A a: spec.x: 1 in golden, 2 in ours",
            "A a: spec.y[1]: 2 in golden, 3 in ours",
            "A a: spec.z: 1 in golden, nothing in ours",
            "B b: without it",
            "C c: with it",
            "Role ns/r: rules.list /pods: \"granted\" in golden, nothing in ours",
            "Role ns/r: rules.watch /pods: nothing in golden, \"granted\" in ours",
        ];
        assert_eq!(differences(&parse(&golden).unwrap(), &parse(&ours).unwrap()), want);
    }

    #[test]
    fn the_last_of_equal_keys_counts() {
        assert_eq!(parse("kind: A\nmetadata: {name: a}\nx: 1\nx: 2\n").unwrap()["A a"]["x"], 2);
    }
}

//! Compares generated definitions with reference definitions, where a folder of these is at hand.
//! The tests of the crate `api` use it too.
#![allow(dead_code, unreachable_pub, clippy::print_stdout, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value};

/// A difference that is meant, by a part of its text.
pub struct Explained {
    /// Part of the text of the differences it stands for.
    pub part: &'static str,
    /// Why it is meant.
    pub why: &'static str,
}

/// Folder of reference data beside the repository, if it is there.
pub fn peer_data() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data");
    folder.is_dir().then_some(folder)
}

/// Compares `ours` with the definitions in `crds/{file}` of the reference data, version by version, and fails on any
/// difference that `explained` does not name, on a reference kind that is neither among `ours` nor in `not_ours`, and
/// on an explanation without a difference. Prints all differences. Passes where there is no reference data.
pub fn compare(file: &str, ours: &[CustomResourceDefinition], not_ours: &[&str], explained: &[Explained]) {
    let Some(folder) = peer_data() else {
        println!("skipped: no peer data");
        return;
    };
    let text = std::fs::read_to_string(folder.join("crds").join(file)).expect("the reference file can be read");
    let mut differences = Vec::new();
    let mut compared = 0;
    for document in serde_saphyr::from_multiple::<Value>(&text).expect("the reference file is YAML") {
        if document["kind"] != "CustomResourceDefinition" {
            continue;
        }
        let kind = document["spec"]["names"]["kind"].as_str().expect("a definition names its kind");
        if not_ours.contains(&kind) {
            continue;
        }
        let Some(own) = ours.iter().find(|crd| crd.spec.names.kind == kind) else {
            differences.push(format!("{kind}: missing"));
            continue;
        };
        let own = serde_json::to_value(own).unwrap();
        compare_names(kind, &document, &own, &mut differences);
        let own_versions = versions(&own);
        for (name, reference) in versions(&document) {
            let at = format!("{kind}/{name}");
            let Some(own) = own_versions.get(&name) else {
                differences.push(format!("{at}: missing"));
                continue;
            };
            for flag in ["served", "storage", "deprecated"] {
                if reference[flag] != own[flag] {
                    differences.push(format!("{at} {flag}: reference {}, ours {}", reference[flag], own[flag]));
                }
            }
            compare_columns(&at, &reference, own, &mut differences);
            let schema = |version: &Value| normal(&version["schema"]["openAPIV3Schema"]);
            compare_schema(&at, &schema(&reference), &schema(own), &mut differences);
            compared += 1;
        }
    }
    let mut unexplained = 0;
    let mut used = BTreeSet::new();
    for difference in &differences {
        match explained.iter().find(|e| difference.contains(e.part)) {
            Some(e) => {
                used.insert(e.part);
                println!("explained ({}): {difference}", e.why);
            }
            None => {
                unexplained += 1;
                println!("DIFFERENT {difference}");
            }
        }
    }
    for e in explained.iter().filter(|e| !used.contains(e.part)) {
        unexplained += 1;
        println!("NO SUCH DIFFERENCE {} ({})", e.part, e.why);
    }
    println!("{file}: {compared} versions compared, {} differences, {unexplained} not explained", differences.len());
    assert!(compared > 0, "nothing was compared");
    assert_eq!(unexplained, 0, "see the differences printed above");
}

fn versions(crd: &Value) -> BTreeMap<String, Value> {
    let list = crd["spec"]["versions"].as_array().expect("a definition has versions");
    list.iter().map(|v| (v["name"].as_str().expect("a version has a name").to_owned(), v.clone())).collect()
}

fn compare_names(kind: &str, reference: &Value, own: &Value, differences: &mut Vec<String>) {
    for pointer in ["/spec/group", "/spec/scope", "/spec/names/plural", "/spec/names/singular"] {
        if reference.pointer(pointer) != own.pointer(pointer) {
            differences.push(format!(
                "{kind} {pointer}: reference {:?}, ours {:?}",
                reference.pointer(pointer),
                own.pointer(pointer)
            ));
        }
    }
    for list in ["categories", "shortNames"] {
        let of = |crd: &Value| crd["spec"]["names"][list].as_array().cloned().unwrap_or_default();
        if of(reference) != of(own) {
            differences.push(format!("{kind} {list}: reference {:?}, ours {:?}", of(reference), of(own)));
        }
    }
}

fn compare_columns(at: &str, reference: &Value, own: &Value, differences: &mut Vec<String>) {
    let columns = |version: &Value| -> Vec<Value> {
        let list = version["additionalPrinterColumns"].as_array().cloned().unwrap_or_default();
        list.iter()
            .map(|c| serde_json::json!([c["name"], c["type"], c["jsonPath"], c["priority"].as_i64().unwrap_or(0)]))
            .collect()
    };
    if columns(reference) != columns(own) {
        differences.push(format!("{at} columns: reference {:?}, ours {:?}", columns(reference), columns(own)));
    }
}

/// The schema without what has no effect on objects: texts for people, the order of `required`, `enum` and rules, list
/// and map types that repeat the default or matter to server-side apply only, numbers as integers or floats.
fn normal(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut out = Map::new();
    for (keyword, value) in fields {
        let value = match keyword.as_str() {
            "description" | "title" | "x-kubernetes-map-type" => continue,
            "x-kubernetes-list-type" if value == "atomic" => continue,
            "nullable" if value == &Value::Bool(false) => continue,
            "properties" => {
                Value::Object(value.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), normal(v))).collect())
            }
            "items" | "additionalProperties" | "not" => normal(value),
            "allOf" | "anyOf" | "oneOf" => Value::Array(value.as_array().into_iter().flatten().map(normal).collect()),
            "required" | "enum" | "x-kubernetes-validations" => {
                let mut list = value.as_array().cloned().unwrap_or_default();
                list.sort_by_key(Value::to_string);
                if list.is_empty() {
                    continue;
                }
                Value::Array(list)
            }
            "minimum" | "maximum" => value.as_f64().map_or_else(|| value.clone(), Value::from),
            _ => value.clone(),
        };
        out.insert(keyword.clone(), value);
    }
    merge_enums(&mut out);
    Value::Object(out)
}

/// Replaces an `allOf` of nothing but enumerations by their intersection.
fn merge_enums(schema: &mut Map<String, Value>) {
    let Some(branches) = schema.get("allOf").and_then(Value::as_array) else { return };
    let lists: Option<Vec<&Vec<Value>>> = branches.iter().map(|b| b.get("enum").and_then(Value::as_array)).collect();
    let Some([first, others @ ..]) = lists.as_deref() else { return };
    let common = first.iter().filter(|v| others.iter().all(|list| list.contains(v))).cloned().collect();
    schema.remove("allOf");
    schema.insert("enum".to_owned(), Value::Array(common));
}

fn compare_schema(at: &str, reference: &Value, own: &Value, differences: &mut Vec<String>) {
    let (Value::Object(reference), Value::Object(own)) = (reference, own) else {
        if reference != own {
            differences.push(format!("{at}: reference {reference}, ours {own}"));
        }
        return;
    };
    let keywords: BTreeSet<_> = reference.keys().chain(own.keys()).collect();
    for keyword in keywords {
        let (Some(theirs), Some(ours)) = (reference.get(keyword), own.get(keyword)) else {
            let side = if own.contains_key(keyword) { "only ours" } else { "only reference" };
            let value = own.get(keyword).or_else(|| reference.get(keyword)).expect("the keyword is in one of the two");
            differences.push(format!("{at} {keyword}: {side}: {}", short(value)));
            continue;
        };
        match keyword.as_str() {
            "properties" => compare_properties(at, theirs, ours, differences),
            "items" => compare_schema(&format!("{at}[]"), theirs, ours, differences),
            "additionalProperties" => compare_schema(&format!("{at}{{}}"), theirs, ours, differences),
            _ if theirs == ours => {}
            _ => differences.push(format!("{at} {keyword}: reference {}, ours {}", short(theirs), short(ours))),
        }
    }
}

fn compare_properties(at: &str, reference: &Value, own: &Value, differences: &mut Vec<String>) {
    let empty = Map::new();
    let reference = reference.as_object().unwrap_or(&empty);
    let own = own.as_object().unwrap_or(&empty);
    let names: BTreeSet<_> = reference.keys().chain(own.keys()).collect();
    for name in names {
        let path = format!("{at}.{name}");
        match (reference.get(name), own.get(name)) {
            (Some(theirs), Some(ours)) => compare_schema(&path, theirs, ours, differences),
            (Some(theirs), None) => differences.push(format!("{path}: only reference: {}", short(theirs))),
            (None, ours) => differences.push(format!("{path}: only ours: {}", ours.map(short).unwrap_or_default())),
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 400 { text.chars().take(400).chain("…".chars()).collect() } else { text }
}

#[test]
fn a_changed_schema_is_seen() {
    let schema = |max: u32, rule: &str| {
        serde_json::json!({
            "type": "object",
            "description": "any",
            "required": ["b", "a"],
            "properties": {
                "a": { "type": "string", "maxLength": max },
                "b": { "type": "array", "items": { "x-kubernetes-validations": [{ "rule": rule }] } },
            },
        })
    };
    let mut differences = Vec::new();
    compare_schema("X", &normal(&schema(5, "r")), &normal(&schema(5, "r")), &mut differences);
    assert_eq!(differences, Vec::<String>::new());
    compare_schema("X", &normal(&schema(5, "r")), &normal(&schema(6, "s")), &mut differences);
    assert_eq!(differences.len(), 2, "{differences:?}");
    assert!(
        differences[0].starts_with("X.a maxLength") && differences[1].starts_with("X.b[] x-kubernetes-validations")
    );
}

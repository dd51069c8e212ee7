//! Verdicts beside those recorded from an API server's validation, where the recorded cases are at hand.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use admission::{Admission, ErrorType, Refused};
use serde_json::Value;

/// Folder of recorded cases beside the repository, if it is there.
fn peer_data() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data");
    if !folder.is_dir() {
        println!("skipped: no peer data");
        return None;
    }
    Some(folder)
}

fn documents(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let documents = serde_saphyr::from_multiple(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    documents.into_iter().filter(|d: &Value| !d.is_null()).collect()
}

fn set(folder: &Path, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("sets").join(name)).unwrap();
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn judge(admission: &Admission, folder: &Path, case: &str) -> (Vec<Refused>, Vec<String>) {
    let mut refused = Vec::new();
    let mut changed = Vec::new();
    for object in documents(&folder.join("cases").join(case).join("in.yaml")) {
        match admission.admit(object.clone()) {
            Ok(admitted) if admitted == object => {}
            Ok(admitted) => {
                changed.push(format!("{case}: {} {}", object["kind"], first_difference("", &object, &admitted)))
            }
            Err(error) => refused.push(*error),
        }
    }
    (refused, changed)
}

fn first_difference(path: &str, a: &Value, b: &Value) -> String {
    match (a, b) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                match right.get(key) {
                    None => return format!("{path}.{key} dropped"),
                    Some(other) if other != value => return first_difference(&format!("{path}.{key}"), value, other),
                    Some(_) => {}
                }
            }
            let added = right.keys().find(|key| !left.contains_key(*key));
            format!("{path}.{} added", added.map_or("?", String::as_str))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let i = left.iter().zip(right).position(|(l, r)| l != r).unwrap_or(0);
            first_difference(&format!("{path}[{i}]"), &left[i], &right[i])
        }
        _ => format!("{path}: {a} became {b}"),
    }
}

#[test]
fn what_an_api_server_refuses_is_refused_with_the_field() {
    let Some(folder) = peer_data() else { return };
    let manifest: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("manifest.json")).unwrap()).unwrap();
    let admission = Admission::new();
    let cases = set(&folder, "refused.txt");
    let (mut named, mut same_count) = (0, 0);
    for case in &cases {
        let (refused, _) = judge(&admission, &folder, case);
        let errors: Vec<_> = refused.iter().flat_map(|r| &r.errors).collect();
        let expected = manifest["cases"][case]["apiServerErrors"].as_u64().unwrap_or(0);
        let ok = !errors.is_empty()
            && errors
                .iter()
                .all(|e| e.path != "<root>" && e.kind != ErrorType::Internal && !e.detail.contains("evaluating rule"));
        named += usize::from(ok);
        same_count += usize::from(errors.len() as u64 == expected);
        let mark = if ok { "named" } else { "NOT NAMED" };
        println!("{mark} {case}: {} errors, recorded {expected}", errors.len());
        for r in &refused {
            println!("    {r}");
        }
    }
    println!("refused with the field named: {named} of {}; same number of errors: {same_count}", cases.len());
    assert!(named * 100 >= cases.len() * 95, "{named} of {}", cases.len());
}

#[test]
fn what_an_api_server_accepts_is_accepted_and_left_as_it_is() {
    let Some(folder) = peer_data() else { return };
    let admission = Admission::new();
    let mut wrong = Vec::new();
    let mut totals = BTreeMap::new();
    for name in ["http", "gateway-api", "envoyproxy", "policies", "unpublished"] {
        let cases = set(&folder, &format!("{name}.txt"));
        let mut good = 0;
        for case in &cases {
            let (refused, changed) = judge(&admission, &folder, case);
            good += usize::from(refused.is_empty() && changed.is_empty());
            wrong.extend(refused.iter().map(|r| format!("{case}: {r}")));
            wrong.extend(changed);
        }
        totals.insert(name, (good, cases.len()));
    }
    // An API server moves `stringData` into `data`; the recorded input has not been through one.
    let moved = "e2e-sds-listener-certificate: \"Secret\" .stringData dropped";
    wrong.retain(|line| line != moved);
    for line in &wrong {
        println!("{line}");
    }
    println!("accepted and unchanged: {totals:?}");
    assert_eq!(wrong, Vec::<String>::new());
}

//! Recorded behaviour of Envoy Gateway: which files it accepts, and with which effective configuration.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

fn recorded() -> Option<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/envoygateway-config");
    let mut cases: Vec<_> = std::fs::read_dir(folder).ok()?.map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    Some(cases)
}

/// Go writes empty values of `envoyProxy` that mean the same as their absence.
fn without_empty_values(mut effective: Value) -> Value {
    if let Some(proxy) = effective.get_mut("envoyProxy").and_then(Value::as_object_mut) {
        if proxy.get("logging") == Some(&json!({})) {
            proxy.remove("logging");
        }
        if let Some(provider) = proxy.get_mut("provider")
            && provider["type"] == ""
        {
            provider["type"] = json!("Kubernetes");
        }
    }
    effective
}

#[test]
fn accepted_and_refused_as_recorded() {
    let Some(cases) = recorded() else {
        println!("skipped: no peer data");
        return;
    };
    let mut differences = Vec::new();
    for case in &cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        let out: Value = serde_saphyr::from_str(&std::fs::read_to_string(case.join("out.yaml")).unwrap()).unwrap();
        let accepted = out["accepted"].as_bool().unwrap();
        match settings::read(Some(&case.join("config.yaml")), std::iter::empty()) {
            Ok(loaded) if accepted => {
                let expected = without_empty_values(out["effective"].clone());
                let ours = serde_json::to_value(&loaded.config).unwrap();
                if ours != expected {
                    differences.push(format!("{name}: effective\nexpected {expected:#}\nours {ours:#}"));
                }
            }
            Err(error) if !accepted => {
                println!("{name}: {}", error.to_string().replace(&case.display().to_string(), ""));
                println!("    recorded: {} ({})", out["error"], out["stage"]);
                if !error.problems().iter().all(|problem| !problem.field.is_empty() && !problem.remedy.is_empty()) {
                    differences.push(format!("{name}: a problem without field or remedy: {error}"));
                }
            }
            Ok(_) => differences.push(format!("{name}: accepted; recorded is {}", out["error"])),
            Err(error) => differences.push(format!("{name}: refused; recorded is accepted: {error}")),
        }
    }
    println!("config: {} of {} recorded cases", cases.len() - differences.len(), cases.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

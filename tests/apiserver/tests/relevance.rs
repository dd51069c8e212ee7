//! What the watches leave out makes no difference: of every recorded case the objects that are told translate to the same as
//! all of its objects.

#![allow(clippy::print_stdout, reason = "the count is the result")]

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context, Result, ensure};
use peer::case;
use provider::cluster::{ClusterOptions, Scope, told};
use resources::{Change, Kind, Object, ObjectKey};

#[test]
fn what_is_left_out_makes_no_difference() -> Result<()> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/cases");
    if !data.is_dir() {
        println!("skipped: no peer data");
        return Ok(());
    }
    let (mut cases, mut all, mut kept, mut different) = (0, 0, 0, Vec::new());
    for case in case::find(&data, None)?.iter().flat_map(|set| &set.cases) {
        let Ok(documents) = case.documents("in.yaml") else { continue };
        let config = case
            .text("config.yaml")?
            .unwrap_or_else(|| "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\n".to_owned());
        let Ok(loaded) = settings::parse(&config, "config.yaml", std::iter::empty()) else { continue };
        let config = translator::Config::from(&loaded.config);
        // Objects as an API server has them: in a namespace, and readable.
        let mut unreadable = 0;
        let documents: Vec<_> = documents
            .into_iter()
            .filter_map(|mut d| {
                let kind = Kind::find(d["apiVersion"].as_str()?, d["kind"].as_str()?)?;
                // Statuses of an earlier time may be of another form.
                if !matches!(kind, Kind::Service | Kind::Node) {
                    d.as_object_mut()?.remove("status");
                }
                if kind.is_namespaced() && d["metadata"]["namespace"].is_null() {
                    d["metadata"]["namespace"] = "default".into();
                }
                let read = Object::from_value(d.clone()).ok().map(|_| d);
                unreadable += usize::from(read.is_none());
                read
            })
            .collect();
        let options = ClusterOptions {
            scope: Scope::All,
            controller: Some(config.controller_name.clone()),
            // As the binary has it: what the control plane itself needs.
            always: documents
                .iter()
                .filter(|d| d["kind"] == "Secret" && d["metadata"]["namespace"] == "envoy-gateway-system")
                .filter_map(|d| {
                    Some(ObjectKey::new(Kind::Secret, "envoy-gateway-system", d["metadata"]["name"].as_str()?))
                })
                .collect(),
        };
        let objects = documents.iter().map(|d| serde_json::from_value(d.clone())).collect::<Result<Vec<_>, _>>();
        let first = told(objects.with_context(|| case.name.clone())?, &options);
        let keys: BTreeSet<ObjectKey> = first
            .iter()
            .filter_map(|c| if let Change::Upsert(key, _) = c { Some(key.clone()) } else { None })
            .collect();
        // The same objects to the letter on both sides, so that only the choice makes a difference.
        let whole: Vec<(ObjectKey, Object)> =
            documents.iter().filter_map(|d| Object::from_value(d.clone()).ok()).collect();
        let change = |(key, object): &(ObjectKey, Object)| Change::Upsert(key.clone(), object.clone());
        let of_all = translator::translate(whole.iter().map(change), &config);
        let of_told = translator::translate(whole.iter().filter(|(k, _)| keys.contains(k)).map(change), &config);
        // What has a status in the recording has to be told, whatever this translation makes of it. Recordings with objects
        // that no API server holds (listeners without a name) do not count.
        let recorded = case.documents("status.yaml").unwrap_or_default();
        for object in recorded.iter().filter(|_| unreadable == 0) {
            let text = |at: &str| object.pointer(at).and_then(serde_json::Value::as_str).unwrap_or_default();
            let Some(kind) = Kind::find(text("/apiVersion"), text("/kind")) else { continue };
            let key = ObjectKey::new(kind, text("/metadata/namespace"), text("/metadata/name"));
            let ours = ["conditions", "parents", "ancestors", "listeners"]
                .iter()
                .any(|f| object["status"][f].as_array().is_some_and(|a| !a.is_empty()));
            if ours && !keys.contains(&key) && whole.iter().any(|(k, _)| *k == key) {
                different.push(format!("{}: {key} has a status", case.name));
            }
        }
        cases += 1;
        all += whole.len();
        kept += keys.len();
        if of_all != of_told {
            let missing: Vec<String> =
                whole.iter().filter(|(k, _)| !keys.contains(k)).map(|(k, _)| k.to_string()).collect();
            let statuses: Vec<String> = of_all
                .statuses
                .iter()
                .filter(|(k, s)| of_told.statuses.get(k) != Some(s))
                .map(|(k, _)| k.to_string())
                .collect();
            different.push(format!("{}: without {missing:?}; statuses {statuses:?}", case.name));
        }
    }
    println!("{cases} cases: {kept} of {all} objects are told");
    ensure!(different.is_empty(), "{} differ:\n{}", different.len(), different.join("\n"));
    Ok(())
}

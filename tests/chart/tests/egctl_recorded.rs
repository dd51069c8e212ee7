//! `egctl translate` and `validate` beside what the Go project's egctl recorded for the same files.
//!
//! Layouts differ (`egctl translate` groups resources by list), so resources and statuses are compared, by the rules of
//! `tests/peer`. Of the recorded outputs, those in names that the Go project does not use any more, bootstraps and its own
//! IR are left out. Those that differ today: what is not translated yet; inputs that no API server would hold (two ports
//! of one name, two routes of one name); statuses of EnvoyProxies.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::{Context, Result, ensure};
use chart::repository;
use clap::Parser as _;
use egctl::cli::{Cli, Streams};
use peer::{diff, normal, status};
use serde_json::{Map, Value, json};

/// Outputs that have to be equal.
const RATCHET: usize = 7;

/// Where the resources are in a dump: its type, the list, the field of an item, the list in our layout.
const DUMPS: [(&str, &str, &str, &str); 4] = [
    ("ClustersConfigDump", "dynamicActiveClusters", "cluster", "clusters"),
    ("EndpointsConfigDump", "dynamicEndpointConfigs", "endpointConfig", "endpoints"),
    ("ListenersConfigDump", "dynamicListeners", "activeState/listener", "listeners"),
    ("RoutesConfigDump", "dynamicRouteConfigs", "routeConfig", "routes"),
];

fn egctl(args: &[&str]) -> Result<(bool, String, String)> {
    let cli = Cli::try_parse_from([&["egctl"], args].concat())?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = egctl::cli::run(cli, Streams { input: &mut std::io::empty(), out: &mut out, err: &mut err });
    let ok = format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS);
    Ok((ok, String::from_utf8(out)?, String::from_utf8(err)?))
}

#[test]
fn translate_as_recorded() -> Result<()> {
    let folder = repository("../shared/peer-data/egctl-golden/translate");
    if !folder.is_dir() {
        println!("skipped: no peer data");
        return Ok(());
    }
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(folder.join("out"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let (mut equal, mut judged) = (0, 0);
    for name in &names {
        let recorded: Value = serde_saphyr::from_str(&std::fs::read_to_string(folder.join("out").join(name))?)?;
        let case = name.split('.').next().unwrap_or_default();
        let input = folder.join("in").join(format!("{case}.yaml")).display().to_string();
        let Some(differences) = compare(&recorded, &input).with_context(|| name.clone())? else { continue };
        judged += 1;
        equal += usize::from(differences.is_empty());
        for difference in differences.iter().take(8) {
            println!("{name}: {difference}");
        }
    }
    println!("egctl: {equal} of {judged} recorded outputs equal, {} not compared", names.len() - judged);
    ensure!(equal >= RATCHET, "fewer than {RATCHET}");
    Ok(())
}

/// Differences; none if there is nothing to compare.
fn compare(recorded: &Value, input: &str) -> Result<Option<Vec<String>>> {
    // Objects without a namespace went into that of the control plane, or that which the recorded groups are in.
    let text = recorded.to_string();
    let namespace = if text.contains("envoy-gateway-system/") || text.contains("\"namespace\":\"envoy-gateway-system\"")
    {
        "envoy-gateway-system"
    } else {
        "default"
    };
    let args = ["x", "translate", "-f", input, "-n", namespace, "--add-missing-resources", "-o", "json", "--to"];
    let mut out = Vec::new();
    let mut compared = false;
    let groups = xds(recorded);
    if groups.iter().any(|(_, g)| !g.is_empty()) {
        compared = true;
        let (_, ours, _) = egctl(&[&args[..], &["xds"]].concat())?;
        let ours: Value = serde_json::from_str(&ours)?;
        for (name, lists) in groups {
            let wanted: Vec<&String> = lists.keys().collect();
            let mut got = ours[&name].as_object().cloned().unwrap_or_default();
            got.retain(|list, _| wanted.contains(&list));
            let group = |tree: &Map<String, Value>| normal::group(&json!(tree)).map_err(anyhow::Error::msg);
            let (want, got) = (group(&lists)?, group(&got)?);
            for key in want.keys().chain(got.keys().filter(|k| !want.contains_key(*k))) {
                let at = format!("{name}: {}[{}]", key.0, key.1);
                match (want.get(key), got.get(key)) {
                    (Some(a), Some(b)) => out.extend(diff::paths(a, b, 5).into_iter().map(|d| format!("{at}{d}"))),
                    (Some(_), None) => out.push(format!("{at}: missing")),
                    _ => out.push(format!("{at}: unexpected")),
                }
            }
        }
    }
    let objects = objects(recorded);
    if !objects.is_empty() {
        compared = true;
        let (_, ours, _) = egctl(&[&args[..], &["status"]].concat())?;
        let ours: Vec<Value> = serde_json::from_str(&ours)?;
        let of = |documents: &[Value]| status::without_messages(&status::level(documents, &|_| false));
        let (want, got) = (of(&objects), of(&ours));
        out.extend(diff::paths(&want, &got, 5).into_iter().map(|d| format!("status {d}")));
    }
    Ok(compared.then_some(out))
}

/// Recorded resources by group and list.
fn xds(recorded: &Value) -> BTreeMap<String, Map<String, Value>> {
    let mut out = BTreeMap::new();
    for (group, dump) in recorded["xds"].as_object().into_iter().flatten() {
        // Names of former releases.
        if !group.contains('/') || dump.to_string().contains("-rule-0-match-0-") {
            continue;
        }
        let one = std::slice::from_ref(dump);
        let parts = dump["configs"].as_array().map_or(one, Vec::as_slice);
        let mut lists = Map::new();
        for part in parts {
            let kind = part["@type"].as_str().unwrap_or_default();
            let Some((_, items, field, list)) = DUMPS.iter().find(|(k, ..)| kind.ends_with(&format!(".{k}"))) else {
                continue;
            };
            let of = |item: &Value| {
                item.pointer(&format!("/{field}")).cloned().map(|mut r| {
                    if let Some(fields) = r.as_object_mut() {
                        fields.remove("@type");
                    }
                    r
                })
            };
            let items = part[items].as_array().into_iter().flatten().filter_map(of);
            lists.insert((*list).to_owned(), items.collect::<Vec<_>>().into());
        }
        out.insert(group.clone(), lists);
    }
    out
}

/// Recorded objects that have a status.
fn objects(recorded: &Value) -> Vec<Value> {
    let parts = recorded.as_object().into_iter().flatten().filter(|(k, _)| !k.ends_with("IR") && *k != "xds");
    let all = parts.flat_map(|(_, part)| part.as_array().cloned().unwrap_or_else(|| vec![part.clone()]));
    all.filter(|o| o["kind"].is_string() && o["status"].as_object().is_some_and(|s| !s.is_empty())).collect()
}

/// The recorded file has objects that are no good, each in its own way, and good ones.
#[test]
fn validate_as_recorded() -> Result<()> {
    let file = repository("../shared/peer-data/egctl-golden/validate/invalid-resources.yaml");
    if !file.is_file() {
        println!("skipped: no peer data");
        return Ok(());
    }
    let (ok, out, _) = egctl(&["x", "validate", "-f", &file.display().to_string()])?;
    ensure!(!ok);
    let told: Vec<&str> = out.lines().filter_map(|l| l.split('"').nth(1)).collect();
    ensure!(
        told == ["default/eg1", "default/eg2", "default/backend", "default/backend-1", "default/backend-2"],
        "{out}"
    );
    for field in [
        "spec.listeners[0].port",
        "spec.listeners: ",
        "spec.hostnames[0]",
        "spec.endpoints[0].ip.address",
        "spec.endpoints: ",
    ] {
        ensure!(out.contains(field), "{field}: {out}");
    }
    Ok(())
}

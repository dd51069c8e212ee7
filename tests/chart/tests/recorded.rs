//! The chart, beside what the chart of the Go Envoy Gateway rendered for the same values.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use chart::{
    differences::{EXPLAINED, GO_DEFAULTS, matches, reason},
    helm_bin,
    objects::{differences, parse},
    render, repository,
};

/// Cases that have to be equal but for what is explained.
const RATCHET: usize = 34;

#[test]
fn equal_but_for_what_is_explained() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let folder = repository("../shared/peer-data/helm-golden");
    if !folder.is_dir() {
        println!("skipped: no peer data");
        return Ok(());
    }
    let mut cases = BTreeSet::new();
    for entry in std::fs::read_dir(&folder)? {
        cases.extend(entry?.file_name().to_string_lossy().strip_suffix(".in.yaml").map(str::to_owned));
    }
    let (mut equal, mut bare) = (0, 0);
    let mut used: BTreeMap<&str, usize> = BTreeMap::new();
    for case in &cases {
        let read = |end: &str| std::fs::read_to_string(folder.join(format!("{case}.{end}.yaml")));
        let ours = render(&helm, "gateway-helm", &[GO_DEFAULTS, &read("in")?]).with_context(|| case.clone())?;
        let all = differences(&parse(&read("out")?)?, &parse(&ours)?);
        for (pattern, _) in EXPLAINED {
            *used.entry(pattern).or_default() += all.iter().filter(|l| matches(pattern, l)).count();
        }
        bare += usize::from(all.is_empty());
        let open: Vec<&String> = all.iter().filter(|l| reason(l).is_none()).collect();
        equal += usize::from(open.is_empty());
        for line in open {
            println!("{case}: {line}");
        }
    }
    println!("helm: {equal} of {}, {bare} without any of the {} explained differences", cases.len(), EXPLAINED.len());
    ensure!(equal >= RATCHET, "fewer than {RATCHET}");
    let idle: Vec<_> = used.iter().filter(|(_, n)| **n == 0).collect();
    ensure!(idle.is_empty(), "explained, but not there: {idle:?}");
    Ok(())
}

#[test]
fn every_rendered_file_is_taken_without_a_warning() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let folder = repository("../shared/peer-data/helm-golden");
    let mut values = vec![String::new()];
    if let Ok(entries) = std::fs::read_dir(&folder) {
        for entry in entries {
            let path = entry?.path();
            if path.to_string_lossy().ends_with(".in.yaml") {
                values.push(std::fs::read_to_string(path)?);
            }
        }
    }
    for values in values {
        let objects = parse(&render(&helm, "eg", &[&values])?)?;
        let (_, config) = objects.iter().find(|(n, _)| n.starts_with("ConfigMap")).context("no ConfigMap")?;
        let text = config["data"]["envoy-gateway.yaml"].as_str().context("no file")?;
        let loaded = settings::parse(text, "envoy-gateway.yaml", std::iter::empty())?;
        // Some recorded values themselves have fields that there are not.
        let theirs = |field: &str| field.contains("imagePullSecrets[") || field.ends_with("leaderElection.enabled");
        let warnings: Vec<_> = loaded.warnings.iter().filter(|w| !theirs(&w.field)).collect();
        ensure!(warnings.is_empty(), "{warnings:?} in {text}");
    }
    Ok(())
}

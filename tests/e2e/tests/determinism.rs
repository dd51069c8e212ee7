//! The same objects are the same bytes: in any order, in any files, after any restart, all at once or one by one.

use std::collections::BTreeMap;

use admission::Admission;
use anyhow::{Context, Result};
use e2e::{Gateway, Surroundings, gateway::envoy_bin, rows::File};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use resources::{Change, Object};
use serde_json::Value;
use translator::{Config, Engine, ExtensionApis, Infrastructure};

/// Starts of the real binary.
const RESTARTS: u64 = 20;
/// Orders that are tried in this process.
const ORDERS: u64 = 100;

/// The objects of all files of `rows/`.
fn objects(surroundings: &Surroundings) -> Result<Vec<Value>> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("rows");
    let mut paths: Vec<_> = std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        out.extend(File::read(&std::fs::read_to_string(&path)?, surroundings)?.resources);
    }
    Ok(out)
}

/// Version, which is the digest of the content, of every resource.
type Versions = BTreeMap<String, String>;

fn versions(full: &ir::Full) -> Result<Versions> {
    let mut encoder = envoy::Encoder::new();
    let mut out = Versions::new();
    for (group, resources) in &full.groups {
        for ((kind, name), value) in &resources.resources {
            let encoded = encoder.encode(value).with_context(|| format!("{kind:?} {name}"))?;
            out.insert(format!("{group} {kind:?} {name}"), encoded.version.to_string());
        }
    }
    for (key, status) in &full.statuses {
        out.insert(format!("status {key}"), format!("{status:?}"));
    }
    Ok(out)
}

#[test]
fn any_order_gives_the_same_bytes() -> Result<()> {
    let admission = Admission::new();
    let mut changes = Vec::new();
    for value in objects(&Surroundings::default())? {
        let (key, object) = Object::from_value(admission.admit(value)?)?;
        changes.push(Change::Upsert(key, object));
    }
    let extension_apis = ExtensionApis { backend: true, ..ExtensionApis::default() };
    let config = Config { infrastructure: Infrastructure::Host, extension_apis, ..Config::default() };
    let all = |changes: &[Change]| changes.iter().cloned().chain([Change::Synced]).collect::<Vec<_>>();
    let wanted = versions(&translator::translate(all(&changes), &config))?;
    assert!(wanted.len() > 100, "{} resources and statuses", wanted.len());
    for seed in 0..ORDERS {
        let mut rng = StdRng::seed_from_u64(seed);
        changes.shuffle(&mut rng);
        let got = versions(&translator::translate(all(&changes), &config))?;
        assert_eq!(got, wanted, "seed {seed}");
        if seed % 10 == 0 {
            // One batch after the other, beginning with a state that another order would not have passed through.
            let mut engine = Engine::new(config.clone());
            engine.apply(vec![Change::Synced]);
            for batch in changes.chunks(7) {
                engine.apply(batch.to_vec());
            }
            assert_eq!(versions(engine.state())?, wanted, "in batches, seed {seed}");
        }
    }
    println!("determinism: {ORDERS} orders of {} objects, {} digests each, all equal", changes.len(), wanted.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn any_restart_gives_the_same_bytes() -> Result<()> {
    let Some(envoy) = envoy_bin() else { return Ok(()) };
    let surroundings = Surroundings::default();
    // One fleet is enough here; the others would only cost time.
    let of_main = |v: &Value| v["kind"] != "Gateway" || v["metadata"]["name"] == "main";
    let mut objects: Vec<Value> = objects(&surroundings)?.into_iter().filter(of_main).collect();
    let mut first: Option<Value> = None;
    for seed in 0..RESTARTS {
        let mut rng = StdRng::seed_from_u64(seed);
        objects.shuffle(&mut rng);
        let per_file = 1 + usize::try_from(seed)?;
        let files: Vec<(String, String)> = objects
            .chunks(per_file)
            .enumerate()
            .map(|(i, objects)| {
                let documents: Vec<_> = objects.iter().map(ToString::to_string).collect();
                (format!("{:03}.yaml", (i as u64).wrapping_mul(7919 + seed) % 1009), documents.join("\n---\n"))
            })
            .collect();
        let files: Vec<_> = files.iter().map(|(n, t)| (n.as_str(), t.as_str())).collect();
        let gateway = Gateway::start(&envoy, &files).await?;
        let info = gateway.admin("/api/server_info").await?;
        assert_eq!(info["problems"], serde_json::json!([]), "seed {seed}");
        let xds = gateway.admin("/api/xds").await?;
        let count = xds["default/main"]["resources"].as_object().context("resources")?.len();
        assert!(count >= 4, "types of resources: {count}");
        match &first {
            None => first = Some(xds),
            Some(first) => assert_eq!(&xds, first, "seed {seed}"),
        }
    }
    println!("determinism: {RESTARTS} restarts with {} objects in other files and orders, all equal", objects.len());
    Ok(())
}

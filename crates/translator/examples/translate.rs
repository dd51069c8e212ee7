//! Translates the objects of YAML files and prints what follows: xDS resources by group of proxies, and statuses.
//!
//! `cargo run -p translator --example translate -- FILE…`; with `--out DIR` each FILE is translated by itself and the
//! result is written to `DIR/STEM.json`, where STEM is the name of the file or, for `in.yaml`, of its folder.

use std::{error::Error, fs, path::Path};

use resources::{Change, Object};
use serde_json::{Value, json};
use translator::{Config, ExtensionApis, Infrastructure, translate};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let out = args.iter().position(|a| a == "--out").map(|i| args.drain(i..i + 2).nth(1).unwrap_or_default());
    let extension_apis = ExtensionApis { backend: true, ..ExtensionApis::default() };
    let infrastructure =
        if std::env::var_os("HOST_INFRA").is_some() { Infrastructure::Host } else { Infrastructure::Kubernetes };
    let per_resource_system_ca_secret = std::env::var_os("PER_RESOURCE_CA").is_some();
    let extension_apis = ExtensionApis { sds_secret_ref: std::env::var_os("SDS_SECRETS").is_some(), ..extension_apis };
    let config = Config { extension_apis, infrastructure, per_resource_system_ca_secret, ..Config::default() };
    match out {
        None => {
            let changes = args.iter().map(|f| read(Path::new(f))).collect::<Result<Vec<_>, _>>()?.concat();
            #[expect(clippy::print_stdout, reason = "the example's result")]
            {
                println!("{}", serde_json::to_string_pretty(&result(changes, &config)?)?);
            }
        }
        Some(dir) => {
            for file in &args {
                let path = Path::new(file);
                let stem = match path.file_stem().and_then(|s| s.to_str()) {
                    Some("in") => path.parent().and_then(|p| p.file_name()).and_then(|s| s.to_str()),
                    stem => stem,
                };
                let result = result(read(path)?, &config)?;
                fs::write(
                    Path::new(&dir).join(format!("{}.json", stem.unwrap_or("out"))),
                    serde_json::to_vec(&result)?,
                )?;
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Change>, Box<dyn Error>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(path)?)?;
    let objects = documents.into_iter().filter(|d| !d.is_null()).map(Object::from_value);
    Ok(objects.filter_map(Result::ok).map(|(key, object)| Change::Upsert(key, object)).collect())
}

fn result(changes: Vec<Change>, config: &Config) -> Result<Value, Box<dyn Error>> {
    let full = translate(changes, config);
    let mut groups = serde_json::Map::new();
    for (name, group) in &full.groups {
        let mut of_type: std::collections::BTreeMap<&str, Vec<Value>> = std::collections::BTreeMap::new();
        for ((kind, _), value) in &group.resources {
            let list = match kind {
                ir::XdsKind::Cluster => "clusters",
                ir::XdsKind::Endpoints => "endpoints",
                ir::XdsKind::Listener => "listeners",
                ir::XdsKind::RouteTable => "routes",
                ir::XdsKind::Secret => "secrets",
            };
            let encoded = match envoy::encode(value) {
                Ok(e) => e.to_value()?,
                Err(e) => json!({ "error": e.to_string() }),
            };
            of_type.entry(list).or_default().push(encoded);
        }
        groups.insert(name.to_string(), json!(of_type));
    }
    let statuses: Vec<Value> = full.statuses.iter().map(|(key, status)| status::object(key, status)).collect();
    Ok(json!({ "xds": groups, "status": statuses }))
}

//! How long a translation takes: `cargo run --release -p translator --example timing -- FILE`, from scratch and after one
//! changed route.

use std::{error::Error, fs, time::Instant};

use resources::{Change, Kind, Object};
use serde_json::Value;
use translator::{Config, Engine, ExtensionApis, Infrastructure};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("name a file of objects")?;
    let mut changes = Vec::new();
    let mut route = None;
    for document in fs::read_to_string(file)?.split("\n---") {
        let document: Value = serde_saphyr::from_str(document)?;
        let Ok((key, object)) = Object::from_value(document.clone()) else { continue };
        if key.kind == Kind::HttpRoute {
            route = Some(document);
        }
        changes.push(Change::Upsert(key, object));
    }
    changes.push(Change::Synced);
    let config = Config {
        extension_apis: ExtensionApis { backend: true, ..Default::default() },
        infrastructure: Infrastructure::Host,
        ..Config::default()
    };
    let mut engine = Engine::new(config);
    let start = Instant::now();
    let first = engine.apply(changes);
    let whole = start.elapsed();
    let mut route = route.ok_or("there is no HTTPRoute in the file")?;
    route["spec"]["rules"][0]["matches"] = serde_json::json!([{"path": {"type": "PathPrefix", "value": "/changed"}}]);
    let (key, object) = Object::from_value(route)?;
    let start = Instant::now();
    let second = engine.apply(vec![Change::Upsert(key, object)]);
    let one = start.elapsed();
    let count = |t: &ir::Translation| t.xds.values().map(std::collections::BTreeMap::len).sum::<usize>();
    #[expect(clippy::print_stdout, reason = "the example's result")]
    {
        println!("from scratch: {whole:?}, {} resources, {} statuses", count(&first), first.statuses.len());
        println!("one route changed: {one:?}, {} resources, {} statuses", count(&second), second.statuses.len());
    }
    Ok(())
}

//! Requests and answers, by the tables in `rows/`, through the real gateway and a real Envoy.
//!
//! `ROWS=tls,paths` runs those files only (all objects are there nevertheless).

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use e2e::{
    Gateway, Surroundings,
    gateway::envoy_bin,
    rows::{File, Row},
};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

/// Rows that there are at least.
const LEAST: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn rows() -> Result<()> {
    let Some(envoy) = envoy_bin() else { return Ok(()) };
    let surroundings = Surroundings::start().await?;
    let files = read(&surroundings)?;
    let total: usize = files.iter().map(|(_, f)| f.rows.len()).sum();
    assert!(total >= LEAST, "{total} rows");
    let documents: Vec<_> = files.iter().map(|(name, f)| (format!("{name}.json"), f.document())).collect();
    let documents: Vec<_> = documents.iter().map(|(n, d)| (n.as_str(), d.as_str())).collect();
    let gateway = Gateway::start(&envoy, &documents).await?;
    let info = gateway.admin("/api/server_info").await?;
    assert_eq!(info["problems"], serde_json::json!([]), "the objects of rows/ are all taken");
    assert_eq!(info["encodeErrors"], 0, "every resource is one that Envoy takes:\n{}", gateway.log());
    listening(&files, &surroundings, &gateway).await?;

    let only = std::env::var("ROWS").unwrap_or_default();
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, file) in files.iter().filter(|(n, _)| only.is_empty() || only.split(',').any(|o| o == n)) {
        let begin = Instant::now();
        let mut wrong = 0;
        for row in &file.rows {
            match row.check(&surroundings).await.with_context(|| row.request.clone()) {
                Ok(()) => passed += 1,
                Err(e) => {
                    wrong += 1;
                    failed.push(format!("{name}: {}: {e:#}", row.name));
                }
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name:<16} {:>4} passed {wrong:>3} failed  {seconds:>5.1}s", file.rows.len() - wrong);
    }
    let refused = refusals(&gateway).await?;
    for f in failed.iter().chain(&refused) {
        println!("FAILED {f}");
    }
    println!("rows: {passed} passed, {} failed", failed.len());
    assert!(failed.is_empty(), "{} rows failed", failed.len());
    assert!(refused.is_empty(), "Envoy refused configuration");
    Ok(())
}

/// All files of `rows/` in the order of their names.
fn read(surroundings: &Surroundings) -> Result<Vec<(String, File)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("rows");
    let mut paths: Vec<_> = std::fs::read_dir(dir)?.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let name = path.file_stem().context("a name")?.to_string_lossy().into_owned();
            let file = File::read(&std::fs::read_to_string(path)?, surroundings).with_context(|| name.clone())?;
            Ok((name, file))
        })
        .collect()
}

/// Waits until every port that a row asks something of takes connections, apart from those that must not.
async fn listening(files: &[(String, File)], surroundings: &Surroundings, gateway: &Gateway) -> Result<()> {
    let asked = |port: u16| {
        let to = |r: &Row| r.request.contains(&format!(":{port}/"));
        files.iter().flat_map(|(_, f)| &f.rows).any(|r| to(r) && r.expect.status != Some(0))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    for (name, port) in surroundings.ports().into_iter().filter(|(_, p)| asked(*p)) {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if Instant::now() > deadline {
                let proxies = gateway.admin("/api/proxies").await?;
                bail!("nobody listens on {name} ({port}):\n{proxies:#}\n{}", gateway.log());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// What Envoys refused.
async fn refusals(gateway: &Gateway) -> Result<Vec<String>> {
    let proxies = gateway.admin("/api/proxies").await?;
    let streams = proxies["streams"].as_array().context("streams")?;
    let types = streams.iter().filter_map(|s| s["types"].as_object()).flatten();
    Ok(types.filter(|(_, t)| !t["lastNack"].is_null()).map(|(k, t)| format!("{k}: {}", t["lastNack"])).collect())
}

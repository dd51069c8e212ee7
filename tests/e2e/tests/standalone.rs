//! The standalone gateway over its life: files that change, break and go, proxies that die, the end, what it tells.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use e2e::{Gateway, Surroundings, client::Request, gateway::envoy_bin, wait::until};
use tokio::{process::Command, task::JoinSet, time::sleep};

const GATEWAY: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: test}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: main, namespace: default}
spec:
  gatewayClassName: test
  listeners:
  - {name: http, protocol: HTTP, port: ${port:http}}
  - {name: https, protocol: HTTPS, port: ${port:https}, tls: {certificateRefs: [{name: cert}]}}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: web-1, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: ${backend:web-1}}}]}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: web-2, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: ${backend:web-2}}}]}
"#;

const SECRET: &str = r#"
apiVersion: v1
kind: Secret
type: kubernetes.io/tls
metadata: {name: cert, namespace: default}
data: {tls.crt: "${crt:secret.test}", tls.key: "${key:secret.test}"}
"#;

fn route(name: &str, backend: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {name}
  namespace: default
spec:
  parentRefs:
  - name: main
  hostnames:
  - {name}.test
  rules:
  - matches:
    - path:
        type: PathPrefix
        value: /
    backendRefs:
    - group: gateway.envoyproxy.io
      kind: Backend
      name: {backend}
"
    )
}

/// Starts a gateway with two routes, `a` and `b`, to `web-1`.
async fn start(surroundings: &Surroundings) -> Result<Option<Gateway>> {
    let Some(envoy) = envoy_bin() else { return Ok(None) };
    let (gateway, secret) = (surroundings.fill(GATEWAY)?, surroundings.fill(SECRET)?);
    let (a, b) = (route("a", "web-1"), route("b", "web-1"));
    let files = [("gateway.yaml", &*gateway), ("secret.yaml", &secret), ("a.yaml", &a), ("b.yaml", &b)];
    let gateway = Gateway::start(&envoy, &files).await?;
    let port = surroundings.port("http")?;
    for host in ["a", "b"] {
        until("the first answer", async || Ok(backend(host, port).await.unwrap_or_default() == "web-1")).await?;
    }
    Ok(Some(gateway))
}

/// Status of a request, or which backend answered.
async fn backend(host: &str, port: u16) -> Result<String> {
    let answer = Request::get(format!("http://{host}.test:{port}/")).send().await?;
    let seen: Option<testkit::echo::Answer> = serde_json::from_slice(&answer.body).ok();
    Ok(seen.map_or_else(|| answer.status.to_string(), |s| s.backend))
}

async fn problems(gateway: &Gateway) -> Result<Vec<String>> {
    let info = gateway.admin("/api/server_info").await?;
    let list = info["problems"].as_array().context("problems")?;
    Ok(list.iter().filter_map(|p| p.as_str().map(str::to_owned)).collect())
}

/// Asks for a host again and again; every answer must be 200.
fn watch(host: &'static str, port: u16, stop: Arc<AtomicBool>) -> JoinSet<Result<usize>> {
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let answer = Request::get(format!("http://{host}.test:{port}/")).send().await?;
            ensure!(answer.status == 200, "{host}.test was answered {} after {count} times 200", answer.status);
            count += 1;
            sleep(Duration::from_millis(5)).await;
        }
        Ok(count)
    });
    tasks
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_reach_envoy_and_broken_files_do_no_harm() -> Result<()> {
    let surroundings = Surroundings::start().await?;
    let Some(gateway) = start(&surroundings).await? else { return Ok(()) };
    let port = surroundings.port("http")?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut watched = watch("a", port, stop.clone());

    let mut times = Vec::new();
    for i in 0..20 {
        let wanted = ["web-2", "web-1"][i % 2];
        gateway.write("a.yaml", &route("a", wanted))?;
        times.push(until("an edit", async || Ok(backend("a", port).await? == wanted)).await?);
    }
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    println!("edits: 20, from the write to the first changed answer: median {median:?}, longest {longest:?}");
    assert!(median < Duration::from_secs(1), "median {median:?}");

    // No YAML at all: told by file and line; the last good version of that file stays, other files go on.
    let half = route("a", "web-2").replace("kind: Backend", "kind: [Backend");
    gateway.write("a.yaml", &half)?;
    until("the broken file is told", async || Ok(!problems(&gateway).await?.is_empty())).await?;
    let told = problems(&gateway).await?;
    assert_eq!(told.len(), 1, "{told:?}");
    let line = told[0].split("a.yaml:").nth(1).and_then(|t| t.split(':').next()).and_then(|n| n.parse::<usize>().ok());
    assert!(line.is_some_and(|n| (17..=19).contains(&n)), "file and line: {told:?}");
    gateway.write("b.yaml", &route("b", "web-2"))?;
    until("another file goes on", async || Ok(backend("b", port).await? == "web-2")).await?;
    assert_eq!(backend("a", port).await?, "web-1");

    // YAML, but an object that no API server would take: told by object and field.
    gateway.write("a.yaml", &route("a", "web-2").replace("value: /", "value: cart"))?;
    until("the object is told", async || {
        Ok(problems(&gateway).await?.iter().any(|p| p.contains("HTTPRoute default/a")))
    })
    .await?;
    let told = problems(&gateway).await?;
    for part in ["a.yaml:14:", "HTTPRoute default/a", "spec.rules[0].matches[0].path", "absolute path"] {
        assert!(told.iter().any(|p| p.contains(part)), "{part} in {told:?}");
    }
    assert!(told.iter().all(|p| p.contains("the last good version stays in force")), "{told:?}");
    gateway.write("b.yaml", &route("b", "web-1"))?;
    until("another file goes on", async || Ok(backend("b", port).await? == "web-1")).await?;
    assert_eq!(backend("a", port).await?, "web-1");

    // A file emptied for a moment, as editors do, and then written.
    std::fs::write(gateway.resources().join("a.yaml"), "")?;
    std::fs::write(gateway.resources().join("a.yaml"), route("a", "web-2"))?;
    until("the corrected file", async || Ok(backend("a", port).await? == "web-2")).await?;
    assert_eq!(problems(&gateway).await?, Vec::<String>::new());

    stop.store(true, Ordering::Relaxed);
    let asked = watched.join_next().await.context("the watcher")???;
    println!("requests while files changed and broke: {asked}, all 200");
    assert!(asked > 50, "{asked}");

    // A file that goes takes its route along.
    gateway.remove("b.yaml")?;
    until("the removed route", async || Ok(backend("b", port).await? == "404")).await?;
    assert_eq!(backend("a", port).await?, "web-2");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_proxy_comes_back_and_none_outlives_the_gateway() -> Result<()> {
    let surroundings = Surroundings::start().await?;
    let Some(mut gateway) = start(&surroundings).await? else { return Ok(()) };
    let port = surroundings.port("http")?;

    let before = gateway.envoys().await?["default/main"];
    kill("-KILL", before).await?;
    let another = async || Ok(gateway.envoys().await?.get("default/main").is_some_and(|p| *p != before));
    until("another process", another).await?;
    let took = until("answers", async || Ok(backend("a", port).await.is_ok_and(|b| b == "web-1"))).await?;
    println!("a killed Envoy answers again, {took:?} after its successor was started");
    let status = &gateway.admin("/api/proxies").await?["local"]["default/main"];
    assert_eq!(status["crashes"], 1, "{status:#}");

    // The control plane's end: what is under way is answered, and then all processes are gone.
    let mut late = JoinSet::new();
    let url = format!("http://a.test:{port}/delay/1500");
    let arrived = surroundings.backend("web-1")?.requests();
    late.spawn(async move { Request::get(url).send().await });
    until("the slow request", async || Ok(surroundings.backend("web-1")?.requests() > arrived)).await?;
    let envoy = gateway.envoys().await?["default/main"];
    let took = gateway.stop().await?;
    let answer = late.join_next().await.context("the slow request")???;
    assert_eq!(answer.status, 200, "what is under way is answered");
    println!("SIGTERM: over after {took:?}");
    assert_eq!(gateway.processes(), Vec::<u32>::new(), "no process is left");
    assert!(!std::path::Path::new(&format!("/proc/{envoy}")).exists(), "Envoy {envoy} is gone");
    assert!(backend("a", port).await.is_err(), "the port is free");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn proxies_end_with_a_gateway_that_is_killed() -> Result<()> {
    let surroundings = Surroundings::start().await?;
    let Some(gateway) = start(&surroundings).await? else { return Ok(()) };
    kill("-KILL", gateway.pid().context("a process")?).await?;
    // The process itself stays in the table until the harness waits for it, without a command line.
    until("no process is left", async || Ok(gateway.processes().is_empty())).await?;
    Ok(())
}

async fn kill(signal: &str, pid: u32) -> Result<()> {
    let status = Command::new("kill").arg(signal).arg(pid.to_string()).status().await?;
    ensure!(status.success(), "kill {signal} {pid}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn several_instances_share_a_host() -> Result<()> {
    let (one, two) = (Surroundings::start().await?, Surroundings::start().await?);
    let ports = [one.port("http")?, two.port("http")?];
    let (a, b) = tokio::join!(start(&one), start(&two));
    let (Some(mut a), Some(b)) = (a?, b?) else { return Ok(()) };
    a.write("a.yaml", &route("a", "web-2"))?;
    until("an edit of the first", async || Ok(backend("a", ports[0]).await? == "web-2")).await?;
    assert_eq!(backend("a", ports[1]).await?, "web-1", "the second has files of its own");
    a.stop().await?;
    assert_eq!(backend("a", ports[1]).await?, "web-1", "the second goes on without the first");
    assert_eq!(b.envoys().await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_tells_holds_no_secrets() -> Result<()> {
    let surroundings = Surroundings::start().await?;
    let Some(gateway) = start(&surroundings).await? else { return Ok(()) };
    let leaf = surroundings.leaf("server", "secret.test")?;
    let key = surroundings.fill("${key:secret.test}")?;
    // A line of the PEM, and pieces of its base64 form from within, where neither begins.
    let line = leaf.key.lines().nth(1).context("a line of the key")?;
    let secrets = [line, &line[8..40], &key[40..80], "PRIVATE KEY"];
    let (status, console) = gateway.get("admin", "/").await?;
    assert_eq!(status, 200);
    let links: Vec<&str> = console.split("href=\"").skip(1).filter_map(|t| t.split('"').next()).collect();
    assert!(links.len() >= 8, "{links:?}");
    let more = ["/api/resources?resource=all", "/api/xds", "/api/config_dump?resource=all&kind=Secret"];
    for path in links.iter().chain(&more) {
        let (status, text) = gateway.get("admin", path).await?;
        assert_eq!(status, 200, "{path}");
        for secret in secrets {
            assert!(!text.contains(secret), "{path} tells a key");
        }
    }
    let dump = gateway.admin("/api/config_dump?resource=all&kind=Secret").await?;
    assert_eq!(dump["Secret"][0]["data"]["tls.key"], "[redacted]", "{dump:#}");
    let log = gateway.log();
    assert!(secrets.iter().all(|s| !log.contains(s)), "the log tells a key");
    let xds = gateway.admin("/api/xds?resource=all").await?;
    let resources = &xds["default/main"]["resources"];
    let secret = resources["type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"].clone();
    assert!(secret[0]["name"].is_string() && secret[0]["resource"].is_null(), "secrets by name only: {secret:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_measures_and_who_is_connected() -> Result<()> {
    let surroundings = Surroundings::start().await?;
    let Some(gateway) = start(&surroundings).await? else { return Ok(()) };
    let (status, text) = gateway.get("metrics", "/metrics").await?;
    assert_eq!(status, 200);
    for name in [
        "leader_election_master_status",
        "leader_election_term",
        "translations_total",
        "translation_last_seconds",
        "resource_problems",
        "status_wanted",
        "xds_connections",
        "xds_streams",
        "xds_responses_total",
        "xds_acks_total",
        "xds_nack_total",
    ] {
        assert!(text.lines().any(|l| l.starts_with(name)), "{name} in\n{text}");
    }
    let value = |name: &str| text.lines().find(|l| l.starts_with(name)).and_then(|l| l.rsplit(' ').next());
    assert_eq!(value("xds_streams").and_then(|v| v.parse::<f64>().ok()), Some(1.0), "{text}");
    let master = value("leader_election_master_status").and_then(|v| v.parse::<f64>().ok());
    assert_eq!(master, Some(1.0), "standalone leads");

    let (status, _) = gateway.get("health", "/healthz").await?;
    assert_eq!(status, 200);
    // Everything that was sent is acknowledged, by version.
    let acked = async || {
        let proxies = gateway.admin("/api/proxies").await?;
        let types = proxies["streams"][0]["types"].as_object().context("a stream")?.clone();
        Ok(!types.is_empty()
            && types.values().all(|t| t["sentVersion"] == t["ackedVersion"] && t["lastNack"].is_null()))
    };
    until("all is acknowledged", acked).await?;
    let statuses = gateway.admin("/api/status").await?;
    let route = statuses.as_array().context("statuses")?.iter().find(|s| s["metadata"]["name"] == "a");
    let accepted = &route.context("the route's status")?["status"]["parents"][0]["conditions"];
    let yes =
        |kind: &str| accepted.as_array().is_some_and(|c| c.iter().any(|c| c["type"] == kind && c["status"] == "True"));
    assert!(yes("Accepted") && yes("ResolvedRefs"), "{accepted:#}");
    Ok(())
}

//! The real binary while its API server is away: a start serves what was known, nothing is written from that, the live state
//! replaces it; a replica that is cut hands its proxies over to one that is not.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    envoy::{Envoy, envoy_bin},
    server::Server,
    world::{World, until},
};
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::ClusterRoleBinding};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use testkit::{
    apiserver::{free_port, kube_bin},
    proxy::{Network, TcpProxy},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const SYSTEM: &str = "envoy-gateway-system";
const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";
const USER: &str = "gateway";
/// May lead, and read nothing.
const BLIND: &str = "blind";
const HOST: &str = "a.example.test";
const SOON: Duration = Duration::from_secs(20);

/// A world with one Gateway on `port` and a route that redirects, so that answers need no backend.
async fn set(bin: std::path::PathBuf, port: u16) -> Result<World> {
    let world = World::start(bin, &[USER], &[BLIND]).await?;
    world.define(|_| true).await?;
    for ns in [SYSTEM, "infra", "team-a"] {
        world.namespace(ns, json!({})).await?;
    }
    // Nobody holds it: the first to come leads at once.
    let lease = json!({"metadata": {"name": LEASE}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}});
    let leases: Api<Lease> = Api::namespaced(world.client(), SYSTEM);
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gc"},
        "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "team-a"},
        "spec": {"ports": [{"port": 8080, "targetPort": 3000}]}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "team-a", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4", "ports": [{"port": 3000}], "endpoints": [{"addresses": ["10.0.0.1"]}]});
    world.create(&[class, gateway(port), service, slice, route("r", HOST)]).await?;
    Ok(world)
}

fn gateway(port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "gw", "namespace": "infra"},
        "spec": {"gatewayClassName": "gc", "listeners": [{"name": "http", "port": port, "protocol": "HTTP",
            "allowedRoutes": {"namespaces": {"from": "All"}}}]}})
}

fn route(name: &str, host: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"hostnames": [host], "parentRefs": [{"name": "gw", "namespace": "infra"}],
            "rules": [
                {"matches": [{"path": {"value": "/web"}}], "backendRefs": [{"name": "web", "port": 8080}]},
                {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": "elsewhere.example.test"}}]}]}})
}

fn config(folder: &Path) -> String {
    format!(
        "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider:\n  type: Kubernetes\n  kubernetes:\n    lastGoodState: {{ folder: {}, after: 2s }}\n",
        folder.display()
    )
}

/// The status of an answer of the proxy; none while there is none.
async fn asked(port: u16, host: &str) -> Option<u16> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let request = format!("GET / HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        answer.split(' ').nth(1)?.parse().ok()
    };
    tokio::time::timeout(Duration::from_secs(2), ask).await.ok()?
}

async fn has_status(world: &World, route: &Value) -> Result<bool> {
    let now = world.get(route).await?;
    let conditions = now["status"]["parents"][0]["conditions"].as_array().cloned().unwrap_or_default();
    Ok(conditions.iter().any(|c| c["type"] == "Accepted" && c["status"] == "True"))
}

/// Waits until everything that the server holds is in its folder, and nothing more changes.
async fn saved(server: &Server, folder: &Path) -> Result<String> {
    let key = std::fs::read(server.scratch().join("home/config/certs/envoy-gateway/tls.key"))?;
    let controller = "gateway.envoyproxy.io/gatewayclass-controller";
    let (mut last, mut since) = (String::new(), Instant::now());
    until(Duration::from_secs(60), "the state is saved", async || {
        let digest = server.admin("/api/server_info").await?["snapshotDigest"].as_str().context("digest")?.to_owned();
        if digest != last {
            (last, since) = (digest, Instant::now());
        }
        let dump = server.admin("/api/config_dump").await?;
        let held: usize = dump.as_object().context("kinds")?.values().filter_map(Value::as_array).map(Vec::len).sum();
        let saved = provider::last_good::load(folder, controller, &key)?;
        Ok(saved.is_some_and(|s| s.objects.len() == held) && since.elapsed() > Duration::from_secs(7))
    })
    .await
    .with_context(|| server.log_tail())?;
    Ok(last)
}

async fn state(server: &Server) -> Result<Value> {
    let (_, text) = server.get("health", "/readyz").await.context("readyz")?;
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_in_an_outage_serves_what_was_known_and_writes_nothing() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let (port, kept) = (free_port()?, tempfile::TempDir::new()?);
    let world = set(bin, port).await?;
    let network = TcpProxy::start(world.server.port()).await?;
    let url = format!("https://127.0.0.1:{}", network.port());
    let kubeconfig = world.server.kubeconfig(USER, &url);
    // A folder that is not there yet.
    let folder = kept.path().join("state");
    let server = Server::start(&kubeconfig, &config(&folder)).await?;
    until(SOON, "the route has its status", async || has_status(&world, &route("r", HOST)).await)
        .await
        .with_context(|| server.log_tail())?;
    let digest = saved(&server, &folder).await?;
    ensure!(state(&server).await?["state"]["origin"] == "live");

    // Killed, and started while the API server is away.
    network.set(Network::Cut);
    let from = Instant::now();
    let server = server.kill_and_start(&kubeconfig).await?;
    let ready = from.elapsed();
    // Counted from here: what the killed one had under way is in the audit log by now.
    let before = world.written(USER)?.len();
    ensure!(ready < Duration::from_secs(15), "ready after {ready:?}");
    let told = state(&server).await?;
    ensure!(told["state"]["origin"] == "stale" && told["state"]["staleSince"].is_string(), "{told}");
    let info = server.admin("/api/server_info").await?;
    ensure!(info["snapshotDigest"] == digest.as_str(), "{} is not {digest}", info["snapshotDigest"]);
    ensure!(
        server.metric("state_stale").await > 0.5 && server.metric("state_stale_since_timestamp_seconds").await > 1e9
    );
    ensure!(server.log_tail().contains("the saved state is served"), "{}", server.log_tail());
    // A proxy that never was connected before gets everything.
    let mut proxy = None;
    let mut configured = Duration::ZERO;
    if let Some(envoy) = envoy_bin() {
        let from = Instant::now();
        proxy = Some(Envoy::start(&envoy, &server, "infra/gw")?);
        until(SOON, "a new proxy answers", async || Ok(asked(port, HOST).await == Some(302))).await?;
        configured = from.elapsed();
    }
    // Meanwhile the cluster changes.
    world.create(&[route("later", "b.example.test")]).await?;
    ensure!(server.metric("state_saves_total").await < 0.5, "a saved state was saved again");
    ensure!(world.written(USER)?.len() == before, "it wrote");

    // Back: swapped as one step, and written.
    let from = Instant::now();
    network.set(Network::Open);
    until(Duration::from_secs(60), "the live state replaces it", async || {
        Ok(state(&server).await?["state"]["origin"] == "live")
    })
    .await
    .with_context(|| server.log_tail())?;
    let live = from.elapsed();
    ensure!(server.metric("state_stale").await < 0.5);
    if proxy.is_some() {
        until(SOON, "the proxy has the new route", async || Ok(asked(port, "b.example.test").await == Some(302)))
            .await?;
        ensure!(asked(port, HOST).await == Some(302));
    }
    until(Duration::from_secs(40), "the new route has its status", async || {
        has_status(&world, &route("later", "b.example.test")).await
    })
    .await
    .with_context(|| server.log_tail())?;
    let written = from.elapsed();
    let deleted: Vec<_> = world.written(USER)?.into_iter().filter(|w| w.verb.starts_with("delete")).collect();
    ensure!(deleted.is_empty(), "{deleted:?}");
    println!(
        "ready {:.1} s after SIGKILL, a new proxy configured in {:.1} s; live {:.1} s and written {:.1} s after the return",
        ready.as_secs_f64(),
        configured.as_secs_f64(),
        live.as_secs_f64(),
        written.as_secs_f64()
    );
    drop(proxy);
    saved(&server, &folder).await?;
    blind(&world, server).await
}

/// Started as one that may lead but read nothing: it leads, serves what was saved, and does not write from it.
async fn blind(world: &World, server: Server) -> Result<()> {
    let rules = json!({"metadata": {"name": "leases"}, "rules": [{"apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"], "verbs": ["get", "list", "watch", "create", "update", "patch"]}]});
    let subjects = json!([{"kind": "User", "name": BLIND, "apiGroup": "rbac.authorization.k8s.io"}]);
    let bind = |role: &str| {
        json!({"metadata": {"name": format!("blind-{role}")}, "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}})
    };
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(world.client());
    roles.create(&PostParams::default(), &serde_json::from_value(rules)?).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client());
    bindings.create(&PostParams::default(), &serde_json::from_value(bind("leases"))?).await?;
    let server = server.kill_and_start(&world.server.kubeconfig(BLIND, &world.server.url())).await?;
    // While it is away: something that a writer would want to write.
    world.patch(&route("r", HOST), "/status", json!({"status": {"parents": []}})).await?;
    until(Duration::from_secs(60), "it leads", async || Ok(state(&server).await?["leadership"]["role"] == "leader"))
        .await
        .with_context(|| server.log_tail())?;
    ensure!(state(&server).await?["state"]["origin"] == "stale", "{}", state(&server).await?);
    sleep(Duration::from_secs(5)).await;
    let writes = || {
        let all = world.written(BLIND)?;
        let mutating = |verb: &str| ["create", "update", "patch", "delete", "deletecollection"].contains(&verb);
        Ok::<_, anyhow::Error>(
            all.into_iter()
                .filter(|w| mutating(&w.verb) && !w.what.starts_with("leases ") && !w.what.starts_with("events "))
                .collect::<Vec<_>>(),
        )
    };
    let early = writes()?;
    ensure!(early.is_empty(), "a leader with a saved state wrote: {early:?}");
    bindings.create(&PostParams::default(), &serde_json::from_value(bind("cluster-admin"))?).await?;
    until(Duration::from_secs(90), "it sees, and writes", async || has_status(world, &route("r", HOST)).await)
        .await
        .with_context(|| server.log_tail())?;
    ensure!(state(&server).await?["state"]["origin"] == "live");
    ensure!(writes()?.iter().all(|w| !w.verb.starts_with("delete")), "{:?}", writes()?);
    println!("a leader that sees nothing: 0 writes from the saved state, then {} from the live one", writes()?.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_cut_hands_its_proxies_over_while_another_is_not() -> Result<()> {
    let (Some(bin), Some(envoy)) = (kube_bin(), envoy_bin()) else { return Ok(()) };
    let (port, kept) = (free_port()?, tempfile::TempDir::new()?);
    let world = set(bin, port).await?;
    let mut networks = Vec::new();
    let mut servers: Vec<Server> = Vec::new();
    let places = [free_port()?, free_port()?];
    for (i, place) in places.iter().enumerate() {
        let network = TcpProxy::start(world.server.port()).await?;
        let kubeconfig = world.server.kubeconfig(USER, &format!("https://127.0.0.1:{}", network.port()));
        let mut args = vec![format!("--peer-port={place}")];
        args.extend(places.iter().map(|p| format!("--peer=127.0.0.1:{p}")));
        if let Some(first) = servers.first() {
            let folder = first.scratch().join("home/config/certs/envoy-gateway");
            args.push(format!("--certs-dir={}", folder.display()));
        }
        let config = config(&kept.path().join(i.to_string()));
        servers.push(Server::start_with(&kubeconfig, &config, &args).await?);
        networks.push(network);
    }
    let [a, b] = &servers[..] else { unreachable!() };
    until(SOON, "they have heard each other, and serve the same", async || {
        let mut same = true;
        for server in &servers {
            let heard = server.metric("replicas_heard").await > 0.5;
            same &= heard && server.metric("replicas_differing").await < 0.5;
        }
        Ok(same)
    })
    .await
    .with_context(|| a.log_tail())?;
    let _proxy = Envoy::start(&envoy, a, "infra/gw")?;
    let streams = async || Ok::<_, anyhow::Error>(a.metric("xds_streams").await);
    until(SOON, "the proxy answers", async || Ok(asked(port, HOST).await == Some(302))).await?;

    let from = Instant::now();
    networks[0].set(Network::Stall);
    until(Duration::from_secs(15), "it is not ready, and its proxy is sent away", async || {
        Ok(state(a).await?["handsOver"] == true
            && a.get("health", "/readyz").await.is_some_and(|(c, _)| c == 503)
            && streams().await? < 0.5)
    })
    .await
    .with_context(|| a.log_tail())?;
    let handed = from.elapsed();
    ensure!(asked(port, HOST).await == Some(302), "the proxy goes on with what it has");
    ensure!(a.metric("xds_connections_refused_total").await > 0.5 || streams().await? < 0.5);
    ensure!(state(b).await?["ready"] == true && state(b).await?["handsOver"] == false);

    let from = Instant::now();
    networks[0].set(Network::Open);
    until(Duration::from_secs(60), "it takes proxies again", async || {
        Ok(state(a).await?["ready"] == true && streams().await? > 0.5)
    })
    .await
    .with_context(|| a.log_tail())?;
    let back = from.elapsed();
    // Both at once: both stay.
    networks.iter().for_each(|n| n.set(Network::Stall));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(15) {
        for server in &servers {
            let now = state(server).await?;
            ensure!(now["ready"] == true, "{now}");
        }
        sleep(Duration::from_millis(500)).await;
    }
    println!(
        "handed over {:.1} s after the cut, back {:.1} s after its end; cut both: both stay",
        handed.as_secs_f64(),
        back.as_secs_f64()
    );
    Ok(())
}

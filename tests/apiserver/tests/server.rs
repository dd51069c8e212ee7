//! The real binary in a cluster without nodes: ready, statuses written, memory, and an orderly end.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use apiserver::{
    server::Server,
    world::{World, until},
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use testkit::apiserver::kube_bin;
use tokio::time::{Instant, sleep};

const SYSTEM: &str = "envoy-gateway-system";
const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";
const CONFIG: &str = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider: {type: Kubernetes}\n";
const SECRETS: usize = 2_000;
const SECRET_BYTES: usize = 50 * 1024;
/// What all those Secrets may cost.
const MEMORY_KIB: u64 = 30 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_serves_from_a_cluster() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = World::start(bin, &["gateway"], &[]).await?;
    world.define(|_| true).await?;
    world.namespace(SYSTEM, json!({})).await?;
    world.namespace("app", json!({})).await?;
    // Nobody holds it: the first to come leads at once.
    let lease = json!({"metadata": {"name": LEASE}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}});
    let leases: Api<Lease> = Api::namespaced(world.client(), SYSTEM);
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "eg"},
        "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}});
    let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "app"}, "spec": {"gatewayClassName": "eg",
            "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}});
    world.create(&[class.clone(), gateway.clone()]).await?;

    let kubeconfig = world.server.kubeconfig("gateway", &world.server.url());
    let from = Instant::now();
    let server = Server::start(&kubeconfig, CONFIG).await?;
    let ready = from.elapsed();
    until(Duration::from_secs(30), "statuses are written", async || {
        let of = |v: &Value| {
            v["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|c| c["type"] == "Accepted" && c["status"] == "True")
        };
        Ok(of(&world.get(&class).await?) && of(&world.get(&gateway).await?))
    })
    .await
    .with_context(|| server.log_tail())?;
    let written = from.elapsed();
    for kind in ["GatewayClass", "Gateway"] {
        let metric = format!("status_update_total{{kind=\"{kind}\",status=\"success\",reason=\"\"}}");
        ensure!(server.metric(&metric).await >= 1.0, "{:?}", server.get("metrics", "/metrics").await);
    }
    until(Duration::from_secs(20), "the fleet is written and counted", async || {
        let (_, text) = server.get("metrics", "/metrics").await.context("metrics")?;
        let counted =
            |l: &str| l.starts_with("resource_apply_total{kind=\"Deployment\"") && l.contains("status=\"success\"");
        Ok(text.lines().any(counted))
    })
    .await
    .with_context(|| server.log_tail())?;
    ensure!(server.metric("leader_election_master_status{name=\"5b9825d2.gateway.envoyproxy.io\"}").await > 0.5);
    let without = settled(&server).await?;
    let from = Instant::now();
    let status = server.terminate().await?;
    ensure!(status.success(), "{status}");
    let ended = from.elapsed();
    let holder = leases.get(LEASE).await?.spec.and_then(|s| s.holder_identity);
    ensure!(holder.as_deref().unwrap_or_default().is_empty(), "released: {holder:?}");

    let content = "x".repeat(SECRET_BYTES);
    stream::iter(0..SECRETS)
        .map(|i| {
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("idle-{i}"), "namespace": "app"},
                "stringData": {"x": content}});
            let world = &world;
            async move { world.create(&[secret]).await }
        })
        .buffer_unordered(16)
        .try_collect::<()>()
        .await?;
    let from = Instant::now();
    let server = Server::start(&kubeconfig, CONFIG).await?;
    let ready_again = from.elapsed();
    let with = settled(&server).await?;
    println!(
        "ready after {} ms, statuses after {} ms, ended in {} ms; with {SECRETS} Secrets of {SECRET_BYTES} bytes: ready after {} ms, \
         memory {} -> {} KiB, peak {} -> {} KiB",
        ready.as_millis(),
        written.as_millis(),
        ended.as_millis(),
        ready_again.as_millis(),
        without.now,
        with.now,
        without.peak,
        with.peak
    );
    ensure!(with.now <= without.now + MEMORY_KIB && with.peak <= without.peak + MEMORY_KIB);
    ensure!(server.metric("kubernetes_lists_total{kind=\"Secret\"}").await > 0.5, "Secrets were listed, as metadata");
    ensure!(server.metric("translations_total").await < 5.0);
    let reads = world.server.reads()?.into_iter().filter(|e| e.user.username == "gateway");
    let of_secrets: Vec<_> = reads
        .filter(|e| e.object_ref.as_ref().is_some_and(|o| o.resource == "secrets"))
        .map(|e| e.verb)
        .filter(|verb| verb != "watch")
        .collect();
    ensure!(of_secrets.is_empty(), "none was listed or read whole: {of_secrets:?}");
    ensure!(server.terminate().await?.success());
    Ok(())
}

/// Its memory once it leads and nothing is to be done any more.
async fn settled(server: &Server) -> Result<apiserver::server::Memory> {
    until(Duration::from_secs(30), "nothing is to be done", async || {
        Ok(server.metric("kubernetes_objects_told").await > 0.0 && server.metric("status_pending").await < 0.5)
    })
    .await?;
    // The allocator gives back what the start took.
    sleep(Duration::from_secs(2)).await;
    server.memory()
}

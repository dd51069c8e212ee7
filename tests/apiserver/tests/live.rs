//! The real binary with a real Envoy in a cluster without nodes: what happens while the API server fails, while others
//! write what concerns nobody, and while routes come and labels change.
//!
//! `LIVE_ROW=faults,idle` runs those rows only. `LIVE_IDLE_SECONDS` (15) and `LIVE_CHURN_SECONDS` (10) are how long others
//! write; `LIVE_ROUTES` (20) how many routes there are.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use apiserver::{
    envoy::{Envoy, envoy_bin, served_certificate},
    server::Server,
    world::{World, by_object, until},
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use testkit::{
    apiserver::{free_port, kube_bin},
    proxy::{Answers, HttpProxy},
};
use tokio::time::{Instant, interval, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const SYSTEM: &str = "envoy-gateway-system";
const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";
const USER: &str = "gateway";
const CONFIG: &str = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider: {type: Kubernetes}\n";
const SOON: Duration = Duration::from_secs(10);
const HOST: &str = "secure.example.test";

/// Everything that the rows share.
struct Scene {
    world: World,
    http: HttpProxy,
    server: Server,
    tls_port: u16,
    routes: usize,
    _envoy: Envoy,
}

type Row = (&'static str, fn(&Scene) -> Pin<Box<dyn Future<Output = Result<String>> + '_>>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_stays_calm_whatever_others_do() -> Result<()> {
    let (Some(bin), Some(envoy)) = (kube_bin(), envoy_bin()) else { return Ok(()) };
    let begin = Instant::now();
    let scene = set(bin, &envoy).await?;
    println!(
        "{:<8} ok     {:>5.1}s  2 Gateways, {} routes, an Envoy",
        "set",
        begin.elapsed().as_secs_f64(),
        scene.routes
    );
    let rows: Vec<Row> =
        vec![("faults", |s| Box::pin(faults(s))), ("idle", |s| Box::pin(idle(s))), ("churn", |s| Box::pin(churn(s)))];
    let only = std::env::var("LIVE_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, row) in rows {
        if !only.is_empty() && !only.split(',').any(|o| o == name) {
            continue;
        }
        let begin = Instant::now();
        let outcome = row(&scene).await;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(said) => println!("{name:<8} ok     {seconds:>5.1}s  {said}"),
            Err(e) => {
                println!("{name:<8} FAILED {seconds:>5.1}s  {e:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "{failed:?}\n{}", scene.server.log_tail());
    // In all that time nothing was deleted, and Secrets were never listed whole.
    let deleted: Vec<_> = scene.world.written(USER)?.into_iter().filter(|w| w.verb.starts_with("delete")).collect();
    ensure!(deleted.is_empty(), "{deleted:?}");
    Ok(())
}

async fn set(bin: std::path::PathBuf, envoy: &std::path::Path) -> Result<Scene> {
    let world = World::start(bin, &[USER], &[]).await?;
    world.define(|_| true).await?;
    for ns in [SYSTEM, "infra", "team-a"] {
        world.namespace(ns, json!({})).await?;
    }
    // Nobody holds it: the first to come leads at once.
    let lease = json!({"metadata": {"name": LEASE}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}});
    let leases: Api<Lease> = Api::namespaced(world.client(), SYSTEM);
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    let (http_port, tls_port) = (free_port()?, free_port()?);
    let all = json!({"namespaces": {"from": "All"}});
    let listener =
        |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "HTTP", "allowedRoutes": all});
    let https = json!({"name": "https", "port": tls_port, "protocol": "HTTPS", "hostname": HOST, "allowedRoutes": all,
        "tls": {"certificateRefs": [{"name": "cert"}]}});
    let gateway = |name: &str, listeners: Value| {
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "infra"},
            "spec": {"gatewayClassName": "gc", "listeners": listeners}})
    };
    let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gc"},
        "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}});
    world.create(&[class, certificate("one")?]).await?;
    world
        .create(&[
            gateway("gw", json!([listener("http", http_port), https])),
            gateway("gw2", json!([listener("http", 80)])),
        ])
        .await?;
    for web in ["web-1", "web-2"] {
        world.create(&[service(web), slice(web, &["10.0.0.1"])]).await?;
    }
    let routes = number("LIVE_ROUTES", 20);
    let all: Vec<Value> = (0..routes).map(|i| route(&format!("r{i}"), if i % 2 == 0 { "gw" } else { "gw2" })).collect();
    world.create(&all).await?;
    let http = HttpProxy::start(world.server.port(), world.server.ca_pem()).await?;
    let kubeconfig = world.server.kubeconfig(USER, &format!("http://127.0.0.1:{}", http.port()));
    let server = Server::start(&kubeconfig, CONFIG).await?;
    let proxy = Envoy::start(envoy, &server, "infra/gw")?;
    until(Duration::from_secs(30), "the first certificate is served", async || {
        Ok(served_certificate(tls_port, HOST).await.is_ok())
    })
    .await
    .with_context(|| server.log_tail())?;
    let scene = Scene { world, http, server, tls_port, routes, _envoy: proxy };
    settled(&scene).await?;
    Ok(scene)
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

fn service(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"ports": [{"port": 8080, "targetPort": 3000}]}})
}

fn slice(service: &str, addresses: &[&str]) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|a| json!({"addresses": [a]})).collect();
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-1"), "namespace": "team-a", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"port": 3000}], "endpoints": endpoints})
}

fn route(name: &str, gateway: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"hostnames": [format!("{name}.example.test")], "parentRefs": [{"name": gateway, "namespace": "infra"}],
            "rules": [{"backendRefs": [{"name": "web-1", "port": 8080}]}]}})
}

/// A Secret with a fresh certificate.
fn certificate(name: &str) -> Result<Value> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![HOST.to_owned()])?;
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    let certificate = params.self_signed(&key)?;
    Ok(
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "cert", "namespace": "infra"},
        "stringData": {"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()}}),
    )
}

/// Waits until nothing more is translated or written.
async fn settled(scene: &Scene) -> Result<()> {
    let mut last = (-1.0, Instant::now());
    until(Duration::from_secs(60), "it is quiet", async || {
        let now = scene.server.metric("translations_total").await;
        if (now - last.0).abs() > 0.5 || scene.server.metric("status_pending").await > 0.5 {
            last = (now, Instant::now());
        }
        Ok(last.1.elapsed() > Duration::from_secs(1))
    })
    .await
}

/// Names of listeners, routes, clusters and secrets, and digests of everything.
async fn snapshot(server: &Server) -> Result<(BTreeMap<String, BTreeSet<String>>, Value)> {
    let dump = server.admin("/api/xds").await?;
    let (mut names, mut digests) = (BTreeMap::new(), json!({}));
    for (group, of) in dump.as_object().context("groups")? {
        digests[group] = of["digests"].clone();
        for (kind, resources) in of["resources"].as_object().context("types")? {
            if kind.ends_with("ClusterLoadAssignment") {
                continue;
            }
            let all = resources.as_array().context("resources")?.iter();
            let all = all.filter_map(|r| r["name"].as_str().map(str::to_owned)).collect();
            names.insert(format!("{group} {kind}"), all);
        }
    }
    Ok((names, digests))
}

/// One list of a kind fails, or is not answered, while an endpoint changes (S04): nothing vanishes, the change arrives, the
/// list is repeated without any further event, and the error is counted once.
async fn faults(scene: &Scene) -> Result<String> {
    let server = &scene.server;
    let (names, _) = snapshot(server).await?;
    ensure!(names.len() >= 6 && names.values().all(|n| !n.is_empty()), "{names:?}");
    let mut slowest = Duration::ZERO;
    let mut change = 0;
    for (kind, resource) in [
        ("HTTPRoute", "httproutes"),
        ("Namespace", "namespaces"),
        ("Secret", "secrets"),
        ("EndpointSlice", "endpointslices"),
    ] {
        for code in [Some(500), None] {
            let what = format!("{kind} {code:?}");
            let of_kind = |metric: &str| format!("{metric}{{kind=\"{kind}\"}}");
            let (errors, lists) = (of_kind("kubernetes_errors_total"), of_kind("kubernetes_lists_total"));
            let (failed, listed) = (server.metric(&errors).await, server.metric(&lists).await);
            scene.http.set(Answers::FailList { resource, code });
            let from = Instant::now();
            change += 1;
            let addresses = [format!("10.0.1.{change}"), "10.0.0.1".to_owned()];
            let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
            let patch = json!({"endpoints": slice("web-1", &addresses)["endpoints"]});
            scene.world.patch(&slice("web-1", &[]), "", patch).await?;
            // All the while nothing vanishes.
            let mut last = String::new();
            let wanted = format!("{what}: it is listed again and the endpoint has arrived");
            let done = until(SOON, &wanted, async || {
                let (now, _) = snapshot(server).await?;
                ensure!(now == names, "{what}: {now:?}");
                let arrived = server.admin("/api/xds?resource=all").await?.to_string().contains(addresses[0]);
                let again = server.metric(&lists).await - listed;
                last = format!("failed {}, {again} lists, arrived {arrived}", scene.http.has_failed());
                Ok(scene.http.has_failed() && again > 0.5 && arrived)
            });
            done.await.context(last)?;
            slowest = slowest.max(from.elapsed());
            let counted = server.metric(&errors).await - failed;
            ensure!((counted - 1.0).abs() < 0.5, "{what}: {counted} errors were counted");
        }
    }
    scene.http.set(Answers::Pass);
    settled(scene).await?;
    Ok(format!(
        "8 lists failed: no name vanished, listed again within {} ms, each error counted once",
        slowest.as_millis()
    ))
}

/// 500 Secrets that nobody refers to are written all the time (S19): nothing is translated or sent. The one that matters is:
/// once, and soon.
async fn idle(scene: &Scene) -> Result<String> {
    let (server, world) = (&scene.server, &scene.world);
    let secrets: Vec<Value> = (0..500)
        .map(|i| {
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("idle-{i}"), "namespace": format!("other-{}", i % 50)},
                "stringData": {"x": "0"}})
        })
        .collect();
    for i in 0..50 {
        world.namespace(&format!("other-{i}"), json!({})).await?;
    }
    stream::iter(&secrets)
        .map(|s| world.create(std::slice::from_ref(s)))
        .buffer_unordered(8)
        .try_collect::<()>()
        .await?;
    settled(scene).await?;
    let translations = server.metric("translations_total").await;
    let events = server.metric("kubernetes_events_total{kind=\"Secret\"}").await;
    let (_, digests) = snapshot(server).await?;
    let own_writes = || {
        let all = world.written(USER)?;
        Ok::<_, anyhow::Error>(all.into_iter().filter(|w| !w.what.starts_with("leases ")).collect::<Vec<_>>())
    };
    let before = own_writes()?.len();
    let (from, cpu) = (Instant::now(), server.cpu()?);
    let lasts = Duration::from_secs(number("LIVE_IDLE_SECONDS", 15) as u64);
    let mut tick = interval(Duration::from_millis(200));
    let (mut written, mut n) = (0, 0);
    while from.elapsed() < lasts {
        tick.tick().await;
        // Each every five seconds.
        let some: Vec<&Value> = secrets.iter().skip(n % 25 * 20).take(20).collect();
        n += 1;
        stream::iter(some)
            .map(|s| world.patch(s, "", json!({"stringData": {"x": n.to_string()}})))
            .buffer_unordered(4)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        written += 20;
    }
    let load = (server.cpu()? - cpu) / from.elapsed().as_secs_f64();
    until(SOON, "the watch has seen them all", async || {
        Ok(server.metric("kubernetes_events_total{kind=\"Secret\"}").await >= events + f64::from(written) - 0.5)
    })
    .await?;
    let more = server.metric("translations_total").await - translations;
    ensure!(more < 0.5, "{more} translations");
    ensure!(snapshot(server).await?.1 == digests, "what proxies are sent changed");
    ensure!(load < 0.1, "it used {load:.3} cores");
    let more = own_writes()?;
    ensure!(more.len() == before, "it wrote at rest: {:?}", &more[before..]);
    // The one that matters.
    let before = served_certificate(scene.tls_port, HOST).await?;
    let fresh = certificate("two")?;
    let from = Instant::now();
    world.patch(&fresh, "", json!({"stringData": fresh["stringData"]})).await?;
    until(Duration::from_secs(2), "the new certificate is served", async || {
        Ok(served_certificate(scene.tls_port, HOST).await? != before)
    })
    .await?;
    let served = from.elapsed();
    settled(scene).await?;
    let more = server.metric("translations_total").await - translations;
    ensure!((more - 1.0).abs() < 0.5, "{more} translations");
    let whole: Vec<_> = world
        .server
        .reads()?
        .into_iter()
        .filter(|e| e.user.username == USER && e.verb == "list")
        .filter(|e| e.object_ref.as_ref().is_some_and(|o| o.resource == "secrets"))
        .collect();
    ensure!(whole.is_empty(), "{whole:?}");
    Ok(format!(
        "{written} writes of 500 Secrets: no translation, no write, {load:.3} cores; the one that matters: one, served after {} ms",
        served.as_millis()
    ))
}

/// Labels change all the time while routes are created, and what watches tell comes three seconds late (S20): each new
/// route has its status soon, with few writes, and labels cause none.
async fn churn(scene: &Scene) -> Result<String> {
    let (server, world) = (&scene.server, &scene.world);
    scene.http.set(Answers::LateWatches(Duration::from_secs(3)));
    let before = by_object(&world.written(USER)?);
    let seconds = number("LIVE_CHURN_SECONDS", 10);
    let mut tick = interval(Duration::from_millis(200));
    let (mut patched, mut slowest) = (0, Duration::ZERO);
    let mut open: Vec<(Value, Instant)> = Vec::new();
    let mut n = 0;
    while n < seconds * 5 || !open.is_empty() {
        tick.tick().await;
        let labels = json!({"metadata": {"labels": {"n": n.to_string()}}});
        let old = (0..9).map(|i| route(&format!("r{}", (n * 9 + i) % scene.routes), "gw"));
        let objects: Vec<Value> = old.chain([service(if n % 2 == 0 { "web-1" } else { "web-2" })]).collect();
        patched += objects.len();
        stream::iter(&objects)
            .map(|o| world.patch(o, "", labels.clone()))
            .buffer_unordered(4)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        if n % 5 == 0 && n < seconds * 5 {
            let new = route(&format!("new-{}", n / 5), "gw");
            world.create(std::slice::from_ref(&new)).await?;
            open.push((new, Instant::now()));
        }
        n += 1;
        let mut waiting = Vec::new();
        for (new, since) in open {
            let now = world.get(&new).await?;
            if has_status(&now) {
                slowest = slowest.max(since.elapsed());
            } else {
                ensure!(since.elapsed() < SOON, "{} has no status: {}", new["metadata"]["name"], now["status"]);
                waiting.push((new, since));
            }
        }
        open = waiting;
    }
    scene.http.set(Answers::Pass);
    sleep(Duration::from_secs(3)).await;
    settled(scene).await?;
    let after = by_object(&world.written(USER)?);
    let writes = |name: &str| {
        let what = format!("httproutes team-a/{name}/status");
        after.get(&what).copied().unwrap_or_default() - before.get(&what).copied().unwrap_or_default()
    };
    let labelled: usize = (0..scene.routes).map(|i| writes(&format!("r{i}"))).sum();
    ensure!(labelled == 0, "{labelled} writes for labels");
    let most = (0..seconds).map(|i| writes(&format!("new-{i}"))).max().unwrap_or_default();
    ensure!((1..=3).contains(&most), "{most} writes for one route");
    let translations = server.metric("translations_total").await;
    Ok(format!(
        "{patched} labels, {seconds} new routes: status within {} ms, at most {most} writes each, none for labels; {translations} translations so far",
        slowest.as_millis()
    ))
}

/// Accepted with resolved references, of this generation.
fn has_status(route: &Value) -> bool {
    let conditions = route["status"]["parents"][0]["conditions"].as_array().cloned().unwrap_or_default();
    ["Accepted", "ResolvedRefs"].iter().all(|kind| {
        conditions.iter().any(|c| {
            c["type"] == *kind && c["status"] == "True" && c["observedGeneration"] == route["metadata"]["generation"]
        })
    })
}

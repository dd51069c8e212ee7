//! The watches on a real API server: what is told, what is not, and what happens while requests fail.
//!
//! `PROVIDER_ROW=faults,selector` runs those rows only.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    plane::Plane,
    world::{World, until},
};
use election::RoleWatch;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSONSchemaProps};
use provider::cluster::Scope;
use resources::Kind;
use serde_json::{Value, json};
use testkit::{
    apiserver::kube_bin,
    proxy::{Answers, HttpProxy, Network, TcpProxy},
};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// Longest that a change may take to be told on a machine that is busy.
const SOON: Duration = Duration::from_secs(10);

type Row = (&'static str, fn(Arc<World>) -> Pin<Box<dyn Future<Output = Result<String>>>>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_hold_whatever_happens() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = Arc::new(World::start(bin, &["gateway"], &["limited"]).await?);
    let rows: Vec<Row> = vec![
        // First: later rows need all definitions.
        ("definitions", |w| Box::pin(definitions(w))),
        ("malformed", |w| Box::pin(malformed(w))),
        ("relevance", |w| Box::pin(relevance(w))),
        ("foreign", |w| Box::pin(foreign(w))),
        ("reference", |w| Box::pin(reference(w))),
        ("faults", |w| Box::pin(faults(w))),
        ("one-failure", |w| Box::pin(one_failure(w))),
        ("selector", |w| Box::pin(selector(w))),
        ("namespaces", |w| Box::pin(namespaces(w))),
    ];
    let only = std::env::var("PROVIDER_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, row) in rows {
        if name != "definitions" && !only.is_empty() && !only.split(',').any(|o| o == name) {
            continue;
        }
        let begin = Instant::now();
        let outcome = row(world.clone()).await;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(said) => println!("{name:<12} ok     {seconds:>5.1}s  {said}"),
            Err(e) => {
                println!("{name:<12} FAILED {seconds:>5.1}s  {e:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "{failed:?}");
    Ok(())
}

async fn plane(world: &World, user: &str, url: &str, scope: Scope) -> Result<Plane> {
    let config = world.config(user, url).await?;
    Plane::start(config.clone(), config, scope, translator::Config::default(), &RoleWatch::always_leader())
}

async fn synced(world: &World) -> Result<Plane> {
    let plane = plane(world, "gateway", &world.server.url(), Scope::All).await?;
    tokio::time::timeout(Duration::from_secs(60), plane.handle.synced()).await.context("not synced")?;
    until(SOON, "the first state is translated", async || Ok(plane.translations() > 0)).await?;
    Ok(plane)
}

async fn has(plane: &Plane, kind: Kind, namespace: &str, name: &str) -> Result<()> {
    until(SOON, &format!("{kind} {namespace}/{name} is told"), async || Ok(plane.has(kind, namespace, name))).await
}

async fn has_not(plane: &Plane, kind: Kind, namespace: &str, name: &str) -> Result<()> {
    until(SOON, &format!("{kind} {namespace}/{name} is gone"), async || Ok(!plane.has(kind, namespace, name))).await
}

fn route(namespace: &str, name: &str, backend: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]}})
}

fn gateway(namespace: &str, secret: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "gw", "namespace": namespace},
        "spec": {"gatewayClassName": "c", "listeners": [{"name": "https", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": secret}]}}]}})
}

fn class(name: &str, controller: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": name}, "spec": {"controllerName": controller}})
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": [{"port": 80}]}})
}

fn slice(namespace: &str, service: &str, address: &str) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{service}-1"), "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": [{"addresses": [address]}]})
}

fn secret(namespace: &str, name: &str, content: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "stringData": {"x": content}})
}

/// A kind whose definition comes later is picked up; one whose definition goes is not taken for gone at once.
async fn definitions(world: Arc<World>) -> Result<String> {
    let late = ["BackendTLSPolicy", "Backend", "TCPRoute", "ServiceImport"];
    world.define(|kind| !late.contains(&kind)).await?;
    // That of the Gateways of all rows.
    world.create(&[class("c", &translator::Config::default().controller_name)]).await?;
    let plane = synced(&world).await?;
    let absent = plane.handle.figures().absent;
    ensure!(absent.len() == late.len(), "absent: {absent:?}");
    world.namespace("definitions", json!({})).await?;
    let from = Instant::now();
    world.define(|kind| late.contains(&kind)).await?;
    let defined = from.elapsed();
    let backend = json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "Backend",
        "metadata": {"name": "b", "namespace": "definitions"},
        "spec": {"endpoints": [{"fqdn": {"hostname": "example.test", "port": 80}}]}});
    world.create(std::slice::from_ref(&backend)).await?;
    has(&plane, Kind::Backend, "definitions", "b").await?;
    until(SOON, "all kinds are there", async || Ok(plane.handle.figures().absent.is_empty())).await?;
    let told = from.elapsed() - defined;
    // Its watch goes on.
    world.delete(&backend).await?;
    has_not(&plane, Kind::Backend, "definitions", "b").await?;
    plane.stop().await;
    Ok(format!("told {} ms after the definition was served", told.as_millis()))
}

/// One object that cannot be read harms no other.
async fn malformed(world: Arc<World>) -> Result<String> {
    world.namespace("malformed", json!({})).await?;
    world.create(&[gateway("malformed", "none")]).await?;
    let good =
        api::gateway::definitions().into_iter().find(|d| d.spec.names.kind == "GRPCRoute").context("GRPCRoute")?;
    let mut loose: CustomResourceDefinition = good.clone();
    for version in &mut loose.spec.versions {
        let schema = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()).context("a schema")?;
        *schema = JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        };
    }
    world.define_as(loose).await?;
    let grpc = |name: &str, rules: Value| {
        json!({"apiVersion": GATEWAY, "kind": "GRPCRoute",
        "metadata": {"name": name, "namespace": "malformed"}, "spec": {"parentRefs": [{"name": "gw"}], "rules": rules}})
    };
    // The looser schema is in force a moment later.
    let bad = grpc("bad", "none".into());
    until(SOON, "the server takes anything", async || Ok(world.create(std::slice::from_ref(&bad)).await.is_ok()))
        .await?;
    world.create(&[grpc("good", json!([]))]).await?;
    let plane = synced(&world).await?;
    has(&plane, Kind::GrpcRoute, "malformed", "good").await?;
    ensure!(!plane.has(Kind::GrpcRoute, "malformed", "bad"));
    let broken = plane.handle.figures().broken;
    ensure!(broken.len() == 1, "{broken:?}");
    // A good one that is broken keeps its last good version; repaired ones are told.
    let before = plane.translations();
    world.patch(&grpc("good", Value::Null), "", json!({"spec": {"rules": "none"}})).await?;
    until(SOON, "both are broken", async || Ok(plane.handle.figures().broken.len() == 2)).await?;
    ensure!(plane.has(Kind::GrpcRoute, "malformed", "good") && plane.translations() == before);
    for name in ["good", "bad"] {
        world.patch(&grpc(name, Value::Null), "", json!({"spec": {"rules": []}})).await?;
    }
    has(&plane, Kind::GrpcRoute, "malformed", "bad").await?;
    until(SOON, "none is broken", async || Ok(plane.handle.figures().broken.is_empty())).await?;
    plane.stop().await;
    world.define_as(good).await?;
    Ok("its neighbours are told, its last good version stays".to_owned())
}

/// What nothing refers to costs no translation, and Secrets are never listed whole.
async fn relevance(world: Arc<World>) -> Result<String> {
    let ns = "relevance";
    world.namespace(ns, json!({})).await?;
    let secrets: Vec<_> = (0..100).map(|i| secret(ns, &format!("idle-{i}"), "a")).collect();
    world.create(&secrets).await?;
    world.create(&[secret(ns, "cert", "a"), gateway(ns, "cert"), route(ns, "r", "web")]).await?;
    world
        .create(&[service(ns, "web"), slice(ns, "web", "10.0.0.1"), service(ns, "idle"), slice(ns, "idle", "10.0.0.2")])
        .await?;
    let plane = synced(&world).await?;
    for (kind, name) in [(Kind::Secret, "cert"), (Kind::Service, "web"), (Kind::EndpointSlice, "web-1")] {
        has(&plane, kind, ns, name).await?;
    }
    ensure!(!plane.has(Kind::Service, ns, "idle") && !plane.has(Kind::Secret, ns, "idle-0"));
    quiet(&plane).await?;
    let (before, events) = (plane.translations(), plane.handle.figures().kinds[&Kind::Secret].events);
    let from = Instant::now();
    stream::iter(0..600)
        .map(|i| {
            let (world, object) = (world.clone(), secrets[i % secrets.len()].clone());
            async move { world.patch(&object, "", json!({"stringData": {"x": i.to_string()}})).await.map(drop) }
        })
        .buffer_unordered(16)
        .try_collect::<()>()
        .await?;
    for i in 3..20 {
        world.patch(&slice(ns, "idle", ""), "", json!({"endpoints": [{"addresses": [format!("10.0.0.{i}")]}]})).await?;
    }
    let took = from.elapsed();
    until(SOON, "the watch has seen them", async || {
        Ok(plane.handle.figures().kinds[&Kind::Secret].events >= events + 600)
    })
    .await?;
    ensure!(plane.translations() == before, "{} translations", plane.translations() - before);
    // One that is referred to: one translation, soon.
    let from = Instant::now();
    world.patch(&secret(ns, "cert", ""), "", json!({"stringData": {"x": "b"}})).await?;
    until(SOON, "it is translated", async || Ok(plane.translations() > before)).await?;
    let fresh = from.elapsed();
    quiet(&plane).await?;
    ensure!(plane.translations() == before + 1, "{} translations", plane.translations() - before);
    let whole: Vec<_> = plane
        .requests
        .all()
        .into_iter()
        .filter(|(_, path, accept)| {
            let collection =
                path.split('?').next().is_some_and(|p| p.ends_with("/secrets") || p.ends_with("/configmaps"));
            collection && !accept.contains("PartialObjectMetadata")
        })
        .collect();
    ensure!(whole.is_empty(), "{whole:?}");
    let fetched = plane.handle.figures().kinds[&Kind::Secret].fetched;
    ensure!(fetched == 2, "fetched {fetched}");
    plane.stop().await;
    Ok(format!(
        "617 writes in {:.1} s: no translation; of one that matters: one, after {} ms",
        took.as_secs_f64(),
        fresh.as_millis()
    ))
}

/// What belongs to another controller: it is not read beyond what the watches say, and its changes cost nothing.
async fn foreign(world: Arc<World>) -> Result<String> {
    let ns = "foreign-class";
    world.namespace(ns, json!({})).await?;
    let mut theirs = gateway(ns, "theirs");
    theirs["spec"]["gatewayClassName"] = "theirs".into();
    let filter = json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "HTTPRouteFilter",
        "metadata": {"name": "f", "namespace": ns}, "spec": {"urlRewrite": {"hostname": {"type": "Backend"}}}});
    world.create(&[class("theirs", "example.test/theirs"), theirs, filter.clone(), secret(ns, "theirs", "a")]).await?;
    world.create(&[route(ns, "r", "web"), service(ns, "web"), slice(ns, "web", "10.0.0.1")]).await?;
    let plane = synced(&world).await?;
    quiet(&plane).await?;
    let (before, events) = (plane.translations(), plane.handle.figures().kinds[&Kind::HttpRoute].events);
    for i in 0..30 {
        let spec = route(ns, "r", &format!("web-{i}"))["spec"].clone();
        world.patch(&route(ns, "r", ""), "", json!({"spec": spec})).await?;
        world.patch(&gateway(ns, ""), "", json!({"metadata": {"labels": {"a": i.to_string()}}})).await?;
        world.patch(&filter, "", json!({"metadata": {"labels": {"a": i.to_string()}}})).await?;
        world.namespace(ns, json!({"a": i.to_string()})).await?;
        world.patch(&secret(ns, "theirs", ""), "", json!({"stringData": {"x": i.to_string()}})).await?;
    }
    until(SOON, "the watch has seen them", async || {
        Ok(plane.handle.figures().kinds[&Kind::HttpRoute].events >= events + 30)
    })
    .await?;
    quiet(&plane).await?;
    ensure!(plane.translations() == before, "{} translations", plane.translations() - before);
    let read = |p: &Plane| p.requests.all().into_iter().any(|(_, path, _)| path.contains("/secrets/theirs"));
    ensure!(!read(&plane), "their Secret was read");
    // The class becomes ours: now everything counts.
    world.delete(&class("theirs", "")).await?;
    world.create(&[class("theirs", &translator::Config::default().controller_name)]).await?;
    for (kind, name) in [(Kind::Gateway, "gw"), (Kind::HttpRoute, "r"), (Kind::Secret, "theirs")] {
        has(&plane, kind, ns, name).await?;
    }
    world.delete(&gateway(ns, "")).await?;
    has_not(&plane, Kind::HttpRoute, ns, "r").await?;
    plane.stop().await;
    Ok("150 changes of another controller's objects: no translation, its Secret not read".to_owned())
}

/// Ends all connections; new ones are taken.
async fn cut(network: &TcpProxy) {
    network.set(Network::Cut);
    sleep(Duration::from_millis(200)).await;
    network.set(Network::Open);
}

/// No batch for a while.
async fn quiet(plane: &Plane) -> Result<()> {
    let mut last = (plane.translations(), Instant::now());
    until(Duration::from_secs(30), "it is quiet", async || {
        let now = plane.translations();
        if now != last.0 {
            last = (now, Instant::now());
        }
        Ok(last.1.elapsed() > Duration::from_millis(500))
    })
    .await
}

/// A Gateway that names another certificate never loses both.
async fn reference(world: Arc<World>) -> Result<String> {
    let ns = "reference";
    world.namespace(ns, json!({})).await?;
    world.create(&[secret(ns, "old", "a"), secret(ns, "new", "b"), gateway(ns, "old")]).await?;
    let plane = synced(&world).await?;
    has(&plane, Kind::Secret, ns, "old").await?;
    let mut store = plane.store.clone();
    let listeners =
        json!([{"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "new"}]}}]);
    world.patch(&gateway(ns, ""), "", json!({"spec": {"listeners": listeners}})).await?;
    // Every state that the engine goes through has the certificate that its Gateway names.
    loop {
        let now = store.borrow_and_update().clone();
        let gateway = now.get::<api::gateway::Gateway>(ns, "gw").context("the Gateway stays")?;
        let tls = gateway.spec.listeners[0].tls.as_ref().context("tls")?;
        let named = tls.certificate_refs[0].name.clone();
        ensure!(now.get::<k8s_openapi::api::core::v1::Secret>(ns, &named).is_some(), "{named} is missing");
        if named == "new" {
            break;
        }
        tokio::time::timeout(SOON, store.changed()).await??;
    }
    has_not(&plane, Kind::Secret, ns, "old").await?;
    plane.stop().await;
    Ok("every state has the certificate that its Gateway names".to_owned())
}

/// All requests fail and all watches are cut: nothing is lost, and it recovers without any further event.
async fn faults(world: Arc<World>) -> Result<String> {
    let ns = "faults";
    world.namespace(ns, json!({})).await?;
    world
        .create(&[
            secret(ns, "cert", "a"),
            gateway(ns, "cert"),
            route(ns, "r", "web"),
            service(ns, "web"),
            slice(ns, "web", "10.0.0.1"),
        ])
        .await?;
    let http = HttpProxy::start(world.server.port(), world.server.ca_pem()).await?;
    let network = TcpProxy::start(http.port()).await?;
    let url = format!("http://127.0.0.1:{}", network.port());
    let plane = plane(&world, "gateway", &url, Scope::All).await?;
    for (kind, name) in [(Kind::Secret, "cert"), (Kind::EndpointSlice, "web-1")] {
        has(&plane, kind, ns, name).await?;
    }
    quiet(&plane).await?;
    let (before, objects) = (plane.translations(), plane.store.borrow().len());
    let errors = |p: &Plane| p.handle.figures().kinds.values().map(|k| k.errors).sum::<u64>();
    let healthy = errors(&plane);

    http.set(Answers::Status { code: 500, every: 1 });
    cut(&network).await;
    until(SOON, "watches fail", async || Ok(errors(&plane) >= healthy + 20)).await?;
    world.patch(&slice(ns, "web", ""), "", json!({"endpoints": [{"addresses": ["10.0.0.2"]}]})).await?;
    world.delete(&route(ns, "r", "web")).await?;
    world.create(&[route(ns, "r2", "web")]).await?;
    sleep(Duration::from_secs(2)).await;
    ensure!(
        plane.translations() == before && plane.store.borrow().len() == objects,
        "nothing is told while nothing is known"
    );
    http.set(Answers::Pass);
    let from = Instant::now();
    has(&plane, Kind::HttpRoute, ns, "r2").await?;
    has_not(&plane, Kind::HttpRoute, ns, "r").await?;
    let recovered = from.elapsed();
    ensure!(plane.has(Kind::Secret, ns, "cert") && plane.has(Kind::Service, ns, "web"));
    let failures = errors(&plane) - healthy;

    // Answers stop coming while connections stay open, and come again.
    network.set(Network::Stall);
    world.create(&[route(ns, "r3", "web")]).await?;
    sleep(Duration::from_secs(1)).await;
    ensure!(!plane.has(Kind::HttpRoute, ns, "r3"));
    network.set(Network::Open);
    has(&plane, Kind::HttpRoute, ns, "r3").await?;
    plane.stop().await;
    Ok(format!("{failures} failures, nothing told; caught up {} ms after the end", recovered.as_millis()))
}

/// Now and then one request fails while everything is read for the first time, and after a cut: all is there in the end.
async fn one_failure(world: Arc<World>) -> Result<String> {
    let ns = "one-failure";
    world.namespace(ns, json!({})).await?;
    world
        .create(&[
            secret(ns, "cert", "a"),
            gateway(ns, "cert"),
            route(ns, "r", "web"),
            service(ns, "web"),
            slice(ns, "web", "10.0.0.1"),
        ])
        .await?;
    let whole = synced(&world).await?;
    quiet(&whole).await?;
    let names = |p: &Plane| p.store.borrow().iter().map(|(k, _)| k.to_string()).collect::<Vec<_>>();
    let wanted = names(&whole);
    whole.stop().await;
    let mut failures = 0;
    for every in [2, 3, 5] {
        let http = HttpProxy::start(world.server.port(), world.server.ca_pem()).await?;
        let network = TcpProxy::start(http.port()).await?;
        http.set(Answers::Status { code: 500, every });
        let plane = plane(&world, "gateway", &format!("http://127.0.0.1:{}", network.port()), Scope::All).await?;
        tokio::time::timeout(Duration::from_secs(60), plane.handle.synced()).await.context("not synced")?;
        until(SOON, "the first state is told", async || Ok(!plane.store.borrow().is_empty())).await?;
        ensure!(names(&plane) == wanted, "the first state that is told is the whole one");
        let before = plane.translations();
        let lists = |p: &Plane| p.handle.figures().kinds.values().map(|k| k.errors).sum::<u64>();
        let so_far = lists(&plane);
        cut(&network).await;
        until(SOON, "watches were cut", async || Ok(lists(&plane) > so_far)).await?;
        world
            .patch(&slice(ns, "web", ""), "", json!({"endpoints": [{"addresses": [format!("10.0.{every}.1")]}]}))
            .await?;
        until(SOON, "the change is told", async || Ok(plane.translations() > before)).await?;
        ensure!(names(&plane) == wanted, "nothing was lost");
        failures += lists(&plane);
        plane.stop().await;
    }
    Ok(format!("{failures} failures, {} objects each time", wanted.len()))
}

/// Namespaces by label: what is in others counts for nothing, and labels may change.
async fn selector(world: Arc<World>) -> Result<String> {
    world.namespace("selected", json!({"team": "a"})).await?;
    world.namespace("unselected", json!({"team": "b"})).await?;
    world.namespace("system", json!({})).await?;
    for ns in ["selected", "unselected", "system"] {
        world.create(&[gateway(ns, "none"), route(ns, "r", "web"), service(ns, "web")]).await?;
    }
    let selector =
        serde_json::from_value(json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}))?;
    let plane = plane(&world, "gateway", &world.server.url(), Scope::selected(selector, "system")?).await?;
    has(&plane, Kind::HttpRoute, "selected", "r").await?;
    has(&plane, Kind::HttpRoute, "system", "r").await?;
    ensure!(!plane.has(Kind::HttpRoute, "unselected", "r") && !plane.has(Kind::Service, "unselected", "web"));
    world.namespace("unselected", json!({"team": "a"})).await?;
    has(&plane, Kind::Service, "unselected", "web").await?;
    world.namespace("unselected", json!({"team": "b"})).await?;
    has_not(&plane, Kind::Service, "unselected", "web").await?;
    has_not(&plane, Kind::HttpRoute, "unselected", "r").await?;
    plane.stop().await;
    Ok("objects come and go with the labels of their namespace".to_owned())
}

/// Named namespaces: rights in them are enough.
async fn namespaces(world: Arc<World>) -> Result<String> {
    world.namespace("named", json!({})).await?;
    world.namespace("foreign", json!({})).await?;
    for ns in ["named", "foreign"] {
        world
            .create(&[route(ns, "r", "web"), service(ns, "web"), secret(ns, "cert", "a"), gateway(ns, "cert")])
            .await?;
    }
    let read = json!(["get", "list", "watch"]);
    let subjects = json!([{"kind": "User", "name": "limited", "apiGroup": "rbac.authorization.k8s.io"}]);
    let roles = [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "limited-cluster"}, "rules": [
            {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["gatewayclasses"], "verbs": read},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": read}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "limited-inside"}, "rules": [
            {"apiGroups": ["gateway.networking.k8s.io", "gateway.envoyproxy.io", "multicluster.x-k8s.io"], "resources": ["*"], "verbs": read},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read},
            {"apiGroups": [""], "resources": ["services", "secrets", "configmaps"], "verbs": read}]}),
    ];
    let client = world.client();
    for (path, object) in roles.iter().map(|r| ("clusterroles", r.clone())).chain([
        (
            "clusterrolebindings",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "limited"}, "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": "limited-cluster", "apiGroup": "rbac.authorization.k8s.io"}}),
        ),
        (
            "namespaces/named/rolebindings",
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "limited", "namespace": "named"}, "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": "limited-inside", "apiGroup": "rbac.authorization.k8s.io"}}),
        ),
    ]) {
        let request = http::Request::post(format!("/apis/rbac.authorization.k8s.io/v1/{path}"))
            .header("content-type", "application/json");
        client.request::<Value>(request.body(object.to_string().into_bytes())?).await?;
    }
    let plane = plane(&world, "limited", &world.server.url(), Scope::Namespaces(["named".to_owned()].into())).await?;
    has(&plane, Kind::Secret, "named", "cert").await?;
    has(&plane, Kind::Service, "named", "web").await?;
    ensure!(!plane.has(Kind::HttpRoute, "foreign", "r"));
    // Definitions and Nodes may not be read: it goes on without.
    ensure!(plane.handle.figures().synced);
    plane.stop().await;
    Ok("synced without rights on Nodes and definitions".to_owned())
}

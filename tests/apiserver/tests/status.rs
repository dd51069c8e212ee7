//! Statuses on a real API server; the audit log is the judge of who wrote what.
//!
//! `STATUS_ROW=parents,recorded` runs those rows only. `STATUS_REST_SECONDS` (60) is how long nothing may be written at
//! rest; `STATUS_FLIPS` (3) how often an address is lost and found again.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::{future::Future, path::Path, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    plane::Plane,
    world::{World, by_object, next_second, until},
};
use election::RoleWatch;
use ir::ConditionStatus;
use peer::{case, ratchet, status as compare, verdict::Level};
use provider::cluster::Scope;
use resources::{Kind, ObjectKey};
use serde_json::{Value, json};
use status::{Address, FleetFacts};
use testkit::apiserver::kube_bin;
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const OURS: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const SOON: Duration = Duration::from_secs(10);

type Row = (&'static str, fn(Arc<World>) -> Pin<Box<dyn Future<Output = Result<String>>>>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_are_written_once_and_stay_true() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let users = ["reader", "life", "parents", "ancestors", "restart", "addresses", "recorded"];
    let world = Arc::new(World::start(bin, &users, &[]).await?);
    world.define(|_| true).await?;
    let rows: Vec<Row> = vec![
        ("life", |w| Box::pin(life(w))),
        ("parents", |w| Box::pin(parents(w))),
        ("ancestors", |w| Box::pin(ancestors(w))),
        ("restart", |w| Box::pin(restart(w))),
        ("addresses", |w| Box::pin(addresses(w))),
        ("recorded", |w| Box::pin(recorded(w))),
    ];
    let only = std::env::var("STATUS_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, row) in rows {
        if !only.is_empty() && !only.split(',').any(|o| o == name) {
            continue;
        }
        let begin = Instant::now();
        let outcome = row(world.clone()).await;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(said) => println!("{name:<10} ok     {seconds:>5.1}s  {said}"),
            Err(e) => {
                println!("{name:<10} FAILED {seconds:>5.1}s  {e:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "{failed:?}");
    Ok(())
}

/// A control plane that writes as this user.
async fn plane(world: &World, user: &str, settings: translator::Config) -> Result<Plane> {
    let url = world.server.url();
    let (reads, writes) = (world.config("reader", &url).await?, world.config(user, &url).await?);
    Plane::start(reads, writes, Scope::All, settings, &RoleWatch::always_leader())
}

/// Waits until everything that is wanted is written, and nothing more comes.
async fn settled(plane: &Plane) -> Result<()> {
    tokio::time::timeout(Duration::from_secs(60), plane.handle.synced()).await.context("not synced")?;
    let mut since: Option<Instant> = None;
    let mut last = 0;
    until(Duration::from_secs(60), "all statuses are written", async || {
        let now = plane.translations();
        let calm = now > 0 && now == last && plane.statuses.pending() == 0;
        last = now;
        since = if calm { since.or(Some(Instant::now())) } else { None };
        Ok(since.is_some_and(|s| s.elapsed() > Duration::from_millis(150)))
    })
    .await
    .with_context(|| format!("{:?}", plane.statuses.states()))
}

fn class(name: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": name}, "spec": {"controllerName": OURS}})
}

fn gateway(namespace: &str, name: &str, class: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": namespace},
        "spec": {"gatewayClassName": class, "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
}

fn route(namespace: &str, name: &str, gateways: &[&str]) -> Value {
    let parents: Vec<_> = gateways.iter().map(|g| json!({"name": g})).collect();
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": namespace},
        "spec": {"hostnames": [format!("{name}.example.test")], "parentRefs": parents,
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}})
}

fn web(namespace: &str) -> [Value; 2] {
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": namespace}, "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "web-1", "namespace": namespace, "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": [{"addresses": ["10.0.0.1"]}]}),
    ]
}

/// `True Accepted` of a condition.
fn condition(conditions: &Value, kind: &str) -> String {
    let found = conditions.as_array().into_iter().flatten().find(|c| c["type"] == kind);
    found.map_or_else(
        || "none".to_owned(),
        |c| format!("{} {}", c["status"].as_str().unwrap_or_default(), c["reason"].as_str().unwrap_or_default()),
    )
}

async fn is(world: &World, object: &Value, at: &str, wanted: &str) -> Result<()> {
    let (list, kind) = at.rsplit_once('/').context("a path")?;
    let mut last = String::new();
    let found = until(SOON, wanted, async || {
        let now = world.get(object).await?;
        last = condition(now.pointer(list).unwrap_or(&Value::Null), kind);
        Ok(last == wanted)
    });
    found.await.with_context(|| format!("{at} of {} is {last}", object["metadata"]["name"]))
}

/// From creation to deletion: what is written, how often, and that nothing is written at rest.
async fn life(world: Arc<World>) -> Result<String> {
    let (ns, user) = ("life", "life");
    world.namespace(ns, json!({})).await?;
    let class = class("life");
    world.create(&[class.clone(), gateway(ns, "gw", "life")]).await?;
    world.create(&web(ns)).await?;
    let plane = plane(&world, user, translator::Config::default()).await?;
    is(&world, &class, "/status/conditions/Accepted", "True Accepted").await?;
    let gw = gateway(ns, "gw", "");
    is(&world, &gw, "/status/conditions/Accepted", "True Accepted").await?;
    is(&world, &gw, "/status/conditions/Programmed", "False AddressNotAssigned").await?;
    is(&world, &gw, "/status/listeners/0/conditions/Programmed", "True Programmed").await?;
    settled(&plane).await?;
    let features = world.get(&class).await?["status"]["supportedFeatures"].as_array().map_or(0, Vec::len);
    ensure!(features == status::SUPPORTED_FEATURES.len());
    // Routes while it runs.
    let from = Instant::now();
    for i in 0..20 {
        world.create(&[route(ns, &format!("r{i}"), &["gw"])]).await?;
    }
    for i in 0..20 {
        is(&world, &route(ns, &format!("r{i}"), &[]), "/status/parents/0/conditions/ResolvedRefs", "True ResolvedRefs")
            .await?;
    }
    let took = from.elapsed();
    settled(&plane).await?;
    let attached = world.get(&gw).await?["status"]["listeners"][0]["attachedRoutes"].clone();
    ensure!(attached == 20, "attached: {attached}");
    let written = by_object(&world.written(user)?);
    let most = written.iter().filter(|(w, _)| w.starts_with("httproutes")).map(|(_, n)| *n).max();
    ensure!(most == Some(1), "{written:?}");
    ensure!(written.len() == 23, "20 routes, the Gateway, the class and its finalizer: {written:?}");
    // A label is nothing to write about; a wrong backend is.
    for i in 0..20 {
        world.patch(&route(ns, &format!("r{i}"), &[]), "", json!({"metadata": {"labels": {"a": "b"}}})).await?;
    }
    for object in web(ns).iter().chain([&gw, &class]) {
        world.patch(object, "", json!({"metadata": {"labels": {"a": "b"}}})).await?;
    }
    let before = world.written(user)?.len();
    let rest = std::env::var("STATUS_REST_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60);
    sleep(Duration::from_secs(rest)).await;
    ensure!(world.written(user)?.len() == before, "{:?}", &world.written(user)?[before..]);
    let mut lost = route(ns, "r0", &["gw"]);
    lost["spec"]["rules"][0]["backendRefs"][0]["name"] = "none".into();
    world.patch(&lost, "", json!({"spec": lost["spec"]})).await?;
    is(&world, &lost, "/status/parents/0/conditions/ResolvedRefs", "False BackendNotFound").await?;
    let now = world.get(&lost).await?;
    ensure!(now["status"]["parents"][0]["conditions"][0]["observedGeneration"] == 2);
    // Somebody clears a status: it is written again.
    world.patch(&route(ns, "r1", &[]), "/status", json!({"status": {"parents": []}})).await?;
    is(&world, &route(ns, "r1", &[]), "/status/parents/0/conditions/Accepted", "True Accepted").await?;
    // Deleted and created again: the same content, another object.
    world.delete(&route(ns, "r2", &[])).await?;
    world.create(&[route(ns, "r2", &["gw"])]).await?;
    is(&world, &route(ns, "r2", &[]), "/status/parents/0/conditions/Accepted", "True Accepted").await?;
    // The class stays while it is used.
    world.delete(&class).await?;
    ensure!(world.get(&class).await?["metadata"]["finalizers"] == json!([status::GATEWAYS_EXIST]));
    world.delete(&gw).await?;
    until(SOON, "the class is gone", async || Ok(world.get(&class).await.is_err())).await?;
    let refused: Vec<_> =
        world.written(user)?.into_iter().filter(|w| w.code >= 400 && !matches!(w.code, 404 | 409)).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    let conflicts = world.written(user)?.iter().filter(|w| w.code == 409).count();
    plane.stop().await;
    Ok(format!(
        "20 routes: 1 write each, {:.1} s; none in {rest} s at rest with 24 labels; {conflicts} conflicts",
        took.as_secs_f64()
    ))
}

/// Parents that are touched, replaced and removed, beside one of another controller (S17).
async fn parents(world: Arc<World>) -> Result<String> {
    let (ns, user) = ("parents", "parents");
    world.namespace(ns, json!({})).await?;
    world.create(&[class("parents")]).await?;
    world.create(&["g1", "g2", "g3"].map(|g| gateway(ns, g, "parents"))).await?;
    world.create(&web(ns)).await?;
    let object = route(ns, "r", &["g1", "g2", "other"]);
    world.create(std::slice::from_ref(&object)).await?;
    let foreign = json!({"parentRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "other"},
        "controllerName": "example.test/other", "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted",
            "message": "theirs", "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
    world.patch(&object, "/status", json!({"status": {"parents": [foreign]}})).await?;
    let plane = plane(&world, user, translator::Config::default()).await?;
    let entries = async || {
        let now = world.get(&object).await?;
        let entry = |p: &Value| {
            format!("{} {}", p["parentRef"]["name"].as_str().unwrap_or_default(), p["controllerName"] == OURS)
        };
        Ok::<Vec<String>, anyhow::Error>(now["status"]["parents"].as_array().into_iter().flatten().map(entry).collect())
    };
    let become_ = async |wanted: &[&str]| {
        let mut last = Vec::new();
        let what = format!("{wanted:?}");
        let done = until(SOON, &what, async || {
            last = entries().await?;
            Ok(last == wanted)
        });
        done.await.with_context(|| format!("{last:?}"))
    };
    become_(&["other false", "g1 true", "g2 true"]).await?;
    settled(&plane).await?;
    // A label on one parent.
    world.patch(&gateway(ns, "g1", ""), "", json!({"metadata": {"labels": {"a": "b"}}})).await?;
    settled(&plane).await?;
    become_(&["other false", "g1 true", "g2 true"]).await?;
    let from = Instant::now();
    world
        .patch(&object, "", json!({"spec": {"parentRefs": [{"name": "g1"}, {"name": "g3"}, {"name": "other"}]}}))
        .await?;
    become_(&["other false", "g1 true", "g3 true"]).await?;
    let replaced = from.elapsed();
    let attached = async |g: &str, wanted: i64| {
        until(SOON, &format!("{g} has {wanted} routes"), async || {
            Ok(world.get(&gateway(ns, g, "")).await?["status"]["listeners"][0]["attachedRoutes"] == wanted)
        })
        .await
    };
    attached("g2", 0).await?;
    attached("g3", 1).await?;
    let from = Instant::now();
    world.patch(&object, "", json!({"spec": {"parentRefs": [{"name": "other"}]}})).await?;
    become_(&["other false"]).await?;
    let removed = from.elapsed();
    ensure!(world.get(&object).await?["status"]["parents"] == json!([foreign]), "to the letter");
    attached("g1", 0).await?;
    plane.stop().await;
    Ok(format!(
        "replaced after {} ms, removed after {} ms, the other's entry untouched",
        replaced.as_millis(),
        removed.as_millis()
    ))
}

/// A policy whose status is full of other controllers' entries: they stay, and what fits of ours comes after them.
async fn ancestors(world: Arc<World>) -> Result<String> {
    let (ns, user) = ("ancestors", "ancestors");
    world.namespace(ns, json!({})).await?;
    world.create(&[class("ancestors")]).await?;
    world.create(&["g1", "g2"].map(|g| gateway(ns, g, "ancestors"))).await?;
    world.create(&web(ns)).await?;
    world.create(&[route(ns, "r", &["g1", "g2"])]).await?;
    let policy = json!({"apiVersion": GATEWAY, "kind": "BackendTLSPolicy", "metadata": {"name": "p", "namespace": ns},
        "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
            "validation": {"hostname": "web.example.test", "wellKnownCACertificates": "System"}}});
    world.create(std::slice::from_ref(&policy)).await?;
    let theirs = |n: usize| -> Vec<Value> {
        let entry = |i: usize| {
            json!({"ancestorRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": format!("other-{i}")},
                "controllerName": "example.test/other", "conditions": [{"type": "Accepted", "status": "True",
                    "reason": "Accepted", "message": "theirs", "lastTransitionTime": "2020-01-01T00:00:00Z"}]})
        };
        (0..n).map(entry).collect()
    };
    world.patch(&policy, "/status", json!({"status": {"ancestors": theirs(15)}})).await?;
    let plane = plane(&world, user, translator::Config::default()).await?;
    let entries = async || Ok::<_, anyhow::Error>(world.get(&policy).await?["status"]["ancestors"].clone());
    let ours = |all: &Value| all.as_array().map_or(0, |a| a.iter().filter(|e| e["controllerName"] == OURS).count());
    until(SOON, "one of ours fits", async || Ok(ours(&entries().await?) == 1)).await?;
    settled(&plane).await?;
    let full = entries().await?;
    ensure!(full.as_array().map(Vec::len) == Some(16) && full.as_array().map(|a| &a[..15]) == Some(&theirs(15)[..]));
    // They take the last place: nothing of ours is left, and nothing is tried again and again.
    world.patch(&policy, "/status", json!({"status": {"ancestors": theirs(16)}})).await?;
    settled(&plane).await?;
    let before = world.written(user)?.len();
    world.patch(&policy, "", json!({"metadata": {"labels": {"a": "b"}}})).await?;
    sleep(Duration::from_secs(1)).await;
    ensure!(world.written(user)?.len() == before && entries().await? == json!(theirs(16)));
    // They go: ours come.
    world.patch(&policy, "/status", json!({"status": {"ancestors": theirs(1)}})).await?;
    until(SOON, "both of ours fit", async || Ok(ours(&entries().await?) == 2)).await?;
    ensure!(entries().await?[0] == theirs(1)[0], "theirs stays in its place");
    settled(&plane).await?;
    plane.stop().await;
    let refused: Vec<_> = world.written(user)?.into_iter().filter(|w| w.code == 422).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    Ok("15 of others and 1 of ours, 16 and none, 1 and 2".to_owned())
}

/// Another process takes over: what is right is not written again; what became wrong meanwhile is.
async fn restart(world: Arc<World>) -> Result<String> {
    let (ns, user) = ("restart", "restart");
    world.namespace(ns, json!({})).await?;
    world.create(&[class("restart"), gateway(ns, "gw", "restart")]).await?;
    world.create(&web(ns)).await?;
    let routes: Vec<_> = (0..30).map(|i| route(ns, &format!("r{i}"), &["gw"])).collect();
    world.create(&routes).await?;
    let first = plane(&world, user, translator::Config::default()).await?;
    settled(&first).await?;
    is(&world, &routes[29], "/status/parents/0/conditions/Accepted", "True Accepted").await?;
    first.stop().await;
    let before = world.written(user)?.len();
    let second = plane(&world, user, translator::Config::default()).await?;
    settled(&second).await?;
    second.stop().await;
    let more = &world.written(user)?[before..];
    ensure!(more.is_empty(), "{more:?}");
    // Nobody watches while a route loses its parent.
    world.patch(&routes[0], "", json!({"spec": {"parentRefs": [{"name": "none"}]}})).await?;
    let third = plane(&world, user, translator::Config::default()).await?;
    until(SOON, "its entry is gone", async || Ok(world.get(&routes[0]).await?["status"]["parents"] == json!([])))
        .await?;
    settled(&third).await?;
    third.stop().await;
    let more = by_object(&world.written(user)?[before..]);
    ensure!(more.len() == 2, "the route and the Gateway's count: {more:?}");
    Ok(format!("{} objects compared by the next process, none written", 32))
}

/// Addresses are lost and found, with restarts in between (S16): nothing is stale for good, and times move with the status.
async fn addresses(world: Arc<World>) -> Result<String> {
    let (ns, user) = ("addresses", "addresses");
    world.namespace(ns, json!({})).await?;
    world.create(&[class("addresses"), gateway(ns, "gw", "addresses")]).await?;
    let gw = gateway(ns, "gw", "");
    let key = ObjectKey::new(Kind::Gateway, ns, "gw");
    let facts = |address: Option<&str>| FleetFacts {
        addresses: address.iter().map(|a| Address { kind: "IPAddress", value: (*a).to_owned() }).collect(),
        status: if address.is_some() { ConditionStatus::True } else { ConditionStatus::False },
        reason: if address.is_some() { "Programmed" } else { "AddressNotAssigned" },
        message: "told by the test".to_owned(),
    };
    let flips: usize = std::env::var("STATUS_FLIPS").ok().and_then(|s| s.parse().ok()).unwrap_or(3);
    let programmed = "/status/conditions/Programmed";
    let mut running = plane(&world, user, translator::Config::default()).await?;
    for flip in 0..flips {
        running.facts.publish(key.clone(), Some(facts(Some("192.0.2.1"))));
        is(&world, &gw, programmed, "True Programmed").await?;
        settled(&running).await?;
        let good = world.get(&gw).await?;
        ensure!(good["status"]["addresses"][0]["value"] == "192.0.2.1");
        // A process that knows nothing yet takes nothing away.
        running.stop().await;
        running = plane(&world, user, translator::Config::default()).await?;
        settled(&running).await?;
        ensure!(
            world.get(&gw).await?["metadata"]["resourceVersion"] == good["metadata"]["resourceVersion"],
            "flip {flip}"
        );
        running.facts.publish(key.clone(), Some(facts(None)));
        is(&world, &gw, programmed, "False AddressNotAssigned").await?;
        ensure!(world.get(&gw).await?["status"].get("addresses").is_none());
    }
    let writes = by_object(&world.written(user)?)[&format!("gateways {ns}/gw/status")];
    running.stop().await;
    ensure!(writes <= 1 + 2 * flips, "{writes} writes");
    Ok(format!("{flips} times lost and found, {writes} writes"))
}

/// What was recorded for the cases of the set `http`, written to the server: the same conditions and reasons.
async fn recorded(world: Arc<World>) -> Result<String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/cases");
    if !data.is_dir() {
        return Ok("skipped: no peer data".to_owned());
    }
    let reached = ratchet::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../peer/ratchet"))?;
    let reached = reached.get(&Level::Status).cloned().unwrap_or_default();
    let sets = case::find(&data, None)?;
    let cases = sets.iter().filter(|s| s.name == "http").flat_map(|s| &s.cases);
    let only = std::env::var("STATUS_CASES").unwrap_or_default();
    let (mut equal, mut total, mut aside, mut different) = (0, 0, Vec::new(), Vec::new());
    for case in cases.filter(|c| reached.contains(&c.name)) {
        if !only.is_empty() && !only.split(',').any(|o| case.name.contains(o)) {
            continue;
        }
        total += 1;
        match one_case(&world, case).await.with_context(|| case.name.clone()) {
            Ok(Outcome::Equal) => equal += 1,
            Ok(Outcome::Different(why)) => different.push(format!("{}: {}", case.name, why.join("; "))),
            Ok(Outcome::Refused(why)) => aside.push(format!("{}: {why}", case.name)),
            Err(e) => different.push(format!("{e:#}")),
        }
    }
    for line in aside.iter().chain(&different) {
        println!("    {line}");
    }
    ensure!(different.is_empty(), "{} of {total} differ", different.len());
    let refused: Vec<_> =
        world.written("recorded")?.into_iter().filter(|w| w.code >= 400 && !matches!(w.code, 404 | 409)).collect();
    ensure!(refused.is_empty(), "{refused:?}");
    let of_set = sets.iter().filter(|s| s.name == "http").flat_map(|s| &s.cases);
    let others = of_set.filter(|c| !reached.contains(&c.name)).count();
    Ok(format!(
        "{equal} of {total} equal; {} with objects that the server does not take; {others} of the set have a status that differs",
        aside.len()
    ))
}

enum Outcome {
    Equal,
    Different(Vec<String>),
    /// The server does not take an object of the case.
    Refused(String),
}

async fn one_case(world: &World, case: &case::Case) -> Result<Outcome> {
    let mut documents = case.documents("in.yaml")?;
    for (i, document) in documents.iter_mut().enumerate() {
        prepare(document, i);
    }
    // Of an object that is there twice, a cluster has the version that was applied last.
    let identity = |d: &Value| (d["kind"].clone(), d["metadata"]["namespace"].clone(), d["metadata"]["name"].clone());
    let all: Vec<_> = documents.iter().map(identity).collect();
    let mut at = 0..;
    documents.retain(|_| at.next().is_some_and(|i| !all[i + 1..].contains(&all[i])));
    let of_kind = |kind: &str| documents.iter().filter(|d| d["kind"] == kind).cloned().collect::<Vec<_>>();
    for namespace in of_kind("Namespace") {
        world
            .namespace(
                namespace["metadata"]["name"].as_str().unwrap_or_default(),
                namespace["metadata"]["labels"].clone(),
            )
            .await?;
    }
    for object in &documents {
        if let Some(ns) = object.pointer("/metadata/namespace").and_then(Value::as_str)
            && !of_kind("Namespace").iter().any(|n| n["metadata"]["name"] == ns)
        {
            world.namespace(ns, json!({})).await?;
        }
    }
    let mut objects: Vec<_> = documents.iter().filter(|d| d["kind"] != "Namespace").cloned().collect();
    // Created in the order of their precedence, which then is that of the server's own times.
    let created =
        |o: &Value| o.pointer("/metadata/creationTimestamp").and_then(Value::as_str).unwrap_or_default().to_owned();
    let text = |o: &Value, at: &str| o.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
    objects.sort_by_cached_key(|o| (created(o), text(o, "/metadata/namespace"), text(o, "/metadata/name")));
    let mut last = objects.first().map(created).unwrap_or_default();
    let mut refused = None;
    for object in &objects {
        if created(object) != last {
            next_second().await;
            last = created(object);
        }
        let mut object = object.clone();
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.retain(|k, _| matches!(k.as_str(), "name" | "namespace" | "labels" | "annotations"));
        }
        if let Err(e) = world.create(std::slice::from_ref(&object)).await {
            refused = Some(e.root_cause().to_string());
            break;
        }
    }
    let outcome = match refused {
        Some(why) => Outcome::Refused(why),
        None => judged(world, case, &objects).await?,
    };
    let (classes, others): (Vec<&Value>, Vec<&Value>) = objects.iter().partition(|o| o["kind"] == "GatewayClass");
    for object in others.into_iter().chain(classes.iter().copied()) {
        world.delete(object).await?;
    }
    for class in classes {
        // Nobody is there who would take it off.
        let _ = world.patch(class, "", json!({"metadata": {"finalizers": null}})).await;
        until(SOON, "the class is gone", async || Ok(world.get(class).await.is_err())).await?;
    }
    Ok(outcome)
}

async fn judged(world: &World, case: &case::Case, objects: &[Value]) -> Result<Outcome> {
    let config = case
        .text("config.yaml")?
        .unwrap_or_else(|| "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\n".to_owned());
    let config = settings::parse(&config, "config.yaml", std::iter::empty())?.config;
    let plane = plane(world, "recorded", translator::Config::from(&config)).await?;
    settled(&plane).await?;
    let mut now = Vec::new();
    for object in objects {
        now.push(world.get(object).await?);
    }
    plane.stop().await;
    let recorded = case.documents("status.yaml")?;
    let want = compare::level(&recorded, &|_| false);
    for object in &mut now {
        later_stages(object, &recorded);
    }
    let got = compare::level(&now, &|_| false);
    let (want, got) = (compare::without_messages(&want), compare::without_messages(&got));
    Ok(if want == got { Outcome::Equal } else { Outcome::Different(peer::diff::paths(&want, &got, 4)) })
}

/// What an API server asks for and a recording does not have.
fn prepare(document: &mut Value, i: usize) {
    if document["kind"] == "EndpointSlice" && document["metadata"]["name"].is_null() {
        document["metadata"]["name"] = format!("unnamed-{i}").into();
    }
    // Addresses and ports of Services are the server's own to give.
    if document["kind"] == "Service"
        && let Some(spec) = document["spec"].as_object_mut()
    {
        if spec.get("clusterIP").is_some_and(|ip| ip != "None") {
            spec.remove("clusterIP");
            spec.remove("clusterIPs");
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|p| p.remove("nodePort"));
        }
    }
}

/// Takes away what the recording stage did not write: the acceptance of a Gateway without a fault, the features of a
/// class, and what the server puts into the status of an object that nobody has looked at.
fn later_stages(object: &mut Value, recorded: &[Value]) {
    let key = compare::key(object);
    let had = |kind: &str| {
        let of = recorded.iter().find(|r| compare::key(r) == key);
        of.is_some_and(|r| condition(&r["status"]["conditions"], kind) != "none")
    };
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let known = !matches!(kind.as_str(), "Service" | "Secret" | "ConfigMap" | "Node" | "ServiceImport");
    let Some(status) = object.get_mut("status").filter(|_| known).and_then(Value::as_object_mut) else {
        object.as_object_mut().map(|o| o.remove("status"));
        return;
    };
    status.remove("supportedFeatures");
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(|c| {
            let waiting = c["status"] == "Unknown" && c["reason"] == "Pending";
            let by_listeners = c["reason"] == "ListenersNotValid" || c["status"] == "True";
            let plain = kind == "Gateway" && c["type"] == "Accepted" && by_listeners && !had("Accepted");
            !waiting && !plain
        });
    }
    if kind == "GatewayClass" && !recorded.iter().any(|r| compare::key(r) == key) {
        object["status"] = json!({});
    }
}

//! Two replicas of the real control plane and real proxies: a follower serves every change and writes nothing; a leader that
//! loses the API server stops writing and leads no proxy astray; while the API server is away for all, new proxies get everything.
//!
//! `REPLICAS_LONG=1` has every fault, for longer, and a thousand routes; `REPLICAS_ROW=followed,lost:Cut` runs those rows only.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    ensemble::{self, Ensemble, LEASE, SYSTEM},
    envoy::{Envoy, asked, envoy_bin},
    reigns::{self, Held},
    stage::now,
    world::{World, until},
};
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Event};
use kube::{Api, api::ListParams};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::{
    apiserver::{kube_bin, stable_port},
    proxy::Network,
};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const GROUP: &str = "infra/gw";
const HOME: &str = "home.example.test";
/// Writes end so long after the last renewal.
const RENEW: Duration = Duration::from_secs(10);
/// Another replica leads within so long of a fault.
const TAKE_OVER: Duration = Duration::from_secs(20);
/// Proxies have what is new within so long of a fault.
const FOLLOW: Duration = Duration::from_secs(15);
/// A change is served, a status written, a new proxy configured within so long.
const DELIVERED: Duration = Duration::from_secs(5);
/// What a busy machine may add.
const BUSY: Duration = Duration::from_secs(10);
const GAUGE: &str = "leader_election_master_status{name=\"5b9825d2.gateway.envoyproxy.io\"}";

/// What keeps a replica from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Cut,
    Stall,
    BlackHole,
    Stop,
}

struct Scene {
    world: World,
    replicas: Ensemble,
    envoy: PathBuf,
    port: u16,
    /// Number of the last marker.
    last: u64,
    held: Held,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of the long tests"]
async fn a_follower_serves_a_lost_leader_steps_back_and_an_outage_is_outlasted() -> Result<()> {
    let (Some(bin), Some(envoy)) = (kube_bin(), envoy_bin()) else { return Ok(()) };
    let long = std::env::var_os("REPLICAS_LONG").is_some();
    let begin = Instant::now();
    let mut scene = set(bin, envoy).await?;
    said("set", begin, "2 replicas, the first one leads");
    let only = std::env::var("REPLICAS_ROW").unwrap_or_default();
    let is_wanted = |name: &str| only.is_empty() || only.split(',').any(|o| o == name);
    if is_wanted("followed") {
        let begin = Instant::now();
        let told = followed(&mut scene, if long { 1_000 } else { 50 }).await?;
        said("followed", begin, &told);
    }
    let short = [(How::Cut, 20), (How::Stop, 20)];
    let all = [(How::Cut, 30), (How::Stall, 30), (How::BlackHole, 60), (How::Stop, 40)];
    for (how, lasts) in if long { &all[..] } else { &short[..] } {
        let name = format!("lost:{how:?}");
        if is_wanted(&name) {
            let begin = Instant::now();
            let told = lost(&mut scene, *how, Duration::from_secs(*lasts)).await.with_context(|| name.clone())?;
            said(&name, begin, &told);
        }
    }
    for (how, lasts) in if long { &[(How::Cut, 60), (How::Stall, 60)][..] } else { &[(How::Stall, 25)][..] } {
        let name = format!("away:{how:?}");
        if is_wanted(&name) {
            let begin = Instant::now();
            let told = away(&mut scene, *how, Duration::from_secs(*lasts)).await.with_context(|| name.clone())?;
            said(&name, begin, &told);
        }
    }
    if is_wanted("disagree") {
        let begin = Instant::now();
        let told = disagree(&mut scene).await?;
        said("disagree", begin, &told);
    }
    scene.replicas.alive()?;
    let verdict = judged(&scene)?;
    ensure!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    println!("{:<14} ok     {} writes in {} reigns, none out of turn", "judged", verdict.writes, verdict.reigns);
    Ok(())
}

fn said(row: &str, begin: Instant, what: &str) {
    println!("{row:<14} ok     {:>5.1}s  {what}", begin.elapsed().as_secs_f64());
}

async fn set(bin: PathBuf, envoy: PathBuf) -> Result<Scene> {
    let users = ensemble::users(2);
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    let world = World::start_with(bin, &names, &[], true).await?;
    world.define(|_| true).await?;
    for ns in [SYSTEM, "infra", "team-a"] {
        world.namespace(ns, json!({})).await?;
    }
    ensemble::free_lease(&world).await?;
    let port = stable_port()?;
    let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gc"},
        "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}});
    let gateway = json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "gw", "namespace": "infra"},
        "spec": {"gatewayClassName": "gc", "listeners": [{"name": "http", "port": port, "protocol": "HTTP",
            "allowedRoutes": {"namespaces": {"from": "All"}}}]}});
    // Answers 200 without a backend.
    let filter = json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "HTTPRouteFilter",
        "metadata": {"name": "ok", "namespace": "team-a"},
        "spec": {"directResponse": {"statusCode": 200, "body": {"type": "Inline", "inline": "home"}}}});
    let home = json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": "home", "namespace": "team-a"},
        "spec": {"hostnames": [HOME], "parentRefs": [{"name": "gw", "namespace": "infra"}], "rules": [{"filters": [
            {"type": "ExtensionRef", "extensionRef": {"group": "gateway.envoyproxy.io", "kind": "HTTPRouteFilter", "name": "ok"}}]}]}});
    world.create(&[class, gateway, filter, home, route("steady", 0)]).await?;
    let replicas = Ensemble::start(&world, &users).await?;
    let scene = Scene { world, replicas, envoy, port, last: 0, held: Held::new() };
    scene.replicas.at_rest(Duration::from_secs(60)).await?;
    ensure!(scene.replicas.leader(TAKE_OVER).await? == 0, "the first one leads");
    Ok(scene)
}

/// Redirects to a host with that number.
fn route(name: &str, marker: u64) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"hostnames": [format!("{name}.example.test")], "parentRefs": [{"name": "gw", "namespace": "infra"}],
            "rules": [{"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": target(marker)}}]}]}})
}

fn target(marker: u64) -> String {
    format!("v{marker}.example.test")
}

async fn is_home(port: u16) -> bool {
    asked(port, HOME, "/").await.is_some_and(|a| a.status == 200)
}

/// A proxy that is connected to one replica which never leads has every change, and that replica writes nothing.
async fn followed(scene: &mut Scene, routes: u64) -> Result<String> {
    let follower = &scene.replicas.seats[1];
    let proxy = Envoy::connected(&scene.envoy, &scene.replicas.certificates(), follower.place.xds, GROUP, "pinned")?;
    let (port, world) = (scene.port, &scene.world);
    until(FOLLOW, "the proxy answers", async || Ok(is_home(port).await)).await.with_context(|| proxy.log_tail())?;
    let (mut slowest, mut changes, mut early) = (Duration::ZERO, 0, None);
    for i in 0..routes {
        let (name, old, new) = (format!("r{i}"), scene.last + 1, scene.last + 2);
        scene.last = new;
        let host = format!("{name}.example.test");
        for marker in [Some(old), Some(new), None] {
            let object = route(&name, marker.unwrap_or(new));
            let from = Instant::now();
            match marker {
                Some(marker) if marker == old => world.create(std::slice::from_ref(&object)).await?,
                Some(_) => drop(world.patch(&object, "", json!({"spec": object["spec"]})).await?),
                None => world.delete(&object).await?,
            }
            let wanted = marker.map(|m| format!("http://{}", target(m)));
            let status = if wanted.is_some() { 302 } else { 404 };
            let mut last = None;
            let served = until(DELIVERED, &format!("{name} answers {wanted:?}"), async || {
                last = asked(port, &host, "/").await;
                let answer = last.clone().unwrap_or_default();
                let location = answer.location.unwrap_or_default();
                Ok(answer.status == status && location.starts_with(wanted.as_deref().unwrap_or_default()))
            })
            .await;
            served.with_context(|| {
                format!("it answers {last:?}; {}\n{}", proxy.log_tail(), follower.server.log_tail())
            })?;
            slowest = slowest.max(from.elapsed());
            changes += 1;
            if changes == 100 {
                early = Some(follower.server.memory()?.now);
            }
        }
    }
    scene.replicas.at_rest(Duration::from_secs(30)).await?;
    let (early, late) = (early.context("100 changes")?, follower.server.memory()?.now);
    ensure!(late * 10 <= early * 11, "memory of the follower: {early} KiB after 100 changes, {late} KiB in the end");
    let own = reigns::judge(&audit(scene)?, std::slice::from_ref(&follower.user), LEASE, i64::MAX / 2, &Held::new());
    ensure!(own.writes == 0, "the follower wrote {} times: {:?}", own.writes, own.violations);
    let all = judged(scene)?;
    proxy.kill().await?;
    Ok(format!(
        "{changes} changes by way of the follower, the slowest after {} ms (bound 5 s); equal digests; its memory {early} -> \
         {late} KiB, its writes 0 (the leader's {})",
        slowest.as_millis(),
        all.writes
    ))
}

/// The leader loses the API server, or its time.
async fn lost(scene: &mut Scene, how: How, lasts: Duration) -> Result<String> {
    let a = scene.replicas.leader(TAKE_OVER).await?;
    let b = 1 - a;
    // So that what proxies have tells when it is of.
    scene.last += 1;
    let change = route("steady", scene.last);
    scene.world.patch(&change, "", json!({"spec": change["spec"]})).await?;
    let proxies = proxies_of_both(scene).await?;
    let ended_before = stopped(scene, a);
    let identity = scene.replicas.seats[a].state().await.context("its state")?["leadership"]["identity"].clone();
    let identity = identity.as_str().context("its identity")?.to_owned();
    let (from, since) = (Instant::now(), now());
    obstruct(scene, a, how)?;
    // A process that is stopped hands nothing over.
    let hands_over = how != How::Stop;
    let (mut taken, mut followed, mut deaf) = (None, None, 0);
    let first = scene.last + 1;
    while from.elapsed() < lasts || taken.is_none() || (hands_over && followed.is_none()) {
        let passed = from.elapsed();
        ensure!(taken.is_some() || passed < TAKE_OVER + BUSY, "nobody took over: {}", scene.replicas.log_tails());
        let late = hands_over && followed.is_none() && passed > FOLLOW + BUSY;
        ensure!(!late, "a proxy does not follow the one that knows: {}", scene.replicas.log_tails());
        // A leader always has something to write.
        scene.last += 1;
        let change = route("steady", scene.last);
        scene.world.patch(&change, "", json!({"spec": change["spec"]})).await?;
        sleep(Duration::from_millis(500)).await;
        if taken.is_none() && scene.replicas.leaders(&[a]).await == [b] {
            taken = Some(from.elapsed());
        }
        if hands_over {
            let alive = scene.replicas.seats[a].server.get("health", "/healthz").await;
            deaf += usize::from(alive.is_none_or(|(status, _)| status != 200));
            if followed.is_none() && newest(&proxies).await >= first {
                followed = Some(from.elapsed());
            }
        }
    }
    if hands_over {
        ensure!(deaf == 0, "/healthz did not answer {deaf} times");
        ensure!(scene.replicas.seats[a].server.metric(GAUGE).await < 0.5, "its gauge says that it leads");
    }
    let back = Instant::now();
    release(scene, a, how, since)?;
    until(Duration::from_secs(30), "it is a follower, and ready", async || {
        let state = scene.replicas.seats[a].state().await.unwrap_or_default();
        let follows = state["ready"] == true && state["leadership"]["role"] == "follower";
        Ok(follows && scene.replicas.leaders(&[]).await == [b])
    })
    .await
    .with_context(|| scene.replicas.log_tails())?;
    let back = back.elapsed();
    scene.replicas.alive()?;
    let told = stopped(scene, a) - ended_before;
    ensure!(told == 1, "{told} lines tell of the lost lease: {}", scene.replicas.seats[a].server.log_tail());
    let verdict = judged(scene)?;
    ensure!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    // Attempts to tell of it are up to 30 s apart.
    until(Duration::from_secs(60), "an Event tells of the lost lease", async || {
        let events: Api<Event> = Api::namespaced(scene.world.client(), SYSTEM);
        let all = events.list(&ListParams::default()).await?;
        let tells = |m: &String| m.contains(&identity) && m.contains("stopped leading");
        Ok(all.items.iter().filter_map(|e| e.message.as_ref()).any(tells))
    })
    .await?;

    // It is a candidate again: the other one goes.
    scene.replicas.seats[b].server.end().await?;
    until(TAKE_OVER, "it leads again", async || Ok(scene.replicas.leaders(&[b]).await == [a]))
        .await
        .with_context(|| scene.replicas.log_tails())?;
    let other = &mut scene.replicas.seats[b].server;
    other.launch_again()?;
    other.becomes_ready().await?;
    scene.replicas.at_rest(Duration::from_secs(60)).await?;
    for proxy in proxies {
        proxy.kill().await?;
    }
    let seconds = |d: Option<Duration>| d.map_or_else(|| "-".to_owned(), |d| format!("{:.1} s", d.as_secs_f64()));
    Ok(format!(
        "the other one led after {} (goal 20 s), proxies of both had new routes after {} (goal 15 s), ready {:.1} s after the end",
        seconds(taken),
        seconds(followed),
        back.as_secs_f64()
    ))
}

/// Two proxies behind the Service, one connected to each replica.
async fn proxies_of_both(scene: &Scene) -> Result<Vec<Envoy>> {
    let mut proxies: Vec<Envoy> = Vec::new();
    let mut attempt = 0;
    until(Duration::from_secs(60), "each replica has a proxy", async || {
        for proxy in std::mem::take(&mut proxies) {
            proxy.kill().await?;
        }
        attempt += 1;
        // Streams of those of the attempt before may not have ended everywhere: names tell them apart.
        let names = ["one", "other"].map(|name| format!("{name}-{attempt}"));
        for name in &names {
            let port = scene.replicas.service.port();
            proxies.push(Envoy::connected(&scene.envoy, &scene.replicas.certificates(), port, GROUP, name)?);
        }
        let both = until(Duration::from_secs(8), "streams", async || {
            let mut all = newest(&proxies).await >= scene.last;
            for seat in &scene.replicas.seats {
                let connected = seat.server.admin("/api/proxies").await?.to_string();
                all &= names.iter().filter(|name| connected.contains(&format!("{name}\""))).count() == 1;
            }
            Ok(all)
        });
        Ok(both.await.is_ok())
    })
    .await
    .with_context(|| scene.replicas.log_tails())?;
    Ok(proxies)
}

/// Of what each proxy knows as the newest, the oldest: the number of the last change of `steady` that all of them have.
async fn newest(proxies: &[Envoy]) -> u64 {
    let mut oldest = u64::MAX;
    for proxy in proxies {
        let dump = proxy.admin("/config_dump").await.unwrap_or_default();
        let markers = dump.split("\"v").skip(1).filter_map(|rest| rest.split_once(".example.test")?.0.parse().ok());
        oldest = oldest.min(markers.max().unwrap_or_default());
    }
    oldest
}

/// How often its log tells that a leadership ended.
fn stopped(scene: &Scene, i: usize) -> usize {
    scene.replicas.seats[i].server.log().matches("stopped leading").count()
}

fn obstruct(scene: &Scene, i: usize, how: How) -> Result<()> {
    let seat = &scene.replicas.seats[i];
    match how {
        How::Cut => seat.network.set(Network::Cut),
        How::Stall => seat.network.set(Network::Stall),
        How::BlackHole => seat.network.set(Network::LoseAnswers),
        How::Stop => seat.server.signal(Signal::SIGSTOP)?,
    }
    Ok(())
}

fn release(scene: &mut Scene, i: usize, how: How, since: i64) -> Result<()> {
    let seat = &scene.replicas.seats[i];
    if how == How::Stop {
        seat.server.signal(Signal::SIGCONT)?;
    }
    scene.replicas.open(i);
    if matches!(how, How::Stall | How::BlackHole) {
        scene.held.entry(seat.user.clone()).or_default().push((since, now()));
    }
    Ok(())
}

/// The API server is away for all.
async fn away(scene: &mut Scene, how: How, lasts: Duration) -> Result<String> {
    let port = scene.port;
    let service = (scene.replicas.certificates(), scene.replicas.service.port());
    let connected = |name: &str| Envoy::connected(&scene.envoy, &service.0, service.1, GROUP, name);
    let old = connected("old")?;
    until(FOLLOW, "the old proxy answers", async || Ok(is_home(port).await)).await.with_context(|| old.log_tail())?;
    let before = transitions(scene).await?;
    let (from, since) = (Instant::now(), now());
    for i in 0..scene.replicas.seats.len() {
        obstruct(scene, i, how)?;
    }
    let (mut new, mut configured) = (Vec::new(), Duration::ZERO);
    while from.elapsed() < lasts {
        for seat in &scene.replicas.seats {
            let state = seat.server.get("health", "/readyz").await;
            ensure!(state.as_ref().is_some_and(|(status, _)| *status == 200), "{} is not ready: {state:?}", seat.user);
        }
        if new.is_empty() && from.elapsed() > Duration::from_secs(10) {
            new = vec![connected("new-1")?, connected("new-2")?];
            let (begin, wanted) = (Instant::now(), old.versions().await?);
            ensure!(!wanted.is_empty(), "the old proxy has nothing");
            until(DELIVERED + BUSY, "new proxies have what the old one has", async || Ok(same(&new, &wanted).await))
                .await
                .with_context(|| scene.replicas.log_tails())?;
            configured = begin.elapsed();
            // All share the port: ask until each new one was asked.
            until(Duration::from_secs(30), "each new proxy answers", async || {
                let answer = asked(port, HOME, "/").await.context("no answer")?;
                ensure!(answer.status == 200, "{answer:?}");
                let mut all = true;
                for proxy in &new {
                    all &= has_answered(&proxy.admin("/stats?filter=downstream_rq_2xx").await?);
                }
                Ok(all)
            })
            .await?;
        }
        sleep(Duration::from_millis(200)).await;
    }
    ensure!(!new.is_empty(), "it was too short");
    ensure!(scene.replicas.leaders(&[]).await.is_empty(), "somebody leads without the API server");

    let back = Instant::now();
    for i in 0..scene.replicas.seats.len() {
        release(scene, i, how, since)?;
    }
    let created = route("returned", 0);
    scene.world.create(std::slice::from_ref(&created)).await?;
    let leader = scene.replicas.leader(TAKE_OVER + BUSY).await?;
    let led = back.elapsed();
    until(DELIVERED + BUSY, "the new route has its status", async || {
        let parents = scene.world.get(&created).await?["status"]["parents"].clone();
        let conditions = parents[0]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|c| c["type"] == "Accepted" && c["status"] == "True"))
    })
    .await
    .with_context(|| scene.replicas.log_tails())?;
    let written = back.elapsed().saturating_sub(led);
    let more = transitions(scene).await? - before;
    ensure!(more <= 1, "{more} transitions");
    scene.replicas.alive()?;
    scene.replicas.at_rest(Duration::from_secs(60)).await?;
    let verdict = judged(scene)?;
    ensure!(verdict.violations.is_empty(), "{:?}", verdict.violations);
    scene.world.delete(&created).await?;
    for proxy in new.into_iter().chain([old]) {
        proxy.kill().await?;
    }
    Ok(format!(
        "ready throughout; new proxies had everything after {:.1} s (goal 5 s) and answered 200; replica {leader} led {:.1} s after \
         the return (goal 20 s), the new route had its status {:.1} s later (goal 5 s), {more} transitions",
        configured.as_secs_f64(),
        led.as_secs_f64(),
        written.as_secs_f64()
    ))
}

/// Replicas that make the same of what they see are not told; one that makes something else of it is.
async fn disagree(scene: &mut Scene) -> Result<String> {
    const DISAGREEING: &str = "replicas_disagreeing";
    for seat in &scene.replicas.seats {
        ensure!(seat.server.metric(DISAGREEING).await < 0.5, "{}", seat.server.log_tail());
    }
    let leader = scene.replicas.leader(TAKE_OVER).await?;
    let other = &mut scene.replicas.seats[1 - leader].server;
    let config = other.scratch().join("config.yaml");
    let before = std::fs::read_to_string(&config)?;
    std::fs::write(&config, format!("{before}envoyProxy: {{ ipFamily: DualStack }}\n"))?;
    other.end().await?;
    other.launch_again()?;
    other.becomes_ready().await?;
    let from = Instant::now();
    until(Duration::from_secs(60), "both tell that the other one serves something else", async || {
        let mut all = true;
        for seat in &scene.replicas.seats {
            all &= seat.server.metric(DISAGREEING).await > 0.5;
        }
        Ok(all)
    })
    .await
    .with_context(|| scene.replicas.log_tails())?;
    let told = from.elapsed();
    for seat in &scene.replicas.seats {
        let info = seat.server.admin("/api/server_info").await?;
        let d = &info["replicas"]["disagreements"][0];
        ensure!(d["ours"] == info["snapshotDigest"] && d["ours"] != d["theirs"], "{info}");
        until(DELIVERED, "the log tells it too", async || {
            Ok(seat.server.log().contains("has seen the same resource versions and serves something else"))
        })
        .await?;
    }
    let other = &mut scene.replicas.seats[1 - leader].server;
    std::fs::write(&config, before)?;
    other.end().await?;
    other.launch_again()?;
    other.becomes_ready().await?;
    until(Duration::from_secs(30), "nobody tells it any more", async || {
        let mut none = true;
        for seat in &scene.replicas.seats {
            none &= seat.server.metric(DISAGREEING).await < 0.5 && seat.server.metric("replicas_heard").await > 0.5;
        }
        Ok(none)
    })
    .await?;
    Ok(format!(
        "another configuration was told by both {:.1} s after it was ready, and no more once it was gone",
        told.as_secs_f64()
    ))
}

async fn same(proxies: &[Envoy], wanted: &BTreeSet<String>) -> bool {
    for proxy in proxies {
        if proxy.versions().await.ok().as_ref() != Some(wanted) {
            return false;
        }
    }
    true
}

/// A listener of the Gateway, not the admin server, has answered 2xx.
fn has_answered(stats: &str) -> bool {
    stats.lines().filter_map(|l| l.split_once(": ")).any(|(name, n)| {
        name.starts_with("http.") && !name.starts_with("http.admin") && !name.contains("ready") && n != "0"
    })
}

async fn transitions(scene: &Scene) -> Result<i32> {
    let leases: Api<Lease> = Api::namespaced(scene.world.client(), SYSTEM);
    Ok(leases.get(LEASE).await?.spec.and_then(|s| s.lease_transitions).unwrap_or_default())
}

fn audit(scene: &Scene) -> Result<Vec<reigns::Line>> {
    reigns::read(&std::fs::read_to_string(scene.world.server.audit_path())?)
}

fn judged(scene: &Scene) -> Result<reigns::Verdict> {
    let users: Vec<String> = scene.replicas.seats.iter().map(|s| s.user.clone()).collect();
    let renew = i64::try_from(RENEW.as_micros())?;
    Ok(reigns::judge(&audit(scene)?, &users, LEASE, renew, &scene.held))
}

//! Against the real Envoy: updates of every kind under traffic that does not retry, without one failed request.
//!
//! The path of Envoy comes in the variable `ENVOY_BIN`; without it these tests say that they are skipped.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test may say so and fail so")]

mod proxy;
mod support;

use std::time::Duration;

use proxy::{Api, Backend, Proxy, Traffic, World};
use support::{PATIENCE, Rig};
use tokio::time::timeout;
use xds::{Cache, Config, Feedback, SentResource, TypeUrl};

fn config() -> Config {
    Config { ack_timeout: Duration::from_secs(5), ..Config::default() }
}

/// Envoy with one listener and one table over two backends, under traffic.
struct Scene {
    rig: Rig,
    world: World,
    proxy: Proxy,
    one: Backend,
    other: Backend,
}

impl Scene {
    /// `None`, said aloud, when there is no Envoy.
    async fn open(api: Api) -> Option<Self> {
        let binary = proxy::binary()?;
        let rig = Rig::start(Cache::new(), config(), None).await;
        let (one, other) = (Backend::start("one").await, Backend::start("other").await);
        let mut world = World::new(proxy::free_port());
        world.cluster("one", &one);
        world.route("/", "one");
        world.publish(&rig.cache);
        let proxy = Proxy::start(&binary, api, rig.port, world.port).await;
        Some(Self { rig, world, proxy, one, other })
    }

    /// Waits until the proxy has accepted everything that it is to have.
    async fn settled(&self) {
        let wanted = self.rig.cache.digests(&proxy::group()).unwrap();
        timeout(PATIENCE, async {
            loop {
                let streams = self.rig.server.connections().snapshot();
                let done = streams.iter().any(|stream| {
                    TypeUrl::ALL.iter().filter(|kind| **kind != TypeUrl::Secret).all(|kind| {
                        let state = stream.types.get(kind);
                        state.is_some_and(|state| state.acked_version.as_ref() == wanted.get(kind))
                    })
                });
                if done {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("not settled: {:#?}", self.rig.server.connections().snapshot()));
    }

    fn nacks(&self) -> u64 {
        self.rig.server.metrics().snapshot().types.values().map(|of| of.nacks).sum()
    }
}

/// Every kind of change under traffic; returns how many requests failed, with what was asked.
async fn changes(scene: &mut Scene, honest: bool) -> (u64, Vec<String>) {
    let traffic = Traffic::start(scene.proxy.port, 4);
    for round in 0..12_u32 {
        traffic.more(20).await;
        // The same cluster, changed.
        scene.world.clusters.get_mut("one").unwrap().timeout_ms = 1_000 + round;
        scene.world.publish(&scene.rig.cache);
        if honest {
            scene.settled().await;
        }
        // A new cluster, with a health check, that takes over, and goes again.
        let name = format!("checked-{round}");
        scene.world.cluster(&name, &scene.other);
        scene.world.clusters.get_mut(&name).unwrap().health_check = true;
        scene.world.clusters.get_mut(&name).unwrap().honest = honest;
        scene.world.route("/", &name);
        scene.world.publish(&scene.rig.cache);
        traffic.hear("other", Duration::from_secs(10)).await;
        // Another listener-internal change, in place.
        scene.world.stat_prefix = format!("in-{round}");
        scene.world.publish(&scene.rig.cache);
        scene.world.route("/", "one");
        scene.world.clusters.remove(&name);
        scene.world.publish(&scene.rig.cache);
        traffic.hear("one", Duration::from_secs(10)).await;
        if honest {
            scene.settled().await;
        }
    }
    traffic.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_costs_a_request_delta() {
    let Some(mut scene) = Scene::open(Api::Delta).await else { return };
    no_change_costs_a_request(&mut scene).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_costs_a_request_state_of_the_world() {
    let Some(mut scene) = Scene::open(Api::StateOfTheWorld).await else { return };
    no_change_costs_a_request(&mut scene).await;
}

async fn no_change_costs_a_request(scene: &mut Scene) {
    let (sent, failed) = changes(scene, true).await;
    println!("changes: {sent} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    assert!(sent > 200, "{sent} requests");
    assert_eq!(scene.nacks(), 0);
    assert_eq!(scene.proxy.stat("cluster_manager.active_clusters").await, 2, "the xDS cluster and `one`");
    assert_eq!(scene.proxy.stat("cluster_manager.warming_clusters").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_ordering_bug_is_noticed() {
    let Some(mut scene) = Scene::open(Api::Delta).await else { return };
    // Tables that do not say what clusters they use go out before these are warm.
    let (sent, failed) = changes(&mut scene, false).await;
    println!("planted bug: {sent} requests, {} failed", failed.len());
    assert!(!failed.is_empty(), "routes ran ahead of their clusters and nobody noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_come_and_go() {
    let Some(mut scene) = Scene::open(Api::Delta).await else { return };
    let traffic = Traffic::start(scene.proxy.port, 2);
    traffic.more(20).await;
    // The port moves: add, wait until it serves, remove.
    let moved = proxy::free_port();
    scene.world.second_listener = Some(moved);
    scene.world.publish(&scene.rig.cache);
    proxy::serves(moved).await;
    scene.settled().await;
    let (sent, failed) = traffic.stop().await;
    assert!(failed.is_empty(), "{sent} requests, {failed:?}");
    let traffic = Traffic::start(moved, 2);
    traffic.more(20).await;
    scene.world.first_listener = false;
    scene.world.publish(&scene.rig.cache);
    scene.settled().await;
    traffic.hear("one", Duration::from_secs(10)).await;
    let (sent, failed) = traffic.stop().await;
    println!("moved listener: {sent} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    proxy::refuses(scene.proxy.port).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_cut_and_comes_back_is_told_nothing_new() {
    for api in [Api::Delta, Api::StateOfTheWorld] {
        let Some(mut scene) = Scene::open(api).await else { return };
        scene.settled().await;
        let traffic = Traffic::start(scene.proxy.port, 2);
        traffic.more(20).await;
        let port = scene.rig.port;
        let cache = scene.rig.kill().await;
        scene.rig = Rig::start_on(port, cache, config(), None).await;
        scene.rig.fact(|fact| matches!(fact, Feedback::Connected { .. })).await;
        // A change after the reconnect arrives: everything before it has been told by then.
        scene.world.cluster("new", &scene.other);
        scene.world.route("/", "new");
        scene.world.publish(&scene.rig.cache);
        traffic.hear("other", Duration::from_secs(10)).await;
        let metrics = scene.rig.server.metrics().snapshot();
        if api == Api::Delta {
            let responses: Vec<u64> = metrics.types.values().map(|of| of.resources).collect();
            assert_eq!(metrics.types[&TypeUrl::Cluster].resources, 1, "{responses:?}");
            assert_eq!(metrics.types[&TypeUrl::Listener].resources, 0, "{responses:?}");
            assert_eq!(metrics.types[&TypeUrl::RouteConfiguration].resources, 1, "{responses:?}");
        }
        let (sent, failed) = traffic.stop().await;
        println!("cut, {api:?}: {sent} requests, {} failed", failed.len());
        assert!(failed.is_empty(), "{failed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_while_a_cluster_warms_up_costs_nothing() {
    let Some(mut scene) = Scene::open(Api::Delta).await else { return };
    scene.settled().await;
    let traffic = Traffic::start(scene.proxy.port, 2);
    traffic.more(20).await;
    // The backend takes its time to answer the health check.
    let slow = Backend::start_slow("slow", Duration::from_millis(1_500)).await;
    scene.world.cluster("slow", &slow);
    scene.world.clusters.get_mut("slow").unwrap().health_check = true;
    scene.world.route("/", "slow");
    scene.world.clusters.remove("one");
    scene.world.publish(&scene.rig.cache);
    slow.asked().await;
    let port = scene.rig.port;
    let cache = scene.rig.kill().await;
    scene.rig = Rig::start_on(port, cache, config(), None).await;
    traffic.hear("slow", Duration::from_secs(15)).await;
    scene.settled().await;
    let (sent, failed) = traffic.stop().await;
    println!("cut while warming: {sent} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(scene.proxy.stat("cluster_manager.active_clusters").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_resource_is_told_and_keeps_nothing_else_back() {
    let Some(mut scene) = Scene::open(Api::Delta).await else { return };
    scene.settled().await;
    let traffic = Traffic::start(scene.proxy.port, 2);
    traffic.more(20).await;
    // Two new clusters, one of which Envoy refuses together with the whole response.
    scene.world.cluster("good", &scene.other);
    scene.world.cluster("bad", &scene.one);
    scene.world.clusters.get_mut("bad").unwrap().invalid = true;
    scene.world.route("/", "good");
    scene.world.publish(&scene.rig.cache);
    let nack = scene.rig.fact(|fact| matches!(fact, Feedback::Nacked { resources, .. } if resources.len() == 1)).await;
    let Feedback::Nacked { type_url, resources, detail, .. } = nack else { panic!("{nack:?}") };
    println!("refused: {detail}");
    assert_eq!((type_url, &*resources[0].name), (TypeUrl::Cluster, "bad"));
    traffic.hear("other", Duration::from_secs(10)).await;
    // A table that Envoy refuses leaves the one that it has.
    scene.world.bad_regex = true;
    scene.world.publish(&scene.rig.cache);
    scene.rig.fact(|fact| matches!(fact, Feedback::Nacked { type_url: TypeUrl::RouteConfiguration, .. })).await;
    scene.world.bad_regex = false;
    scene.world.clusters.remove("bad");
    scene.world.route("/", "one");
    scene.world.publish(&scene.rig.cache);
    traffic.hear("one", Duration::from_secs(10)).await;
    let (sent, failed) = traffic.stop().await;
    println!("refusals: {sent} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_never_warms_up_is_found_and_keeps_nothing_else_back() {
    let Some(mut scene) = Scene::open(Api::Delta).await else { return };
    scene.settled().await;
    let traffic = Traffic::start(scene.proxy.port, 2);
    traffic.more(20).await;
    scene.world.cluster("stuck", &scene.one);
    scene.world.clusters.get_mut("stuck").unwrap().stuck = true;
    scene.world.publish(&scene.rig.cache);
    // In the meantime plain clusters go on.
    scene.world.cluster("good", &scene.other);
    scene.world.route("/", "good");
    scene.world.publish(&scene.rig.cache);
    traffic.hear("other", Duration::from_secs(10)).await;
    // Envoy refuses it, or says nothing at all; in both cases it acknowledges no cluster any more until this one is gone.
    let about_it = |of: &[SentResource]| of.iter().any(|of| &*of.name == "stuck");
    scene
        .rig
        .fact(|fact| match fact {
            Feedback::TimedOut { type_url: TypeUrl::Cluster, suspects: of, .. }
            | Feedback::Nacked { type_url: TypeUrl::Cluster, resources: of, .. } => about_it(of),
            _ => false,
        })
        .await;
    timeout(PATIENCE, async {
        while scene.proxy.stat("cluster_manager.warming_clusters").await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("it is taken out");
    scene.world.clusters.remove("stuck");
    scene.world.clusters.get_mut("good").unwrap().timeout_ms += 1;
    scene.world.publish(&scene.rig.cache);
    scene.settled().await;
    assert_eq!(scene.proxy.stat("cluster_manager.warming_clusters").await, 0);
    let (sent, failed) = traffic.stop().await;
    println!("stuck: {sent} requests, {} failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_starts_although_a_cluster_never_warms_up() {
    let Some(binary) = proxy::binary() else { return };
    let rig = Rig::start(Cache::new(), config(), None).await;
    let one = Backend::start("one").await;
    let mut world = World::new(proxy::free_port());
    world.cluster("one", &one);
    world.cluster("stuck", &one);
    world.clusters.get_mut("stuck").unwrap().stuck = true;
    world.route("/", "one");
    world.publish(&rig.cache);
    let _proxy = Proxy::start(&binary, Api::Delta, rig.port, world.port).await;
}

//! What is taken away waits for connections that drain and for requests under way.

use std::time::Duration;

use envoy_facts::{
    client::{Answer, H1, H2, Running as Request},
    config::{Cluster, Listener, table},
    product::config,
    proxy::{Api, closes},
    until,
};
use xds::{Config, TypeUrl};

use super::Scene;

/// A server that takes clusters away as soon as nothing names them any more.
fn hasty() -> Config {
    Config { drain_time: Duration::ZERO, ..config() }
}

/// Connections that have been used. A draining Envoy answers one more request on each and then closes it.
struct Open(Vec<H1>, Vec<H2>);

impl Open {
    async fn to(port: u16, count: usize) -> Self {
        let mut open = Self(Vec::new(), Vec::new());
        for _ in 0..count {
            open.0.push(H1::open(port).await.unwrap());
            open.1.push(H2::open(port).await.unwrap());
        }
        for client in &mut open.0 {
            assert!(client.get("/").await.unwrap().is(200, "one"));
        }
        for client in &mut open.1 {
            assert!(client.get("/").await.unwrap().is(200, "one"));
        }
        open
    }

    /// One more request on one of each protocol.
    async fn ask(&mut self) -> [Answer; 2] {
        let (mut http1, mut http2) = (self.0.pop().unwrap(), self.1.pop().unwrap());
        [http1.get("/").await.unwrap(), http2.get("/").await.unwrap()]
    }

    async fn ask_all(mut self) -> Vec<u16> {
        let mut statuses = Vec::new();
        while !self.0.is_empty() {
            statuses.extend(self.ask().await.map(|answer| answer.status));
        }
        statuses
    }
}

/// Removes the listener with all that it used; returns what its open connections are answered then.
async fn answers_after_removal(scene: &mut Scene) -> Vec<u16> {
    let open = Open::to(scene.port, 10).await;
    scene.remove(TypeUrl::Listener, "in");
    scene.remove(TypeUrl::RouteConfiguration, "table");
    scene.remove_cluster("one");
    scene.publish();
    closes(scene.port).await;
    scene.product.settled().await;
    open.ask_all().await
}

#[tokio::test]
async fn open_connections_are_answered_after_their_listener_was_removed() {
    let Some(mut scene) = Scene::open().await else { return };
    let statuses = answers_after_removal(&mut scene).await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    // Other updates do not wait meanwhile, and in the end everything goes.
    let port = envoy_facts::proxy::free_port();
    scene.set(&Listener::http("next", port, "next").item());
    scene.set(&table("next", &[("/", "other")]));
    scene.cluster(&Cluster::eds("other"), scene.other.port);
    scene.publish();
    envoy_facts::proxy::serves(port).await;
    assert!(scene.proxy.has_cluster("one").await);
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    assert!(!scene.proxy.has_cluster("one").await);
}

#[tokio::test]
async fn a_server_that_does_not_wait_for_the_drain_time_is_noticed() {
    let open = Scene::open_with(Api::Delta, hasty(), |port| Listener::http("in", port, "table"));
    let Some(mut scene) = open.await else { return };
    let statuses = answers_after_removal(&mut scene).await;
    assert!(statuses.contains(&503), "{statuses:?}");
}

/// Moves the route away from a cluster, and removes it, while a request waits in a filter; returns its answer.
async fn answer_from_a_filter(config: Config) -> Option<u16> {
    let delayed = |port| Listener::new("in", port).chain_with_delay("table", "0.7s");
    let mut scene = Scene::open_with(Api::Delta, config, delayed).await?;
    let port = scene.port;
    let waiting = Request::start(async move { H1::open(port).await?.get("/").await });
    scene.proxy.stat_is("http.in.downstream_rq_active", 1).await;
    scene.cluster(&Cluster::eds("other"), scene.other.port);
    scene.route("other");
    scene.remove_cluster("one");
    scene.publish();
    let answer = waiting.done().await.unwrap();
    assert!(answer.status == 503 || answer.is(200, "one"), "{answer:?}");
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    Some(answer.status)
}

#[tokio::test]
async fn a_request_that_waits_in_a_filter_finds_its_cluster_though_its_route_moved() {
    if let Some(status) = answer_from_a_filter(config()).await {
        assert_eq!(status, 200);
    }
}

#[tokio::test]
async fn a_server_that_does_not_wait_for_requests_under_way_is_noticed() {
    if let Some(status) = answer_from_a_filter(hasty()).await {
        assert_eq!(status, 503);
    }
}

#[tokio::test]
async fn open_connections_are_answered_when_the_server_changes_in_the_drain_time() {
    // Long enough for the proxy to come back.
    let config = Config { drain_time: Duration::from_secs(5), ..config() };
    let open = Scene::open_with(Api::Delta, config, |port| Listener::http("in", port, "table"));
    let Some(mut scene) = open.await else { return };
    let open = Open::to(scene.port, 10).await;
    scene.remove(TypeUrl::Listener, "in");
    scene.remove(TypeUrl::RouteConfiguration, "table");
    scene.remove_cluster("one");
    scene.publish();
    closes(scene.port).await;
    // The other one has never heard of what was removed.
    let mut scene = scene.replace().await;
    scene.product.fact("a proxy", |fact| matches!(fact, xds::Feedback::Connected { .. })).await;
    until("the proxy has told all that it has", async || {
        let streams = scene.product.server.connections().snapshot();
        streams.iter().any(|stream| stream.types.contains_key(&TypeUrl::RouteConfiguration))
    })
    .await;
    let statuses = open.ask_all().await;
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    scene.proxy.stat_is("cluster_manager.active_clusters", 1).await;
}

#[tokio::test]
async fn open_connections_are_answered_after_their_chain_took_another_table() {
    let Some(mut scene) = Scene::open().await else { return };
    let mut open = Open::to(scene.port, 10).await;
    scene.set(&Listener::http("in", scene.port, "next").item());
    scene.set(&table("next", &[("/", "other")]));
    scene.cluster(&Cluster::eds("other"), scene.other.port);
    scene.remove(TypeUrl::RouteConfiguration, "table");
    scene.remove_cluster("one");
    scene.publish();
    until("the next table serves", async || scene.get("/").await.unwrap().is(200, "other")).await;
    scene.product.settled().await;
    for _ in 0..10 {
        let answers = open.ask().await;
        assert!(answers.iter().all(|answer| answer.is(200, "one")), "{answers:?}");
    }
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
}

//! Changes in which nothing is wrong.

use std::time::Duration;

use envoy_facts::{
    client::{H2, Raw, Running as Request, chunks, piece},
    config::{Certificate, Cluster, Listener, endpoints, table},
    product::config,
    proxy::{Api, closes, free_port, serves},
    traffic::Traffic,
};
use http::Method;
use hyper::body::{Bytes, Frame};
use xds::TypeUrl;

use super::Scene;

/// Every kind of change under traffic. With `told` the server knows which clusters the table names.
async fn changes(scene: &mut Scene, traffic: &Traffic, told: bool) {
    for round in 0..12_u32 {
        traffic.more(10).await;
        scene.cluster(&Cluster::eds("one").revision(round % 2), scene.one.port);
        scene.publish();
        if told {
            scene.product.settled().await;
        }
        // A new cluster, with a health check, takes over, and goes again.
        let name = format!("checked-{round}");
        scene.cluster(&Cluster::eds(&name).checked(), scene.other.port);
        route(scene, &name, told);
        scene.publish();
        traffic.hear("other").await;
        // The chain changes in place.
        scene.set(&Listener::new("in", scene.port).chain("table", &format!("in-{round}")).item());
        scene.publish();
        route(scene, "one", told);
        scene.remove_cluster(&name);
        scene.publish();
        traffic.hear("one").await;
        if told {
            scene.product.settled().await;
        }
    }
}

fn route(scene: &mut Scene, cluster: &str, told: bool) {
    let table = table("table", &[("/", cluster)]);
    let lie = xds::Hints::RouteConfiguration { clusters: std::sync::Arc::new([]) };
    scene.set(&if told { table } else { table.with_hints(lie) });
}

async fn no_change_costs_a_request(api: Api) {
    let open = Scene::open_with(api, config(), |port| Listener::http("in", port, "table"));
    let Some(mut scene) = open.await else { return };
    let traffic = Traffic::start(scene.port, 4);
    changes(&mut scene, &traffic, true).await;
    traffic.all_is_well("changes").await;
    assert_eq!(scene.product.nacks(), 0);
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    assert_eq!(scene.proxy.stat("cluster_manager.warming_clusters").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_costs_a_request_delta() {
    no_change_costs_a_request(Api::Delta).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_change_costs_a_request_state_of_the_world() {
    no_change_costs_a_request(Api::StateOfTheWorld).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planted_ordering_bug_is_noticed() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 4);
    changes(&mut scene, &traffic, false).await;
    let (sent, failed) = traffic.stop().await;
    println!("planted bug: {sent} requests, {} failed", failed.len());
    assert!(!failed.is_empty(), "routes ran ahead of their clusters and nobody noticed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_moves_to_another_port_without_an_error() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    // Add, wait until it serves, remove.
    let (former, moved) = (scene.port, free_port());
    scene.set(&Listener::http("moved", moved, "table").item());
    scene.publish();
    serves(moved).await;
    traffic.all_is_well("added").await;
    let traffic = Traffic::start(moved, 2);
    traffic.more(20).await;
    scene.remove(TypeUrl::Listener, "in");
    scene.publish();
    closes(former).await;
    traffic.more(20).await;
    traffic.all_is_well("moved").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_with_upstream_tls_change_and_their_secrets_rotate_without_an_error() {
    let Some(mut scene) = Scene::open().await else { return };
    let certificate = Certificate::new();
    let secure = envoy_facts::backend::Backend::start_tls("secure", certificate.server()).await;
    let traffic = Traffic::start(scene.port, 4);
    traffic.more(10).await;
    for round in 0..5 {
        // The same cluster goes from plain text to TLS, with other endpoints, and back.
        let encrypted = Cluster::eds("one").tls("ca").service_name(&format!("one~tls{round}"));
        scene.set(&encrypted.item());
        scene.set(&endpoints(&format!("one~tls{round}"), &[secure.port]));
        scene.set(&certificate.trust("ca"));
        scene.publish();
        traffic.hear("secure").await;
        scene.set(&Cluster::eds("one").service_name(&format!("one~{round}")).item());
        scene.set(&endpoints(&format!("one~{round}"), &[scene.one.port]));
        scene.remove(TypeUrl::Secret, "ca");
        scene.publish();
        traffic.hear("one").await;
    }
    scene.product.settled().await;
    traffic.all_is_well("upstream TLS").await;
    assert_eq!(scene.product.nacks(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_streams_outlive_changes_of_everything_but_their_listener() {
    let Some(mut scene) = Scene::open().await else { return };
    scene.cluster(&Cluster::eds("grpc").http2(), scene.one.port);
    scene.set(&table("table", &[("/echo", "grpc"), ("/", "one")]));
    scene.publish();
    scene.product.settled().await;
    let mut socket = Raw::websocket(scene.port).await.unwrap();
    let mut client = H2::open(scene.port).await.unwrap();
    let (send, body) = chunks();
    send.send(Ok(Frame::data(Bytes::from("begin")))).await.unwrap();
    let mut stream = client.begin(Method::POST, "/echo", body).await.unwrap().into_body();
    assert_eq!(piece(&mut stream).await.unwrap().as_deref(), Some("begin"));
    let mut held = client.clone();
    let held = Request::start(async move { held.get("/hold").await });
    scene.one.holds(1).await;
    for round in 0..20_u32 {
        let name = format!("c{round}");
        scene.cluster(&Cluster::eds(&name), scene.other.port);
        scene.set(&table("table", &[("/", &name)]));
        if round == 0 {
            scene.remove_cluster("one");
            scene.remove_cluster("grpc");
        } else {
            scene.remove_cluster(&format!("c{}", round - 1));
        }
        scene.publish();
        scene.product.settled().await;
        let text = format!("round {round}");
        send.send(Ok(Frame::data(Bytes::from(text.clone())))).await.unwrap();
        assert_eq!(piece(&mut stream).await.unwrap(), Some(text.clone()));
        assert_eq!(socket.echo(&text).await.unwrap(), text);
    }
    // The clusters that they use are gone from Envoy, once the drain time is over.
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    assert_eq!(socket.echo("the end").await.unwrap(), "the end");
    scene.one.release();
    assert!(held.done().await.unwrap().is(200, "one"));
    drop(send);
    assert_eq!(piece(&mut stream).await.unwrap().as_deref(), Some("grpc-status: 0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endpoints_come_and_go_and_come_back_without_an_error() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 4);
    for _ in 0..10 {
        scene.set(&endpoints("one", &[scene.one.port, scene.other.port]));
        scene.publish();
        traffic.hear("other").await;
        scene.set(&endpoints("one", &[scene.other.port]));
        scene.publish();
        scene.product.settled().await;
        scene.set(&endpoints("one", &[scene.one.port]));
        scene.publish();
        traffic.hear("one").await;
    }
    traffic.all_is_well("endpoints").await;
    // A cluster that loses its assignment has no endpoints.
    scene.remove(TypeUrl::ClusterLoadAssignment, "one");
    scene.publish();
    scene.product.settled().await;
    assert_eq!(scene.get("/").await.unwrap().status, 503);
    scene.set(&endpoints("one", &[scene.one.port]));
    scene.publish();
    scene.product.settled().await;
    assert!(scene.get("/").await.unwrap().is(200, "one"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_is_stopped_for_a_while_goes_on_where_it_was() {
    let Some(mut scene) = Scene::open().await else { return };
    scene.proxy.pause(true);
    scene.cluster(&Cluster::eds("checked").checked(), scene.other.port);
    scene.route("checked");
    scene.remove_cluster("one");
    scene.publish();
    // Longer than an acknowledgement is waited for.
    tokio::time::sleep(config().ack_timeout + Duration::from_secs(1)).await;
    scene.proxy.pause(false);
    envoy_facts::until("the new route serves", async || scene.get("/").await.unwrap().is(200, "other")).await;
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    assert_eq!(scene.proxy.stat("cluster_manager.warming_clusters").await, 0);
    assert!(scene.get("/").await.unwrap().is(200, "other"));
}

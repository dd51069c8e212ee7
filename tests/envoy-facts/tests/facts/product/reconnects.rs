//! Streams that are cut, at rest and in the middle of things.

use envoy_facts::{
    backend::{Backend, SILENT},
    config::{Cluster, Listener, endpoints, table},
    product::{Product, Wanted, config, set},
    proxy::{Api, Envoy, Setup, free_port, serves},
    traffic::Traffic,
    until,
};
use xds::{Feedback, TypeUrl};

use super::Scene;

fn connected(fact: &Feedback) -> bool {
    matches!(fact, Feedback::Connected { .. })
}

async fn told_nothing_new(api: Api) {
    let open = Scene::open_with(api, config(), |port| Listener::http("in", port, "table"));
    let Some(scene) = open.await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    let mut scene = scene.restart().await;
    scene.product.fact("a proxy", connected).await;
    // A change after the reconnect arrives: everything before it has been told by then.
    scene.cluster(&Cluster::eds("new"), scene.other.port);
    scene.route("new");
    scene.publish();
    traffic.hear("other").await;
    if api == Api::Delta {
        let sent = scene.product.server.metrics().snapshot().types;
        assert_eq!(sent[&TypeUrl::Cluster].resources, 1);
        assert_eq!(sent[&TypeUrl::Listener].resources, 0);
        assert_eq!(sent[&TypeUrl::RouteConfiguration].resources, 1);
    }
    traffic.all_is_well("cut").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_comes_back_is_told_nothing_new_delta() {
    told_nothing_new(Api::Delta).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_comes_back_is_told_nothing_new_state_of_the_world() {
    told_nothing_new(Api::StateOfTheWorld).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_while_a_cluster_warms_up_costs_nothing() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    let slow = Backend::start("slow").await;
    slow.health(SILENT);
    scene.cluster(&Cluster::eds("slow").checked(), slow.port);
    scene.route("slow");
    scene.remove_cluster("one");
    scene.publish();
    slow.asked().await;
    let scene = scene.restart().await;
    traffic.more(20).await;
    slow.health(200);
    traffic.hear("slow").await;
    scene.product.settled().await;
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    traffic.all_is_well("cut while warming").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_to_another_replica_while_a_changed_cluster_warms_up_costs_nothing() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    scene.other.health(SILENT);
    scene.cluster(&Cluster::eds("one").checked().revision(1), scene.other.port);
    scene.publish();
    scene.other.asked().await;
    let mut scene = scene.replace().await;
    scene.product.fact("a proxy", connected).await;
    // The other replica knows of more changes.
    scene.cluster(&Cluster::eds("two"), scene.one.port);
    scene.route("two");
    scene.publish();
    scene.other.health(200);
    traffic.hear("one").await;
    scene.product.settled().await;
    scene.route("one");
    scene.remove_cluster("two");
    scene.publish();
    traffic.hear("other").await;
    traffic.all_is_well("moved").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_refused_response_left_behind_is_removed_after_a_cut() {
    let Some(mut scene) = Scene::open().await else { return };
    // Envoy keeps the good one of the two, and does not say so when it comes back.
    scene.cluster(&Cluster::eds("good"), scene.other.port);
    scene.cluster(&Cluster::eds("bad").refused(), scene.other.port);
    scene.publish();
    let refused = |fact: &Feedback| matches!(fact, Feedback::Nacked { .. });
    scene.product.fact("a refusal", refused).await;
    let mut scene = scene.restart().await;
    scene.remove_cluster("good");
    scene.remove_cluster("bad");
    scene.publish();
    scene.product.fact("a proxy", connected).await;
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    until("`good` is gone", async || !scene.proxy.has_cluster("good").await).await;
    assert!(scene.get("/").await.unwrap().is(200, "one"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cuts_in_the_middle_of_changes_cost_nothing() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 4);
    for round in 0..8_u32 {
        let name = format!("c{round}");
        let (cluster, port) = (Cluster::eds(&name), if round % 2 == 0 { scene.other.port } else { scene.one.port });
        scene.cluster(&if round % 3 == 0 { cluster.checked() } else { cluster }, port);
        scene.set(&table("table", &[("/", &name)]));
        scene.set(&Listener::new("in", scene.port).chain("table", &format!("in-{round}")).item());
        scene.remove_cluster(&if round == 0 { "one".to_owned() } else { format!("c{}", round - 1) });
        scene.publish();
        if round % 2 == 0 {
            // As soon as the first response is on its way.
            until("a response", async || {
                scene.product.server.metrics().snapshot().types.values().any(|of| of.acks > 0)
            })
            .await;
        }
        scene = if round % 4 == 0 { scene.replace().await } else { scene.restart().await };
        traffic.hear(if round % 2 == 0 { "other" } else { "one" }).await;
    }
    scene.product.settled().await;
    scene.proxy.stat_is("cluster_manager.active_clusters", 2).await;
    traffic.all_is_well("cuts").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_are_handed_over_from_one_replica_to_the_other_and_back_without_an_error() {
    let Some(envoy) = Envoy::find() else { return };
    let replicas = [Product::start(config()).await, Product::start(config()).await];
    let backends = [Backend::start("one").await, Backend::start("other").await];
    let port = free_port();
    let mut wanted = Wanted::new();
    for backend in &backends {
        set(&mut wanted, &Cluster::eds(backend.name()).item());
        set(&mut wanted, &endpoints(backend.name(), &[backend.port]));
    }
    set(&mut wanted, &Listener::http("in", port, "table").item());
    set(&mut wanted, &table("table", &[("/", "one")]));
    replicas.iter().for_each(|replica| replica.publish(&wanted));
    let control_planes = replicas.iter().map(|replica| replica.port).collect();
    let _proxy = Setup { control_planes, ..Setup::new(0) }.start(&envoy);
    serves(port).await;
    let traffic = Traffic::start(port, 4);
    traffic.hear("one").await;
    let serving = || replicas.iter().position(|replica| !replica.server.connections().is_empty());
    for round in 0..4 {
        let from = serving().expect("one of them serves");
        let (leaves, takes) = (&replicas[from], &replicas[1 - from]);
        takes.hand_over.send_replace(false);
        leaves.hand_over.send_replace(true);
        until("the other has it", async || takes.is_settled()).await;
        until("the first has nobody", async || leaves.server.connections().is_empty()).await;
        // Changes come from the other one now.
        let next = backends[(round + 1) % 2].name();
        set(&mut wanted, &table("table", &[("/", next)]));
        replicas.iter().for_each(|replica| replica.publish(&wanted));
        traffic.hear(next).await;
        assert!(leaves.server.connections().is_empty());
    }
    traffic.all_is_well("handed over").await;
}

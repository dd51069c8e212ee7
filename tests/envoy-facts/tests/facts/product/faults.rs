//! Resources that are refused, and clusters that never get warm.

use envoy_facts::{
    backend::SILENT,
    config::{Cluster, Listener, endpoints, refused_table, table},
    product::{Product, Wanted, config, set},
    proxy::{Envoy, Setup, free_port, serves},
    traffic::Traffic,
    until,
};
use xds::{Feedback, SentResource, TypeUrl};

use super::Scene;

fn is_about(of: &[SentResource], name: &str) -> bool {
    of.iter().any(|of| &*of.name == name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_resource_is_told_and_keeps_nothing_else_back() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    // Two new clusters, one of which Envoy refuses together with the whole response.
    scene.cluster(&Cluster::eds("good"), scene.other.port);
    scene.cluster(&Cluster::eds("bad").invalid(), scene.one.port);
    scene.route("good");
    scene.publish();
    let alone = |fact: &Feedback| matches!(fact, Feedback::Nacked { resources, .. } if resources.len() == 1);
    let nack = scene.product.fact("a refusal of one", alone).await;
    let Feedback::Nacked { type_url, resources, .. } = nack else { panic!("{nack:?}") };
    assert_eq!((type_url, &*resources[0].name), (TypeUrl::Cluster, "bad"));
    traffic.hear("other").await;
    // A table that Envoy refuses leaves the one that it has.
    scene.set(&refused_table("table", &[("/", "good"), ("/", "good")]));
    scene.publish();
    let table = |fact: &Feedback| matches!(fact, Feedback::Nacked { type_url: TypeUrl::RouteConfiguration, .. });
    scene.product.fact("a refusal of the table", table).await;
    scene.remove_cluster("bad");
    scene.route("one");
    scene.publish();
    traffic.hear("one").await;
    scene.product.settled().await;
    traffic.all_is_well("refusals").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_never_gets_warm_is_found_and_keeps_nothing_else_back() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    scene.other.health(SILENT);
    scene.cluster(&Cluster::eds("stuck").checked(), scene.other.port);
    scene.publish();
    scene.other.asked().await;
    // In the meantime plain clusters go on.
    scene.cluster(&Cluster::eds("good"), scene.other.port);
    scene.route("good");
    scene.publish();
    traffic.hear("other").await;
    let timed_out =
        |fact: &Feedback| matches!(fact, Feedback::TimedOut { suspects, .. } if is_about(suspects, "stuck"));
    scene.product.fact("the suspect", timed_out).await;
    scene.proxy.stat_is("cluster_manager.warming_clusters", 0).await;
    // It is tried again when it is another one, and then it is good.
    scene.other.health(200);
    scene.cluster(&Cluster::eds("stuck").checked().revision(1), scene.other.port);
    scene.route("stuck");
    scene.publish();
    scene.product.settled().await;
    assert!(scene.proxy.has_cluster("stuck").await);
    traffic.hear("other").await;
    traffic.all_is_well("stuck").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_cluster_that_lingers_is_undone() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    scene.cluster(&Cluster::eds("stuck").stuck(), scene.one.port);
    scene.publish();
    let refused = |fact: &Feedback| match fact {
        Feedback::TimedOut { suspects: of, .. } | Feedback::Nacked { resources: of, .. } => is_about(of, "stuck"),
        _ => false,
    };
    scene.product.fact("the culprit", refused).await;
    scene.proxy.stat_is("cluster_manager.warming_clusters", 0).await;
    // Clusters are acknowledged again.
    scene.cluster(&Cluster::eds("checked").checked(), scene.other.port);
    scene.route("checked");
    scene.publish();
    traffic.hear("other").await;
    traffic.all_is_well("undone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_that_never_get_warm_are_found_among_others() {
    let Some(mut scene) = Scene::open().await else { return };
    let traffic = Traffic::start(scene.port, 2);
    traffic.more(20).await;
    scene.other.health(SILENT);
    for at in 0..6 {
        let good = at % 3 != 1;
        let port = if good { scene.one.port } else { scene.other.port };
        scene.cluster(&Cluster::eds(&format!("c{at}")).checked(), port);
    }
    scene.publish();
    for name in ["c1", "c4"] {
        let alone = |fact: &Feedback| matches!(fact, Feedback::TimedOut { suspects, .. } if suspects.len() == 1 && is_about(suspects, name));
        scene.product.fact(name, alone).await;
    }
    for name in ["c0", "c2", "c3", "c5"] {
        until(name, async || scene.proxy.has_cluster(name).await).await;
        scene.route(name);
        scene.publish();
        traffic.hear("one").await;
    }
    scene.proxy.stat_is("cluster_manager.warming_clusters", 0).await;
    assert!(!scene.proxy.has_cluster("c1").await && !scene.proxy.has_cluster("c4").await);
    traffic.all_is_well("several").await;
}

#[tokio::test]
async fn a_proxy_starts_although_clusters_never_get_warm_or_are_refused() {
    let Some(envoy) = Envoy::find() else { return };
    let product = Product::start(config()).await;
    let one = envoy_facts::backend::Backend::start("one").await;
    let silent = envoy_facts::backend::Backend::start("silent").await;
    silent.health(SILENT);
    let port = free_port();
    let mut wanted = Wanted::new();
    let clusters = [
        Cluster::eds("one"),
        Cluster::eds("silent").checked(),
        Cluster::eds("stuck").stuck(),
        Cluster::eds("bad").invalid(),
    ];
    for (cluster, backend) in clusters.iter().zip([&one, &silent, &one, &one]) {
        let item = cluster.item();
        set(&mut wanted, &endpoints(&item.name, &[backend.port]));
        set(&mut wanted, &item);
    }
    set(&mut wanted, &Listener::http("in", port, "table").item());
    set(&mut wanted, &table("table", &[("/", "one")]));
    product.publish(&wanted);
    let _proxy = Setup::new(product.port).start(&envoy);
    serves(port).await;
}

#[tokio::test]
async fn a_refused_listener_leaves_the_former_one_and_the_others() {
    let Some(mut scene) = Scene::open().await else { return };
    let port = free_port();
    scene.set(&Listener::http("in", scene.port, "table").refused().item());
    scene.set(&Listener::http("second", port, "table").item());
    scene.publish();
    let alone = |fact: &Feedback| {
        matches!(fact, Feedback::Nacked { type_url: TypeUrl::Listener, resources, .. }
            if resources.len() == 1 && is_about(resources, "in"))
    };
    scene.product.fact("a refusal of one", alone).await;
    serves(port).await;
    assert!(scene.get("/").await.unwrap().is(200, "one"));
    scene.set(&Listener::http("in", scene.port, "table").item());
    scene.publish();
    scene.product.settled().await;
}

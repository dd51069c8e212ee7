//! What Envoy refuses, and what it keeps of a response that it refuses.

use envoy_facts::{
    client::H1,
    config::{Cluster, Item, Listener, endpoints, refused_table, table},
    proxy::{free_port, is_open, opens},
    world::Running,
};
use xds::TypeUrl::{Cluster as CDS, Listener as LDS, RouteConfiguration as RDS};

#[tokio::test]
async fn a_table_with_one_bad_expression_is_refused_whole_and_not_named_and_others_may_be_lost_with_it() {
    let Some(mut run) = Running::start().await else { return };
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    let ports: Vec<u16> = (0..4).map(|_| free_port()).collect();
    let names: Vec<String> = ports.iter().map(|port| format!("t{port}")).collect();
    for (name, port) in names.iter().zip(&ports) {
        run.stream.give(&[&Listener::http(name, *port, name).item()]).await;
        run.stream.give(&[&table(name, &[("/", "one")])]).await;
        opens(*port).await;
    }
    let bad = refused_table("table", &[("/", "other"), ("/", "other")]);
    let good: Vec<Item> = names.iter().map(|name| table(name, &[("/", "other")])).collect();
    let items: Vec<&Item> = std::iter::once(&bad).chain(&good).collect();
    let sent = run.stream.send(RDS, &items, &[]).await;
    let error = run.stream.answer(&sent).await.unwrap_err();
    assert!(!error.contains("table") && !error.contains("foo") && error.contains("repetition"), "{error}");
    assert!(run.get("/").await.unwrap().is(200, "one"), "the old table stays");
    // How many of the others applied is left to chance; each alone does.
    for (item, port) in good.iter().zip(ports) {
        let mut client = H1::open(port).await.unwrap();
        println!("{}: {:?}", item.name, client.get("/").await);
        run.stream.give(&[item]).await;
        assert!(client.get("/").await.unwrap().is(200, "other"));
    }
}

#[tokio::test]
async fn of_several_clusters_the_good_ones_apply_and_the_error_names_the_bad_one() {
    let Some(mut run) = Running::start().await else { return };
    let good = Cluster::fixed("good", run.other.port).item();
    let sent = run.stream.send(CDS, &[&good, &Cluster::eds("bad").refused().item()], &[]).await;
    let error = run.stream.answer(&sent).await.unwrap_err();
    assert!(error.contains("bad") && !error.contains("good"), "{error}");
    run.route("good").await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
}

#[tokio::test]
async fn of_several_listeners_the_good_ones_apply_and_the_error_names_the_bad_one() {
    let Some(mut run) = Running::start().await else { return };
    let (good, bad) = (free_port(), free_port());
    let items = [Listener::http("good", good, "table").item(), Listener::http("bad", bad, "table").refused().item()];
    let sent = run.stream.send(LDS, &[&items[0], &items[1]], &[]).await;
    let error = run.stream.answer(&sent).await.unwrap_err();
    assert!(error.contains("bad") && !error.contains("good"), "{error}");
    opens(good).await;
    assert!(!is_open(bad).await);
}

#[tokio::test]
async fn an_invalid_duration_or_a_repeated_name_refuses_the_whole_response() {
    let Some(mut run) = Running::start().await else { return };
    let good = Cluster::fixed("good", run.other.port).item();
    let sent = run.stream.send(CDS, &[&good, &Cluster::eds("bad").invalid().item()], &[]).await;
    assert!(run.stream.answer(&sent).await.is_err());
    assert!(!run.proxy.has_cluster("good").await);
    let sent = run.stream.send(CDS, &[&good, &good], &[]).await;
    let error = run.stream.answer(&sent).await.unwrap_err();
    assert!(error.contains("duplicate"), "{error}");
    assert!(!run.proxy.has_cluster("good").await);
}

#[tokio::test]
async fn what_applied_of_a_refused_response_is_not_told_after_a_reconnect_and_can_be_removed() {
    let Some(mut run) = Running::start().await else { return };
    let good = Cluster::fixed("good", run.other.port).item();
    let sent = run.stream.send(CDS, &[&good, &Cluster::eds("bad").refused().item()], &[]).await;
    assert!(run.stream.answer(&sent).await.is_err());
    drop(run.stream);
    run.stream = run.hand.stream().await;
    let first = run.stream.request(CDS, run.stream.start()).await;
    assert!(first.initial_resource_versions.contains_key("one"));
    assert!(!first.initial_resource_versions.contains_key("good"));
    assert!(run.proxy.has_cluster("good").await);
    run.stream.take(CDS, &["good"]).await;
    assert!(!run.proxy.has_cluster("good").await);
}

#[tokio::test]
async fn a_refused_change_of_a_cluster_leaves_the_former_one() {
    let Some(mut run) = Running::start().await else { return };
    let sent = run.stream.send(CDS, &[&Cluster::eds("one").refused().item()], &[]).await;
    assert!(run.stream.answer(&sent).await.is_err());
    assert!(run.get("/").await.unwrap().is(200, "one"));
    run.stream.give(&[&endpoints("one", &[run.other.port])]).await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
}

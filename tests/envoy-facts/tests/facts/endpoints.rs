//! Endpoints that come and go.

use envoy_facts::{
    client::{H1, Running as Request},
    config::{Cluster, endpoints},
    traffic::Traffic,
    until,
    world::Running,
};
use xds::TypeUrl::ClusterLoadAssignment as EDS;

#[tokio::test]
async fn endpoints_change_places_without_an_error_and_requests_in_flight_finish() {
    let Some(mut run) = Running::start().await else { return };
    let port = run.port;
    let held = Request::start(async move { H1::open(port).await?.get("/hold").await });
    run.one.holds(1).await;
    let traffic = Traffic::start(port, 2);
    traffic.hear("one").await;
    run.stream.give(&[&endpoints("one", &[run.other.port])]).await;
    traffic.hear("other").await;
    traffic.all_is_well("other endpoints").await;
    // The removed endpoint still owes an answer, and gives it.
    run.one.release();
    assert!(held.done().await.unwrap().is(200, "one"));
}

#[tokio::test]
async fn endpoints_removed_by_name_stay() {
    let Some(mut run) = Running::start().await else { return };
    run.stream.take(EDS, &["one"]).await;
    assert!(run.get("/").await.unwrap().is(200, "one"));
    run.stream.give(&[&endpoints("one", &[])]).await;
    assert_eq!(run.get("/").await.unwrap().status, 503);
}

#[tokio::test]
async fn a_removed_endpoint_that_is_healthy_lingers_unless_health_is_ignored_on_removal() {
    let Some(mut run) = Running::start().await else { return };
    let cluster = Cluster::eds("checked").checked();
    run.cluster(&cluster, run.one.port).await;
    run.route("checked").await;
    run.stream.give(&[&endpoints("checked", &[run.other.port])]).await;
    until("the new endpoint is healthy", async || run.get("/").await.unwrap().is(200, "other")).await;
    until("the removed one answers too", async || run.get("/").await.unwrap().is(200, "one")).await;
    // It goes when its health check fails.
    run.one.health(500);
    run.proxy.stat_is("cluster.checked.membership_total", 1).await;
    run.one.health(200);
    // With health ignored it goes at once.
    let cluster = Cluster::eds("plain").checked().ignoring_health_on_removal();
    run.cluster(&cluster, run.one.port).await;
    run.stream.give(&[&endpoints("plain", &[run.other.port])]).await;
    assert_eq!(run.proxy.stat("cluster.plain.membership_total").await, 1);
}

#[tokio::test]
async fn without_health_ignored_on_removal_an_emptied_cluster_goes_on() {
    let Some(mut run) = Running::start().await else { return };
    run.cluster(&Cluster::eds("checked").checked(), run.one.port).await;
    run.stream.give(&[&endpoints("checked", &[])]).await;
    assert_eq!(run.proxy.stat("cluster.checked.membership_total").await, 1);
    run.cluster(&Cluster::eds("plain").checked().ignoring_health_on_removal(), run.one.port).await;
    run.stream.give(&[&endpoints("plain", &[])]).await;
    assert_eq!(run.proxy.stat("cluster.plain.membership_total").await, 0);
}

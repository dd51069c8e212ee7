//! When clusters serve, and when their acknowledgement comes.

use std::time::Duration;

use envoy_facts::{
    backend::SILENT,
    config::{Certificate, Cluster, Listener, endpoints, table},
    hand::Hand,
    proxy::{Envoy, Setup, free_port, opens},
    world::Running,
};
use xds::TypeUrl::{Cluster as CDS, ClusterLoadAssignment as EDS, Listener as LDS, RouteConfiguration as RDS};

/// Long enough for an answer to come that must not.
const WHILE: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_route_before_its_cluster_is_accepted_and_answers_503() {
    let Some(mut run) = Running::start().await else { return };
    run.route("late").await;
    assert!(run.get("/").await.unwrap().is(503, ""));
    run.cluster(&Cluster::eds("late"), run.other.port).await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
}

#[tokio::test]
async fn clusters_are_acknowledged_when_they_are_warm_and_endpoints_at_once() {
    let Some(mut run) = Running::start().await else { return };
    run.other.health(SILENT);
    let clusters = run.stream.send(CDS, &[&Cluster::eds("checked").checked().item()], &[]).await;
    run.stream.asked(EDS, "checked", run.stream.start()).await;
    run.stream.give(&[&endpoints("checked", &[run.other.port])]).await;
    run.other.asked().await;
    run.stream.stays_unanswered(&clusters, WHILE).await;
    // Routed to all the same, it does not answer.
    run.route("checked").await;
    assert_eq!(run.get("/").await.unwrap().status, 503);
    run.other.health(200);
    assert_eq!(run.stream.answer(&clusters).await, Ok(()));
    assert!(run.get("/").await.unwrap().is(200, "other"));
}

#[tokio::test]
async fn a_cluster_whose_upstream_secret_is_missing_is_not_warm() {
    let Some(mut run) = Running::start().await else { return };
    let certificate = Certificate::new();
    let backend = envoy_facts::backend::Backend::start_tls("secure", certificate.server()).await;
    let clusters = run.stream.send(CDS, &[&Cluster::eds("secure").tls("ca").item()], &[]).await;
    run.stream.asked(EDS, "secure", run.stream.start()).await;
    run.stream.give(&[&endpoints("secure", &[backend.port])]).await;
    run.stream.asked(xds::TypeUrl::Secret, "ca", run.stream.start()).await;
    run.stream.stays_unanswered(&clusters, WHILE).await;
    run.stream.give(&[&certificate.trust("ca")]).await;
    assert_eq!(run.stream.answer(&clusters).await, Ok(()));
    run.route("secure").await;
    assert!(run.get("/").await.unwrap().is(200, "secure"));
}

#[tokio::test]
async fn the_first_clusters_are_acknowledged_cold_and_listeners_asked_for_when_they_are_warm() {
    let Some(envoy) = Envoy::find() else { return };
    let mut hand = Hand::start().await;
    let _proxy = Setup::new(hand.port).start(&envoy);
    let mut stream = hand.stream().await;
    stream.request(CDS, stream.start()).await;
    stream.give(&[&Cluster::eds("one").item()]).await;
    stream.asked(EDS, "one", stream.start()).await;
    tokio::time::sleep(WHILE).await;
    assert!(!stream.has_requested(LDS, stream.start()));
    stream.give(&[&endpoints("one", &[free_port()])]).await;
    stream.request(LDS, stream.start()).await;
}

#[tokio::test]
async fn endpoints_before_their_cluster_are_dropped_and_asked_for_again() {
    let Some(mut run) = Running::start().await else { return };
    run.stream.give(&[&endpoints("early", &[run.other.port])]).await;
    let before = run.stream.mark();
    let clusters = run.stream.send(CDS, &[&Cluster::eds("early").item()], &[]).await;
    run.stream.asked(EDS, "early", before).await;
    run.stream.stays_unanswered(&clusters, WHILE).await;
    run.stream.give(&[&endpoints("early", &[run.other.port])]).await;
    assert_eq!(run.stream.answer(&clusters).await, Ok(()));
}

#[tokio::test]
async fn a_failing_health_check_makes_a_cluster_warm_too_and_it_gets_requests() {
    let Some(mut run) = Running::start().await else { return };
    run.other.health(500);
    run.cluster(&Cluster::eds("ill").checked(), run.other.port).await;
    run.route("ill").await;
    assert!(run.get("/").await.unwrap().is(200, "other"), "all are ill: any of them gets the request");
}

#[tokio::test]
async fn a_cluster_without_endpoints_is_warm_and_answers_503() {
    let Some(mut run) = Running::start().await else { return };
    let clusters = run.stream.send(CDS, &[&Cluster::eds("empty").item()], &[]).await;
    run.stream.send(EDS, &[&endpoints("empty", &[])], &[]).await;
    assert_eq!(run.stream.answer(&clusters).await, Ok(()));
    run.route("empty").await;
    assert_eq!(run.get("/").await.unwrap().status, 503);
}

#[tokio::test]
async fn fixed_clusters_are_warm_at_once_and_those_by_host_name_when_dns_has_answered() {
    let Some(mut run) = Running::start().await else { return };
    let fixed = run.stream.send(CDS, &[&Cluster::fixed("fixed", run.other.port).item()], &[]).await;
    assert_eq!(run.stream.answer(&fixed).await, Ok(()));
    run.route("fixed").await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
    // A DNS server that says that there is no such name.
    let server = tokio::net::UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    let port = server.local_addr().unwrap().port();
    let unknown = run.stream.send(CDS, &[&Cluster::dns("unknown", "unknown.invalid", 80, port).item()], &[]).await;
    let mut question = [0; 512];
    let (length, from) = envoy_facts::soon("a question", server.recv_from(&mut question)).await.unwrap();
    run.stream.stays_unanswered(&unknown, WHILE).await;
    let mut answer = question[..length].to_vec();
    (answer[2], answer[3]) = (0x81, 0x83);
    server.send_to(&answer, from).await.unwrap();
    assert_eq!(run.stream.answer(&unknown).await, Ok(()));
    // One that says nothing: the cluster is warm once the resolver has given up.
    let silent = run.stream.send(CDS, &[&Cluster::dns("silent", "silent.invalid", 80, port).item()], &[]).await;
    run.stream.stays_unanswered(&silent, WHILE).await;
    assert_eq!(run.stream.answer(&silent).await, Ok(()));
}

#[tokio::test]
async fn a_changed_cluster_does_not_ask_for_its_endpoints_again_and_needs_them() {
    let Some(mut run) = Running::start().await else { return };
    let before = run.stream.mark();
    let clusters = run.stream.send(CDS, &[&Cluster::eds("one").revision(1).item()], &[]).await;
    run.stream.stays_unanswered(&clusters, WHILE).await;
    assert!(!run.stream.has_asked(EDS, "one", before));
    assert!(run.get("/").await.unwrap().is(200, "one"), "the former one serves meanwhile");
    run.stream.give(&[&endpoints("one", &[run.other.port])]).await;
    assert_eq!(run.stream.answer(&clusters).await, Ok(()));
    assert!(run.get("/").await.unwrap().is(200, "other"));
}

#[tokio::test]
async fn endpoints_for_a_changed_cluster_reach_the_former_one_too_unless_their_name_changes() {
    let Some(mut run) = Running::start().await else { return };
    // The changed cluster is not warm while its check is not answered.
    run.other.health(SILENT);
    run.stream.send(CDS, &[&Cluster::eds("one").checked().item()], &[]).await;
    run.stream.give(&[&endpoints("one", &[run.other.port])]).await;
    run.other.asked().await;
    assert!(run.get("/").await.unwrap().is(200, "other"), "the former cluster has the new endpoints");
    // Under another name they are the new cluster's alone.
    let before = run.stream.mark();
    let renamed = Cluster::eds("one").checked().service_name("one~2");
    let clusters = run.stream.send(CDS, &[&renamed.item()], &[]).await;
    run.stream.asked(EDS, "one~2", before).await;
    run.stream.give(&[&endpoints("one~2", &[run.one.port])]).await;
    assert_eq!(run.stream.answer(&clusters).await, Ok(()));
    assert!(run.get("/").await.unwrap().is(200, "one"));
    run.stream.left(EDS, "one", before).await;
}

#[tokio::test]
async fn a_cold_cluster_is_taken_as_warm_after_its_fetch_timeout_and_never_without_one() {
    let Some(mut run) = Running::start().await else { return };
    let timed = run.stream.send(CDS, &[&Cluster::eds("timed").fetch_timeout("0.5s").item()], &[]).await;
    run.stream.stays_unanswered(&timed, WHILE).await;
    assert_eq!(run.stream.answer(&timed).await, Ok(()));
    let endless = run.stream.send(CDS, &[&Cluster::eds("endless").fetch_timeout("0s").item()], &[]).await;
    run.stream.stays_unanswered(&endless, Duration::from_secs(2)).await;
}

#[tokio::test]
async fn one_cold_cluster_holds_back_every_later_acknowledgement_though_they_apply() {
    let Some(mut run) = Running::start().await else { return };
    let cold = run.stream.send(CDS, &[&Cluster::eds("cold").item()], &[]).await;
    let later = run.stream.send(CDS, &[&Cluster::fixed("later", run.other.port).item()], &[]).await;
    run.route("later").await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
    assert!(!run.stream.is_answered(&later) && !run.stream.is_answered(&cold));
    run.stream.give(&[&endpoints("cold", &[run.one.port])]).await;
    assert_eq!(run.stream.answer(&cold).await, Ok(()));
    assert_eq!(run.stream.answer(&later).await, Ok(()));
}

#[tokio::test]
async fn a_cluster_that_never_gets_warm_holds_back_acknowledgements_until_it_is_removed() {
    let Some(mut run) = Running::start().await else { return };
    let stuck = run.stream.send(CDS, &[&Cluster::eds("stuck").fetch_timeout("0s").item()], &[]).await;
    let later = run.stream.send(CDS, &[&Cluster::fixed("later", run.other.port).item()], &[]).await;
    run.stream.stays_unanswered(&later, WHILE).await;
    let removal = run.stream.send(CDS, &[], &["stuck"]).await;
    for sent in [&stuck, &later, &removal] {
        assert_eq!(run.stream.answer(sent).await, Ok(()));
    }
}

#[tokio::test]
async fn a_ring_hash_with_its_bounds_crossed_is_refused_and_still_holds_back_acknowledgements() {
    let Some(mut run) = Running::start().await else { return };
    let stuck = run.stream.send(CDS, &[&Cluster::eds("stuck").stuck().item()], &[]).await;
    assert!(run.stream.answer(&stuck).await.unwrap_err().contains("stuck"));
    let later = run.stream.send(CDS, &[&Cluster::fixed("later", run.other.port).item()], &[]).await;
    run.stream.stays_unanswered(&later, WHILE).await;
    let removal = run.stream.send(CDS, &[], &["stuck"]).await;
    assert_eq!(run.stream.answer(&later).await, Ok(()));
    assert_eq!(run.stream.answer(&removal).await, Ok(()));
}

#[tokio::test]
async fn a_starting_proxy_is_configured_with_clusters_of_every_kind() {
    let Some(envoy) = Envoy::find() else { return };
    let mut hand = Hand::start().await;
    let proxy = Setup::new(hand.port).start(&envoy);
    let mut stream = hand.stream().await;
    stream.request(CDS, stream.start()).await;
    let port = free_port();
    stream.give(&[&Cluster::fixed("fixed", free_port()).item(), &Cluster::eds("eds").item()]).await;
    stream.give(&[&endpoints("eds", &[free_port()])]).await;
    stream.request(LDS, stream.start()).await;
    stream.give(&[&Listener::http("in", port, "table").item()]).await;
    stream.asked(RDS, "table", stream.start()).await;
    assert!(!envoy_facts::proxy::is_open(port).await, "closed without its table");
    stream.give(&[&table("table", &[("/", "fixed")])]).await;
    opens(port).await;
    proxy.stat_is("cluster_manager.warming_clusters", 0).await;
}

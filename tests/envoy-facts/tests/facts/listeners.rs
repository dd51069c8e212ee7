//! Listeners that come, change and go, and the connections that they have.

use std::time::Duration;

use envoy_facts::{
    client::{H1, H2, Raw, Running as Request},
    config::{Certificate, Cluster, Listener, table},
    proxy::{closes, free_port, is_open, opens},
    until,
    world::Running,
};
use xds::TypeUrl::{Cluster as CDS, Listener as LDS, RouteConfiguration as RDS, Secret as SDS};

#[tokio::test]
async fn an_accepted_listener_is_closed_until_its_table_is_there() {
    let Some(mut run) = Running::start().await else { return };
    let port = free_port();
    run.stream.give(&[&Listener::http("new", port, "late").item()]).await;
    run.stream.asked(RDS, "late", run.stream.start()).await;
    assert!(!is_open(port).await);
    run.stream.give(&[&table("late", &[("/", "one")])]).await;
    opens(port).await;
}

#[tokio::test]
async fn a_changed_listener_whose_new_table_is_late_goes_on_as_it_was() {
    let Some(mut run) = Running::start().await else { return };
    run.stream.give(&[&Listener::http("in", run.port, "late").item()]).await;
    run.stream.asked(RDS, "late", run.stream.start()).await;
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    assert!(run.get("/").await.unwrap().is(200, "one"));
    run.stream.give(&[&table("late", &[("/", "other")])]).await;
    until("the new table takes over", async || run.get("/").await.unwrap().is(200, "other")).await;
}

#[tokio::test]
async fn an_accepted_https_listener_is_closed_until_its_secret_is_there() {
    let Some(mut run) = Running::start().await else { return };
    let (port, certificate) = (free_port(), Certificate::new());
    let listener = Listener::new("secure", port).tls_chain("test.example", "cert", "table", "in");
    run.stream.give(&[&listener.item()]).await;
    run.stream.asked(SDS, "cert", run.stream.start()).await;
    assert!(!is_open(port).await);
    run.stream.give(&[&certificate.secret("cert")]).await;
    opens(port).await;
    let mut client = H1::open_tls(port, "test.example").await.unwrap();
    assert!(client.get("/").await.unwrap().is(200, "one"));
}

/// A listener with two HTTPS chains, both with their secrets.
async fn two_chains() -> Option<(Running, u16, Listener)> {
    let mut run = Running::start().await?;
    let port = free_port();
    let listener = Listener::new("secure", port).tls_chain("a.example", "cert", "table", "a");
    let both = listener.clone().tls_chain("b.example", "cert", "table", "b");
    run.stream.give(&[&both.item()]).await;
    run.stream.give(&[&Certificate::new().secret("cert")]).await;
    opens(port).await;
    Some((run, port, listener))
}

#[tokio::test]
async fn a_changed_chain_leaves_the_connections_of_the_others_alone() {
    let Some((mut run, port, first)) = two_chains().await else { return };
    let mut kept = H1::open_tls(port, "a.example").await.unwrap();
    let mut drained = H1::open_tls(port, "b.example").await.unwrap();
    assert_eq!(kept.get("/").await.unwrap().status, 200);
    assert_eq!(drained.get("/").await.unwrap().status, 200);
    run.stream.give(&[&first.tls_chain("b.example", "cert", "table", "b2").item()]).await;
    let last = drained.get("/").await.unwrap();
    assert!(last.is(200, "one") && last.closes, "{last:?}");
    let answer = kept.get("/").await.unwrap();
    assert!(answer.is(200, "one") && !answer.closes, "{answer:?}");
    // Long after the drain time too.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(kept.get("/").await.unwrap().is(200, "one"));
}

#[tokio::test]
async fn a_new_chain_whose_secret_is_late_leaves_the_listener_as_it_was() {
    let Some((mut run, port, first)) = two_chains().await else { return };
    let mut client = H1::open_tls(port, "a.example").await.unwrap();
    run.stream.give(&[&first.tls_chain("c.example", "late", "table", "c").item()]).await;
    run.stream.asked(SDS, "late", run.stream.start()).await;
    assert!(client.get("/").await.unwrap().is(200, "one"));
    assert!(H1::open_tls(port, "b.example").await.unwrap().get("/").await.unwrap().is(200, "one"));
    assert!(H1::open_tls(port, "c.example").await.is_err());
    run.stream.give(&[&Certificate::new().secret("late")]).await;
    until("the new chain serves", async || H1::open_tls(port, "c.example").await.is_ok()).await;
    let answer = client.get("/").await.unwrap();
    assert!(answer.is(200, "one") && !answer.closes, "{answer:?}");
}

#[tokio::test]
async fn a_listener_level_change_drains_all_connections_and_cuts_what_is_open_at_the_end() {
    let Some(mut run) = Running::start().await else { return };
    let (mut http1, mut http2) = (H1::open(run.port).await.unwrap(), H2::open(run.port).await.unwrap());
    let mut socket = Raw::websocket(run.port).await.unwrap();
    assert_eq!(http1.get("/").await.unwrap().status, 200);
    assert_eq!(http2.get("/").await.unwrap().status, 200);
    assert_eq!(socket.echo("hello").await.unwrap(), "hello");
    let port = run.port;
    let held = Request::start(async move { H1::open(port).await?.get("/hold").await });
    run.one.holds(1).await;
    run.stream.give(&[&Listener::http("in", port, "table").level(1).item()]).await;
    // While it drains everything is answered, and clients are told to go.
    let last = http1.get("/").await.unwrap();
    assert!(last.is(200, "one") && last.closes, "{last:?}");
    assert!(http2.get("/").await.unwrap().is(200, "one"));
    assert_eq!(socket.echo("still here").await.unwrap(), "still here");
    assert!(run.get("/").await.unwrap().is(200, "one"), "new connections are the new listener's");
    // At the end of the drain time what is open is cut, in the middle of an answer too.
    socket.closed().await;
    assert!(held.done().await.is_err());
    assert!(http2.is_closed());
}

#[tokio::test]
async fn a_moved_port_refuses_new_connections_at_once() {
    let Some(mut run) = Running::start().await else { return };
    let mut client = H1::open(run.port).await.unwrap();
    assert_eq!(client.get("/").await.unwrap().status, 200);
    let moved = free_port();
    run.stream.give(&[&Listener::http("in", moved, "table").item()]).await;
    opens(moved).await;
    closes(run.port).await;
    assert!(client.get("/").await.unwrap().is(200, "one"), "an open one drains");
}

#[tokio::test]
async fn the_same_listener_under_another_version_drains_nothing() {
    let Some(mut run) = Running::start().await else { return };
    let mut client = H1::open(run.port).await.unwrap();
    assert_eq!(client.get("/").await.unwrap().status, 200);
    let same = Listener::http("in", run.port, "table").item().reversioned("again");
    run.stream.give(&[&same]).await;
    run.stream.give(&[&table("table", &[("/", "one")]).reversioned("again")]).await;
    run.stream.give(&[&Cluster::eds("one").item().reversioned("again")]).await;
    let answer = client.get("/").await.unwrap();
    assert!(answer.is(200, "one") && !answer.closes, "{answer:?}");
    assert_eq!(run.proxy.stat("listener_manager.listener_modified").await, 0);
}

#[tokio::test]
async fn a_removed_listener_serves_its_connections_until_the_drain_time_ends_and_keeps_its_table() {
    let Some(mut run) = Running::start().await else { return };
    let (mut http1, mut http2) = (H1::open(run.port).await.unwrap(), H2::open(run.port).await.unwrap());
    let mut socket = Raw::websocket(run.port).await.unwrap();
    assert_eq!(http2.get("/").await.unwrap().status, 200);
    let before = run.stream.mark();
    run.stream.take(LDS, &["in"]).await;
    closes(run.port).await;
    // HTTP/1.1 is told to go with the first answer; what is open goes on, and so does its table.
    let answer = http1.get("/").await.unwrap();
    assert!(answer.is(200, "one") && answer.closes, "{answer:?}");
    assert!(http2.get("/").await.unwrap().is(200, "one"));
    assert_eq!(socket.echo("still here").await.unwrap(), "still here");
    assert!(!run.stream.has_left(RDS, "table", before));
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    run.stream.left(RDS, "table", before).await;
    socket.closed().await;
    assert!(http2.is_closed());
}

#[tokio::test]
async fn a_draining_connection_needs_the_clusters_of_its_table() {
    let Some(mut run) = Running::start().await else { return };
    let mut client = H1::open(run.port).await.unwrap();
    assert_eq!(client.get("/").await.unwrap().status, 200);
    run.stream.take(LDS, &["in"]).await;
    run.stream.take(CDS, &["one"]).await;
    assert!(client.get("/").await.unwrap().is(503, ""));
}

#[tokio::test]
async fn a_table_removed_by_name_stays() {
    let Some(mut run) = Running::start().await else { return };
    run.stream.take(RDS, &["table"]).await;
    assert!(run.get("/").await.unwrap().is(200, "one"));
}

#[tokio::test]
async fn a_former_chain_keeps_its_table_until_it_has_drained() {
    let Some(mut run) = Running::start().await else { return };
    let mut client = H1::open(run.port).await.unwrap();
    assert_eq!(client.get("/").await.unwrap().status, 200);
    let before = run.stream.mark();
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    run.stream.give(&[&Listener::http("in", run.port, "next").item()]).await;
    run.stream.give(&[&table("next", &[("/", "other")])]).await;
    until("the new chain serves", async || run.get("/").await.unwrap().is(200, "other")).await;
    assert!(!run.stream.has_left(RDS, "table", before));
    assert!(client.get("/").await.unwrap().is(200, "one"), "the former chain has the former table");
    run.stream.left(RDS, "table", before).await;
}

//! Requests and connections that are under way when something is taken from them.

use envoy_facts::{
    client::{H1, H2, Raw, Running as Request, chunks, piece},
    config::{Cluster, Listener, endpoints},
    world::Running,
};
use http::Method;
use hyper::body::{Bytes, Frame};
use xds::TypeUrl::Cluster as CDS;

fn data(text: &str) -> Result<Frame<Bytes>, std::convert::Infallible> {
    Ok(Frame::data(Bytes::from(text.to_owned())))
}

/// A cluster `other` beside `one`; the table goes to `one`.
async fn two_clusters() -> Option<Running> {
    let mut run = Running::start().await?;
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    Some(run)
}

#[tokio::test]
async fn a_route_to_a_removed_cluster_answers_503_at_once() {
    let Some(mut run) = Running::start().await else { return };
    run.stream.take(CDS, &["one"]).await;
    assert!(run.get("/").await.unwrap().is(503, ""));
}

#[tokio::test]
async fn requests_in_flight_on_a_removed_cluster_finish() {
    let Some(mut run) = two_clusters().await else { return };
    let port = run.port;
    let http1 = Request::start(async move { H1::open(port).await?.get("/hold").await });
    let http2 = Request::start(async move { H2::open(port).await?.get("/hold").await });
    run.one.holds(2).await;
    run.route("other").await;
    run.stream.take(CDS, &["one"]).await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
    assert!(!run.proxy.has_cluster("one").await);
    run.one.release();
    assert!(http1.done().await.unwrap().is(200, "one"));
    assert!(http2.done().await.unwrap().is(200, "one"));
}

#[tokio::test]
async fn long_streams_and_websockets_outlive_their_route_and_their_cluster() {
    let Some(mut run) = Running::start().await else { return };
    run.cluster(&Cluster::eds("grpc").http2(), run.one.port).await;
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    // A WebSocket over HTTP/1.1 on `one`.
    let mut socket = Raw::websocket(run.port).await.unwrap();
    assert_eq!(socket.echo("hello").await.unwrap(), "hello");
    // A stream as gRPC has them, over HTTP/2 on both sides.
    run.route("grpc").await;
    let mut client = H2::open(run.port).await.unwrap();
    let (send, body) = chunks();
    send.send(data("first")).await.unwrap();
    let mut answer = client.begin(Method::POST, "/echo", body).await.unwrap().into_body();
    assert_eq!(piece(&mut answer).await.unwrap().as_deref(), Some("first"));
    run.route("other").await;
    run.stream.take(CDS, &["one", "grpc"]).await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
    send.send(data("second")).await.unwrap();
    assert_eq!(piece(&mut answer).await.unwrap().as_deref(), Some("second"));
    drop(send);
    assert_eq!(piece(&mut answer).await.unwrap().as_deref(), Some("grpc-status: 0"));
    assert_eq!(socket.echo("still here").await.unwrap(), "still here");
}

#[tokio::test]
async fn long_streams_and_websockets_outlive_their_endpoint() {
    let Some(mut run) = Running::start().await else { return };
    let mut socket = Raw::websocket(run.port).await.unwrap();
    assert_eq!(socket.echo("hello").await.unwrap(), "hello");
    run.stream.give(&[&endpoints("one", &[run.other.port])]).await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
    assert_eq!(socket.echo("still here").await.unwrap(), "still here");
}

#[tokio::test]
async fn long_streams_and_websockets_outlive_a_change_of_their_cluster() {
    let Some(mut run) = Running::start().await else { return };
    let mut socket = Raw::websocket(run.port).await.unwrap();
    assert_eq!(socket.echo("hello").await.unwrap(), "hello");
    run.cluster(&Cluster::eds("one").revision(1), run.other.port).await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
    assert_eq!(socket.echo("still here").await.unwrap(), "still here");
}

#[tokio::test]
async fn a_request_that_waits_in_a_filter_needs_its_cluster_when_it_goes_on() {
    let delayed = |port| Listener::new("in", port).chain_with_delay("table", "0.5s");
    let Some(mut run) = Running::start_with(delayed).await else { return };
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    let port = run.port;
    let waiting = Request::start(async move { H1::open(port).await?.get("/").await });
    run.proxy.stat_is("http.in.downstream_rq_active", 1).await;
    run.route("other").await;
    run.stream.take(CDS, &["one"]).await;
    // It keeps the route that it was given when it came, and that names a cluster that is gone.
    assert!(waiting.done().await.unwrap().is(503, ""));
}

#[tokio::test]
async fn tcp_connections_outlive_their_cluster() {
    let Some(mut run) = Running::start_with(|port| Listener::new("in", port).tcp_chain("one")).await else { return };
    run.cluster(&Cluster::eds("other"), run.other.port).await;
    let mut socket = Raw::websocket(run.port).await.unwrap();
    assert_eq!(socket.echo("hello").await.unwrap(), "hello");
    run.stream.give(&[&Listener::new("in", run.port).tcp_chain("other").item()]).await;
    run.stream.take(CDS, &["one"]).await;
    assert!(!run.proxy.has_cluster("one").await);
    assert_eq!(socket.echo("still here").await.unwrap(), "still here");
    // What has begun to drain ends with the drain time.
    socket.closed().await;
    assert!(run.get("/").await.unwrap().is(200, "other"));
}

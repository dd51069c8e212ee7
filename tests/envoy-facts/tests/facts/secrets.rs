//! Secrets of listeners.

use envoy_facts::{
    client::H1,
    config::{Certificate, Listener, garbage},
    proxy::opens,
    world::Running,
};
use xds::TypeUrl::Secret as SDS;

/// An HTTPS listener with its secret `cert`, and an open connection.
async fn secure() -> Option<(Running, H1)> {
    let mut run = Running::start().await?;
    let port = envoy_facts::proxy::free_port();
    let listener = Listener::new("secure", port).tls_chain("test.example", "cert", "table", "in");
    run.stream.give(&[&listener.item()]).await;
    run.stream.give(&[&Certificate::new().secret("cert")]).await;
    opens(port).await;
    run.port = port;
    let mut client = H1::open_tls(port, "test.example").await.unwrap();
    assert!(client.get("/").await.unwrap().is(200, "one"));
    Some((run, client))
}

#[tokio::test]
async fn a_rotated_secret_drops_no_connection() {
    let Some((mut run, mut client)) = secure().await else { return };
    run.stream.give(&[&Certificate::new().secret("cert")]).await;
    let answer = client.get("/").await.unwrap();
    assert!(answer.is(200, "one") && !answer.closes, "{answer:?}");
    assert!(H1::open_tls(run.port, "test.example").await.is_ok());
}

#[tokio::test]
async fn a_secret_removed_by_name_stays() {
    let Some((mut run, mut client)) = secure().await else { return };
    run.stream.take(SDS, &["cert"]).await;
    assert!(client.get("/").await.unwrap().is(200, "one"));
    assert!(H1::open_tls(run.port, "test.example").await.is_ok());
}

#[tokio::test]
async fn a_secret_that_is_no_certificate_is_refused_and_the_old_one_stays() {
    let Some((mut run, mut client)) = secure().await else { return };
    let sent = run.stream.send(SDS, &[&garbage("cert")], &[]).await;
    assert!(run.stream.answer(&sent).await.is_err());
    assert!(client.get("/").await.unwrap().is(200, "one"));
    assert!(H1::open_tls(run.port, "test.example").await.is_ok());
}

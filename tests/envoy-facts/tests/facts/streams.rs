//! Streams that are cut.

use std::time::Duration;

use envoy_facts::{
    backend::SILENT,
    client::H1,
    config::{Certificate, Cluster, Listener, endpoints, table},
    proxy::{free_port, opens},
    world::Running,
};
use xds::TypeUrl::{
    Cluster as CDS, ClusterLoadAssignment as EDS, Listener as LDS, RouteConfiguration as RDS, Secret as SDS,
};

#[tokio::test]
async fn a_proxy_that_comes_back_tells_all_that_it_has_and_needs_no_answer() {
    let Some(mut run) = Running::start().await else { return };
    let (port, certificate) = (free_port(), Certificate::new());
    let listener = Listener::new("secure", port).tls_chain("test.example", "cert", "table", "in").item();
    run.stream.give(&[&listener]).await;
    run.stream.give(&[&certificate.secret("cert")]).await;
    opens(port).await;
    let mut client = H1::open(run.port).await.unwrap();
    assert_eq!(client.get("/").await.unwrap().status, 200);
    drop(run.stream);
    run.stream = run.hand.stream().await;
    let told = [
        (CDS, "one", Cluster::eds("one").item()),
        (EDS, "one", endpoints("one", &[run.one.port])),
        (LDS, "secure", listener),
        (RDS, "table", table("table", &[("/", "one")])),
        (SDS, "cert", certificate.secret("cert")),
    ];
    for (kind, name, item) in told {
        let first = run.stream.request(kind, run.stream.start()).await;
        let version = first.initial_resource_versions.get(name).map(String::as_str);
        assert_eq!(version, Some(&**item.resource.version()), "{kind}: {first:?}");
        if !kind.is_wildcard() {
            assert!(first.resource_names_subscribe.iter().any(|of| of == name), "{kind}: {first:?}");
        }
    }
    let answer = client.get("/").await.unwrap();
    assert!(answer.is(200, "one") && !answer.closes, "{answer:?}");
    // The difference is all that it takes.
    run.stream.give(&[&endpoints("one", &[run.other.port])]).await;
    assert!(client.get("/").await.unwrap().is(200, "other"));
}

#[tokio::test]
async fn a_proxy_cut_off_while_a_cluster_warms_up_asks_for_clusters_when_it_is_warm() {
    let Some(mut run) = Running::start().await else { return };
    run.other.health(SILENT);
    run.stream.send(CDS, &[&Cluster::eds("checked").checked().item()], &[]).await;
    run.stream.asked(EDS, "checked", run.stream.start()).await;
    run.stream.give(&[&endpoints("checked", &[run.other.port])]).await;
    run.other.asked().await;
    drop(run.stream);
    run.stream = run.hand.stream().await;
    run.stream.asked(EDS, "checked", run.stream.start()).await;
    run.stream.request(LDS, run.stream.start()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!run.stream.has_requested(CDS, run.stream.start()));
    run.other.health(200);
    let first = run.stream.request(CDS, run.stream.start()).await;
    assert!(first.initial_resource_versions.contains_key("checked"), "{first:?}");
}

#[tokio::test]
async fn a_draining_listener_is_not_told_after_a_reconnect_but_its_table_is() {
    let Some(mut run) = Running::start().await else { return };
    let mut client = H1::open(run.port).await.unwrap();
    assert_eq!(client.get("/").await.unwrap().status, 200);
    run.stream.take(LDS, &["in"]).await;
    drop(run.stream);
    run.stream = run.hand.stream().await;
    let listeners = run.stream.request(LDS, run.stream.start()).await;
    assert!(listeners.initial_resource_versions.is_empty(), "{listeners:?}");
    let tables = run.stream.request(RDS, run.stream.start()).await;
    assert!(tables.initial_resource_versions.contains_key("table"), "{tables:?}");
    assert!(client.get("/").await.unwrap().is(200, "one"));
}

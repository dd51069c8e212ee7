//! The server over real connections: streams of every kind, facts, TLS, and orderly ends.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test may say so and fail so")]

mod support;

use std::{sync::Arc, time::Duration};

use envoy_types::pb::envoy::service::{
    cluster::v3::cluster_discovery_service_client::ClusterDiscoveryServiceClient,
    discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    endpoint::v3::endpoint_discovery_service_client::EndpointDiscoveryServiceClient,
    listener::v3::listener_discovery_service_client::ListenerDiscoveryServiceClient,
    route::v3::route_discovery_service_client::RouteDiscoveryServiceClient,
    secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient,
};
use support::{PATIENCE, Peer, Rig, cluster, leaf, node, table};
use tokio::{sync::mpsc, sync::watch, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code,
    transport::{Certificate, Channel, ClientTlsConfig, Identity},
};
use xds::TypeUrl::{
    Cluster as CDS, ClusterLoadAssignment as EDS, Listener as LDS, RouteConfiguration as RDS, Secret as SDS,
};
use xds::{Admit, Cache, Config, Denied, Feedback, TlsConfig, TypeUrl};

#[tokio::test]
async fn a_proxy_gets_its_group_and_is_seen() {
    let mut rig = Rig::plain().await;
    let mut peer = rig.delta("ns/gw").await;
    peer.ask(CDS, &[]).await;
    rig.fact(|fact| matches!(fact, Feedback::Connected { proxy } if &*proxy.group.0 == "ns/gw")).await;
    // Another group's configuration is none of its business.
    rig.set("ns/other", [(CDS, "x", Some(cluster("x", "1")))]);
    rig.set("ns/gw", [(CDS, "a", Some(cluster("a", "1"))), (EDS, "a", Some(leaf("e")))]);
    let response = peer.accept(CDS, &["a"]).await;
    assert_eq!(response.resources[0].resource.as_ref().unwrap().value, b"1");
    assert_eq!(response.resources[0].version, **cluster("a", "1").version());
    peer.ask(EDS, &["a"]).await;
    peer.accept(EDS, &["a"]).await;
    let acked = rig.fact(|fact| matches!(fact, Feedback::Acked { type_url: CDS, .. })).await;
    let Feedback::Acked { resources, version, .. } = acked else { panic!("{acked:?}") };
    assert_eq!(&*resources[0].name, "a");
    // Something that does not exist.
    peer.ask(LDS, &["nowhere"]).await;
    let absent = peer.accept(LDS, &[]).await;
    assert_eq!(absent.removed_resources, ["nowhere"]);
    rig.set("ns/gw", [(CDS, "a", Some(cluster("a", "bad")))]);
    let refused = peer.expect(CDS, &["a"]).await;
    peer.nack(&refused, "no such thing").await;
    let nacked = rig.fact(|fact| matches!(fact, Feedback::Nacked { .. })).await;
    let Feedback::Nacked { detail, resources, .. } = nacked else { panic!("{nacked:?}") };
    assert_eq!((detail.as_str(), resources.len()), ("no such thing", 1));
    // The proxy is given back what it had.
    peer.accept(EDS, &["a"]).await;
    let former = peer.expect(CDS, &["a"]).await;
    assert_eq!(former.resources[0].resource.as_ref().unwrap().value, b"1");
    let streams = rig.server.connections().snapshot();
    let state = &streams[0].types[&CDS];
    assert_eq!((streams.len(), streams[0].delta, state.wildcard, state.held), (1, true, true, 1));
    assert_eq!(state.last_nack.as_ref().map(|(text, _)| &**text), Some("no such thing"));
    assert_eq!(state.acked_version.as_ref(), Some(&version));
    assert_ne!(state.sent_version, state.acked_version);
    let metrics = rig.server.metrics().snapshot();
    assert_eq!((metrics.connections, metrics.streams), (1, 1));
    assert_eq!((metrics.types[&CDS].responses, metrics.types[&CDS].acks, metrics.types[&CDS].nacks), (3, 1, 1));
    drop(peer);
    rig.fact(|fact| matches!(fact, Feedback::Disconnected { .. })).await;
    assert!(rig.server.connections().is_empty());
    assert_eq!(rig.server.metrics().snapshot().streams, 0);
}

#[tokio::test]
async fn a_state_of_the_world_proxy_is_served_too() {
    let rig = Rig::plain().await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1"))), (CDS, "b", Some(cluster("b", "1")))]);
    let mut peer = rig.sotw("g").await;
    peer.ask(CDS, &[], None, None).await;
    let first = peer.next().await;
    assert_eq!(first.resources.len(), 2);
    peer.ask(CDS, &[], Some(&first), None).await;
    rig.set("g", [(CDS, "c", Some(cluster("c", "1")))]);
    let second = peer.next().await;
    assert_eq!((second.resources.len(), second.type_url.as_str()), (3, CDS.as_str()));
    assert_ne!(first.version_info, second.version_info);
    peer.ask(CDS, &[], Some(&second), None).await;
    peer.ask(RDS, &["r"], None, None).await;
    rig.set("g", [(RDS, "r", Some(table("1", &["a"])))]);
    let routes = peer.next().await;
    assert_eq!((routes.resources.len(), routes.type_url.as_str()), (1, RDS.as_str()));
}

#[tokio::test]
async fn a_proxy_that_moves_to_another_replica_is_told_nothing_new() {
    let (one, other) = (Rig::plain().await, Rig::plain().await);
    let (a, e, r) = (cluster("a", "1"), leaf("e"), table("r", &["a"]));
    for rig in [&one, &other] {
        rig.set("g", [(CDS, "a", Some(a.clone())), (EDS, "a", Some(e.clone())), (RDS, "r", Some(r.clone()))]);
    }
    let mut peer = one.delta("g").await;
    peer.ask(CDS, &[]).await;
    peer.accept(CDS, &["a"]).await;
    drop(peer);
    let mut peer = other.delta("g").await;
    peer.back(CDS, &[], &[("a", &a)]).await;
    peer.back(EDS, &["a"], &[("a", &e)]).await;
    peer.back(LDS, &[], &[("l", &leaf("gone"))]).await;
    peer.back(RDS, &["r"], &[("r", &r)]).await;
    let response = peer.next().await.unwrap().unwrap();
    assert_eq!((response.type_url.as_str(), response.removed_resources), (LDS.as_str(), vec!["l".to_owned()]));
    peer.nothing().await;
}

#[tokio::test]
async fn each_type_has_a_service_of_its_own() {
    let rig = Rig::plain().await;
    rig.set(
        "g",
        [
            (CDS, "n", Some(cluster("n", "1"))),
            (EDS, "n", Some(leaf("1"))),
            (LDS, "n", Some(leaf("1"))),
            (RDS, "n", Some(table("1", &["n"]))),
            (SDS, "n", Some(leaf("1"))),
        ],
    );
    let channel = rig.channel().await;
    macro_rules! check {
        ($client:ident, $kind:expr, $delta:ident, $stream:ident, $fetch:ident) => {{
            let names = if $kind.is_wildcard() { vec![] } else { vec!["n".to_owned()] };
            let mut client = $client::new(channel.clone());
            let (send, sent) = mpsc::channel(1);
            // The type may be left out where the service says it.
            let request = DeltaDiscoveryRequest {
                node: Some(node("g")),
                resource_names_subscribe: names.clone(),
                ..Default::default()
            };
            send.send(request).await.unwrap();
            let mut responses = client.$delta(ReceiverStream::new(sent)).await.unwrap().into_inner();
            let response = timeout(PATIENCE, responses.message()).await.unwrap().unwrap().unwrap();
            assert_eq!((response.type_url.as_str(), response.resources.len()), ($kind.as_str(), 1));
            let (send, sent) = mpsc::channel(1);
            let request = DiscoveryRequest {
                node: Some(node("g")),
                type_url: $kind.as_str().into(),
                resource_names: names,
                ..Default::default()
            };
            send.send(request).await.unwrap();
            let mut responses = client.$stream(ReceiverStream::new(sent)).await.unwrap().into_inner();
            let response = timeout(PATIENCE, responses.message()).await.unwrap().unwrap().unwrap();
            assert_eq!((response.type_url.as_str(), response.resources.len()), ($kind.as_str(), 1));
            assert_eq!(client.$fetch(DiscoveryRequest::default()).await.unwrap_err().code(), Code::Unimplemented);
        }};
    }
    check!(ClusterDiscoveryServiceClient, TypeUrl::Cluster, delta_clusters, stream_clusters, fetch_clusters);
    check!(EndpointDiscoveryServiceClient, EDS, delta_endpoints, stream_endpoints, fetch_endpoints);
    check!(ListenerDiscoveryServiceClient, LDS, delta_listeners, stream_listeners, fetch_listeners);
    check!(RouteDiscoveryServiceClient, RDS, delta_routes, stream_routes, fetch_routes);
    check!(SecretDiscoveryServiceClient, SDS, delta_secrets, stream_secrets, fetch_secrets);
}

#[tokio::test]
async fn streams_without_an_identity_are_refused_with_the_reason() {
    let rig = Rig::plain().await;
    for cluster in [None, Some("")] {
        let mut peer = rig.delta("g").await;
        let mut node = node("g");
        let request = DeltaDiscoveryRequest {
            type_url: CDS.as_str().into(),
            node: cluster.map(|cluster| {
                node.cluster = cluster.into();
                node
            }),
            ..Default::default()
        };
        peer.requests.send(request).await.unwrap();
        let status = peer.next().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains("node"), "{status}");
    }
}

#[tokio::test]
async fn a_request_over_the_limit_ends_its_stream_and_no_other() {
    let config = Config { max_request_bytes: 64 * 1024, ..Config::default() };
    let rig = Rig::start(Cache::new(), config, None).await;
    rig.set("g", []);
    let channel = rig.channel().await;
    let mut other = Peer::open(channel.clone(), "g").await;
    other.ask(CDS, &[]).await;
    other.accept(CDS, &[]).await;
    let mut peer = Peer::open(channel, "g").await;
    peer.ask(EDS, &[&"x".repeat(100_000)]).await;
    assert!(matches!(peer.next().await, Err(_) | Ok(None)));
    other.nothing().await;
}

#[tokio::test]
async fn a_stopping_server_lets_streams_come_to_rest() {
    let mut rig = Rig::plain().await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1")))]);
    let mut idle = rig.delta("g").await;
    idle.ask(CDS, &[]).await;
    idle.accept(CDS, &["a"]).await;
    idle.nothing().await;
    let mut busy = rig.delta("g").await;
    busy.ask(CDS, &[]).await;
    let open = busy.expect(CDS, &["a"]).await;
    rig.ask_to_stop();
    assert!(idle.next().await.unwrap().is_none(), "a stream at rest ends at once");
    // This one still owes an answer; what depends on it is still sent.
    busy.ask(EDS, &["a"]).await;
    let endpoints = busy.expect(EDS, &["a"]).await;
    busy.ack(&open).await;
    busy.ack(&endpoints).await;
    assert!(busy.next().await.unwrap().is_none());
    rig.ended().await;
}

#[tokio::test]
async fn a_stopping_server_does_not_wait_for_ever() {
    let config = Config { stop_grace: Duration::from_millis(50), ..Config::default() };
    let mut rig = Rig::start(Cache::new(), config, None).await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1")))]);
    let mut peer = rig.delta("g").await;
    peer.ask(CDS, &[]).await;
    peer.expect(CDS, &["a"]).await;
    rig.ask_to_stop();
    rig.ended().await;
}

#[tokio::test]
async fn proxies_are_handed_over_and_taken_again() {
    let rig = Rig::plain().await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1")))]);
    let digest = rig.cache.digest();
    let mut peer = rig.delta("g").await;
    peer.ask(CDS, &[]).await;
    peer.accept(CDS, &["a"]).await;
    peer.nothing().await;
    rig.hand_over.send_replace(true);
    assert!(peer.next().await.unwrap().is_none(), "a stream at rest ends at once");
    // Whoever comes is sent away.
    let elsewhere = Channel::from_shared(format!("http://127.0.0.1:{}", rig.port)).unwrap();
    let refused = async {
        let mut client = ClusterDiscoveryServiceClient::new(elsewhere.connect().await.ok()?);
        client.delta_clusters(tokio_stream::pending()).await.ok()
    };
    assert!(timeout(PATIENCE, refused).await.unwrap().is_none());
    assert!(rig.server.metrics().snapshot().connections_refused > 0);
    rig.hand_over.send_replace(false);
    let mut again = rig.delta("g").await;
    again.back(CDS, &[], &[("a", &cluster("a", "1"))]).await;
    again.nothing().await;
    assert_eq!(rig.cache.digest(), digest);
    rig.set("h", [(CDS, "a", Some(cluster("a", "1")))]);
    assert_ne!(rig.cache.digest(), digest, "another group counts too");
}

#[tokio::test]
async fn an_old_connection_is_ended_in_an_orderly_way() {
    let config = Config { max_connection_age: Some(Duration::from_millis(200)), ..Config::default() };
    let rig = Rig::start(Cache::new(), config, None).await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1")))]);
    let mut peer = rig.delta("g").await;
    peer.ask(CDS, &[]).await;
    peer.accept(CDS, &["a"]).await;
    assert!(peer.next().await.unwrap().is_none());
    let mut again = rig.delta("g").await;
    again.back(CDS, &[], &[("a", &cluster("a", "1"))]).await;
    again.nothing().await;
}

/// A certificate authority and what it signs.
struct Authority {
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    fn pem(&self) -> String {
        self.issuer.pem()
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A server for `name` that asks for certificates of this authority.
    fn server(&self, name: &str) -> Arc<rustls::ServerConfig> {
        self.server_that(name, false)
    }

    /// The same, that does without one if it is `open`.
    fn server_that(&self, name: &str, open: bool) -> Arc<rustls::ServerConfig> {
        let (certificate, key) = self.sign(name);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder(roots.into());
        let verifier = if open { verifier.allow_unauthenticated() } else { verifier }.build().unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }

    async fn connect(&self, port: u16, name: &str, with_identity: bool) -> Result<Channel, tonic::transport::Error> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.pem())).domain_name(name);
        if with_identity {
            let (certificate, key) = self.sign("proxy");
            tls = tls.identity(Identity::from_pem(certificate.pem(), key.serialize_pem()));
        }
        let endpoint = Channel::from_shared(format!("https://127.0.0.1:{port}")).unwrap();
        endpoint.tls_config(tls)?.connect().await
    }
}

#[tokio::test]
async fn certificates_are_asked_for_and_rotate_without_a_restart() {
    let (old, new) = (Authority::new(), Authority::new());
    let (rotate, current) = watch::channel(old.server("old.test"));
    let rig = Rig::start(Cache::new(), Config::default(), Some(TlsConfig::from(current))).await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1")))]);
    let mut early = Peer::open(old.connect(rig.port, "old.test", true).await.unwrap(), "g").await;
    early.ask(CDS, &[]).await;
    early.accept(CDS, &["a"]).await;
    rotate.send_replace(new.server("new.test"));
    assert!(old.connect(rig.port, "old.test", true).await.is_err(), "new handshakes use the new certificate");
    let mut late = Peer::open(new.connect(rig.port, "new.test", true).await.unwrap(), "g").await;
    late.ask(CDS, &[]).await;
    late.accept(CDS, &["a"]).await;
    // The stream that was open stays.
    early.nothing().await;
    // A client without a certificate gets nothing (in TLS 1.3 it learns so when it first reads).
    if let Ok(channel) = new.connect(rig.port, "new.test", false).await {
        let mut client = ClusterDiscoveryServiceClient::new(channel);
        let empty = tokio_stream::empty::<DeltaDiscoveryRequest>();
        assert!(client.delta_clusters(empty).await.is_err());
    }
    assert!(rig.server.metrics().snapshot().handshakes_failed >= 2);
}

#[tokio::test]
async fn it_is_told_who_showed_a_certificate() {
    let (ours, others) = (Authority::new(), Authority::new());
    let admit =
        Admit::new(
            async |applicant| {
                if applicant.certified { Ok(()) } else { Err(Denied::Refused("no certificate".to_owned())) }
            },
        );
    let server = ours.server_that("xds.test", true);
    let tls = TlsConfig::new(move || server.clone());
    let rig = Rig::start_admitting(0, Cache::new(), Config::default(), Some(tls), Some(admit)).await;
    rig.set("g", [(CDS, "a", Some(cluster("a", "1")))]);
    let mut with = Peer::open(ours.connect(rig.port, "xds.test", true).await.unwrap(), "g").await;
    with.ask(CDS, &[]).await;
    with.accept(CDS, &["a"]).await;
    let mut without = Peer::open(ours.connect(rig.port, "xds.test", false).await.unwrap(), "g").await;
    without.ask(CDS, &[]).await;
    assert_eq!(without.next().await.unwrap_err().code(), Code::Unauthenticated);
    // A certificate that nobody vouches for is worse than none: the handshake fails.
    let (certificate, key) = others.sign("proxy");
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ours.pem())).domain_name("xds.test");
    let tls = tls.identity(Identity::from_pem(certificate.pem(), key.serialize_pem()));
    let endpoint = Channel::from_shared(format!("https://127.0.0.1:{}", rig.port)).unwrap();
    if let Ok(channel) = endpoint.tls_config(tls).unwrap().connect().await {
        let mut client = ClusterDiscoveryServiceClient::new(channel);
        assert!(client.delta_clusters(tokio_stream::empty::<DeltaDiscoveryRequest>()).await.is_err());
    }
    assert_eq!(rig.server.metrics().snapshot().handshakes_failed, 1);
}

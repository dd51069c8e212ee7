//! Clusters, endpoints, listeners and secrets as Envoy reads them.

mod common;

use std::{net::IpAddr, sync::Arc};

use common::{cluster, http_chain, json, listener, locality, server_tls};
use envoy::Hints;
use ir::{
    CertificateRef, ChainKind, Cluster, Discovery, EndpointAddress, FilterChain, HttpFilter, Listener, LoadBalancing,
    ReadyListener, Secret, SecretContent, SessionPersistence, SubjectName, TcpProxy, TlsMatch, TlsParams, TlsVersion,
    Transport, UdpProxy, UpstreamProtocol, UpstreamTls, XdsValue,
};
use serde_json::{Value, json};

fn of_cluster(c: Cluster) -> Value {
    json(&XdsValue::Cluster(Arc::new(c)))
}

fn of_listener(l: Listener) -> Value {
    json(&XdsValue::Listener(Arc::new(l)))
}

fn socket(port: u16) -> EndpointAddress {
    EndpointAddress::Socket(IpAddr::from([10, 0, 0, 1]), port)
}

fn upstream_tls() -> UpstreamTls {
    UpstreamTls {
        ca: Some("ca".into()),
        client_certificate: Some("client".into()),
        sni: Some("example.com".into()),
        auto_san: false,
        params: TlsParams {
            min_version: Some(TlsVersion::V1_2),
            max_version: Some(TlsVersion::V1_3),
            ..TlsParams::default()
        },
        subject_names: vec![SubjectName::Dns("example.com".into()), SubjectName::Uri("spiffe://x".into())],
        alpn: vec!["h2".into()],
    }
}

#[test]
fn a_plain_cluster() {
    let policy = "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest";
    assert_eq!(
        of_cluster(cluster("c")),
        json!({
            "name": "c", "type": "EDS", "connectTimeout": "10s", "perConnectionBufferLimitBytes": 32768,
            "edsClusterConfig": {"serviceName": "c", "edsConfig": {"ads": {}, "resourceApiVersion": "V3"}},
            "dnsLookupFamily": "V4_PREFERRED", "ignoreHealthOnHostRemoval": true, "commonLbConfig": {},
            "circuitBreakers": {"thresholds": [{"maxRetries": 1024}]},
            "loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {
                "name": "envoy.load_balancing_policies.least_request",
                "typedConfig": {"@type": policy, "localityLbConfig": {"localityWeightedLbConfig": {}}},
            }}]},
            "metadata": {"filterMetadata": {"envoy-gateway": {"resources": [
                {"kind": "HTTPRoute", "namespace": "ns", "name": "r"}
            ]}}},
        })
    );
}

#[test]
fn load_balancing_by_zone_and_without_localities() {
    let policy = |load_balancing| {
        let value = of_cluster(Cluster { load_balancing, ..cluster("c") });
        value["loadBalancingPolicy"]["policies"][0]["typedExtensionConfig"]["typedConfig"]["localityLbConfig"].clone()
    };
    assert_eq!(policy(LoadBalancing::LeastRequestZoneAware), json!({"zoneAwareLbConfig": {"minClusterSize": "1"}}));
    assert_eq!(policy(LoadBalancing::LeastRequest), Value::Null);
}

#[test]
fn ways_to_find_endpoints() {
    let with = |discovery| of_cluster(Cluster { discovery, ..cluster("c") });
    let dns = with(Discovery::Dns(vec![locality(EndpointAddress::Name("a.example".into(), 80))]));
    assert_eq!(dns["clusterType"]["name"], "envoy.cluster.dns");
    let settings = &dns["clusterType"]["typedConfig"];
    assert_eq!((&settings["dnsRefreshRate"], &settings["respectDnsTtl"]), (&json!("30s"), &json!(true)));
    let address = &dns["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"];
    assert_eq!(*address, json!({"socketAddress": {"address": "a.example", "portValue": 80}}));
    assert!(dns.get("edsClusterConfig").is_none());

    let fixed = with(Discovery::Static(vec![locality(socket(80))]));
    assert_eq!(fixed["type"], "STATIC");

    let dynamic = with(Discovery::Dynamic { cache: "cache".into() });
    assert_eq!(dynamic["clusterType"]["typedConfig"]["dnsCacheConfig"]["name"], "cache");
    let policy = &dynamic["loadBalancingPolicy"]["policies"][0]["typedExtensionConfig"]["name"];
    assert_eq!(policy, "envoy.load_balancing_policies.cluster_provided");

    assert_eq!(with(Discovery::Empty), json!({"name": "c", "type": "STATIC"}));
    let sds = with(Discovery::SdsSocket { path: "/run/sds".into() });
    let address = &sds["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"];
    assert_eq!(*address, json!({"pipe": {"path": "/run/sds"}}));
    assert_eq!(sds["http2ProtocolOptions"], json!({}));
}

#[test]
fn protocols() {
    let with = |protocol, auto_sni| {
        let value = of_cluster(Cluster { protocol, auto_sni, ..cluster("c") });
        let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        value["typedExtensionProtocolOptions"][options].clone()
    };
    assert_eq!(with(UpstreamProtocol::Http1, false), Value::Null);
    assert_eq!(with(UpstreamProtocol::Http1Only, false)["explicitHttpConfig"], json!({"httpProtocolOptions": {}}));
    let http2 = json!({"initialStreamWindowSize": 65536, "initialConnectionWindowSize": 1048576});
    assert_eq!(with(UpstreamProtocol::Http2, false)["explicitHttpConfig"], json!({"http2ProtocolOptions": http2}));
    let auto = with(UpstreamProtocol::Auto, true);
    assert_eq!(auto["autoConfig"], json!({"httpProtocolOptions": {}, "http2ProtocolOptions": http2}));
    assert_eq!(auto["upstreamHttpProtocolOptions"], json!({"autoSni": true}));
}

#[test]
fn tls_to_endpoints() {
    let whole =
        of_cluster(Cluster { tls: Some(upstream_tls()), ..cluster("c") })["transportSocket"]["typedConfig"].take();
    assert_eq!(whole["sni"], "example.com");
    let common = &whole["commonTlsContext"];
    assert_eq!(
        common["tlsParams"],
        json!({"tlsMinimumProtocolVersion": "TLSv1_2", "tlsMaximumProtocolVersion": "TLSv1_3"})
    );
    assert_eq!(common["alpnProtocols"], json!(["h2"]));
    assert_eq!(common["tlsCertificateSdsSecretConfigs"][0]["name"], "client");
    let validation = &common["combinedValidationContext"];
    let ads = json!({"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"});
    assert_eq!(validation["validationContextSdsSecretConfig"], json!({"name": "ca", "sdsConfig": ads}));
    assert_eq!(
        validation["defaultValidationContext"]["matchTypedSubjectAltNames"],
        json!([
            {"sanType": "DNS", "matcher": {"exact": "example.com"}},
            {"sanType": "URI", "matcher": {"exact": "spiffe://x"}},
        ])
    );
    let unverified = Cluster { tls: Some(UpstreamTls { ca: None, ..upstream_tls() }), ..cluster("c") };
    let value = of_cluster(unverified);
    assert!(value["transportSocket"]["typedConfig"]["commonTlsContext"].get("combinedValidationContext").is_none());
}

#[test]
fn tls_by_endpoint() {
    let matched =
        Cluster { tls_matches: vec![TlsMatch { name: "c/tls/0".into(), tls: upstream_tls() }], ..cluster("c") };
    let value = of_cluster(matched.clone());
    assert_eq!(value["transportSocketMatches"][0]["match"], json!({"name": "c/tls/0"}));
    assert_eq!(value["transportSocketMatches"][0]["transportSocket"]["typedConfig"]["sni"], "example.com");
    assert_eq!(value["transportSocket"]["typedConfig"]["commonTlsContext"], json!({}), "no plain text by accident");
    let mixed = of_cluster(Cluster { plain_endpoints: true, ..matched });
    assert!(mixed.get("transportSocket").is_none());

    let mut l = locality(socket(80));
    l.endpoints[0].tls = Some("c/tls/0".into());
    let value = json(&XdsValue::Endpoints(Arc::new(ir::Endpoints { cluster: "c".into(), localities: vec![l] })));
    let metadata = &value["endpoints"][0]["lbEndpoints"][0]["metadata"]["filterMetadata"];
    assert_eq!(*metadata, json!({"envoy.transport_socket_match": {"name": "c/tls/0"}}));
}

#[test]
fn endpoints_with_all_that_they_may_have() {
    let mut l = locality(socket(80));
    l.zone = Some("z1".into());
    l.weight = Some(3);
    l.priority = 1;
    l.endpoints[0].hostname = Some("h".into());
    l.endpoints[0].draining = true;
    l.endpoints[0].weight = 2;
    let value = json(&XdsValue::Endpoints(Arc::new(ir::Endpoints { cluster: "c".into(), localities: vec![l] })));
    assert_eq!(
        value,
        json!({"clusterName": "c", "endpoints": [{
            "locality": {"region": "c/backend/0", "zone": "z1"}, "loadBalancingWeight": 3, "priority": 1,
            "metadata": {"filterMetadata": {"envoy-gateway": {"resources": [
                {"kind": "Service", "namespace": "ns", "name": "s"}
            ]}}},
            "lbEndpoints": [{
                "endpoint": {"hostname": "h", "address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}},
                "healthStatus": "DRAINING", "loadBalancingWeight": 2,
            }],
        }]})
    );
}

#[test]
fn hints_of_clusters() {
    let hints = |c: Cluster| envoy::encode(&XdsValue::Cluster(Arc::new(c))).unwrap().hints;
    let none = Hints::Cluster { endpoints: Some("c".into()), warms: false, secrets: vec![] };
    assert_eq!(hints(cluster("c")), none);
    let secrets = vec!["ca".into(), "client".into()];
    let tls = Cluster { tls: Some(upstream_tls()), ..cluster("c") };
    assert_eq!(hints(tls), Hints::Cluster { endpoints: Some("c".into()), warms: true, secrets });
    let dns = Cluster { discovery: Discovery::Dns(vec![]), ..cluster("c") };
    assert_eq!(hints(dns), Hints::Cluster { endpoints: None, warms: true, secrets: vec![] });
}

#[test]
fn an_https_listener() {
    let chains = vec![
        http_chain("ns/gw/a", &["a.example"], Some(server_tls("ns/a"))),
        http_chain("ns/gw/b", &["*.example"], Some(server_tls("ns/b"))),
    ];
    let l = listener(chains, None);
    let encoded = envoy::encode(&XdsValue::Listener(Arc::new(l.clone()))).unwrap();
    assert_eq!(
        encoded.hints,
        Hints::Listener {
            route_tables: vec!["ns/gw/a".into(), "ns/gw/b".into()],
            secrets: vec!["ns/a".into(), "ns/b".into()],
            clusters: vec![],
        }
    );
    let value = of_listener(l);
    assert_eq!(value["listenerFilters"][0]["name"], "envoy.filters.listener.tls_inspector");
    assert_eq!(value["accessLog"][0]["filter"], json!({"responseFlagFilter": {"flags": ["NR"]}}));
    assert_eq!(
        (&value["perConnectionBufferLimitBytes"], &value["maxConnectionsToAcceptPerSocketEvent"]),
        (&json!(32768), &json!(1))
    );
    let chain = &value["filterChains"][0];
    assert_eq!(chain["filterChainMatch"], json!({"serverNames": ["a.example"]}));
    let tls = &chain["transportSocket"]["typedConfig"];
    assert_eq!(tls["commonTlsContext"]["alpnProtocols"], json!(["h2", "http/1.1"]));
    assert_eq!(
        (&tls["disableStatefulSessionResumption"], &tls["disableStatelessSessionResumption"]),
        (&json!(true), &json!(true))
    );
    let manager = &chain["filters"][0]["typedConfig"];
    assert_eq!(manager["rds"]["routeConfigName"], "ns/gw/a");
    assert_eq!(manager["rds"]["configSource"]["initialFetchTimeout"], "0s");
    for (field, want) in [
        ("statPrefix", json!("https-10443")),
        ("useRemoteAddress", json!(true)),
        ("normalizePath", json!(true)),
        ("mergeSlashes", json!(true)),
        ("serverHeaderTransformation", json!("PASS_THROUGH")),
        ("pathWithEscapedSlashesAction", json!("UNESCAPE_AND_REDIRECT")),
        ("commonHttpProtocolOptions", json!({"headersWithUnderscoresAction": "REJECT_REQUEST"})),
    ] {
        assert_eq!(manager[field], want, "{field}");
    }
    assert_eq!(manager["accessLog"][0]["typedConfig"]["logFormat"]["jsonFormat"]["f7"], "%PROTOCOL%");
}

#[test]
fn plain_http_is_the_default_chain_and_needs_no_inspection() {
    let value = of_listener(listener(vec![], Some(http_chain("ns/gw/http", &[], None))));
    assert_eq!(value["defaultFilterChain"]["name"], "ns/gw/http");
    assert!(value.get("listenerFilters").is_none() && value.get("filterChains").is_none());
}

#[test]
fn client_certificates_and_foreign_secrets() {
    let mut tls = server_tls("x");
    tls.client_ca = Some("ns/ca".into());
    tls.require_client_certificate = true;
    tls.certificates = vec![CertificateRef::Sds { name: "foreign".into(), cluster: "sds".into() }];
    let l = listener(vec![http_chain("a", &[], Some(tls))], None);
    let value = of_listener(l.clone());
    let context = &value["filterChains"][0]["transportSocket"]["typedConfig"];
    assert_eq!(context["requireClientCertificate"], true);
    let common = &context["commonTlsContext"];
    assert_eq!(common["validationContextSdsSecretConfig"]["name"], "ns/ca");
    let source = &common["tlsCertificateSdsSecretConfigs"][0]["sdsConfig"]["apiConfigSource"];
    assert_eq!(source["grpcServices"][0]["envoyGrpc"]["clusterName"], "sds");
    let Hints::Listener { secrets, .. } = envoy::encode(&XdsValue::Listener(Arc::new(l))).unwrap().hints else {
        panic!()
    };
    assert_eq!(secrets, ["ns/ca".into()], "a foreign secret is not ours to send");
}

#[test]
fn http_filters_stand_before_the_router_in_order() {
    let mut chain = http_chain("a", &[], None);
    let ChainKind::Http(http) = &mut chain.kind else { panic!() };
    http.filters = vec![
        HttpFilter::Cors,
        HttpFilter::GrpcWeb,
        HttpFilter::GrpcStats,
        HttpFilter::StatefulSession(SessionPersistence::Header { name: "h".into() }),
        HttpFilter::LoopbackDeny,
    ];
    let value = of_listener(listener(vec![chain], None));
    let filters = value["filterChains"][0]["filters"][0]["typedConfig"]["httpFilters"].as_array().unwrap();
    let names: Vec<_> = filters.iter().map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "envoy.filters.http.cors",
            "envoy.filters.http.grpc_web",
            "envoy.filters.http.grpc_stats",
            "envoy.filters.http.stateful_session",
            "envoy.filters.http.rbac.dfp_loopback_deny",
            "envoy.filters.http.router",
        ]
    );
    assert_eq!(filters[3]["disabled"], true);
    assert_eq!(filters[2]["typedConfig"]["statsForAllMethods"], true);
    assert_eq!(filters[5]["typedConfig"]["suppressEnvoyHeaders"], true);
}

#[test]
fn tcp_and_udp() {
    let tcp = |clusters: &[(&str, u32)]| {
        let kind = ChainKind::Tcp(TcpProxy {
            stat_prefix: "tcp-1".into(),
            clusters: clusters.iter().map(|(n, w)| ((*n).into(), *w)).collect(),
            access_logs: vec![],
            idle_timeout: Some(ir::Millis(1_000)),
            hash_policies: Vec::new(),
        });
        let chain = FilterChain { name: "c".into(), server_names: vec!["a.b".into()], tls: None, kind };
        of_listener(listener(vec![chain], None))["filterChains"][0]["filters"][0]["typedConfig"].take()
    };
    let one = tcp(&[("a", 1)]);
    assert_eq!(
        (&one["cluster"], &one["idleTimeout"], &one["statPrefix"]),
        (&json!("a"), &json!("1s"), &json!("tcp-1"))
    );
    let two = tcp(&[("a", 1), ("b", 2)]);
    assert_eq!(two["weightedClusters"]["clusters"], json!([{"name": "a", "weight": 1}, {"name": "b", "weight": 2}]));

    let of_tcp = FilterChain {
        name: "c".into(),
        server_names: vec![],
        tls: None,
        kind: ChainKind::Tcp(TcpProxy {
            stat_prefix: "tcp-1".into(),
            clusters: vec![("b".into(), 1), ("a".into(), 1)],
            access_logs: vec![],
            idle_timeout: None,
            hash_policies: Vec::new(),
        }),
    };
    let encoded = envoy::encode(&XdsValue::Listener(Arc::new(listener(vec![of_tcp], None)))).unwrap();
    let Hints::Listener { clusters, .. } = encoded.hints else { panic!() };
    assert_eq!(clusters, ["a".into(), "b".into()]);

    let udp = UdpProxy { stat_prefix: "service".into(), cluster: "u".into(), access_logs: vec![] };
    let value = of_listener(Listener { udp: Some(udp), protocol: Transport::Udp, ..listener(vec![], None) });
    assert_eq!(value["address"]["socketAddress"]["protocol"], "UDP");
    let proxy = &value["listenerFilters"][0]["typedConfig"];
    assert_eq!(proxy["matcher"]["onNoMatch"]["action"]["typedConfig"]["cluster"], "u");
    assert!(value.get("perConnectionBufferLimitBytes").is_none());
}

#[test]
fn the_ready_listener() {
    let ready = ReadyListener { address: "::".into(), ipv4_compat: true, port: 19003 };
    let value = json(&XdsValue::Ready(Arc::new(ready)));
    assert_eq!(value["name"], "envoy-gateway-proxy-ready-::-19003");
    assert_eq!(value["address"]["socketAddress"], json!({"address": "::", "portValue": 19003, "ipv4Compat": true}));
    assert_eq!(value["bypassOverloadManager"], true);
    let manager = &value["filterChains"][0]["filters"][0]["typedConfig"];
    let check = &manager["httpFilters"][0]["typedConfig"];
    assert_eq!(check["headers"], json!([{"name": ":path", "stringMatch": {"exact": "/ready"}}]));
    assert_eq!(check["passThroughMode"], false);
    assert_eq!(manager["routeConfig"]["virtualHosts"][0]["routes"][0]["directResponse"]["status"], 500);
}

#[test]
fn secrets() {
    let pem = b"-----BEGIN X-----\n".to_vec();
    let with = |content| json(&XdsValue::Secret(Arc::new(Secret { name: "s".into(), content })));
    let certificate =
        with(SecretContent::Certificate { chain: pem.clone(), key: pem.clone(), ocsp: Some(vec![1, 2, 3]) });
    assert_eq!(certificate["tlsCertificate"]["certificateChain"]["inlineBytes"], "LS0tLS1CRUdJTiBYLS0tLS0K");
    assert_eq!(certificate["tlsCertificate"]["ocspStaple"]["inlineBytes"], "AQID");
    let ca = with(SecretContent::Ca {
        bundle: pem,
        accept_untrusted: true,
        subject_names: vec![SubjectName::Dns("d".into())],
    });
    let context = &ca["validationContext"];
    assert_eq!(context["trustChainVerification"], "ACCEPT_UNTRUSTED");
    assert_eq!(context["matchTypedSubjectAltNames"][0]["matcher"]["exact"], "d");
    assert_eq!(
        with(SecretContent::CaFile("/ca".into()))["validationContext"],
        json!({"trustedCa": {"filename": "/ca"}})
    );
}

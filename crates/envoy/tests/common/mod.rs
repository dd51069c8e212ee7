//! Values of the IR for tests.
#![allow(dead_code, reason = "each test file uses some")]

use std::sync::Arc;

use ir::{
    AccessLog, Action, ChainKind, Cluster, Destination, Discovery, DnsFamily, DownstreamTls, Endpoint, EndpointAddress,
    FilterChain, Forward, HeaderMutation, HttpConnection, Listener, LoadBalancing, Locality, Millis, Name, Origin,
    PathMatch, Route, RouteMatch, RouteTable, TlsParams, Transport, UpstreamProtocol, VirtualHost, XdsValue,
};
use serde_json::Value;

/// What Envoy reads, as JSON.
pub(crate) fn json(value: &XdsValue) -> Value {
    let encoded = envoy::encode(value).expect("the value is valid");
    encoded.to_value().expect("what was encoded is known")
}

pub(crate) fn origin(kind: &'static str, name: &str) -> Origin {
    Origin { kind, namespace: "ns".into(), name: name.into(), section: None, annotations: Vec::new() }
}

pub(crate) fn upgrade(protocol: &str) -> ir::Upgrade {
    ir::Upgrade { protocol: protocol.into(), terminate: false }
}

pub(crate) fn forward(cluster: &str) -> Forward {
    Forward {
        to: Destination::Cluster(cluster.into()),
        path: None,
        host: None,
        mirrors: Vec::new(),
        timeout: None,
        retry: None,
        idle_timeout: None,
        upgrades: Vec::new(),
        append_x_forwarded_host: false,
        max_stream_duration: None,
        hash_policies: Vec::new(),
    }
}

pub(crate) fn route(name: &str, action: Action) -> Route {
    Route {
        name: name.into(),
        origin: origin("HTTPRoute", "r"),
        matches: RouteMatch {
            path: PathMatch::Prefix("/".into()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action,
        request_headers: HeaderMutation::default(),
        response_headers: HeaderMutation::default(),
        cors: None,
        session: None,
        deny_loopback: false,
        policies: Vec::new(),
        features: Vec::new(),
        stat_prefix: None,
    }
}

pub(crate) fn to(cluster: &str) -> Action {
    Action::Forward(Box::new(forward(cluster)))
}

pub(crate) fn host(name: &str, routes: Vec<Route>) -> Arc<VirtualHost> {
    Arc::new(VirtualHost { name: name.into(), domains: vec![name.into()], routes, origin: origin("Gateway", "gw") })
}

pub(crate) fn table(virtual_hosts: Vec<Arc<VirtualHost>>) -> XdsValue {
    XdsValue::RouteTable(Arc::new(RouteTable { name: "t".into(), ignore_port_in_host: true, virtual_hosts }))
}

/// A table with one route.
pub(crate) fn with_route(route: Route) -> XdsValue {
    table(vec![host("h", vec![route])])
}

/// The one route of [`with_route`], as Envoy reads it.
pub(crate) fn route_json(route: Route) -> Value {
    json(&with_route(route))["virtualHosts"][0]["routes"][0].take()
}

pub(crate) fn cluster(name: &str) -> Cluster {
    Cluster {
        name: name.into(),
        discovery: Discovery::Eds,
        connect_timeout: Millis(10_000),
        protocol: UpstreamProtocol::Http1,
        tls: None,
        tls_matches: Vec::new(),
        plain_endpoints: false,
        auto_sni: false,
        auto_san: false,
        load_balancing: LoadBalancing::LeastRequestByLocality,
        buffer_limit: 32_768,
        origin: Some(origin("HTTPRoute", "r")),
        dns_family: DnsFamily::V4Preferred,
        settings: ir::ClusterSettings::default(),
    }
}

pub(crate) fn locality(address: EndpointAddress) -> Locality {
    Locality {
        region: Some("c/backend/0".into()),
        zone: None,
        weight: Some(1),
        priority: 0,
        endpoints: vec![Endpoint {
            address,
            hostname: None,
            weight: 1,
            draining: false,
            tls: None,
            health_check: None,
        }],
        origin: Some(origin("Service", "s")),
    }
}

pub(crate) fn access_log() -> AccessLog {
    AccessLog::FileJson {
        path: "/dev/stdout".into(),
        fields: (0..20).map(|i| (format!("f{i}").into(), "%PROTOCOL%".into())).collect(),
        only_no_route: false,
    }
}

pub(crate) fn http_chain(name: &str, server_names: &[&str], tls: Option<DownstreamTls>) -> FilterChain {
    FilterChain {
        name: name.into(),
        server_names: server_names.iter().map(|n| Name::from(*n)).collect(),
        tls,
        kind: ChainKind::Http(Box::new(HttpConnection {
            stat_prefix: "https-10443".into(),
            route_table: name.into(),
            access_logs: vec![access_log()],
            filters: Vec::new(),
            initial_stream_window: 65_536,
            initial_connection_window: 1_048_576,
            max_concurrent_streams: 100,
        })),
    }
}

pub(crate) fn server_tls(secret: &str) -> DownstreamTls {
    DownstreamTls {
        certificates: vec![ir::CertificateRef::Secret(secret.into())],
        client_ca: None,
        require_client_certificate: false,
        accept_untrusted: false,
        alpn: vec!["h2".into(), "http/1.1".into()],
        params: TlsParams::default(),
    }
}

pub(crate) fn listener(chains: Vec<FilterChain>, default_chain: Option<FilterChain>) -> Listener {
    Listener {
        name: "ns/gw/l".into(),
        address: "0.0.0.0".into(),
        ipv4_compat: false,
        port: 10_443,
        protocol: Transport::Tcp,
        chains,
        default_chain,
        udp: None,
        access_logs: vec![AccessLog::FileJson {
            path: "/dev/stdout".into(),
            fields: vec![("a".into(), "b".into())],
            only_no_route: true,
        }],
        buffer_limit: 32_768,
        max_accepts_per_event: 1,
        origin: origin("Gateway", "gw"),
    }
}

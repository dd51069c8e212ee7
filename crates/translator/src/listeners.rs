//! Listeners of a fleet: one socket for each port, filter chains by server name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ir::{
    CertificateRef, ChainKind, Cluster, Discovery, DownstreamTls, FilterChain, Group, HttpConnection, HttpFilter,
    Listener, LoadBalancing, Name, ReadyListener, RouteTable, Secret, TcpProxy, TlsParams, Transport, UdpProxy,
    UpstreamProtocol, VirtualHost, XdsValue,
};

use crate::{
    access_log,
    cluster::{BUFFER_LIMIT, CONNECT_TIMEOUT},
    gateways::{Certificate, GatewayUnit, ListenerUnit, Protocol},
    http::{self, RouteUnit, Tables},
    l4::L4Unit,
    view,
};

/// Port of the listener that answers readiness probes.
const READY_PORT: u16 = 19003;
/// HTTP/2 windows and streams, towards clients.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const MAX_STREAMS: u32 = 100;
/// Cluster of listeners that have no route.
const EMPTY_CLUSTER: &str = "EmptyCluster";

/// Routes below HTTP by listener: the unit, and the hosts that it serves there.
pub(crate) type L4Routes<'u> = BTreeMap<usize, Vec<(&'u L4Unit, Vec<Name>)>>;

/// What a Gateway's routes amount to.
pub(crate) struct Routed<'u> {
    pub(crate) tables: &'u Tables,
    pub(crate) units: &'u dyn Fn(usize) -> &'u RouteUnit,
    /// GRPCRoutes are among the routes of a listener.
    pub(crate) grpc: &'u dyn Fn(usize) -> bool,
    pub(crate) l4: &'u L4Routes<'u>,
}

/// Adds listeners, route tables and secrets of a Gateway.
pub(crate) fn add(group: &mut Group, unit: &GatewayUnit<'_>, routed: &Routed<'_>) {
    let (address, ipv4_compat) = unit.fleet.bind();
    group.insert(XdsValue::Ready(Arc::new(ReadyListener { address, ipv4_compat, port: READY_PORT })));
    let mut ports: BTreeMap<(u16, bool), Vec<usize>> = BTreeMap::new();
    for (i, listener) in unit.listeners.iter().enumerate().filter(|(_, l)| l.programmed) {
        ports.entry((listener.container_port, listener.protocol == Protocol::Udp)).or_default().push(i);
    }
    for ((port, udp), members) in ports {
        let listener =
            if udp { datagrams(group, unit, &members, routed) } else { stream(group, unit, &members, routed) };
        debug_assert_eq!(listener.port, port);
        group.insert(XdsValue::Listener(Arc::new(listener)));
    }
}

fn socket(unit: &GatewayUnit<'_>, first: &ListenerUnit<'_>, protocol: Transport) -> Listener {
    let (address, ipv4_compat) = unit.fleet.bind();
    let scheme = if protocol == Transport::Udp { "udp" } else { "tcp" };
    Listener {
        name: if unit.fleet.names_v2 { format!("{scheme}-{}", first.port).into() } else { first.xds_name.clone() },
        address,
        ipv4_compat,
        port: first.container_port,
        protocol,
        chains: Vec::new(),
        default_chain: None,
        udp: None,
        access_logs: access_log::of_listener(),
        buffer_limit: BUFFER_LIMIT,
        max_accepts_per_event: 1,
        origin: view::origin("Gateway", &unit.object.metadata, Some(first.spec.name.as_str().into())),
    }
}

fn stream(group: &mut Group, unit: &GatewayUnit<'_>, members: &[usize], routed: &Routed<'_>) -> Listener {
    let first = &unit.listeners[members[0]];
    let mut listener = socket(unit, first, Transport::Tcp);
    // Port in the names of statistics.
    let shown = if unit.fleet.names_v2 { first.port } else { first.container_port };
    let plain: Vec<usize> = members.iter().copied().filter(|i| unit.listeners[*i].protocol == Protocol::Http).collect();
    if let Some(first) = plain.first() {
        let name = if unit.fleet.names_v2 {
            format!("http-{}", unit.listeners[*first].port).into()
        } else {
            unit.listeners[*first].xds_name.clone()
        };
        let mut hosts: Vec<Arc<VirtualHost>> =
            plain.iter().flat_map(|i| routed.tables.virtual_hosts(unit, *i, routed.units)).collect();
        for (i, host) in routed.tables.shields(unit, &plain) {
            hosts.push(http::shield(unit, i, &host));
        }
        let prefix = format!("http-{shown}");
        let kind = manager(&prefix, &name, &hosts, plain.iter().any(|i| (routed.grpc)(*i)));
        listener.default_chain = Some(FilterChain { name: name.clone(), server_names: Vec::new(), tls: None, kind });
        table(group, name, hosts);
    }
    let with = |f: fn(Protocol) -> bool| members.iter().copied().filter(move |i| f(unit.listeners[*i].protocol));
    for i in with(|p| p == Protocol::Https) {
        let own = &unit.listeners[i];
        let hosts = routed.tables.virtual_hosts(unit, i, routed.units);
        let prefix = format!("https-{shown}");
        let kind = manager(&prefix, &own.xds_name, &hosts, (routed.grpc)(i));
        listener.chains.push(FilterChain {
            name: own.xds_name.clone(),
            server_names: own.hostname.into_iter().map(|h| h.to_ascii_lowercase().into()).collect(),
            tls: Some(tls(group, own)),
            kind,
        });
        table(group, own.xds_name.clone(), hosts);
    }
    // After those of HTTPS listeners, whose hostnames are closer than what a route picks below a wildcard.
    for i in with(|p| matches!(p, Protocol::TlsPassthrough | Protocol::TlsTerminate | Protocol::Tcp)) {
        let routes = routed.l4.get(&i).map(Vec::as_slice).unwrap_or_default();
        connections(group, &mut listener, &unit.listeners[i], routes, shown);
    }
    if listener.chains.is_empty() && listener.default_chain.is_none() {
        let proxy = TcpProxy {
            stat_prefix: format!("tcp-{shown}").into(),
            clusters: vec![(EMPTY_CLUSTER.into(), 1)],
            access_logs: access_log::of_route(),
            idle_timeout: None,
            hash_policies: Vec::new(),
        };
        listener.chains.push(FilterChain {
            name: EMPTY_CLUSTER.into(),
            server_names: Vec::new(),
            tls: None,
            kind: ChainKind::Tcp(proxy),
        });
        empty_cluster(group);
    }
    listener
}

/// Chains of a TLS or TCP listener, one for each route.
fn connections(
    group: &mut Group,
    socket: &mut Listener,
    own: &ListenerUnit<'_>,
    routes: &[(&L4Unit, Vec<Name>)],
    shown: u16,
) {
    let what = match own.protocol {
        Protocol::TlsPassthrough => "tls-passthrough",
        Protocol::TlsTerminate => "tls-terminate",
        _ => "tcp",
    };
    for (unit, hosts) in routes {
        let names: Vec<Name> = hosts.iter().filter(|h| &***h != "*").cloned().collect();
        // Envoy refuses two chains with the same match: the older route has it.
        if socket.chains.iter().any(|c| c.server_names.is_empty() && names.is_empty()) {
            continue;
        }
        let taken = |n: &Name| socket.chains.iter().any(|c| c.server_names.contains(n));
        let free: Vec<Name> = names.iter().filter(|n| !taken(n)).cloned().collect();
        if free.is_empty() && !names.is_empty() {
            continue;
        }
        let proxy = TcpProxy {
            stat_prefix: format!("{what}-{shown}").into(),
            clusters: unit.clusters.clone(),
            access_logs: access_log::of_route(),
            idle_timeout: None,
            hash_policies: unit.hash_policies.clone(),
        };
        let tls = (own.protocol == Protocol::TlsTerminate).then(|| tls(group, own));
        socket.chains.push(FilterChain {
            name: unit.name.clone(),
            server_names: free,
            tls,
            kind: ChainKind::Tcp(proxy),
        });
    }
}

fn datagrams(group: &mut Group, unit: &GatewayUnit<'_>, members: &[usize], routed: &Routed<'_>) -> Listener {
    let mut listener = socket(unit, &unit.listeners[members[0]], Transport::Udp);
    // Datagrams carry nothing to tell routes apart: the oldest has the port.
    let cluster = members.iter().filter_map(|i| routed.l4.get(i)).flatten().find_map(|(u, _)| u.clusters.first());
    let cluster = match cluster {
        Some((name, _)) => name.clone(),
        None => {
            empty_cluster(group);
            EMPTY_CLUSTER.into()
        }
    };
    listener.udp = Some(UdpProxy { stat_prefix: "service".into(), cluster, access_logs: access_log::of_route() });
    listener
}

fn empty_cluster(group: &mut Group) {
    group.insert(XdsValue::Cluster(Arc::new(Cluster {
        name: EMPTY_CLUSTER.into(),
        discovery: Discovery::Empty,
        connect_timeout: CONNECT_TIMEOUT,
        protocol: UpstreamProtocol::Http1,
        tls: None,
        tls_matches: Vec::new(),
        plain_endpoints: false,
        auto_sni: false,
        auto_san: false,
        load_balancing: LoadBalancing::LeastRequest,
        buffer_limit: BUFFER_LIMIT,
        origin: None,
        dns_family: ir::DnsFamily::V4Preferred,
        settings: ir::ClusterSettings::default(),
    })));
}

fn table(group: &mut Group, name: Name, mut virtual_hosts: Vec<Arc<VirtualHost>>) {
    // Envoy refuses a table in which a domain comes twice; listeners share none, and one that did must not harm others.
    let mut domains = BTreeSet::new();
    virtual_hosts.retain(|h| h.domains.iter().all(|d| domains.insert(d.clone())));
    let table = RouteTable { name, ignore_port_in_host: true, virtual_hosts };
    group.insert(XdsValue::RouteTable(Arc::new(table)));
}

fn manager(stat_prefix: &str, route_table: &Name, hosts: &[Arc<VirtualHost>], grpc: bool) -> ChainKind {
    let routes = || hosts.iter().flat_map(|h| &h.routes);
    let [first, buffer, late, last] = http::filters(hosts.iter().map(|h| &**h));
    let mut filters = first;
    if routes().any(|r| r.cors.is_some()) {
        filters.push(HttpFilter::Cors);
    }
    if let Some(session) = routes().find_map(|r| r.session.clone()) {
        filters.push(HttpFilter::StatefulSession(session));
    }
    filters.extend(buffer);
    if routes().any(|r| r.deny_loopback) {
        filters.push(HttpFilter::LoopbackDeny);
    }
    filters.extend(late);
    if grpc {
        filters.extend([HttpFilter::GrpcWeb, HttpFilter::GrpcStats]);
    }
    filters.extend(last);
    ChainKind::Http(Box::new(HttpConnection {
        stat_prefix: stat_prefix.into(),
        route_table: route_table.clone(),
        access_logs: access_log::of_route(),
        filters,
        initial_stream_window: STREAM_WINDOW,
        initial_connection_window: CONNECTION_WINDOW,
        max_concurrent_streams: MAX_STREAMS,
    }))
}

/// TLS of a listener; its secrets go to the group.
fn tls(group: &mut Group, listener: &ListenerUnit<'_>) -> DownstreamTls {
    let mut secret = |s: &Secret| group.insert(XdsValue::Secret(Arc::new(s.clone())));
    let mut certificates = Vec::new();
    let mut servers = Vec::new();
    for certificate in &listener.certificates {
        match certificate {
            Certificate::Inline { secret: s, .. } => {
                secret(s);
                certificates.push(CertificateRef::Secret(s.name.clone()));
            }
            Certificate::Sds { name, cluster, path } => {
                certificates.push(CertificateRef::Sds { name: name.clone(), cluster: cluster.clone() });
                servers.push((cluster.clone(), path.clone()));
            }
        }
    }
    if let Some(f) = &listener.frontend {
        secret(&f.secret);
    }
    for (name, path) in servers {
        group.insert(XdsValue::Cluster(Arc::new(Cluster {
            name,
            discovery: Discovery::SdsSocket { path },
            connect_timeout: CONNECT_TIMEOUT,
            protocol: UpstreamProtocol::Http2,
            tls: None,
            tls_matches: Vec::new(),
            plain_endpoints: false,
            auto_sni: false,
            auto_san: false,
            load_balancing: LoadBalancing::LeastRequest,
            buffer_limit: BUFFER_LIMIT,
            origin: None,
            dns_family: ir::DnsFamily::V4Preferred,
            settings: ir::ClusterSettings::default(),
        })));
    }
    let alpn: &[&str] = match listener.protocol {
        Protocol::Https if listener.http1_only => &["http/1.1"],
        Protocol::Https => &["h2", "http/1.1"],
        _ => &[],
    };
    DownstreamTls {
        certificates,
        client_ca: listener.frontend.as_ref().map(|f| f.secret.name.clone()),
        require_client_certificate: listener.frontend.as_ref().is_some_and(|f| !f.fallback),
        accept_untrusted: listener.frontend.as_ref().is_some_and(|f| f.fallback),
        alpn: alpn.iter().map(|a| Name::from(*a)).collect(),
        params: TlsParams::default(),
    }
}

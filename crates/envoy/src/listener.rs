//! Listeners and filter chains.

use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::{Address, SocketAddress, address, socket_address},
            listener::v3::{Filter, FilterChain, FilterChainMatch, Listener, ListenerFilter, filter, listener_filter},
        },
        extensions::filters::{
            listener::tls_inspector::v3::TlsInspector,
            network::tcp_proxy::v3::{
                TcpProxy,
                tcp_proxy::{ClusterSpecifier, WeightedCluster, weighted_cluster::ClusterWeight},
            },
            udp::udp_proxy::v3::{Route, UdpProxyConfig, udp_proxy_config::RouteSpecifier},
        },
        r#type::v3::{HashPolicy, hash_policy},
    },
    xds::{
        core::v3::TypedExtensionConfig,
        r#type::matcher::v3::{
            Matcher,
            matcher::{OnMatch, on_match},
        },
    },
};
use ir::{ChainKind, Transport};
use prost::{Message, Name};

use crate::{
    access_log, http,
    pb::{any, duration, u32_value},
    tls,
};

pub(crate) fn listener(l: &ir::Listener) -> Listener {
    let mut out = Listener {
        name: l.name.to_string(),
        address: Some(address(&l.address, l.port, l.ipv4_compat, l.protocol)),
        access_log: access_log::all(&l.access_logs),
        ..Default::default()
    };
    if let Some(udp) = &l.udp {
        out.listener_filters = vec![listener_filter("envoy.filters.udp_listener.udp_proxy", &udp_proxy(udp))];
        return out;
    }
    // The server name is only known once the first bytes were looked at.
    if l.chains.iter().any(|c| !c.server_names.is_empty()) {
        out.listener_filters = vec![listener_filter("envoy.filters.listener.tls_inspector", &TlsInspector::default())];
    }
    out.filter_chains = l.chains.iter().map(chain).collect();
    out.default_filter_chain = l.default_chain.as_ref().map(chain);
    out.per_connection_buffer_limit_bytes = u32_value(l.buffer_limit);
    out.max_connections_to_accept_per_socket_event = u32_value(l.max_accepts_per_event);
    out
}

/// The listener for readiness probes: it answers by itself, and goes on answering when the proxy is overloaded.
pub(crate) fn ready(l: &ir::ReadyListener) -> Listener {
    Listener {
        name: l.name().to_string(),
        address: Some(address(&l.address, l.port, l.ipv4_compat, Transport::Tcp)),
        bypass_overload_manager: true,
        filter_chains: vec![FilterChain { filters: vec![http::ready()], ..Default::default() }],
        ..Default::default()
    }
}

fn address(host: &str, port: u16, ipv4_compat: bool, protocol: Transport) -> Address {
    let protocol = match protocol {
        Transport::Tcp => socket_address::Protocol::Tcp,
        Transport::Udp => socket_address::Protocol::Udp,
    };
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            protocol: protocol as i32,
            address: host.to_owned(),
            ipv4_compat,
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port.into())),
            ..Default::default()
        })),
    }
}

fn chain(c: &ir::FilterChain) -> FilterChain {
    let filter = match &c.kind {
        ChainKind::Http(h) => http::connection_manager(h),
        ChainKind::Tcp(t) => network_filter("envoy.filters.network.tcp_proxy", &tcp_proxy(t)),
    };
    FilterChain {
        name: c.name.to_string(),
        filter_chain_match: (!c.server_names.is_empty()).then(|| FilterChainMatch {
            server_names: c.server_names.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }),
        filters: vec![filter],
        transport_socket: c.tls.as_ref().map(|t| tls::socket(&tls::downstream(t))),
        ..Default::default()
    }
}

/// A network filter by name and settings.
pub(crate) fn network_filter<M: Message + Name>(name: &str, settings: &M) -> Filter {
    Filter { name: name.to_owned(), config_type: Some(filter::ConfigType::TypedConfig(any(settings))) }
}

fn listener_filter<M: Message + Name>(name: &str, settings: &M) -> ListenerFilter {
    ListenerFilter {
        name: name.to_owned(),
        config_type: Some(listener_filter::ConfigType::TypedConfig(any(settings))),
        ..Default::default()
    }
}

fn tcp_proxy(t: &ir::TcpProxy) -> TcpProxy {
    let to = match &*t.clusters {
        [(cluster, _)] => ClusterSpecifier::Cluster(cluster.to_string()),
        several => {
            let weight = |(name, weight): &(ir::Name, u32)| ClusterWeight {
                name: name.to_string(),
                weight: *weight,
                ..Default::default()
            };
            ClusterSpecifier::WeightedClusters(WeightedCluster { clusters: several.iter().map(weight).collect() })
        }
    };
    TcpProxy {
        stat_prefix: t.stat_prefix.to_string(),
        access_log: access_log::all(&t.access_logs),
        idle_timeout: t.idle_timeout.map(duration),
        cluster_specifier: Some(to),
        hash_policy: t.hash_policies.iter().filter(|h| **h == ir::HashPolicy::SourceIp).map(|_| by_source()).collect(),
        ..Default::default()
    }
}

/// Below HTTP, a client's address is all there is to hash.
fn by_source() -> HashPolicy {
    let source = hash_policy::PolicySpecifier::SourceIp(hash_policy::SourceIp {});
    HashPolicy { policy_specifier: Some(source) }
}

fn udp_proxy(u: &ir::UdpProxy) -> UdpProxyConfig {
    let route = Route { cluster: u.cluster.to_string() };
    let action = TypedExtensionConfig { name: "route".to_owned(), typed_config: Some(any(&route)) };
    let on_no_match = OnMatch { on_match: Some(on_match::OnMatch::Action(action)), ..Default::default() };
    let matcher = Matcher { on_no_match: Some(Box::new(on_no_match)), ..Default::default() };
    UdpProxyConfig {
        stat_prefix: u.stat_prefix.to_string(),
        access_log: access_log::all(&u.access_logs),
        route_specifier: Some(RouteSpecifier::Matcher(matcher)),
        ..Default::default()
    }
}

//! Clusters.

use envoy_types::pb::envoy::{
    config::{
        cluster::v3::{
            Cluster, LoadBalancingPolicy,
            cluster::{
                ClusterDiscoveryType, CommonLbConfig, CustomClusterType, DiscoveryType, DnsLookupFamily,
                EdsClusterConfig, TransportSocketMatch,
            },
            load_balancing_policy::Policy,
        },
        core::v3::{
            Http1ProtocolOptions, Http2ProtocolOptions, TransportSocket, TypedExtensionConfig,
            UpstreamHttpProtocolOptions, transport_socket,
        },
        endpoint::v3::{ClusterLoadAssignment, LbEndpoint, LocalityLbEndpoints, lb_endpoint},
    },
    extensions::{
        clusters::{
            common::dns::v3::DnsLookupFamily as DnsClusterFamily,
            dns::v3::DnsCluster,
            dynamic_forward_proxy::v3::{ClusterConfig, cluster_config::ClusterImplementationSpecifier},
        },
        common::dynamic_forward_proxy::v3::DnsCacheConfig,
        load_balancing_policies::{
            cluster_provided::v3::ClusterProvided,
            common::v3::{
                LocalityLbConfig,
                locality_lb_config::{LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig},
            },
            least_request::v3::LeastRequest,
        },
        transport_sockets::tls::v3::{CommonTlsContext, UpstreamTlsContext},
        upstreams::http::v3::{
            HttpProtocolOptions,
            http_protocol_options::{
                AutoHttpConfig, ExplicitHttpConfig, UpstreamProtocolOptions, UseDownstreamHttpConfig,
                explicit_http_config::ProtocolConfig,
            },
        },
    },
    r#type::v3::Percent,
};
use ir::{Discovery, DnsFamily, LoadBalancing, Millis, UpstreamProtocol};

use crate::{
    admission, endpoints,
    pb::{ads, any, bool_value, duration, extension, origin, structure, text, u32_value, u64_value},
    settings, tls,
};

/// Time after which names are looked up again where DNS names no time of its own.
const DNS_REFRESH: Millis = Millis(30_000);
const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

pub(crate) fn cluster(c: &ir::Cluster) -> Cluster {
    match &c.discovery {
        Discovery::Empty => Cluster {
            name: c.name.to_string(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static as i32)),
            ..Default::default()
        },
        Discovery::SdsSocket { path } => sds_socket(c, path),
        _ => upstream(c),
    }
}

fn upstream(c: &ir::Cluster) -> Cluster {
    let s = &c.settings;
    let load_assignment = match &c.discovery {
        Discovery::Static(localities) | Discovery::Dns(localities) => Some(endpoints::assignment(&c.name, localities)),
        _ => None,
    };
    let eds_cluster_config = matches!(c.discovery, Discovery::Eds)
        .then(|| EdsClusterConfig { eds_config: Some(ads()), service_name: c.name.to_string() });
    Cluster {
        name: c.name.to_string(),
        cluster_discovery_type: Some(discovery_type(c)),
        eds_cluster_config,
        load_assignment,
        connect_timeout: Some(duration(c.connect_timeout)),
        per_connection_buffer_limit_bytes: u32_value(c.buffer_limit),
        dns_lookup_family: dns_family(c.dns_family) as i32,
        circuit_breakers: Some(settings::breakers(s.breakers.as_ref())),
        common_lb_config: Some(CommonLbConfig {
            healthy_panic_threshold: s.panic_threshold.map(|p| Percent { value: p.into() }),
            ..Default::default()
        }),
        health_checks: s.active_check.iter().map(settings::health_check).collect(),
        outlier_detection: s.outliers.as_ref().map(settings::outliers),
        upstream_connection_options: settings::connection_options(s),
        preconnect_policy: settings::preconnect(s),
        ignore_health_on_host_removal: true,
        load_balancing_policy: Some(load_balancing(c)),
        metadata: c.origin.as_ref().map(origin),
        transport_socket: transport_socket(c),
        transport_socket_matches: c.tls_matches.iter().map(|m| socket_match(m, s.proxy_protocol)).collect(),
        typed_extension_protocol_options: http_options(c)
            .map(|o| (HTTP_OPTIONS.to_owned(), any(&o)))
            .into_iter()
            .collect(),
        ..Default::default()
    }
}

/// Deprecated fields are what the reference sends here, and Envoy reads them.
#[allow(deprecated)]
fn sds_socket(c: &ir::Cluster, path: &str) -> Cluster {
    let endpoint = envoy_types::pb::envoy::config::endpoint::v3::Endpoint {
        address: Some(endpoints::pipe(path)),
        ..Default::default()
    };
    let host_identifier = Some(lb_endpoint::HostIdentifier::Endpoint(endpoint));
    Cluster {
        name: c.name.to_string(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Static as i32)),
        connect_timeout: Some(duration(c.connect_timeout)),
        http2_protocol_options: Some(Http2ProtocolOptions::default()),
        load_assignment: Some(ClusterLoadAssignment {
            cluster_name: c.name.to_string(),
            endpoints: vec![LocalityLbEndpoints {
                lb_endpoints: vec![LbEndpoint { host_identifier, ..Default::default() }],
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn discovery_type(c: &ir::Cluster) -> ClusterDiscoveryType {
    let custom = |config: TypedExtensionConfig| {
        ClusterDiscoveryType::ClusterType(CustomClusterType { name: config.name, typed_config: config.typed_config })
    };
    match &c.discovery {
        Discovery::Eds => ClusterDiscoveryType::Type(DiscoveryType::Eds as i32),
        Discovery::Static(_) | Discovery::Empty | Discovery::SdsSocket { .. } => {
            ClusterDiscoveryType::Type(DiscoveryType::Static as i32)
        }
        Discovery::Dns(_) => custom(extension(
            "envoy.cluster.dns",
            &DnsCluster {
                dns_refresh_rate: Some(duration(c.settings.dns_refresh.unwrap_or(DNS_REFRESH))),
                respect_dns_ttl: c.settings.respect_dns_ttl.unwrap_or(true),
                dns_lookup_family: dns_cluster_family(c.dns_family) as i32,
                ..Default::default()
            },
        )),
        Discovery::Dynamic { cache } => custom(extension(
            "envoy.clusters.dynamic_forward_proxy",
            &ClusterConfig {
                cluster_implementation_specifier: Some(ClusterImplementationSpecifier::DnsCacheConfig(
                    DnsCacheConfig {
                        name: cache.to_string(),
                        dns_lookup_family: dns_family(c.dns_family) as i32,
                        dns_refresh_rate: Some(duration(c.settings.dns_refresh.unwrap_or(DNS_REFRESH))),
                        ..Default::default()
                    },
                )),
                ..Default::default()
            },
        )),
    }
}

fn dns_family(family: DnsFamily) -> DnsLookupFamily {
    match family {
        DnsFamily::V4Preferred => DnsLookupFamily::V4Preferred,
        DnsFamily::V4Only => DnsLookupFamily::V4Only,
        DnsFamily::V6Only => DnsLookupFamily::V6Only,
        DnsFamily::V6Preferred => DnsLookupFamily::Auto,
        DnsFamily::All => DnsLookupFamily::All,
    }
}

fn dns_cluster_family(family: DnsFamily) -> DnsClusterFamily {
    match family {
        DnsFamily::V4Preferred => DnsClusterFamily::V4Preferred,
        DnsFamily::V4Only => DnsClusterFamily::V4Only,
        DnsFamily::V6Only => DnsClusterFamily::V6Only,
        DnsFamily::V6Preferred => DnsClusterFamily::Auto,
        DnsFamily::All => DnsClusterFamily::All,
    }
}

fn load_balancing(c: &ir::Cluster) -> LoadBalancingPolicy {
    if let (Some(balancer), false) = (&c.settings.balancer, matches!(c.discovery, Discovery::Dynamic { .. })) {
        return settings::balancer(balancer);
    }
    let least_request = |specifier: Option<LocalityConfigSpecifier>| {
        extension(
            "envoy.load_balancing_policies.least_request",
            &LeastRequest {
                locality_lb_config: specifier.map(|s| LocalityLbConfig { locality_config_specifier: Some(s) }),
                ..Default::default()
            },
        )
    };
    let policy = match (&c.discovery, &c.load_balancing) {
        (Discovery::Dynamic { .. }, _) => {
            extension("envoy.load_balancing_policies.cluster_provided", &ClusterProvided {})
        }
        (_, LoadBalancing::LeastRequest) => least_request(None),
        (_, LoadBalancing::LeastRequestByLocality) => {
            least_request(Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {})))
        }
        (_, LoadBalancing::LeastRequestZoneAware) => {
            least_request(Some(LocalityConfigSpecifier::ZoneAwareLbConfig(ZoneAwareLbConfig {
                min_cluster_size: u64_value(1),
                ..Default::default()
            })))
        }
    };
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(policy) }] }
}

/// With TLS per endpoint, an endpoint that names none must not be spoken to in plain text by accident: the cluster's
/// own socket is then a TLS context that knows no authority.
fn transport_socket(c: &ir::Cluster) -> Option<TransportSocket> {
    let own = own_socket(c);
    match c.settings.proxy_protocol {
        Some(version) => Some(settings::proxy_protocol(version, own)),
        None => own,
    }
}

fn own_socket(c: &ir::Cluster) -> Option<TransportSocket> {
    if !c.tls_matches.is_empty() && !c.plain_endpoints {
        let context =
            UpstreamTlsContext { common_tls_context: Some(CommonTlsContext::default()), ..Default::default() };
        return Some(TransportSocket {
            name: "dummy.transport_socket".to_owned(),
            config_type: Some(transport_socket::ConfigType::TypedConfig(any(&context))),
        });
    }
    c.tls.as_ref().map(|t| tls::socket(&tls::upstream(t)))
}

fn socket_match(m: &ir::TlsMatch, proxy_protocol: Option<ir::ProxyProtocol>) -> TransportSocketMatch {
    let tls = tls::socket(&tls::upstream(&m.tls));
    TransportSocketMatch {
        name: m.name.to_string(),
        r#match: Some(structure([("name", text(&m.name))])),
        transport_socket: Some(match proxy_protocol {
            Some(version) => settings::proxy_protocol(version, Some(tls)),
            None => tls,
        }),
    }
}

fn http_options(c: &ir::Cluster) -> Option<HttpProtocolOptions> {
    let upstream = (c.auto_sni || c.auto_san).then(|| UpstreamHttpProtocolOptions {
        auto_sni: c.auto_sni,
        auto_san_validation: c.auto_san,
        ..Default::default()
    });
    let s = &c.settings;
    let wanted = s.http2.clone().unwrap_or_default();
    let http2 = Http2ProtocolOptions {
        initial_stream_window_size: u32_value(wanted.stream_window.unwrap_or(64 * 1024)),
        initial_connection_window_size: u32_value(wanted.connection_window.unwrap_or(1024 * 1024)),
        max_concurrent_streams: wanted.max_streams.and_then(u32_value),
        override_stream_error_on_invalid_http_message: wanted.keep_connection_on_error.and_then(bool_value),
        connection_keepalive: wanted.keepalive.as_ref().map(settings::http2_keepalive),
        ..Default::default()
    };
    let common = settings::common_http(&s.http);
    let explicit =
        |config| UpstreamProtocolOptions::ExplicitHttpConfig(ExplicitHttpConfig { protocol_config: Some(config) });
    let protocol = match c.protocol {
        UpstreamProtocol::Http1
            if upstream.is_none() && common.is_none() && !s.use_client_protocol && s.admission.is_none() =>
        {
            return None;
        }
        _ if s.use_client_protocol => UpstreamProtocolOptions::UseDownstreamProtocolConfig(UseDownstreamHttpConfig {
            http_protocol_options: Some(Http1ProtocolOptions::default()),
            http2_protocol_options: Some(http2),
            ..Default::default()
        }),
        UpstreamProtocol::Http1 | UpstreamProtocol::Http1Only => {
            explicit(ProtocolConfig::HttpProtocolOptions(Http1ProtocolOptions::default()))
        }
        UpstreamProtocol::Http2 => explicit(ProtocolConfig::Http2ProtocolOptions(http2)),
        UpstreamProtocol::Auto => UpstreamProtocolOptions::AutoConfig(AutoHttpConfig {
            http_protocol_options: Some(Http1ProtocolOptions::default()),
            http2_protocol_options: Some(http2),
            ..Default::default()
        }),
    };
    Some(HttpProtocolOptions {
        common_http_protocol_options: common,
        upstream_http_protocol_options: upstream,
        http_filters: s.admission.as_ref().map(admission::filters).unwrap_or_default(),
        upstream_protocol_options: Some(protocol),
        ..Default::default()
    })
}

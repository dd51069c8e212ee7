//! Settings of clusters that policies make.

use envoy_types::pb::envoy::{
    config::{
        cluster::v3::{
            CircuitBreakers, LoadBalancingPolicy, OutlierDetection, UpstreamConnectionOptions,
            circuit_breakers::{Thresholds, thresholds::RetryBudget},
            cluster::PreconnectPolicy,
            load_balancing_policy::Policy,
        },
        core::v3::{
            HealthCheck, HttpProtocolOptions, KeepaliveSettings, ProxyProtocolConfig, RequestMethod, TcpKeepalive,
            TransportSocket, TypedExtensionConfig, health_check as check, proxy_protocol_config, transport_socket,
        },
    },
    extensions::{
        health_check::event_sinks::file::v3::HealthCheckEventFileSink,
        load_balancing_policies::{
            client_side_weighted_round_robin::v3::ClientSideWeightedRoundRobin,
            common::v3::{
                LocalityLbConfig, OrcaOobReportingConfig, SlowStartConfig,
                locality_lb_config::{
                    LocalityConfigSpecifier, LocalityWeightedLbConfig, ZoneAwareLbConfig,
                    zone_aware_lb_config::ForceLocalZone,
                },
            },
            least_request::v3::LeastRequest,
            maglev::v3::Maglev,
            override_host::v3::{OverrideHost, override_host::OverrideHostSource},
            random::v3::Random,
            round_robin::v3::RoundRobin,
            wrr_locality::v3::WrrLocality,
        },
        transport_sockets::{proxy_protocol::v3::ProxyProtocolUpstreamTransport, raw_buffer::v3::RawBuffer},
    },
    r#type::v3::{Int64Range, Percent},
};
use envoy_types::pb::google::protobuf::{DoubleValue, FloatValue};
use ir::{Algorithm, Balancer, ClusterSettings, Payload, Probe, Zones};

use crate::pb::{any, bool_value, duration, extension, u32_value, u64_value};

/// Retries at the same time; Envoy allows 3.
const MAX_RETRIES: u32 = 1024;

pub(crate) fn balancer(b: &Balancer) -> LoadBalancingPolicy {
    let own = algorithm(b);
    if b.override_headers.is_empty() {
        return policy(own);
    }
    let source = |header: &ir::Name| OverrideHostSource { header: header.to_string(), ..Default::default() };
    policy(extension(
        "envoy.load_balancing_policies.override_host",
        &OverrideHost {
            override_host_sources: b.override_headers.iter().map(source).collect(),
            fallback_policy: Some(policy(own)),
            ..Default::default()
        },
    ))
}

fn policy(config: TypedExtensionConfig) -> LoadBalancingPolicy {
    LoadBalancingPolicy { policies: vec![Policy { typed_extension_config: Some(config) }] }
}

fn algorithm(b: &Balancer) -> TypedExtensionConfig {
    let locality_lb_config = localities(b).map(|s| LocalityLbConfig { locality_config_specifier: Some(s) });
    let slow_start_config =
        b.slow_start.map(|t| SlowStartConfig { slow_start_window: Some(duration(t)), ..Default::default() });
    match &b.algorithm {
        Algorithm::LeastRequest => extension(
            "envoy.load_balancing_policies.least_request",
            &LeastRequest { locality_lb_config, slow_start_config, ..Default::default() },
        ),
        Algorithm::RoundRobin => extension(
            "envoy.load_balancing_policies.round_robin",
            &RoundRobin { locality_lb_config, slow_start_config },
        ),
        Algorithm::Random => extension("envoy.load_balancing_policies.random", &Random { locality_lb_config }),
        Algorithm::Maglev { table_size } => extension(
            "envoy.load_balancing_policies.maglev",
            &Maglev {
                table_size: table_size.and_then(u64_value),
                locality_weighted_lb_config: (b.zones == Zones::Weighted).then_some(LocalityWeightedLbConfig {}),
                ..Default::default()
            },
        ),
        Algorithm::Utilization(u) => {
            let own = extension(
                "envoy.load_balancing_policies.client_side_weighted_round_robin",
                &utilization(u, slow_start_config),
            );
            if b.zones != Zones::Weighted {
                return own;
            }
            extension(
                "envoy.load_balancing_policies.wrr_locality",
                &WrrLocality { endpoint_picking_policy: Some(policy(own)) },
            )
        }
    }
}

/// How an algorithm that knows localities weighs them. One behind an override has none: it is asked for one endpoint of all.
fn localities(b: &Balancer) -> Option<LocalityConfigSpecifier> {
    match &b.zones {
        Zones::PreferLocal { min_endpoints, percent, force } => {
            Some(LocalityConfigSpecifier::ZoneAwareLbConfig(ZoneAwareLbConfig {
                routing_enabled: percent.map(|p| Percent { value: p.into() }),
                min_cluster_size: u64_value(min_endpoints.unwrap_or(1)),
                force_local_zone: force.map(|min| ForceLocalZone { min_size: min.and_then(u32_value) }),
                ..Default::default()
            }))
        }
        Zones::ByBackend if !b.override_headers.is_empty() => None,
        Zones::ByBackend | Zones::Weighted => {
            Some(LocalityConfigSpecifier::LocalityWeightedLbConfig(LocalityWeightedLbConfig {}))
        }
    }
}

fn utilization(u: &ir::Utilization, slow_start_config: Option<SlowStartConfig>) -> ClientSideWeightedRoundRobin {
    let own_stream = u.out_of_band.as_ref();
    let reporting = own_stream.filter(|o| o.port.is_some() || o.authority.is_some());
    ClientSideWeightedRoundRobin {
        enable_oob_load_report: own_stream.and_then(|_| bool_value(true)),
        oob_reporting_period: own_stream.and_then(|o| o.period).map(duration),
        blackout_period: u.blackout.map(duration),
        weight_expiration_period: u.expiration.map(duration),
        weight_update_period: u.update.map(duration),
        error_utilization_penalty: u
            .error_penalty_percent
            .map(|p| FloatValue { value: u16::try_from(p).map_or(f32::from(u16::MAX), f32::from) / 100.0 }),
        metric_names_for_computing_utilization: u.metrics.iter().map(ToString::to_string).collect(),
        slow_start_config,
        oob_reporting_config: reporting.map(|o| OrcaOobReportingConfig {
            port_value: o.port.unwrap_or_default().into(),
            authority: o.authority.as_deref().unwrap_or_default().to_owned(),
            ..Default::default()
        }),
    }
}

pub(crate) fn health_check(c: &ir::ActiveCheck) -> HealthCheck {
    let receive = |p: &Option<Payload>| p.iter().map(payload).collect::<Vec<_>>();
    let checker = match &c.probe {
        Probe::Http(p) => check::HealthChecker::HttpHealthCheck(check::HttpHealthCheck {
            host: p.host.as_deref().unwrap_or_default().to_owned(),
            path: p.path.to_string(),
            method: p.method.as_deref().and_then(RequestMethod::from_str_name).unwrap_or_default() as i32,
            expected_statuses: ranges(&p.expected),
            retriable_statuses: ranges(&p.retriable),
            send: p.send.as_ref().map(payload),
            receive: receive(&p.receive),
            ..Default::default()
        }),
        Probe::Tcp { send, receive: expected } => check::HealthChecker::TcpHealthCheck(check::TcpHealthCheck {
            send: send.as_ref().map(payload),
            receive: receive(expected),
            ..Default::default()
        }),
        Probe::Grpc { service } => check::HealthChecker::GrpcHealthCheck(check::GrpcHealthCheck {
            service_name: service.as_deref().unwrap_or_default().to_owned(),
            ..Default::default()
        }),
    };
    let sink = |l: &ir::CheckLog| {
        let sink = HealthCheckEventFileSink { event_log_path: l.path.to_string() };
        extension("envoy.health_check.event_sinks.file", &sink)
    };
    HealthCheck {
        timeout: Some(duration(c.timeout)),
        interval: Some(duration(c.interval)),
        initial_jitter: c.initial_jitter.map(duration),
        unhealthy_threshold: u32_value(c.unhealthy_threshold),
        healthy_threshold: u32_value(c.healthy_threshold),
        event_logger: c.log.iter().map(sink).collect(),
        always_log_health_check_failures: c.log.as_ref().is_some_and(|l| l.every_failure),
        always_log_health_check_success: c.log.as_ref().is_some_and(|l| l.every_success),
        health_checker: Some(checker),
        ..Default::default()
    }
}

/// Ascending statuses as the ranges that Envoy wants, whose ends are outside; neighbours share one.
fn ranges(statuses: &[u32]) -> Vec<Int64Range> {
    let mut out: Vec<Int64Range> = Vec::new();
    for status in statuses.iter().map(|s| i64::from(*s)) {
        match out.last_mut() {
            Some(last) if last.end == status => last.end += 1,
            _ => out.push(Int64Range { start: status, end: status + 1 }),
        }
    }
    out
}

/// Text goes over the wire as the hexadecimal form of its bytes.
fn payload(p: &Payload) -> check::Payload {
    let payload = match p {
        Payload::Text(text) => check::payload::Payload::Text(text.bytes().map(|b| format!("{b:02x}")).collect()),
        Payload::Binary(bytes) => check::payload::Payload::Binary(bytes.clone()),
    };
    check::Payload { payload: Some(payload) }
}

pub(crate) fn outliers(o: &ir::OutlierDetection) -> OutlierDetection {
    let count = |n: Option<u32>| n.and_then(u32_value);
    OutlierDetection {
        consecutive_5xx: count(o.consecutive_5xx),
        interval: o.interval.map(duration),
        base_ejection_time: o.base_ejection.map(duration),
        max_ejection_percent: count(o.max_ejection_percent),
        consecutive_gateway_failure: count(o.consecutive_gateway_errors),
        // Envoy's own default would count gateway errors and do nothing about them.
        enforcing_consecutive_gateway_failure: o.consecutive_gateway_errors.and_then(|_| u32_value(100)),
        split_external_local_origin_errors: o.split_local_errors,
        consecutive_local_origin_failure: count(o.consecutive_local_failures),
        failure_percentage_threshold: count(o.failure_percentage),
        enforcing_failure_percentage: o.failure_percentage.and_then(|_| u32_value(100)),
        always_eject_one_host: o.always_eject_one.and_then(bool_value),
        ..Default::default()
    }
}

pub(crate) fn breakers(b: Option<&ir::CircuitBreakers>) -> CircuitBreakers {
    let Some(b) = b else {
        return CircuitBreakers {
            thresholds: vec![Thresholds { max_retries: u32_value(MAX_RETRIES), ..Default::default() }],
            ..Default::default()
        };
    };
    let count = |n: Option<u32>| n.and_then(u32_value);
    let budget = |(share, least): (ir::Fraction, Option<u32>)| RetryBudget {
        budget_percent: Some(Percent { value: f64::from(share.numerator) * 100.0 / f64::from(share.denominator) }),
        min_retry_concurrency: count(least),
        ..Default::default()
    };
    CircuitBreakers {
        thresholds: vec![Thresholds {
            max_connections: count(b.max_connections),
            max_pending_requests: count(b.max_pending),
            max_requests: count(b.max_requests),
            max_retries: u32_value(b.max_retries.unwrap_or(MAX_RETRIES)),
            retry_budget: b.retry_budget.map(budget),
            ..Default::default()
        }],
        per_host_thresholds: b
            .max_connections_per_endpoint
            .map(|n| Thresholds { max_connections: u32_value(n), ..Default::default() })
            .into_iter()
            .collect(),
    }
}

pub(crate) fn connection_options(s: &ClusterSettings) -> Option<UpstreamConnectionOptions> {
    s.keepalive.as_ref().map(|k| UpstreamConnectionOptions { tcp_keepalive: Some(keepalive(k)), ..Default::default() })
}

pub(crate) fn keepalive(k: &ir::TcpKeepalive) -> TcpKeepalive {
    TcpKeepalive {
        keepalive_probes: k.probes.and_then(u32_value),
        keepalive_time: k.idle.and_then(u32_value),
        keepalive_interval: k.interval.and_then(u32_value),
    }
}

pub(crate) fn preconnect(s: &ClusterSettings) -> Option<PreconnectPolicy> {
    let ratio = |percent: Option<u32>| percent.map(|p| DoubleValue { value: f64::from(p) / 100.0 });
    (s.preconnect_per_endpoint.is_some() || s.preconnect_predictive.is_some()).then(|| PreconnectPolicy {
        per_upstream_preconnect_ratio: ratio(s.preconnect_per_endpoint),
        predictive_preconnect_ratio: ratio(s.preconnect_predictive),
        ..Default::default()
    })
}

/// A socket that sends a PROXY protocol header before what `inner` (plain text without one) sends.
pub(crate) fn proxy_protocol(version: ir::ProxyProtocol, inner: Option<TransportSocket>) -> TransportSocket {
    let plain = || TransportSocket {
        name: "envoy.transport_sockets.raw_buffer".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(&RawBuffer {}))),
    };
    let version = match version {
        ir::ProxyProtocol::V1 => proxy_protocol_config::Version::V1,
        ir::ProxyProtocol::V2 => proxy_protocol_config::Version::V2,
    };
    let transport = ProxyProtocolUpstreamTransport {
        config: Some(ProxyProtocolConfig { version: version as i32, ..Default::default() }),
        transport_socket: Some(inner.unwrap_or_else(plain)),
        ..Default::default()
    };
    TransportSocket {
        name: "envoy.transport_sockets.upstream_proxy_protocol".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(&transport))),
    }
}

/// What holds for connections of any version of HTTP.
pub(crate) fn common_http(h: &ir::HttpConnections) -> Option<HttpProtocolOptions> {
    (*h != ir::HttpConnections::default()).then(|| HttpProtocolOptions {
        idle_timeout: h.idle_timeout.map(duration),
        max_connection_duration: h.max_duration.map(duration),
        max_requests_per_connection: h.max_requests.and_then(u32_value),
        ..Default::default()
    })
}

pub(crate) fn http2_keepalive(k: &ir::Http2Keepalive) -> KeepaliveSettings {
    KeepaliveSettings {
        interval: k.interval.map(duration),
        timeout: k.timeout.map(duration),
        interval_jitter: k.jitter_percent.map(|p| Percent { value: p.into() }),
        connection_idle_interval: k.idle_interval.map(duration),
    }
}

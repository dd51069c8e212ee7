//! Settings of clusters, whatever kind of policy holds them.

use api::envoygateway::{
    self as eg, ActiveHealthCheckPayload, ActiveHealthCheckerType, ClusterSettings, ConsistentHashType,
    DNSLookupFamily, InvalidMessageAction, LoadBalancerType, ProxyHealthCheckLogEventType, ProxyProtocolVersion,
};
use base64::Engine as _;
use ir::{
    ActiveCheck, Algorithm, Balancer, CheckLog, CircuitBreakers, DnsFamily, Fraction, HashPolicy, Http2,
    Http2Keepalive, HttpConnections, HttpProbe, Millis, Name, OutOfBand, OutlierDetection, Payload, Probe,
    ProxyProtocol, TcpKeepalive, Utilization, Zones,
};

use crate::read::Wrong;

/// Headers by which endpoints report their load.
pub const LOAD_REPORTS: [&str; 2] = ["endpoint-load-metrics", "endpoint-load-metrics-bin"];

/// What a policy says about clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Upstream {
    /// Settings that go to the cluster as they are.
    pub settings: ir::ClusterSettings,
    /// Time to connect.
    pub connect_timeout: Option<Millis>,
    /// Bytes buffered per connection.
    pub buffer_limit: Option<u32>,
    /// Family in which names are looked up.
    pub dns_family: Option<DnsFamily>,
    /// The policy says something about the look-up of names.
    pub has_dns: bool,
    /// Port that endpoints are probed on.
    pub health_check_port: Option<u16>,
    /// Weights of zones; those that are not named have 1.
    pub zone_weights: Vec<(Name, u32)>,
    /// How an endpoint is picked for a request.
    pub hash_policies: Vec<HashPolicy>,
    /// Load reports of endpoints are kept from clients.
    pub drop_load_reports: bool,
}

pub(crate) fn upstream(spec: &ClusterSettings, wrong: &mut Wrong) -> Upstream {
    let mut out = Upstream::default();
    let s = &mut out.settings;
    if let Some(health) = &spec.health_check {
        s.active_check = health.active.as_ref().and_then(|a| active(a, wrong));
        s.outliers = health.passive.as_ref().map(|p| outliers(p, wrong));
        s.panic_threshold = health.panic_threshold;
        let overrides = health.active.as_ref().and_then(|a| a.overrides.as_ref());
        out.health_check_port = overrides.and_then(|o| o.port).and_then(|p| u16::try_from(p).ok());
    }
    if let Some(b) = &spec.circuit_breaker {
        let field = |f: &str| format!("spec.circuitBreaker.{f}");
        s.http.max_requests = wrong.count(&field("maxRequestsPerConnection"), b.max_requests_per_connection);
        let budget = |r: &eg::RetryBudget| {
            let part = |n: i32| u32::try_from(n).unwrap_or_default();
            let denominator = r.percent.denominator.map_or(100, part).max(1);
            (Fraction { numerator: part(r.percent.numerator), denominator }, r.min_retry_concurrency)
        };
        s.breakers = Some(CircuitBreakers {
            max_connections: wrong.count(&field("maxConnections"), b.max_connections),
            max_pending: wrong.count(&field("maxPendingRequests"), b.max_pending_requests),
            max_requests: wrong.count(&field("maxParallelRequests"), b.max_parallel_requests),
            max_retries: wrong.count(&field("maxParallelRetries"), b.max_parallel_retries),
            max_connections_per_endpoint: wrong
                .count(&field("perEndpoint.maxConnections"), b.per_endpoint.as_ref().and_then(|p| p.max_connections)),
            retry_budget: b.retry_budget.as_ref().map(budget),
        });
    }
    if let Some(t) = &spec.timeout {
        let tcp = t.tcp.as_ref().and_then(|t| t.connect_timeout.as_ref());
        out.connect_timeout = wrong.time("spec.timeout.tcp.connectTimeout", tcp);
        if out.connect_timeout == Some(Millis(0)) {
            wrong.add("spec.timeout.tcp.connectTimeout: 0s leaves no time to connect; give a longer time");
        }
        if let Some(http) = &t.http {
            let field = |f: &str| format!("spec.timeout.http.{f}");
            s.http = HttpConnections {
                idle_timeout: wrong.time(&field("connectionIdleTimeout"), http.connection_idle_timeout.as_ref()),
                max_duration: wrong.time(&field("maxConnectionDuration"), http.max_connection_duration.as_ref()),
                max_requests: s.http.max_requests,
            };
        }
    }
    if let Some(k) = &spec.tcp_keepalive {
        s.keepalive = Some(TcpKeepalive {
            probes: k.probes,
            idle: wrong.seconds("spec.tcpKeepalive.idleTime", k.idle_time.as_ref()),
            interval: wrong.seconds("spec.tcpKeepalive.interval", k.interval.as_ref()),
        });
    }
    s.proxy_protocol = spec.proxy_protocol.as_ref().and_then(|p| match p.version {
        ProxyProtocolVersion::V1 => Some(ProxyProtocol::V1),
        ProxyProtocolVersion::V2 => Some(ProxyProtocol::V2),
        ProxyProtocolVersion::Unknown(_) => None,
    });
    if let Some(c) = &spec.connection {
        out.buffer_limit = wrong.bytes("spec.connection.bufferLimit", c.buffer_limit.as_ref());
        s.preconnect_per_endpoint = c.preconnect.as_ref().and_then(|p| p.per_endpoint_percent);
        s.preconnect_predictive = c.preconnect.as_ref().and_then(|p| p.predictive_percent);
    }
    if let Some(dns) = &spec.dns {
        out.has_dns = true;
        s.dns_refresh = wrong.time("spec.dns.dnsRefreshRate", dns.dns_refresh_rate.as_ref());
        if s.dns_refresh.is_some_and(|Millis(ms)| ms < 1) {
            wrong.add("spec.dns.dnsRefreshRate: 0s is no time between look-ups; give a longer time");
        }
        s.respect_dns_ttl = dns.respect_dns_ttl;
        out.dns_family = dns.lookup_family.as_ref().and_then(|f| match f {
            DNSLookupFamily::IPv4 => Some(DnsFamily::V4Only),
            DNSLookupFamily::IPv6 => Some(DnsFamily::V6Only),
            DNSLookupFamily::IPv4Preferred => Some(DnsFamily::V4Preferred),
            DNSLookupFamily::IPv6Preferred => Some(DnsFamily::V6Preferred),
            DNSLookupFamily::IPv4AndIPv6 => Some(DnsFamily::All),
            DNSLookupFamily::Unknown(_) => None,
        });
    }
    s.http2 = spec.http2.as_ref().map(|h| http2(h, "spec.http2", wrong));
    if let Some(lb) = &spec.load_balancer {
        balancer(lb, &mut out, wrong);
    }
    out
}

/// HTTP/2 settings, of either side.
pub(crate) fn http2(h: &eg::HTTP2Settings, field: &str, wrong: &mut Wrong) -> Http2 {
    let keepalive = h.connection_keepalive.as_ref().map(|k| {
        let field = |f: &str| format!("{field}.connectionKeepalive.{f}");
        Http2Keepalive {
            interval: wrong.time(&field("interval"), k.interval.as_ref()),
            timeout: wrong.time(&field("timeout"), k.timeout.as_ref()),
            jitter_percent: k.interval_jitter,
            idle_interval: wrong.time(&field("idleInterval"), k.idle_interval.as_ref()),
        }
    });
    // Envoy takes windows between these.
    let mut window = |f: &str, value| {
        let bytes = wrong.bytes(&format!("{field}.{f}"), value)?;
        if !(65_535..=0x7FFF_FFFF).contains(&bytes) {
            wrong.add(format!("{field}.{f}: {bytes} is not between 65535 and 2147483647; give a size that is"));
        }
        Some(bytes)
    };
    Http2 {
        stream_window: window("initialStreamWindowSize", h.initial_stream_window_size.as_ref()),
        connection_window: window("initialConnectionWindowSize", h.initial_connection_window_size.as_ref()),
        max_streams: h.max_concurrent_streams,
        keep_connection_on_error: h.on_invalid_message.as_ref().map(|a| *a == InvalidMessageAction::TerminateStream),
        keepalive,
    }
}

fn active(a: &eg::ActiveHealthCheck, wrong: &mut Wrong) -> Option<ActiveCheck> {
    let field = |f: &str| format!("spec.healthCheck.active.{f}");
    let probe = match a.type_ {
        ActiveHealthCheckerType::HTTP => {
            let http = a.http.clone().unwrap_or_default();
            let statuses = |list: &[eg::HTTPStatus]| {
                let mut all: Vec<u32> = list.iter().filter_map(|s| u32::try_from(s.0).ok()).collect();
                all.sort_unstable();
                all.dedup();
                all
            };
            let mut expected = statuses(&http.expected_statuses);
            if expected.is_empty() {
                expected.push(200);
            }
            Probe::Http(HttpProbe {
                host: http.hostname.as_deref().map(Into::into),
                path: http.path.as_str().into(),
                method: http.method.map(|m| m.to_ascii_uppercase().into()),
                expected,
                retriable: statuses(&http.retriable_statuses),
                send: payload(&field("http.requestBody"), http.request_body.as_ref(), wrong),
                receive: payload(&field("http.expectedResponse"), http.expected_response.as_ref(), wrong),
            })
        }
        ActiveHealthCheckerType::TCP => {
            let tcp = a.tcp.as_ref();
            Probe::Tcp {
                send: payload(&field("tcp.send"), tcp.and_then(|t| t.send.as_ref()), wrong),
                receive: payload(&field("tcp.receive"), tcp.and_then(|t| t.receive.as_ref()), wrong),
            }
        }
        ActiveHealthCheckerType::GRPC => {
            Probe::Grpc { service: a.grpc.as_ref().and_then(|g| g.service.as_deref()).map(Into::into) }
        }
        ActiveHealthCheckerType::Unknown(_) => return None,
    };
    let mut positive = |f: &str, value: Option<&eg::Duration>, default: u64| {
        let time = wrong.time(&field(f), value).unwrap_or(Millis(default));
        if time.0 == 0 {
            wrong.add(format!("{}: 0s is no time for a probe; give a longer time", field(f)));
        }
        time
    };
    Some(ActiveCheck {
        timeout: positive("timeout", a.timeout.as_ref(), 1_000),
        interval: positive("interval", a.interval.as_ref(), 3_000),
        initial_jitter: wrong.time(&field("initialJitter"), a.initial_jitter.as_ref()),
        unhealthy_threshold: a.unhealthy_threshold.unwrap_or(3),
        healthy_threshold: a.healthy_threshold.unwrap_or(1),
        probe,
        log: a.health_check_log.as_ref().map(check_log),
    })
}

fn check_log(log: &eg::ProxyHealthCheckLog) -> CheckLog {
    let path = log.sinks.iter().find_map(|s| s.file.as_ref()).map_or("/dev/stdout", |f| f.path.as_str());
    let every = |event: &ProxyHealthCheckLogEventType| log.matches.is_empty() || log.matches.contains(event);
    CheckLog {
        path: path.into(),
        every_failure: every(&ProxyHealthCheckLogEventType::Failure),
        every_success: every(&ProxyHealthCheckLogEventType::Success),
    }
}

fn payload(field: &str, payload: Option<&ActiveHealthCheckPayload>, wrong: &mut Wrong) -> Option<Payload> {
    let payload = payload?;
    if let Some(text) = &payload.text {
        return Some(Payload::Text(text.as_str().into()));
    }
    let binary = payload.binary.as_deref()?;
    match base64::engine::general_purpose::STANDARD.decode(binary) {
        Ok(bytes) => Some(Payload::Binary(bytes)),
        Err(e) => {
            wrong.add(format!("{field}.binary: no base64: {e}; correct it"));
            None
        }
    }
}

fn outliers(p: &eg::PassiveHealthCheck, wrong: &mut Wrong) -> OutlierDetection {
    let field = |f: &str| format!("spec.healthCheck.passive.{f}");
    let mut positive = |f: &str, value: Option<&eg::Duration>| {
        let time = wrong.time(&field(f), value);
        if time == Some(Millis(0)) {
            wrong.add(format!("{}: must be more than 0s; give a longer time", field(f)));
        }
        time
    };
    OutlierDetection {
        interval: positive("interval", p.interval.as_ref()),
        base_ejection: positive("baseEjectionTime", p.base_ejection_time.as_ref()),
        split_local_errors: p.split_external_local_origin_errors.unwrap_or(false),
        consecutive_local_failures: p.consecutive_local_origin_failures,
        consecutive_gateway_errors: p.consecutive_gateway_errors,
        consecutive_5xx: p.consecutive_5xx_errors,
        max_ejection_percent: p.max_ejection_percent.and_then(|p| u32::try_from(p).ok()),
        failure_percentage: p.failure_percentage_threshold,
        always_eject_one: p.always_eject_one_endpoint,
    }
}

fn balancer(lb: &eg::LoadBalancer, out: &mut Upstream, wrong: &mut Wrong) {
    let field = |f: &str| format!("spec.loadBalancer.{f}");
    let algorithm = match &lb.type_ {
        LoadBalancerType::LeastRequest => Algorithm::LeastRequest,
        LoadBalancerType::RoundRobin => Algorithm::RoundRobin,
        LoadBalancerType::Random => Algorithm::Random,
        LoadBalancerType::ConsistentHash => {
            let Some(hash) = &lb.consistent_hash else { return };
            out.hash_policies = hash_policies(hash, wrong);
            if let Some(size) = hash.table_size.filter(|s| !is_prime(*s)) {
                wrong.add(format!("{}: {size} is no prime number; give one", field("consistentHash.tableSize")));
            }
            Algorithm::Maglev { table_size: hash.table_size }
        }
        LoadBalancerType::BackendUtilization => {
            let u = lb.backend_utilization.clone().unwrap_or_default();
            out.drop_load_reports = u.keep_response_headers != Some(true);
            let mut time = |f: &str, value: &Option<eg::Duration>| {
                wrong.time(&field(&format!("backendUtilization.{f}")), value.as_ref())
            };
            let out_of_band = u.out_of_band.as_ref().map(|o| OutOfBand {
                period: time("outOfBand.reportingPeriod", &o.reporting_period),
                port: o.port.and_then(|p| u16::try_from(p).ok()),
                authority: o.authority.as_deref().map(Into::into),
            });
            Algorithm::Utilization(Utilization {
                blackout: time("blackoutPeriod", &u.blackout_period),
                expiration: time("weightExpirationPeriod", &u.weight_expiration_period),
                update: time("weightUpdatePeriod", &u.weight_update_period),
                error_penalty_percent: u.error_utilization_penalty_percent,
                metrics: u.metric_names_for_computing_utilization.iter().map(|m| m.as_str().into()).collect(),
                out_of_band,
            })
        }
        LoadBalancerType::DynamicModule => {
            wrong.add(format!("{}: DynamicModule is not supported; choose another", field("type")));
            return;
        }
        LoadBalancerType::Unknown(other) => {
            wrong.add(format!("{}: {other} is not known; choose another", field("type")));
            return;
        }
    };
    let zones = match &lb.zone_aware {
        Some(z) if !z.weighted_zones.is_empty() => {
            out.zone_weights = z.weighted_zones.iter().map(|w| (w.zone.as_str().into(), w.weight)).collect();
            Zones::Weighted
        }
        Some(eg::ZoneAware { prefer_local: Some(local), .. }) => Zones::PreferLocal {
            min_endpoints: local.min_endpoints_threshold,
            percent: local.percentage_enabled,
            force: local.force.as_ref().map(|f| f.min_endpoints_in_zone_threshold),
        },
        _ => Zones::ByBackend,
    };
    let headers = lb.endpoint_override.iter().flat_map(|e| &e.extract_from).filter_map(|e| e.header.as_deref());
    out.settings.balancer = Some(Balancer {
        algorithm,
        zones,
        slow_start: wrong.time(&field("slowStart.window"), lb.slow_start.as_ref().map(|s| &s.window)),
        override_headers: headers.map(Into::into).collect(),
    });
}

fn hash_policies(hash: &eg::ConsistentHash, wrong: &mut Wrong) -> Vec<HashPolicy> {
    let header = |h: &eg::Header| HashPolicy::Header(h.name.as_str().into());
    match &hash.type_ {
        ConsistentHashType::SourceIP => vec![HashPolicy::SourceIp],
        ConsistentHashType::Header => hash.header.iter().map(header).collect(),
        ConsistentHashType::Headers => hash.headers.iter().map(header).collect(),
        ConsistentHashType::QueryParams => {
            hash.query_params.iter().map(|q| HashPolicy::Query(q.name.as_str().into())).collect()
        }
        ConsistentHashType::Cookie => hash
            .cookie
            .iter()
            .map(|c| HashPolicy::Cookie {
                name: c.name.as_str().into(),
                ttl: wrong.time("spec.loadBalancer.consistentHash.cookie.ttl", c.ttl.as_ref()),
                attributes: c.attributes.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect(),
            })
            .collect(),
        ConsistentHashType::Unknown(other) => {
            wrong.add(format!("spec.loadBalancer.consistentHash.type: {other} is not known; choose another"));
            Vec::new()
        }
    }
}

/// Envoy wants a prime number for the size of a table.
fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

//! Settings of clusters that policies make.

use crate::{Fraction, Millis, Name};

/// What a policy says about a cluster, beyond what every cluster has. The default says nothing: nothing is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// How an endpoint is chosen, in place of [`crate::Cluster::load_balancing`].
    pub balancer: Option<Balancer>,
    /// Probes of the endpoints; the cluster is warm once each was probed.
    pub active_check: Option<ActiveCheck>,
    /// Endpoints are left alone for a while by the outcome of requests.
    pub outliers: Option<OutlierDetection>,
    /// Percentage of healthy endpoints below which health is disregarded; none: Envoy's 50.
    pub panic_threshold: Option<u32>,
    /// Limits.
    pub breakers: Option<CircuitBreakers>,
    /// Connections for HTTP.
    pub http: HttpConnections,
    /// TCP keep-alive.
    pub keepalive: Option<TcpKeepalive>,
    /// PROXY protocol header on connections.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Connections per endpoint in percent of those in use.
    pub preconnect_per_endpoint: Option<u32>,
    /// Connections per cluster in percent of those in use.
    pub preconnect_predictive: Option<u32>,
    /// Time between look-ups of names.
    pub dns_refresh: Option<Millis>,
    /// A record's time to live sets the time between look-ups; none: it does.
    pub respect_dns_ttl: Option<bool>,
    /// HTTP/2.
    pub http2: Option<Http2>,
    /// The client's version of HTTP is used towards the endpoints.
    pub use_client_protocol: bool,
    /// Sheds load as the success rate falls.
    pub admission: Option<AdmissionControl>,
}

/// How an endpoint is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balancer {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// How zones count.
    pub zones: Zones,
    /// Time over which traffic to a new endpoint grows.
    pub slow_start: Option<Millis>,
    /// Request headers that may name the endpoint, in order.
    pub override_headers: Vec<Name>,
}

/// A load balancing algorithm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The less busy of two.
    LeastRequest,
    /// In turn.
    RoundRobin,
    /// Any.
    Random,
    /// By the hash of a property of the request ([`crate::Forward::hash_policies`]).
    Maglev {
        /// Size of the table, a prime number.
        table_size: Option<u64>,
    },
    /// By load that endpoints report.
    Utilization(Utilization),
}

/// Weights by load that endpoints report (ORCA).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Utilization {
    /// How long an endpoint reports before its weight counts.
    pub blackout: Option<Millis>,
    /// After how long without a report a weight is dropped.
    pub expiration: Option<Millis>,
    /// Time between recalculations.
    pub update: Option<Millis>,
    /// Weight of the error rate in percent.
    pub error_penalty_percent: Option<u32>,
    /// Metrics to use when no utilisation is reported.
    pub metrics: Vec<Name>,
    /// Reports come over a stream of their own.
    pub out_of_band: Option<OutOfBand>,
}

/// Load reports over a stream of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfBand {
    /// Interval asked for.
    pub period: Option<Millis>,
    /// Port of the reporting service.
    pub port: Option<u16>,
    /// Authority of the stream.
    pub authority: Option<Name>,
}

/// How zones count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Zones {
    /// Not at all: localities are backends with their weights.
    ByBackend,
    /// Endpoints in the proxy's own zone are preferred.
    PreferLocal {
        /// Endpoints in all zones from which on it applies; none: 1.
        min_endpoints: Option<u64>,
        /// Percentage of requests it applies to.
        percent: Option<u32>,
        /// All traffic stays in the zone, if the zone has so many endpoints.
        force: Option<Option<u32>>,
    },
    /// Localities are zones with weights.
    Weighted,
}

/// Probes of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveCheck {
    /// Time for an answer.
    pub timeout: Millis,
    /// Time between probes.
    pub interval: Millis,
    /// Upper bound of the wait before the first probe.
    pub initial_jitter: Option<Millis>,
    /// Failures that make an endpoint unhealthy.
    pub unhealthy_threshold: u32,
    /// Successes that make it healthy again.
    pub healthy_threshold: u32,
    /// What is sent and expected.
    pub probe: Probe,
    /// Log of outcomes.
    pub log: Option<CheckLog>,
}

/// What a probe sends and expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// An HTTP request.
    Http(HttpProbe),
    /// A TCP connection, with payloads if there are any.
    Tcp {
        /// Sent.
        send: Option<Payload>,
        /// Expected.
        receive: Option<Payload>,
    },
    /// The gRPC health checking protocol.
    Grpc {
        /// Service that is asked about.
        service: Option<Name>,
    },
}

/// An HTTP probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpProbe {
    /// Host header.
    pub host: Option<Name>,
    /// Path.
    pub path: Name,
    /// Method; GET if there is none.
    pub method: Option<Name>,
    /// Statuses of a healthy endpoint, ascending.
    pub expected: Vec<u32>,
    /// Statuses that count towards the threshold, ascending.
    pub retriable: Vec<u32>,
    /// Body sent.
    pub send: Option<Payload>,
    /// What the body of the answer must contain.
    pub receive: Option<Payload>,
}

/// Bytes of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Text.
    Text(Name),
    /// Bytes.
    Binary(Vec<u8>),
}

/// Log of health changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckLog {
    /// Path of the file.
    pub path: Name,
    /// Every failure, not only the first of a series.
    pub every_failure: bool,
    /// Every success, not only the one that makes an endpoint healthy.
    pub every_success: bool,
}

/// Ejects endpoints by the outcome of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutlierDetection {
    /// Time between evaluations.
    pub interval: Option<Millis>,
    /// Errors of the proxy's own making count apart.
    pub split_local_errors: bool,
    /// Local failures in a row that eject.
    pub consecutive_local_failures: Option<u32>,
    /// Gateway errors in a row that eject.
    pub consecutive_gateway_errors: Option<u32>,
    /// 5xx responses in a row that eject.
    pub consecutive_5xx: Option<u32>,
    /// Shortest ejection.
    pub base_ejection: Option<Millis>,
    /// Percentage of endpoints that may be ejected.
    pub max_ejection_percent: Option<u32>,
    /// Percentage of failures that ejects.
    pub failure_percentage: Option<u32>,
    /// One may be ejected whatever the percentage.
    pub always_eject_one: Option<bool>,
}

/// Limits of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CircuitBreakers {
    /// Connections.
    pub max_connections: Option<u32>,
    /// Requests that wait for a connection.
    pub max_pending: Option<u32>,
    /// Requests at the same time.
    pub max_requests: Option<u32>,
    /// Retries at the same time.
    pub max_retries: Option<u32>,
    /// Connections of each endpoint.
    pub max_connections_per_endpoint: Option<u32>,
    /// Retries as a share of requests, and how many are always allowed.
    pub retry_budget: Option<(Fraction, Option<u32>)>,
}

/// Connections for HTTP towards endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HttpConnections {
    /// Without requests, a connection ends after so long.
    pub idle_timeout: Option<Millis>,
    /// Lifetime of a connection.
    pub max_duration: Option<Millis>,
    /// Requests over one connection.
    pub max_requests: Option<u32>,
}

/// TCP keep-alive, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpKeepalive {
    /// Unanswered probes after which the connection is dead.
    pub probes: Option<u32>,
    /// Idle seconds before the first probe.
    pub idle: Option<u32>,
    /// Seconds between probes.
    pub interval: Option<u32>,
}

/// Version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// HTTP/2 settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2 {
    /// Window of a stream, bytes.
    pub stream_window: Option<u32>,
    /// Window of a connection, bytes.
    pub connection_window: Option<u32>,
    /// Streams at the same time.
    pub max_streams: Option<u32>,
    /// A malformed message ends its stream only; none leaves Envoy's default.
    pub keep_connection_on_error: Option<bool>,
    /// PING frames.
    pub keepalive: Option<Http2Keepalive>,
}

/// Keep-alive by PING frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Http2Keepalive {
    /// Time between frames.
    pub interval: Option<Millis>,
    /// Time for the answer.
    pub timeout: Option<Millis>,
    /// Random share added to the interval, percent.
    pub jitter_percent: Option<u32>,
    /// Idle time after which a frame is sent.
    pub idle_interval: Option<Millis>,
}

/// Sheds load at random as the success rate falls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdmissionControl {
    /// Time over which the rate is taken.
    pub window: Option<Millis>,
    /// Rate in percent at which nothing is refused.
    pub min_success_percent: Option<u32>,
    /// How steeply refusals grow.
    pub aggression: Option<u32>,
    /// Requests per second below which nothing is refused.
    pub min_rate: Option<u32>,
    /// Highest share of refusals in percent.
    pub max_rejection_percent: Option<u32>,
    /// HTTP statuses that are successes, ascending; none leaves Envoy's default.
    pub http_statuses: Vec<u32>,
    /// gRPC statuses that are successes; none leaves Envoy's default.
    pub grpc_statuses: Vec<u32>,
}

//! Settings of a cluster, and services that proxies call.

use super::common::{Duration, HTTPStatus};
use super::health_check::HealthCheck;
use super::load_balancer::LoadBalancer;
use super::patterns::SIZE;
use crate::gateway::{BackendObjectReference, Fraction};
use crate::open_enum;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Settings of an Envoy cluster, that is, of the traffic to one backend.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!((has(self.connection) && has(self.connection.preconnect) && has(self.connection.preconnect.predictivePercent)) && !(has(self.loadBalancer) && has(self.loadBalancer.type) && self.loadBalancer.type in ['Random', 'RoundRobin']))", "predictivePercent in preconnect policy only works with RoundRobin or Random load balancers"))]
pub struct ClusterSettings {
    /// Choice of endpoint; least request when unset.
    pub load_balancer: Option<LoadBalancer>,
    /// Retries; none when unset.
    pub retry: Option<Retry>,
    /// Send a PROXY protocol header on connections.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// TCP keep-alive on connections; off when unset.
    pub tcp_keepalive: Option<TCPKeepalive>,
    /// Active and passive health checks.
    pub health_check: Option<HealthCheck>,
    /// Limits on connections and requests; Envoy's defaults when unset.
    pub circuit_breaker: Option<CircuitBreaker>,
    /// Time limits.
    pub timeout: Option<Timeout>,
    /// Buffers and preconnection.
    pub connection: Option<BackendConnection>,
    /// Name resolution.
    pub dns: Option<DNS>,
    /// HTTP/2 towards the backend.
    pub http2: Option<HTTP2Settings>,
}

/// Retries of failed requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How often to retry; defaults to 2.
    #[schemars(range(min = 0), extend("default" = 2))]
    pub num_retries: Option<i32>,
    /// Attempts at one priority before the next one is tried; unset or 0 stays with the highest healthy one.
    pub num_attempts_per_priority: Option<i32>,
    /// What to retry on; connection failures, refused streams and 503 when unset.
    pub retry_on: Option<RetryOn>,
    /// Limits of each attempt.
    pub per_retry: Option<PerRetryPolicy>,
}

/// When to retry.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryOn {
    /// Conditions of HTTP or gRPC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerEnum>,
    /// Status codes, effective with the trigger `retriable-status-codes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_status_codes: Vec<HTTPStatus>,
}

open_enum! {
    /// A condition to retry on, in Envoy's names.
    pub enum TriggerEnum {
        /// Any 5xx response, or none at all.
        Error5XX = "5xx",
        /// 502, 503 or 504.
        GatewayError = "gateway-error",
        /// The backend broke off without a response.
        Reset = "reset",
        /// It broke off before the request was sent.
        ResetBeforeRequest = "reset-before-request",
        /// No connection.
        ConnectFailure = "connect-failure",
        /// 409.
        Retriable4XX = "retriable-4xx",
        /// Stream refused by the backend.
        RefusedStream = "refused-stream",
        /// One of the listed codes.
        RetriableStatusCodes = "retriable-status-codes",
        /// gRPC `cancelled`.
        Cancelled = "cancelled",
        /// gRPC `deadline-exceeded`.
        DeadlineExceeded = "deadline-exceeded",
        /// gRPC `internal`.
        Internal = "internal",
        /// gRPC `resource-exhausted`.
        ResourceExhausted = "resource-exhausted",
        /// gRPC `unavailable`.
        Unavailable = "unavailable",
    }
}

/// Limits of one attempt.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PerRetryPolicy {
    /// Time limit of the attempt.
    pub timeout: Option<Duration>,
    /// Wait between attempts.
    pub back_off: Option<BackOffPolicy>,
}

/// Exponential back-off with full jitter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackOffPolicy {
    /// First interval.
    pub base_interval: Option<Duration>,
    /// Longest interval; ten times the first when unset.
    pub max_interval: Option<Duration>,
}

/// PROXY protocol towards a backend.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ProxyProtocol {
    /// Version to send.
    pub version: ProxyProtocolVersion,
}

open_enum! {
    /// A version of the PROXY protocol.
    #[allow(missing_docs)] // the wire forms say it
    pub enum ProxyProtocolVersion {
        V1, V2,
    }
}

/// TCP keep-alive.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TCPKeepalive {
    /// Unanswered probes after which the connection is dead; defaults to 9.
    pub probes: Option<u32>,
    /// Idle time before the first probe; defaults to 2 h.
    pub idle_time: Option<Duration>,
    /// Time between probes; defaults to 75 s.
    pub interval: Option<Duration>,
}

/// Limits of a cluster; Envoy refuses what exceeds them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreaker {
    /// Connections; defaults to 1024.
    #[schemars(range(min = 0, max = 4294967295_i64), extend("default" = 1024))]
    pub max_connections: Option<i64>,
    /// Requests waiting for a connection; defaults to 1024.
    #[schemars(range(min = 0, max = 4294967295_i64), extend("default" = 1024))]
    pub max_pending_requests: Option<i64>,
    /// Requests at the same time; defaults to 1024.
    #[schemars(range(min = 0, max = 4294967295_i64), extend("default" = 1024))]
    pub max_parallel_requests: Option<i64>,
    /// Retries at the same time; defaults to 1024.
    #[schemars(range(min = 0, max = 4294967295_i64), extend("default" = 1024))]
    pub max_parallel_retries: Option<i64>,
    /// Requests over one connection; unlimited when unset.
    #[schemars(range(min = 0, max = 4294967295_i64))]
    pub max_requests_per_connection: Option<i64>,
    /// Limits of each endpoint.
    pub per_endpoint: Option<PerEndpointCircuitBreakers>,
    /// Retries as a share of requests; wins over `maxParallelRetries`.
    pub retry_budget: Option<RetryBudget>,
}

/// Limits of one endpoint.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PerEndpointCircuitBreakers {
    /// Connections; defaults to 1024.
    #[schemars(range(min = 0, max = 4294967295_i64), extend("default" = 1024))]
    pub max_connections: Option<i64>,
}

/// Retries as a share of the requests in flight.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RetryBudget {
    /// The share, 0 to 100 percent.
    pub percent: Fraction,
    /// Retries always allowed; 3 when unset.
    pub min_retry_concurrency: Option<u32>,
}

/// Time limits towards a backend.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Timeout {
    /// Limits of connections.
    pub tcp: Option<TCPTimeout>,
    /// Limits of HTTP.
    pub http: Option<HTTPTimeout>,
}

/// Time limits of TCP towards a backend.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TCPTimeout {
    /// To establish a connection with TLS; defaults to 10 s.
    pub connect_timeout: Option<Duration>,
}

/// Time limits of HTTP towards a backend.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPTimeout {
    /// A connection without requests; defaults to 1 h.
    pub connection_idle_timeout: Option<Duration>,
    /// Lifetime of a connection; unlimited when unset.
    pub max_connection_duration: Option<Duration>,
    /// Until the whole response is there.
    pub request_timeout: Option<Duration>,
    /// Lifetime of a stream; `0s` lifts the limit.
    pub max_stream_duration: Option<Duration>,
    /// A stream without activity; the listener's setting when unset.
    pub stream_idle_timeout: Option<Duration>,
}

/// Connections to a backend.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendConnection {
    /// Soft limit of read and write buffers in bytes; defaults to 32 KiB.
    #[schemars(extend("pattern" = SIZE))]
    pub buffer_limit: Option<Quantity>,
    /// Size of the socket's buffers in bytes.
    #[schemars(extend("pattern" = SIZE))]
    pub socket_buffer_limit: Option<Quantity>,
    /// Open connections ahead of need.
    pub preconnect: Option<PreconnectPolicy>,
}

/// Connections opened ahead of need.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreconnectPolicy {
    /// Connections per endpoint in percent of those in use; 100 means none ahead.
    #[schemars(range(min = 100, max = 300))]
    pub per_endpoint_percent: Option<u32>,
    /// Connections per cluster in percent, by predicting the load balancer; needs random or round robin.
    #[schemars(range(min = 100))]
    pub predictive_percent: Option<u32>,
}

/// Resolution of backend names.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DNS {
    /// Time between look-ups; defaults to 30 s.
    pub dns_refresh_rate: Option<Duration>,
    /// Let a record's time to live set the interval; on when unset.
    pub respect_dns_ttl: Option<bool>,
    /// Address families to ask for.
    pub lookup_family: Option<DNSLookupFamily>,
}

open_enum! {
    /// Address families of a look-up.
    #[allow(missing_docs)] // the wire forms say it
    pub enum DNSLookupFamily {
        IPv4, IPv6, IPv4Preferred, IPv6Preferred, IPv4AndIPv6,
    }
}

/// HTTP/2 of listeners and backends.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTP2Settings {
    /// Window of a stream in bytes; defaults to 64 KiB.
    #[schemars(extend("pattern" = SIZE))]
    pub initial_stream_window_size: Option<Quantity>,
    /// Window of a connection in bytes; defaults to 1 MiB.
    #[schemars(extend("pattern" = SIZE))]
    pub initial_connection_window_size: Option<Quantity>,
    /// Streams at the same time on one connection; defaults to 100.
    #[schemars(range(min = 1, max = 2147483647))]
    pub max_concurrent_streams: Option<u32>,
    /// What to close on a malformed message.
    #[schemars(with = "Option<String>")]
    pub on_invalid_message: Option<InvalidMessageAction>,
    /// PING frames to keep connections alive.
    pub connection_keepalive: Option<HTTP2KeepaliveSettings>,
}

open_enum! {
    /// What a malformed message closes.
    pub enum InvalidMessageAction {
        /// The connection.
        TerminateConnection,
        /// The stream.
        TerminateStream,
    }
}

/// Keep-alive by PING frames.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.timeout) || !has(self.interval) || duration(self.timeout) < duration(self.interval)", "timeout must be less than interval"))]
pub struct HTTP2KeepaliveSettings {
    /// Time between frames.
    pub interval: Option<Duration>,
    /// Time to wait for the answer, shorter than the interval.
    pub timeout: Option<Duration>,
    /// Random share added to each interval in percent; defaults to 15.
    #[schemars(range(min = 0, max = 100))]
    pub interval_jitter: Option<u32>,
    /// Idle time after which a frame is sent.
    pub idle_interval: Option<Duration>,
}

/// A service that proxies call, and how.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendCluster {
    /// The service; superseded by `backendRefs`.
    pub backend_ref: Option<BackendObjectReference>,
    /// The services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub backend_refs: Vec<BackendRef>,
    /// Settings of the connection.
    pub backend_settings: Option<ClusterSettings>,
}

/// A backend with its share of traffic.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BackendRef {
    /// The backend.
    #[serde(flatten)]
    pub object: BackendObjectReference,
    /// Share of traffic relative to the other backends; defaults to 1.
    #[schemars(range(min = 0, max = 1000000), extend("default" = 1))]
    pub weight: Option<u32>,
    /// Use only while the others are unhealthy; needs health checks to be useful.
    pub fallback: Option<bool>,
}

//! `BackendTrafficPolicy`, and the parts of it that nothing else uses.

use super::cluster::ClusterSettings;
use super::common::{Duration, HTTPStatus, MergeType};
use super::patterns::SIZE;
use super::proxy::RoutingType;
use super::rate_limit::RateLimitSpec;
use super::response::ResponseOverride;
use super::target::PolicyTargetReferences;
use super::telemetry::Tracing;
use crate::gateway::PolicyStatus;
use crate::open_enum;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What a `BackendTrafficPolicy` asks for.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "BackendTrafficPolicy",
    plural = "backendtrafficpolicies",
    namespaced,
    derive = "PartialEq",
    shortname = "btp",
    category = "envoy-gateway",
    status = "PolicyStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "How proxies talk to the backends of the routes or Gateways that it is attached to.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.group == 'gateway.networking.k8s.io' : true ", "this policy can only have a targetRef.group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'] : true", "this policy can only have a targetRef.kind of Gateway/ListenerSet/HTTPRoute/GRPCRoute/TCPRoute/UDPRoute/TLSRoute"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.group == 'gateway.networking.k8s.io') : true ", "this policy can only have a targetRefs[*].group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute']) : true ", "this policy can only have a targetRefs[*].kind of Gateway/ListenerSet/HTTPRoute/GRPCRoute/TCPRoute/UDPRoute/TLSRoute"))]
#[x_kube(validation = ("!has(self.mergeType) || ((!has(self.targetRef) || self.targetRef.kind in ['HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute']) && (!has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ['HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'])) && (!has(self.targetSelectors) || self.targetSelectors.all(sel, sel.kind in ['HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'])))", "mergeType can only be used with xRoute targets"))]
#[x_kube(validation = ("!has(self.compression) || !has(self.compressor)", "either compression or compressor can be set, not both"))]
#[x_kube(validation = ("!has(self.requestBuffer) || !has(self.httpUpgrade) || self.httpUpgrade.size() == 0", "requestBuffer cannot be used together with httpUpgrade"))]
#[x_kube(validation = ("!has(self.admissionControl) || ((!has(self.targetRef) || self.targetRef.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute']) && (!has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute'])) && (!has(self.targetSelectors) || self.targetSelectors.all(sel, sel.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute'])))", "admissionControl can only be used with HTTPRoute, GRPCRoute, Gateway, or ListenerSet targets"))]
#[x_kube(validation = ("!((has(self.connection) && has(self.connection.preconnect) && has(self.connection.preconnect.predictivePercent)) && !(has(self.loadBalancer) && has(self.loadBalancer.type) && self.loadBalancer.type in ['Random', 'RoundRobin']))", "predictivePercent in preconnect policy only works with RoundRobin or Random load balancers"))]
pub struct BackendTrafficPolicySpec {
    /// What the policy is attached to.
    #[serde(flatten)]
    pub targets: PolicyTargetReferences,
    /// Connection, load balancing, health and retry settings.
    #[serde(flatten)]
    pub cluster: ClusterSettings,
    /// How to combine with the policy of the closest parent; unset replaces it.
    #[schemars(with = "Option<String>")]
    #[x_kube(validation = ("self != 'Replace'", "Replace is not a valid MergeType for BackendTrafficPolicySpec"))]
    pub merge_type: Option<MergeType>,
    /// Limits on the number of requests.
    pub rate_limit: Option<RateLimitSpec>,
    /// Limits on bytes in each direction.
    pub bandwidth_limit: Option<BandwidthLimitSpec>,
    /// Delays and aborts, to test how clients cope.
    pub fault_injection: Option<FaultInjection>,
    /// Shed load as the backends' success rate falls.
    pub admission_control: Option<AdmissionControl>,
    /// Prefer the client's HTTP version towards the backend; off when unset.
    pub use_client_protocol: Option<bool>,
    /// Former name of `compressor`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compression: Vec<Compression>,
    /// Response compressors; on equal client preference the first one wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compressor: Vec<Compression>,
    /// Replacements of responses; the first match wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_override: Vec<ResponseOverride>,
    /// Protocol upgrades to let through; WebSocket when unset, unless `requestBuffer` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_upgrade: Vec<ProtocolUpgradeConfig>,
    /// Hold each request until it is complete.
    pub request_buffer: Option<RequestBuffer>,
    /// Tracing and metrics of the target; wins over the `EnvoyProxy`.
    pub telemetry: Option<BackendTelemetry>,
    /// Send to Service addresses or to endpoints; wins over the `EnvoyProxy`.
    #[schemars(with = "Option<String>")]
    pub routing_type: Option<RoutingType>,
}

/// Limits on bytes in each direction.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.request) || has(self.response)", "at least one of request or response must be specified"))]
pub struct BandwidthLimitSpec {
    /// Towards the backend.
    pub request: Option<BandwidthLimitRequestConfig>,
    /// From the backend.
    pub response: Option<BandwidthLimitResponseConfig>,
}

/// Limit on requests.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BandwidthLimitRequestConfig {
    /// The rate.
    pub limit: BandwidthLimitValue,
}

/// Bytes in a unit of time.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BandwidthLimitValue {
    /// Number of bytes.
    #[schemars(extend("pattern" = SIZE))]
    pub value: Quantity,
    /// In which time.
    pub unit: BandwidthLimitUnit,
}

open_enum! {
    /// Unit of time of a bandwidth limit.
    #[allow(missing_docs)] // the wire forms say it
    pub enum BandwidthLimitUnit {
        Second, Minute, Hour,
    }
}

/// Limit on responses.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BandwidthLimitResponseConfig {
    /// The rate.
    pub limit: BandwidthLimitValue,
    /// Trailers that tell the delays.
    pub response_trailers: Option<BandwidthLimitResponseTrailers>,
}

/// Trailers that tell the delays.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BandwidthLimitResponseTrailers {
    /// Put before their names with a hyphen; nothing when unset.
    #[schemars(regex(pattern = r"^[^\r\n\x00]*$"))]
    pub prefix: Option<String>,
}

/// Faults injected on purpose.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = (" has(self.delay) || has(self.abort) ", "Delay and abort faults are set at least one."))]
pub struct FaultInjection {
    /// Delay requests.
    pub delay: Option<FaultInjectionDelay>,
    /// Answer requests with an error.
    pub abort: Option<FaultInjectionAbort>,
}

/// A delay of requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultInjectionDelay {
    /// How long.
    pub fixed_delay: Duration,
    /// Percentage of requests, in steps of 0.0001; defaults to 100.
    #[schemars(extend("default" = 100))]
    pub percentage: Option<f64>,
}

/// An error in place of the backend's response.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (" !(has(self.httpStatus) && has(self.grpcStatus)) ", "httpStatus and grpcStatus cannot be simultaneously defined."))]
#[x_kube(validation = (" has(self.httpStatus) || has(self.grpcStatus) ", "httpStatus and grpcStatus are set at least one."))]
pub struct FaultInjectionAbort {
    /// HTTP status code.
    #[schemars(range(min = 200, max = 600))]
    pub http_status: Option<i32>,
    /// gRPC status code.
    #[schemars(range(min = 0, max = 16))]
    pub grpc_status: Option<i32>,
    /// Percentage of requests, in steps of 0.0001; defaults to 100.
    #[schemars(extend("default" = 100))]
    pub percentage: Option<f64>,
}

/// Sheds load at random as the success rate falls.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.minSuccessRate) || (self.minSuccessRate >= 1 && self.minSuccessRate <= 100)", "minSuccessRate must be between 1 and 100"))]
#[x_kube(validation = ("!has(self.maxRejectionPercent) || (self.maxRejectionPercent >= 0 && self.maxRejectionPercent <= 100)", "maxRejectionPercent must be between 0 and 100"))]
#[x_kube(validation = ("!has(self.samplingWindow) || duration(self.samplingWindow) >= duration('1s')", "samplingWindow must be at least 1s"))]
pub struct AdmissionControl {
    /// Time over which the rate is taken, in whole seconds; 60 s when unset.
    pub sampling_window: Option<Duration>,
    /// Rate in percent at which nothing is refused; 95 when unset.
    #[schemars(range(min = 1, max = 100))]
    pub min_success_rate: Option<u32>,
    /// How steeply refusals grow below that rate, where 1 is linear.
    #[schemars(range(min = 1))]
    pub rejection_aggression: Option<u32>,
    /// Requests per second below which nothing is refused; 0 when unset.
    #[schemars(range(min = 0))]
    pub min_request_rate: Option<u32>,
    /// Highest share of refusals in percent; 80 when unset.
    #[schemars(range(min = 0, max = 100))]
    pub max_rejection_percent: Option<u32>,
    /// Which responses are successes.
    pub success_criteria: Option<AdmissionControlSuccessCriteria>,
}

/// Which responses are successes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AdmissionControlSuccessCriteria {
    /// For HTTP.
    pub http: Option<HTTPSuccessCriteria>,
    /// For gRPC.
    pub grpc: Option<GRPCSuccessCriteria>,
}

/// Successes of HTTP.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPSuccessCriteria {
    /// Their status codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status_codes: Vec<HTTPStatus>,
}

/// Successes of gRPC.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GRPCSuccessCriteria {
    /// Their status codes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status_codes: Vec<GRPCSuccessCode>,
}

open_enum! {
    /// A gRPC status code.
    #[allow(missing_docs)] // the wire forms say it
    pub enum GRPCSuccessCode {
        Ok, Cancelled, UnknownError = "Unknown", InvalidArgument, DeadlineExceeded, NotFound, AlreadyExists,
        PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted, OutOfRange, Unimplemented, Internal,
        Unavailable, DataLoss, Unauthenticated,
    }
}

/// A compressor of responses.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compression {
    /// The algorithm.
    pub type_: CompressorType,
    /// Settings of Brotli.
    pub brotli: Option<BrotliCompressor>,
    /// Settings of gzip.
    pub gzip: Option<GzipCompressor>,
    /// Settings of Zstandard.
    pub zstd: Option<ZstdCompressor>,
    /// Smallest response to compress in bytes, at least 30.
    #[schemars(extend("pattern" = SIZE))]
    pub min_content_length: Option<Quantity>,
}

open_enum! {
    /// A compression algorithm.
    #[allow(missing_docs)] // the wire forms say it
    pub enum CompressorType {
        Gzip, Brotli, Zstd,
    }
}

/// Settings of Brotli; none yet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BrotliCompressor {}

/// Settings of gzip; none yet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GzipCompressor {}

/// Settings of Zstandard; none yet.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ZstdCompressor {}

/// A protocol upgrade to let through.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.connect) || self.type == 'CONNECT'", "The connect configuration is only allowed when the type is CONNECT."))]
pub struct ProtocolUpgradeConfig {
    /// Its name in any case, such as `websocket` or `CONNECT`.
    pub type_: String,
    /// Settings of `CONNECT`.
    pub connect: Option<ConnectConfig>,
}

/// Handling of `CONNECT`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ConnectConfig {
    /// End the tunnel here and forward its content as raw TCP.
    pub terminate: Option<bool>,
}

/// Holds requests until complete.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RequestBuffer {
    /// Largest request in bytes; a larger one is answered with 413.
    #[schemars(extend("pattern" = SIZE))]
    pub limit: Option<Quantity>,
}

/// Telemetry of a policy's target.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BackendTelemetry {
    /// Tracing; wins over the `EnvoyProxy`.
    pub tracing: Option<Tracing>,
    /// Metrics.
    pub metrics: Option<BackendMetrics>,
}

/// Metrics of a policy's target.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendMetrics {
    /// Pattern of the names of route statistics; operators such as `%ROUTE_NAME%` are expanded.
    pub route_stat_name: Option<String>,
}

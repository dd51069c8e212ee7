//! Traces, metrics and the log of health checks.

use super::backend_traffic::Compression;
use super::cluster::BackendCluster;
use super::common::StringMatch;
use crate::gateway::{Fraction, HTTPHeader};
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// Log of health check events.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct ProxyHealthCheckLog {
    /// Where to write; standard output when unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1))]
    pub sinks: Vec<ProxyHealthCheckLogSink>,
    /// Events to log; all when unset. Failures and successes are named together or not at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4), extend("x-kubernetes-list-type" = "set"))]
    #[x_kube(validation = ("self.exists(e, e == 'Failure' || e == 'FailureSeriesStart') == self.exists(e, e == 'Success' || e == 'HealthyTransition')", "a failure type and a success type must both be specified together"))]
    pub matches: Vec<ProxyHealthCheckLogEventType>,
}

/// A destination of health check events.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'File' ? has(self.file) : !has(self.file)", "If ProxyHealthCheckLogSink type is File, file field needs to be set."))]
pub struct ProxyHealthCheckLogSink {
    /// Kind of destination.
    pub type_: ProxyHealthCheckLogSinkType,
    /// The file, for `File`.
    pub file: Option<FileEnvoyProxyHealthCheckLog>,
}

open_enum! {
    /// Kind of destination of health check events.
    pub enum ProxyHealthCheckLogSinkType {
        /// A file.
        File,
    }
}

/// Writes events to a file as JSON.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FileEnvoyProxyHealthCheckLog {
    /// Path of the file; `/dev/stdout` is standard output.
    #[schemars(length(min = 1))]
    pub path: String,
}

open_enum! {
    /// An outcome of a probe.
    pub enum ProxyHealthCheckLogEventType {
        /// Every failure.
        Failure,
        /// The first failure of a series.
        FailureSeriesStart,
        /// Every success.
        Success,
        /// The success that makes an endpoint healthy.
        HealthyTransition,
    }
}

/// What is traced and how spans look.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    /// Share of requests to trace where nothing has been decided before.
    pub sampling_fraction: Option<Fraction>,
    /// Share of requests to trace where the client asks for it; none when unset.
    pub client_sampling_fraction: Option<Fraction>,
    /// Share of the requests chosen so far that are traced in the end.
    pub overall_sampling_fraction: Option<Fraction>,
    /// Tags by source; superseded by `tags`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom_tags: BTreeMap<String, CustomTag>,
    /// Tags of each span; Envoy's command operators are expanded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Names of spans.
    pub span_name: Option<TracingSpanName>,
}

/// A tag of spans.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomTag {
    /// Where its value comes from.
    #[schemars(required, extend("default" = "Literal"))]
    pub type_: Option<CustomTagType>,
    /// A fixed value.
    pub literal: Option<LiteralCustomTag>,
    /// An environment variable of the proxy.
    pub environment: Option<EnvironmentCustomTag>,
    /// A header of the request.
    pub request_header: Option<RequestHeaderCustomTag>,
}

open_enum! {
    /// Where the value of a tag comes from.
    #[derive(Default)]
    pub enum CustomTagType {
        /// A fixed value.
        #[default]
        Literal,
        /// An environment variable.
        Environment,
        /// A request header.
        RequestHeader,
    }
}

/// A tag with a fixed value.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LiteralCustomTag {
    /// The value.
    pub value: String,
}

/// A tag from an environment variable.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentCustomTag {
    /// Name of the variable.
    pub name: String,
    /// Value where it is not set.
    pub default_value: Option<String>,
}

/// A tag from a request header.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestHeaderCustomTag {
    /// Name of the header.
    pub name: String,
    /// Value where it is absent.
    pub default_value: Option<String>,
}

/// Names of spans; Envoy's command operators are expanded.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TracingSpanName {
    /// Name of the span of the request as received.
    pub client: String,
    /// Name of the span of the request as sent upstream.
    pub server: String,
}

/// Tracing by proxies.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!(has(self.samplingRate) && has(self.samplingFraction))", "only one of SamplingRate or SamplingFraction can be specified"))]
pub struct ProxyTracing {
    /// What is traced and how spans look.
    #[serde(flatten)]
    pub tracing: Tracing,
    /// Percentage of requests to trace; defaults to 100. Excludes `samplingFraction`.
    #[schemars(range(min = 0, max = 100))]
    pub sampling_rate: Option<u32>,
    /// Where spans go.
    pub provider: TracingProvider,
}

/// A destination of spans.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.host) || self.backendRefs.size() > 0", "host or backendRefs needs to be set"))]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'Backend') : true", "BackendRefs only support Service and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only support Core and gateway.envoyproxy.io group."))]
#[x_kube(validation = ("has(self.openTelemetry) ? self.type == 'OpenTelemetry' : true", "openTelemetry can only be used with type OpenTelemetry"))]
pub struct TracingProvider {
    /// The service.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Kind of destination.
    #[schemars(required, extend("default" = "OpenTelemetry"))]
    pub type_: Option<TracingProviderType>,
    /// Its host; superseded by `backendRefs`.
    pub host: Option<String>,
    /// Its port; superseded by `backendRefs`.
    #[schemars(range(min = 0), extend("default" = 4317))]
    pub port: Option<i32>,
    /// Service name in spans; `name.namespace` of the Gateway when unset. Not for Zipkin.
    #[x_kube(validation = (r#"self != """#, "serviceName cannot be empty if provided"))]
    pub service_name: Option<String>,
    /// Settings of Zipkin.
    pub zipkin: Option<ZipkinTracingProvider>,
    /// Settings of OpenTelemetry.
    pub open_telemetry: Option<OpenTelemetryTracingProvider>,
}

open_enum! {
    /// Kind of destination of spans.
    #[derive(Default)]
    #[allow(missing_docs)] // the wire forms say it
    pub enum TracingProviderType {
        #[default] OpenTelemetry, Zipkin, Datadog,
    }
}

/// Settings of Zipkin.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZipkinTracingProvider {
    /// Identifiers of 128 instead of 64 bits.
    #[serde(rename = "enable128BitTraceId")]
    pub enable_128bit_trace_id: Option<bool>,
    /// Give client and server spans identifiers of their own.
    pub disable_shared_span_context: Option<bool>,
}

/// Settings of OpenTelemetry.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetryTracingProvider {
    /// Headers of export requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub headers: Vec<HTTPHeader>,
    /// Attributes that describe the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_attributes: BTreeMap<String, String>,
    /// Whether spans are exported.
    pub sampler: Option<OTelSampler>,
}

/// Sampler of OpenTelemetry.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.samplingPercentage) ? (self.type == 'TraceIdRatio' || self.type == 'ParentBasedTraceIdRatio') : true", "samplingPercentage can only be set with TraceIdRatio or ParentBasedTraceIdRatio"))]
pub struct OTelSampler {
    /// Which sampler; defaults to `AlwaysOn`.
    #[schemars(required, extend("default" = "AlwaysOn"))]
    pub type_: Option<OTelSamplerType>,
    /// Share of traces for ratios; all when unset.
    pub sampling_percentage: Option<Fraction>,
}

open_enum! {
    /// A sampler of OpenTelemetry.
    #[derive(Default)]
    pub enum OTelSamplerType {
        /// All.
        #[default]
        AlwaysOn,
        /// None.
        AlwaysOff,
        /// A share.
        TraceIdRatio,
        /// As the parent; all where there is none.
        ParentBasedAlwaysOn,
        /// As the parent; none where there is none.
        ParentBasedAlwaysOff,
        /// As the parent; a share where there is none.
        ParentBasedTraceIdRatio,
    }
}

/// Metrics of proxies.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyMetrics {
    /// The Prometheus endpoint `/stats/prometheus`.
    pub prometheus: Option<ProxyPrometheusProvider>,
    /// Further destinations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub sinks: Vec<ProxyMetricSink>,
    /// Statistics to keep besides the basic ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<StringMatch>,
    /// Statistics of virtual hosts; off when unset.
    pub enable_virtual_host_stats: Option<bool>,
    /// Statistics of endpoints, which can be very many; off when unset.
    pub enable_per_endpoint_stats: Option<bool>,
    /// Histograms of sizes; off when unset.
    pub enable_request_response_sizes_stats: Option<bool>,
    /// gRPC statistics; on for GRPCRoutes and off for HTTPRoutes when unset.
    #[serde(rename = "enableGRPCStats")]
    pub enable_grpc_stats: Option<bool>,
    /// Pattern of the names of cluster statistics; operators such as `%ROUTE_NAME%` are expanded.
    pub cluster_stat_name: Option<String>,
}

/// The Prometheus endpoint.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ProxyPrometheusProvider {
    /// Do not serve it; off when unset.
    pub disable: Option<bool>,
    /// Compress its responses.
    pub compression: Option<Compression>,
}

/// A destination of metrics.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'OpenTelemetry' ? has(self.openTelemetry) : !has(self.openTelemetry)", "If MetricSink type is OpenTelemetry, openTelemetry field needs to be set."))]
pub struct ProxyMetricSink {
    /// Kind of destination.
    #[schemars(required, extend("default" = "OpenTelemetry"))]
    pub type_: Option<MetricSinkType>,
    /// Settings of `OpenTelemetry`.
    pub open_telemetry: Option<ProxyOpenTelemetrySink>,
}

open_enum! {
    /// Kind of destination of metrics.
    #[derive(Default)]
    pub enum MetricSinkType {
        /// An OpenTelemetry collector.
        #[default]
        OpenTelemetry,
    }
}

/// An OpenTelemetry collector of metrics.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.host) || self.backendRefs.size() > 0", "host or backendRefs needs to be set"))]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'Backend') : true", "BackendRefs only support Service and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only support Core and gateway.envoyproxy.io group."))]
pub struct ProxyOpenTelemetrySink {
    /// The collector.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Its host; superseded by `backendRefs`.
    pub host: Option<String>,
    /// Its port; superseded by `backendRefs`.
    #[schemars(range(min = 0, max = 65535), extend("default" = 4317))]
    pub port: Option<i32>,
    /// Send counters as differences; cumulative when unset.
    pub report_counters_as_deltas: Option<bool>,
    /// Send histograms as differences; cumulative when unset.
    pub report_histograms_as_deltas: Option<bool>,
    /// Headers of export requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub headers: Vec<HTTPHeader>,
    /// Attributes that describe the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_attributes: BTreeMap<String, String>,
}

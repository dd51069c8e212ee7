//! Metrics and traces of the control plane itself (those of the proxies are set in EnvoyProxy).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Duration;
use crate::gateway::Fraction;

/// Metrics and traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// Metrics. Unset: Prometheus is served, nothing is pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Traces. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traces: Option<Traces>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { metrics: Some(Metrics { prometheus: Some(Prometheus::default()), sinks: Vec::new() }), traces: None }
    }
}

/// Where metrics go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    /// The endpoint to be scraped, `/metrics` on 0.0.0.0:19001. Unset: on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<Prometheus>,
    /// Where metrics are pushed to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sinks: Vec<MetricsSink>,
}

/// The endpoint that Prometheus scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prometheus {
    /// Do not serve it. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable: bool,
}

/// A receiver of metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetricsSink {
    /// Kind of receiver. Default: OpenTelemetry.
    #[serde(default, rename = "type")]
    pub type_: SinkType,
    /// Needed when the type is OpenTelemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetrySink>,
}

/// Kind of receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SinkType {
    /// OTLP.
    #[default]
    OpenTelemetry,
}

/// An OTLP receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenTelemetrySink {
    /// Host name or IP address.
    pub host: String,
    /// TCP port. Default: 4317.
    #[serde(default = "OpenTelemetrySink::default_port")]
    pub port: u16,
    /// OTLP over gRPC or over HTTP. Default: grpc.
    #[serde(default)]
    pub protocol: OtlpProtocol,
    /// Time between two exports. Unset or zero: 60 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_interval: Option<Duration>,
    /// Time that an export may take. Unset or zero: 30 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_timeout: Option<Duration>,
}

impl OpenTelemetrySink {
    fn default_port() -> u16 {
        4317
    }
}

/// Transport of OTLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OtlpProtocol {
    /// gRPC.
    #[default]
    Grpc,
    /// HTTP with protobuf bodies.
    Http,
}

/// Traces of the control plane's own work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traces {
    /// Where they go.
    #[serde(default)]
    pub sink: TraceSink,
    /// Do not trace. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable: bool,
    /// Part of the traces that is kept, from 0 to 1. Unset: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<Fraction>,
    /// How spans are gathered before they are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_span_processor: Option<BatchSpanProcessor>,
}

/// A receiver of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TraceSink {
    /// Kind of receiver. Default: OpenTelemetry.
    #[serde(default, rename = "type")]
    pub type_: SinkType,
    /// Needed when the type is OpenTelemetry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_telemetry: Option<OpenTelemetrySink>,
}

/// How spans are gathered before they are sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchSpanProcessor {
    /// Longest time that a span waits. Unset: 5 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_timeout: Option<Duration>,
    /// Most spans in one export, at least 1. Unset: 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_export_batch_size: Option<u32>,
    /// Most spans that wait; more are dropped. At least 1. Unset: 2048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queue_size: Option<u32>,
}

//! The global rate limit service that the controller runs beside the proxies.

use k8s_openapi::api::core::v1::SecretKeySelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Duration;
use crate::gateway::SecretObjectReference;

/// The global rate limit service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    /// Where the service keeps its counters.
    pub backend: RateLimitBackend,
    /// How long a proxy waits for the service. Unset: Envoy's 20 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Answer 500 when the service cannot be asked, instead of letting the request pass. Default: false.
    #[serde(default)]
    pub fail_closed: bool,
    /// Metrics and traces of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<RateLimitTelemetry>,
}

/// Where the service keeps its counters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitBackend {
    /// Kind of store.
    #[serde(rename = "type")]
    pub type_: RateLimitBackendType,
    /// Needed when the type is Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis: Option<RedisSettings>,
}

/// Kind of store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RateLimitBackendType {
    /// Redis.
    #[default]
    Redis,
}

/// How Redis is reached: exactly one of `url` and `urlRef`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisSettings {
    /// `host:port` or a URL; several, joined by commas, for Sentinel and clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A Secret with the URL, beside the rate limit service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_ref: Option<RedisUrlSource>,
    /// TLS with a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<RedisTls>,
}

/// A Secret with the URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisUrlSource {
    /// Name and key; `optional: true` is refused, as the service cannot do without.
    pub secret_key_ref: SecretKeySelector,
}

/// TLS towards Redis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisTls {
    /// Secret of type `kubernetes.io/tls` with the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_ref: Option<SecretObjectReference>,
}

/// Metrics and traces of the rate limit service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitTelemetry {
    /// Metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<RateLimitMetrics>,
    /// Traces. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<RateLimitTracing>,
}

/// Metrics of the rate limit service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitMetrics {
    /// The endpoint to be scraped. Unset: on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<RateLimitPrometheus>,
}

/// The endpoint that Prometheus scrapes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitPrometheus {
    /// Do not serve it. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub disable: bool,
}

/// Traces of the rate limit service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitTracing {
    /// Part of the traces that is kept, 0 to 100 per cent. Unset: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling_rate: Option<u32>,
    /// Where they go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<RateLimitTracingProvider>,
}

/// Receiver of the rate limit service's traces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitTracingProvider {
    /// Kind of receiver. Unset: OpenTelemetry.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<RateLimitTracingProviderType>,
    /// URL of the OTLP receiver.
    pub url: String,
}

/// Kind of receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RateLimitTracingProviderType {
    /// OTLP.
    #[default]
    OpenTelemetry,
}

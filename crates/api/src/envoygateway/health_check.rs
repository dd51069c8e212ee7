//! Active and passive health checks.

use super::common::{Duration, HTTPStatus};
use super::patterns::DNS_NAME;
use super::telemetry::ProxyHealthCheckLog;
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// How unhealthy endpoints are found.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthCheck {
    /// Probe endpoints.
    pub active: Option<ActiveHealthCheck>,
    /// Watch the outcome of real requests.
    pub passive: Option<PassiveHealthCheck>,
    /// Percentage of healthy endpoints below which health is disregarded; 50 when unset, 0 never.
    #[schemars(range(min = 0, max = 100))]
    pub panic_threshold: Option<u32>,
}

/// Probes of endpoints.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'HTTP' ? has(self.http) : !has(self.http)", "If Health Checker type is HTTP, http field needs to be set."))]
#[x_kube(validation = ("self.type == 'TCP' ? has(self.tcp) : !has(self.tcp)", "If Health Checker type is TCP, tcp field needs to be set."))]
#[x_kube(validation = ("has(self.grpc) ? self.type == 'GRPC' : true", "The grpc field can only be set if the Health Checker type is GRPC."))]
pub struct ActiveHealthCheck {
    /// Time to wait for an answer; defaults to 1 s.
    #[schemars(extend("default" = "1s"))]
    pub timeout: Option<Duration>,
    /// Time between probes; defaults to 3 s.
    #[schemars(extend("default" = "3s"))]
    pub interval: Option<Duration>,
    /// Upper bound of the random wait before the first probe.
    pub initial_jitter: Option<Duration>,
    /// Failed probes that make an endpoint unhealthy; defaults to 3.
    #[schemars(range(min = 1), extend("default" = 3))]
    pub unhealthy_threshold: Option<u32>,
    /// Good probes that make it healthy again; defaults to 1.
    #[schemars(range(min = 1), extend("default" = 1))]
    pub healthy_threshold: Option<u32>,
    /// Kind of probe.
    pub type_: ActiveHealthCheckerType,
    /// Settings of HTTP probes.
    pub http: Option<HTTPActiveHealthChecker>,
    /// Settings of TCP probes.
    pub tcp: Option<TCPActiveHealthChecker>,
    /// Settings of gRPC probes.
    pub grpc: Option<GRPCActiveHealthChecker>,
    /// Where probes differ from the service itself.
    pub overrides: Option<HealthCheckOverrides>,
    /// Log of health changes; wins over the `EnvoyProxy`.
    pub health_check_log: Option<ProxyHealthCheckLog>,
}

open_enum! {
    /// A kind of probe.
    pub enum ActiveHealthCheckerType {
        /// An HTTP request.
        HTTP,
        /// A TCP connection, with payloads if given.
        TCP,
        /// The gRPC health checking protocol.
        GRPC,
    }
}

/// An HTTP probe.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.requestBody) || (has(self.method) && self.method.upperAscii() in ['POST','PUT'])", "The requestBody field can only be set when method is POST or PUT."))]
pub struct HTTPActiveHealthChecker {
    /// Host header; else the endpoint's hostname, else the route's.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub hostname: Option<String>,
    /// Path to request.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
    /// Method; GET when unset.
    #[schemars(length(max = 16))]
    pub method: Option<String>,
    /// Status codes of a healthy endpoint; 200 when unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_statuses: Vec<HTTPStatus>,
    /// Status codes that count towards the threshold instead of failing at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retriable_statuses: Vec<HTTPStatus>,
    /// What the response body must contain.
    pub expected_response: Option<ActiveHealthCheckPayload>,
    /// Body to send.
    pub request_body: Option<ActiveHealthCheckPayload>,
}

/// Bytes to send or expect.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'Text' ? has(self.text) : !has(self.text)", "If payload type is Text, text field needs to be set."))]
#[x_kube(validation = ("self.type == 'Binary' ? has(self.binary) : !has(self.binary)", "If payload type is Binary, binary field needs to be set."))]
pub struct ActiveHealthCheckPayload {
    /// Which form is given.
    pub type_: ActiveHealthCheckPayloadType,
    /// The payload as text.
    pub text: Option<String>,
    /// The payload as base64.
    #[schemars(extend("format" = "byte"))]
    pub binary: Option<String>,
}

open_enum! {
    /// Form of a payload.
    pub enum ActiveHealthCheckPayloadType {
        /// Plain text.
        Text,
        /// Base64.
        Binary,
    }
}

/// A TCP probe; without payloads only a connection is made.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct TCPActiveHealthChecker {
    /// Bytes to send.
    pub send: Option<ActiveHealthCheckPayload>,
    /// Bytes to expect.
    pub receive: Option<ActiveHealthCheckPayload>,
}

/// A gRPC probe.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GRPCActiveHealthChecker {
    /// Service to ask about; the server as a whole when unset.
    pub service: Option<String>,
}

/// Where probes differ from the service itself.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HealthCheckOverrides {
    /// Port to probe; the endpoint's own when unset.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Outlier detection: ejects endpoints by the outcome of real requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PassiveHealthCheck {
    /// Count errors of the proxy's own making apart from those of endpoints.
    #[schemars(extend("default" = false))]
    pub split_external_local_origin_errors: Option<bool>,
    /// Time between evaluations; defaults to 3 s.
    #[schemars(extend("default" = "3s"))]
    pub interval: Option<Duration>,
    /// Local failures in a row that eject; defaults to 5. Effective when split.
    #[schemars(extend("default" = 5))]
    pub consecutive_local_origin_failures: Option<u32>,
    /// Gateway errors in a row that eject; 0 never does.
    pub consecutive_gateway_errors: Option<u32>,
    /// 5xx responses in a row that eject; defaults to 5.
    #[serde(rename = "consecutive5XxErrors")]
    #[schemars(extend("default" = 5))]
    pub consecutive_5xx_errors: Option<u32>,
    /// Shortest ejection; defaults to 30 s. It grows with each one.
    #[schemars(extend("default" = "30s"))]
    pub base_ejection_time: Option<Duration>,
    /// Percentage of endpoints that may be ejected at once; defaults to 10.
    #[schemars(range(min = 0, max = 100), extend("default" = 10))]
    pub max_ejection_percent: Option<i32>,
    /// Percentage of failures that ejects.
    #[schemars(range(min = 0, max = 100))]
    pub failure_percentage_threshold: Option<u32>,
    /// Allow one ejection whatever the percentage.
    #[schemars(extend("default" = false))]
    pub always_eject_one_endpoint: Option<bool>,
}

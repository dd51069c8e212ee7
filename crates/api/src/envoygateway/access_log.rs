//! Access logs.

use super::cluster::BackendCluster;
use crate::gateway::HTTPHeader;
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// Access logs.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ProxyAccessLog {
    /// Write none; off when unset.
    pub disable: Option<bool>,
    /// The logs; one to standard output when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50))]
    pub settings: Vec<ProxyAccessLogSetting>,
}

/// An access log.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyAccessLogSetting {
    /// Format of entries; ignored for ALS.
    pub format: Option<ProxyAccessLogFormat>,
    /// CEL expressions, one of which holds for a request to be logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub matches: Vec<String>,
    /// Where entries go.
    #[schemars(length(min = 1, max = 50))]
    pub sinks: Vec<ProxyAccessLogSink>,
    /// What emits entries; when unset, routes, and listeners for requests without a route.
    pub type_: Option<ProxyAccessLogType>,
}

/// Format of entries.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.type) && self.type == 'Text' ? has(self.text) : true", "If AccessLogFormat type is Text, text field needs to be set."))]
#[x_kube(validation = ("has(self.type) && self.type == 'Text' ? !has(self.json) : true", "If AccessLogFormat type is Text, json field must not be set."))]
#[x_kube(validation = ("has(self.type) && self.type == 'JSON' ? has(self.json) : true", "If AccessLogFormat type is JSON, json field needs to be set."))]
#[x_kube(validation = ("has(self.type) && self.type == 'JSON' ? !has(self.text) : true", "If AccessLogFormat type is JSON, text field must not be set."))]
#[x_kube(validation = ("!has(self.type) ? (has(self.text) || has(self.json)) : true", "If AccessLogFormat type is unset, at least one of text or json must be set."))]
pub struct ProxyAccessLogFormat {
    /// Which form; both may be given when unset.
    pub type_: Option<ProxyAccessLogFormatType>,
    /// Text with Envoy's command operators.
    pub text: Option<String>,
    /// Fields with Envoy's command operators.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub json: BTreeMap<String, String>,
}

open_enum! {
    /// Form of entries.
    pub enum ProxyAccessLogFormatType {
        /// Text.
        Text,
        /// JSON.
        JSON,
    }
}

/// A destination of entries.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'ALS' ? has(self.als) : !has(self.als)", "If AccessLogSink type is ALS, als field needs to be set."))]
#[x_kube(validation = ("self.type == 'File' ? has(self.file) : !has(self.file)", "If AccessLogSink type is File, file field needs to be set."))]
#[x_kube(validation = ("self.type == 'OpenTelemetry' ? has(self.openTelemetry) : !has(self.openTelemetry)", "If AccessLogSink type is OpenTelemetry, openTelemetry field needs to be set."))]
pub struct ProxyAccessLogSink {
    /// Kind of destination.
    pub type_: Option<ProxyAccessLogSinkType>,
    /// Settings of `ALS`.
    pub als: Option<ALSEnvoyProxyAccessLog>,
    /// Settings of `File`.
    pub file: Option<FileEnvoyProxyAccessLog>,
    /// Settings of `OpenTelemetry`.
    pub open_telemetry: Option<OpenTelemetryEnvoyProxyAccessLog>,
}

open_enum! {
    /// Kind of destination of entries.
    pub enum ProxyAccessLogSinkType {
        /// A gRPC access log service.
        ALS,
        /// A file.
        File,
        /// An OpenTelemetry collector.
        OpenTelemetry,
    }
}

/// A gRPC access log service.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'HTTP' || !has(self.http)", "The http field may only be set when type is HTTP."))]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendRefs) && self.backendRefs.size() > 0", "must have at least one backend in backendRefs"))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'Backend') : true", "BackendRefs only support Service and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only support Core and gateway.envoyproxy.io group."))]
pub struct ALSEnvoyProxyAccessLog {
    /// The service.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Name of the log; that of the proxy's when unset.
    #[schemars(length(min = 1))]
    pub log_name: Option<String>,
    /// Kind of entries.
    pub type_: ALSEnvoyProxyAccessLogType,
    /// What HTTP entries contain besides.
    pub http: Option<ALSEnvoyProxyHTTPAccessLogConfig>,
}

open_enum! {
    /// Kind of entries.
    pub enum ALSEnvoyProxyAccessLogType {
        /// HTTP.
        HTTP,
        /// TCP.
        TCP,
    }
}

/// What HTTP entries contain besides.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ALSEnvoyProxyHTTPAccessLogConfig {
    /// Request headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub request_headers: Vec<String>,
    /// Response headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_headers: Vec<String>,
    /// Response trailers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_trailers: Vec<String>,
}

/// An access log file.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FileEnvoyProxyAccessLog {
    /// Its path, such as `/dev/stdout`.
    #[schemars(length(min = 1))]
    pub path: Option<String>,
}

/// An OpenTelemetry collector of entries.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.host) || self.backendRefs.size() > 0", "host or backendRefs needs to be set"))]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'Backend') : true", "BackendRefs only support Service and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only support Core and gateway.envoyproxy.io group."))]
#[x_kube(validation = ("!has(self.resources) || !has(self.resourceAttributes)", "either resources or resourceAttributes can be set, not both"))]
pub struct OpenTelemetryEnvoyProxyAccessLog {
    /// The collector.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Its host; superseded by `backendRefs`.
    pub host: Option<String>,
    /// Its port; superseded by `backendRefs`.
    #[schemars(range(min = 0), extend("default" = 4317))]
    pub port: Option<i32>,
    /// Former name of `resourceAttributes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    /// Attributes that describe the source.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_attributes: BTreeMap<String, String>,
    /// Headers of export requests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub headers: Vec<HTTPHeader>,
}

open_enum! {
    /// What emits entries.
    pub enum ProxyAccessLogType {
        /// Listeners.
        Listener,
        /// Routes.
        Route,
        /// The router, for each attempt.
        Upstream,
    }
}

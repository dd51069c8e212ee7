//! TLSRoute, TCPRoute and UDPRoute: rules below HTTP.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::gateway::GatewayDefaultScope;
use super::reference::{BackendRef, ParentReference};
use super::routestatus::RouteStatus;

/// Wanted state of a [`TLSRoute`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "TLSRoute",
    plural = "tlsroutes",
    namespaced,
    status = "RouteStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Rules that lead TLS connections, by server name, to backends.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["hostnames", "rules"]))]
pub struct TLSRouteSpec {
    /// Server names that the route serves. `v1` requires one; the alpha versions do not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::hostnames", length(min = 1, max = 1024), extend("x-kubernetes-validations" = [
    { "rule": "self.all(h, !isIP(h))", "message": "Hostnames cannot contain an IP" },
    { "rule": r"self.all(h, !h.contains('*') ? h.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$') : true)", "message": "Hostnames must be valid based on RFC-1123" },
    { "rule": r"self.all(h, h.contains('*') ? (h.startsWith('*.') && h.substring(2).matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)$')) : true)", "message": "Wildcards on hostnames must be the first label, and the rest of hostname must be valid based on RFC-1123" },
]))]
    pub hostnames: Vec<String>,
    /// The rules.
    #[schemars(length(min = 1, max = 1))]
    pub rules: Vec<TLSRouteRule>,
    /// What the route attaches to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = fields::unique_parents()))]
    pub parent_refs: Vec<ParentReference>,
    /// Attaches the route to default Gateways of this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<GatewayDefaultScope>,
}

/// Wanted state of a [`TCPRoute`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "TCPRoute",
    plural = "tcproutes",
    namespaced,
    status = "RouteStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Rules that lead TCP connections to backends.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TCPRouteSpec {
    /// The rules.
    #[schemars(length(min = 1, max = 1))]
    pub rules: Vec<TCPRouteRule>,
    /// What the route attaches to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = fields::unique_parents()))]
    pub parent_refs: Vec<ParentReference>,
    /// Attaches the route to default Gateways of this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<GatewayDefaultScope>,
}

/// Wanted state of a [`UDPRoute`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "UDPRoute",
    plural = "udproutes",
    namespaced,
    status = "RouteStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Rules that lead UDP datagrams to backends.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct UDPRouteSpec {
    /// The rules.
    #[schemars(length(min = 1, max = 1))]
    pub rules: Vec<UDPRouteRule>,
    /// What the route attaches to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = fields::unique_parents()))]
    pub parent_refs: Vec<ParentReference>,
    /// Attaches the route to default Gateways of this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<GatewayDefaultScope>,
}

/// Backends of TLS connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct TLSRouteRule {
    /// Backends that share the traffic by weight.
    #[schemars(length(min = 1, max = 16))]
    pub backend_refs: Vec<BackendRef>,
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub name: Option<String>,
}

/// Backends of TCP connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct TCPRouteRule {
    /// Backends that share the traffic by weight.
    #[schemars(length(min = 1, max = 16))]
    pub backend_refs: Vec<BackendRef>,
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub name: Option<String>,
}

/// Backends of UDP datagrams.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct UDPRouteRule {
    /// Backends that share the traffic by weight.
    #[schemars(length(min = 1, max = 16))]
    pub backend_refs: Vec<BackendRef>,
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub name: Option<String>,
}

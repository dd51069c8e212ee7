//! GRPCRoute: rules that lead gRPC calls to backends.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::filter::{HTTPHeaderFilter, HTTPRequestMirrorFilter};
use super::gateway::GatewayDefaultScope;
use super::reference::{BackendRef, LocalObjectReference, ParentReference};
use super::routestatus::RouteStatus;
use super::session::SessionPersistence;
use crate::open_enum;

/// Wanted state of a [`GRPCRoute`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "GRPCRoute",
    plural = "grpcroutes",
    namespaced,
    status = "RouteStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Rules that lead gRPC calls from listeners to backends.",
    printcolumn = r#"{"name": "Hostnames", "type": "string", "jsonPath": ".spec.hostnames"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GRPCRouteSpec {
    /// Host names that the route serves; those of the listener when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::hostnames", length(max = 16))]
    pub hostnames: Vec<String>,
    /// What the route attaches to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-validations" = fields::unique_parents()))]
    pub parent_refs: Vec<ParentReference>,
    /// The rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = match_limits()))]
    pub rules: Vec<GRPCRouteRule>,
    /// Attaches the route to default Gateways of this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<GatewayDefaultScope>,
}

/// Matches, and what is done with calls that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GRPCRouteRule {
    /// Backends that share the traffic by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub backend_refs: Vec<GRPCBackendRef>,
    /// Steps applied, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [
    { "rule": "self.filter(f, f.type == 'RequestHeaderModifier').size() <= 1", "message": "RequestHeaderModifier filter cannot be repeated" },
    { "rule": "self.filter(f, f.type == 'ResponseHeaderModifier').size() <= 1", "message": "ResponseHeaderModifier filter cannot be repeated" },
]))]
    pub filters: Vec<GRPCRouteFilter>,
    /// Alternatives: one that matches is enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub matches: Vec<GRPCRouteMatch>,
    /// Name of the rule, unique within the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub name: Option<String>,
    /// Session persistence of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<SessionPersistence>,
}

/// A weighted backend with filters of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GRPCBackendRef {
    /// The weighted backend.
    #[serde(flatten)]
    pub backend_ref: BackendRef,
    /// Steps applied only to traffic of this backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [
    { "rule": "self.filter(f, f.type == 'RequestHeaderModifier').size() <= 1", "message": "RequestHeaderModifier filter cannot be repeated" },
    { "rule": "self.filter(f, f.type == 'ResponseHeaderModifier').size() <= 1", "message": "ResponseHeaderModifier filter cannot be repeated" },
]))]
    pub filters: Vec<GRPCRouteFilter>,
}

impl std::ops::Deref for GRPCBackendRef {
    type Target = BackendRef;

    fn deref(&self) -> &BackendRef {
        &self.backend_ref
    }
}

/// A step applied to calls or their answers; `type` says which member is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!(has(self.requestHeaderModifier) && self.type != 'RequestHeaderModifier')", "message": "filter.requestHeaderModifier must be nil if the filter.type is not RequestHeaderModifier" },
    { "rule": "!(!has(self.requestHeaderModifier) && self.type == 'RequestHeaderModifier')", "message": "filter.requestHeaderModifier must be specified for RequestHeaderModifier filter.type" },
    { "rule": "!(has(self.responseHeaderModifier) && self.type != 'ResponseHeaderModifier')", "message": "filter.responseHeaderModifier must be nil if the filter.type is not ResponseHeaderModifier" },
    { "rule": "!(!has(self.responseHeaderModifier) && self.type == 'ResponseHeaderModifier')", "message": "filter.responseHeaderModifier must be specified for ResponseHeaderModifier filter.type" },
    { "rule": "!(has(self.requestMirror) && self.type != 'RequestMirror')", "message": "filter.requestMirror must be nil if the filter.type is not RequestMirror" },
    { "rule": "!(!has(self.requestMirror) && self.type == 'RequestMirror')", "message": "filter.requestMirror must be specified for RequestMirror filter.type" },
    { "rule": "!(has(self.extensionRef) && self.type != 'ExtensionRef')", "message": "filter.extensionRef must be nil if the filter.type is not ExtensionRef" },
    { "rule": "!(!has(self.extensionRef) && self.type == 'ExtensionRef')", "message": "filter.extensionRef must be specified for ExtensionRef filter.type" },
]))]
pub struct GRPCRouteFilter {
    /// Which kind.
    #[serde(rename = "type")]
    pub type_: GRPCRouteFilterType,
    /// Filter defined elsewhere, where `type` is `ExtensionRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<LocalObjectReference>,
    /// Changes request headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HTTPHeaderFilter>,
    /// Mirrors requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<HTTPRequestMirrorFilter>,
    /// Changes response headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HTTPHeaderFilter>,
}

/// A conjunction of conditions on a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GRPCRouteMatch {
    /// Conditions on headers; all must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub headers: Vec<GRPCHeaderMatch>,
    /// Condition on service and method; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<GRPCMethodMatch>,
}

open_enum! {
    /// Kinds of GRPCRoute filters.
    #[derive(Default)]
    pub enum GRPCRouteFilterType {
        /// Changes response headers.
        ResponseHeaderModifier,
        /// Changes request headers.
        #[default]
        RequestHeaderModifier,
        /// Mirrors requests.
        RequestMirror,
        /// Defined elsewhere.
        ExtensionRef,
    }
}

/// Condition on a header (metadata) of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GRPCHeaderMatch {
    /// Header name, case-insensitive.
    #[schemars(schema_with = "fields::header_name")]
    pub name: String,
    /// Value to compare with.
    #[schemars(length(min = 1, max = 4096))]
    pub value: String,
    /// How the value is compared.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<GRPCHeaderMatchType>,
}

/// Condition on service and method of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "has(self.type) ? has(self.service) || has(self.method) : true", "message": "One or both of 'service' or 'method' must be specified" },
    { "rule": r#"(!has(self.type) || self.type == 'Exact') && has(self.service) ? self.service.matches(r"""^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$"""): true"#, "message": r"service must only contain valid characters (matching ^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$)" },
    { "rule": r#"(!has(self.type) || self.type == 'Exact') && has(self.method) ? self.method.matches(r"""^[A-Za-z_][A-Za-z_0-9]*$"""): true"#, "message": "method must only contain valid characters (matching ^[A-Za-z_][A-Za-z_0-9]*$)" },
]))]
pub struct GRPCMethodMatch {
    /// Method name; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub method: Option<String>,
    /// Service name with its package; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub service: Option<String>,
    /// How the names are compared.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<GRPCMethodMatchType>,
}

open_enum! {
    /// How a header value is compared.
    #[derive(Default)]
    pub enum GRPCHeaderMatchType {
        /// Equal.
        #[default]
        Exact,
        /// Matches an expression (RE2).
        RegularExpression,
    }
}

open_enum! {
    /// How service and method are compared.
    #[derive(Default)]
    pub enum GRPCMethodMatchType {
        /// Equal.
        #[default]
        Exact,
        /// Matches an expression (RE2).
        RegularExpression,
    }
}

fn match_limits() -> serde_json::Value {
    fields::match_limits(|i| format!("(has(self[{i}].matches) ? self[{i}].matches.size() : 0)"))
}

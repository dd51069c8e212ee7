//! Filters of HTTPRoute rules; GRPCRoute shares some.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::reference::{BackendObjectReference, LocalObjectReference};
use crate::open_enum;

/// A step applied to requests or responses; `type` says which member is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!(has(self.cors) && self.type != 'CORS')", "message": "filter.cors must be nil if the filter.type is not CORS" },
    { "rule": "!(!has(self.cors) && self.type == 'CORS')", "message": "filter.cors must be specified for CORS filter.type" },
    { "rule": "!(has(self.requestHeaderModifier) && self.type != 'RequestHeaderModifier')", "message": "filter.requestHeaderModifier must be nil if the filter.type is not RequestHeaderModifier" },
    { "rule": "!(!has(self.requestHeaderModifier) && self.type == 'RequestHeaderModifier')", "message": "filter.requestHeaderModifier must be specified for RequestHeaderModifier filter.type" },
    { "rule": "!(has(self.responseHeaderModifier) && self.type != 'ResponseHeaderModifier')", "message": "filter.responseHeaderModifier must be nil if the filter.type is not ResponseHeaderModifier" },
    { "rule": "!(!has(self.responseHeaderModifier) && self.type == 'ResponseHeaderModifier')", "message": "filter.responseHeaderModifier must be specified for ResponseHeaderModifier filter.type" },
    { "rule": "!(has(self.requestMirror) && self.type != 'RequestMirror')", "message": "filter.requestMirror must be nil if the filter.type is not RequestMirror" },
    { "rule": "!(!has(self.requestMirror) && self.type == 'RequestMirror')", "message": "filter.requestMirror must be specified for RequestMirror filter.type" },
    { "rule": "!(has(self.requestRedirect) && self.type != 'RequestRedirect')", "message": "filter.requestRedirect must be nil if the filter.type is not RequestRedirect" },
    { "rule": "!(!has(self.requestRedirect) && self.type == 'RequestRedirect')", "message": "filter.requestRedirect must be specified for RequestRedirect filter.type" },
    { "rule": "!(has(self.urlRewrite) && self.type != 'URLRewrite')", "message": "filter.urlRewrite must be nil if the filter.type is not URLRewrite" },
    { "rule": "!(!has(self.urlRewrite) && self.type == 'URLRewrite')", "message": "filter.urlRewrite must be specified for URLRewrite filter.type" },
    { "rule": "!(has(self.extensionRef) && self.type != 'ExtensionRef')", "message": "filter.extensionRef must be nil if the filter.type is not ExtensionRef" },
    { "rule": "!(!has(self.extensionRef) && self.type == 'ExtensionRef')", "message": "filter.extensionRef must be specified for ExtensionRef filter.type" },
    { "rule": "!(has(self.externalAuth) && self.type != 'ExternalAuth')", "message": "filter.externalAuth must be nil if the filter.type is not ExternalAuth" },
    { "rule": "!(!has(self.externalAuth) && self.type == 'ExternalAuth')", "message": "filter.externalAuth must be specified for ExternalAuth filter.type" },
]))]
pub struct HTTPRouteFilter {
    /// Which kind.
    #[serde(rename = "type")]
    pub type_: HTTPRouteFilterType,
    /// Cross-origin resource sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cors: Option<HTTPCORSFilter>,
    /// Filter defined elsewhere, where `type` is `ExtensionRef`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<LocalObjectReference>,
    /// External authorization.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_auth: Option<HTTPExternalAuthFilter>,
    /// Changes request headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_header_modifier: Option<HTTPHeaderFilter>,
    /// Mirrors requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_mirror: Option<HTTPRequestMirrorFilter>,
    /// Redirects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_redirect: Option<HTTPRequestRedirectFilter>,
    /// Changes response headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_header_modifier: Option<HTTPHeaderFilter>,
    /// Rewrites host or path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_rewrite: Option<HTTPURLRewriteFilter>,
}

open_enum! {
    /// Kinds of HTTPRoute filters.
    #[derive(Default)]
    pub enum HTTPRouteFilterType {
        /// Changes request headers.
        #[default]
        RequestHeaderModifier,
        /// Changes response headers.
        ResponseHeaderModifier,
        /// Mirrors requests.
        RequestMirror,
        /// Redirects.
        RequestRedirect,
        /// Rewrites host or path.
        URLRewrite,
        /// Defined elsewhere.
        ExtensionRef,
        /// Cross-origin resource sharing.
        CORS,
        /// External authorization.
        ExternalAuth,
    }
}

/// Cross-origin resource sharing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPCORSFilter {
    /// Whether requests may carry credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_credentials: Option<bool>,
    /// Request headers allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::header_names", length(max = 64), extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [
    { "rule": "!('*' in self && self.size() > 1)", "message": "AllowHeaders cannot contain '*' alongside other methods" },
]))]
    pub allow_headers: Vec<String>,
    /// Methods allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 9), extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [
    { "rule": "!('*' in self && self.size() > 1)", "message": "AllowMethods cannot contain '*' alongside other methods" },
]))]
    pub allow_methods: Vec<HTTPMethodWithWildcard>,
    /// Origins allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1,max = 253), regex(pattern = r"(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)")), length(max = 64), extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [
    { "rule": "!('*' in self && self.size() > 1)", "message": "AllowOrigins cannot contain '*' alongside other origins" },
]))]
    pub allow_origins: Vec<String>,
    /// Response headers that scripts may read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::header_names", length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub expose_headers: Vec<String>,
    /// How long the answer may be cached, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 5))]
    pub max_age: Option<i32>,
}

/// Asks a service whether a request may pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.protocol == 'GRPC' ? has(self.grpc) : true", "message": "grpc must be specified when protocol is set to 'GRPC'" },
    { "rule": "has(self.grpc) ? self.protocol == 'GRPC' : true", "message": "protocol must be 'GRPC' when grpc is set" },
    { "rule": "self.protocol == 'HTTP' ? has(self.http) : true", "message": "http must be specified when protocol is set to 'HTTP'" },
    { "rule": "has(self.http) ? self.protocol == 'HTTP' : true", "message": "protocol must be 'HTTP' when http is set" },
]))]
pub struct HTTPExternalAuthFilter {
    /// The authorization service.
    pub backend_ref: BackendObjectReference,
    /// Protocol of the service.
    pub protocol: HTTPRouteExternalAuthProtocol,
    /// Sends the body along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_body: Option<ForwardBodyConfig>,
    /// Settings for gRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GRPCAuthConfig>,
    /// Settings for HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HTTPAuthConfig>,
}

/// Changes of headers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPHeaderFilter {
    /// Added, keeping values that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub add: Vec<HTTPHeader>,
    /// Removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub remove: Vec<String>,
    /// Set, replacing values that are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub set: Vec<HTTPHeader>,
}

/// Sends copies of requests elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!(has(self.percent) && has(self.fraction))", "message": "Only one of percent or fraction may be specified in HTTPRequestMirrorFilter" },
]))]
pub struct HTTPRequestMirrorFilter {
    /// Where copies go; answers are dropped.
    pub backend_ref: BackendObjectReference,
    /// Share of requests copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
    /// Share of requests copied, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub percent: Option<i32>,
}

/// Answers with a redirect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRequestRedirectFilter {
    /// Host of the location; that of the request when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub hostname: Option<String>,
    /// New path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<HTTPPathModifier>,
    /// Port of the location; by scheme or listener when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Scheme of the location; that of the request when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<HTTPRedirectScheme>,
    /// Status code of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::integer", extend("enum" = [301, 302, 303, 307, 308], "default" = 302))]
    pub status_code: Option<i32>,
}

/// Rewrites host or path on the way to the backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPURLRewriteFilter {
    /// New Host header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub hostname: Option<String>,
    /// New path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<HTTPPathModifier>,
}

open_enum! {
    /// Request methods, or any.
    pub enum HTTPMethodWithWildcard {
        /// `GET`.
        Get = "GET",
        /// `HEAD`.
        Head = "HEAD",
        /// `POST`.
        Post = "POST",
        /// `PUT`.
        Put = "PUT",
        /// `DELETE`.
        Delete = "DELETE",
        /// `CONNECT`.
        Connect = "CONNECT",
        /// `OPTIONS`.
        Options = "OPTIONS",
        /// `TRACE`.
        Trace = "TRACE",
        /// `PATCH`.
        Patch = "PATCH",
        /// Any method.
        Any = "*",
    }
}

open_enum! {
    /// Protocols of authorization services.
    #[derive(Default)]
    pub enum HTTPRouteExternalAuthProtocol {
        /// HTTP.
        #[default]
        HTTP,
        /// gRPC.
        GRPC,
    }
}

/// How much of the body goes to the authorization service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ForwardBodyConfig {
    /// Largest body in bytes; none is sent when absent or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::integer")]
    pub max_size: Option<i32>,
}

/// Settings of the gRPC authorization protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GRPCAuthConfig {
    /// Request headers that the service is told, beside the protocol's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_headers: Vec<String>,
}

/// Settings of the HTTP authorization protocol.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPAuthConfig {
    /// Request headers that the service is told, beside the protocol's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_headers: Vec<String>,
    /// Headers of the answer that are added to the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub allowed_response_headers: Vec<String>,
    /// Prefix put before the path of the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$"))]
    pub path: Option<String>,
}

/// A header with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPHeader {
    /// Header name, case-insensitive.
    #[schemars(schema_with = "fields::header_name")]
    pub name: String,
    /// Header value.
    #[schemars(schema_with = "fields::header_value")]
    pub value: String,
}

/// Share of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.numerator <= self.denominator", "message": "numerator must be less than or equal to denominator" },
]))]
pub struct Fraction {
    /// How many.
    #[schemars(range(min = 0))]
    pub numerator: i32,
    /// Of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 100))]
    pub denominator: Option<i32>,
}

/// How a path is replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.type == 'ReplaceFullPath' ? has(self.replaceFullPath) : true", "message": "replaceFullPath must be specified when type is set to 'ReplaceFullPath'" },
    { "rule": "has(self.replaceFullPath) ? self.type == 'ReplaceFullPath' : true", "message": "type must be 'ReplaceFullPath' when replaceFullPath is set" },
    { "rule": "self.type == 'ReplacePrefixMatch' ? has(self.replacePrefixMatch) : true", "message": "replacePrefixMatch must be specified when type is set to 'ReplacePrefixMatch'" },
    { "rule": "has(self.replacePrefixMatch) ? self.type == 'ReplacePrefixMatch' : true", "message": "type must be 'ReplacePrefixMatch' when replacePrefixMatch is set" },
]))]
pub struct HTTPPathModifier {
    /// Which kind.
    #[serde(rename = "type")]
    pub type_: HTTPPathModifierType,
    /// The whole new path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub replace_full_path: Option<String>,
    /// What replaces the matched prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub replace_prefix_match: Option<String>,
}

open_enum! {
    /// Schemes that a redirect can lead to.
    pub enum HTTPRedirectScheme {
        /// HTTP.
        Http = "http",
        /// HTTPS.
        Https = "https",
    }
}

open_enum! {
    /// Ways to replace a path.
    #[derive(Default)]
    pub enum HTTPPathModifierType {
        /// The whole path.
        #[default]
        ReplaceFullPath,
        /// The matched prefix.
        ReplacePrefixMatch,
    }
}

/// Rules for the list of filters of an HTTPRoute rule or backend.
pub(super) fn http_filter_rules() -> serde_json::Value {
    let once = |filter: &str| {
        serde_json::json!({
            "rule": format!("self.filter(f, f.type == '{filter}').size() <= 1"),
            "message": format!("{filter} filter cannot be repeated"),
        })
    };
    serde_json::json!([
        {
            "rule": "!(self.exists(f, f.type == 'RequestRedirect') && self.exists(f, f.type == 'URLRewrite'))",
            "message": "May specify either httpRouteFilterRequestRedirect or httpRouteFilterRequestRewrite, but not both",
        },
        once("CORS"),
        once("RequestHeaderModifier"),
        once("ResponseHeaderModifier"),
        once("RequestRedirect"),
        once("URLRewrite"),
    ])
}

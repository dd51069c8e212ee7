//! `HTTPRouteFilter`.

use super::response::CustomResponseBody;
use crate::gateway::{self, SecretObjectReference};
use crate::open_enum;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What an `HTTPRouteFilter` does.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "HTTPRouteFilter",
    plural = "httproutefilters",
    namespaced,
    derive = "PartialEq",
    shortname = "hrf",
    category = "envoy-gateway",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "A filter or further conditions for HTTPRoute rules.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteFilterSpec {
    /// Rewrite host or path.
    pub url_rewrite: Option<HTTPURLRewriteFilter>,
    /// Answer without a backend; only errors for a GRPCRoute.
    pub direct_response: Option<HTTPDirectResponseFilter>,
    /// Add credentials to requests.
    pub credential_injection: Option<HTTPCredentialInjectionFilter>,
    /// Conditions, one of which holds, besides those of the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub matches: Vec<HTTPRouteMatchFilter>,
}

/// Rewrites of host and path.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPURLRewriteFilter {
    /// The host.
    pub hostname: Option<HTTPHostnameModifier>,
    /// The path.
    pub path: Option<HTTPPathModifier>,
    /// Append the former host to `X-Forwarded-Host`; on when unset.
    pub append_x_forwarded_host: Option<bool>,
}

/// A rewrite of the host.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!(has(self.header) && self.type != 'Header')", "header must be nil if the type is not Header"))]
#[x_kube(validation = ("!(!has(self.header) && self.type == 'Header')", "header must be specified for Header type"))]
#[x_kube(validation = ("!(has(self.pathRegex) && self.type != 'PathRegex')", "pathRegex must be nil if the type is not PathRegex"))]
#[x_kube(validation = ("!(!has(self.pathRegex) && self.type == 'PathRegex')", "pathRegex must be specified for PathRegex type"))]
pub struct HTTPHostnameModifier {
    /// Source of the new host.
    pub type_: HTTPHostnameModifierType,
    /// Header with the new host.
    pub header: Option<String>,
    /// Expression that makes it from the path.
    pub path_regex: Option<HostnamePathRegexRewrite>,
}

open_enum! {
    /// Source of a new host.
    pub enum HTTPHostnameModifierType {
        /// A header.
        Header,
        /// The backend's own name.
        Backend,
        /// The path.
        PathRegex,
    }
}

/// Makes a host from the path.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HostnamePathRegexRewrite {
    /// RE2 expression that the path matches.
    #[schemars(length(min = 1))]
    pub pattern: String,
    /// The host, with groups as `\1`.
    #[schemars(length(min = 1), regex(pattern = r"^[^\r\n\x00]*$"))]
    pub substitution: String,
}

/// A rewrite of the path.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'ReplaceRegexMatch' ? has(self.replaceRegexMatch) : !has(self.replaceRegexMatch)", "If HTTPPathModifier type is ReplaceRegexMatch, replaceRegexMatch field needs to be set."))]
pub struct HTTPPathModifier {
    /// How.
    pub type_: HTTPPathModifierType,
    /// Settings of `ReplaceRegexMatch`.
    pub replace_regex_match: Option<ReplaceRegexMatch>,
}

open_enum! {
    /// How a path is rewritten.
    pub enum HTTPPathModifierType {
        /// By a regular expression.
        ReplaceRegexMatch,
    }
}

/// Replaces the parts of a path that match.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ReplaceRegexMatch {
    /// RE2 expression.
    #[schemars(length(min = 1))]
    pub pattern: String,
    /// Replacement, with groups as `\1`.
    pub substitution: String,
}

/// A response without a backend.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPDirectResponseFilter {
    /// Its `Content-Type`.
    pub content_type: Option<String>,
    /// Its body; Envoy's command operators are expanded.
    pub body: Option<CustomResponseBody>,
    /// Its status code; 200 when unset.
    #[schemars(extend("format" = null))]
    pub status_code: Option<i64>,
    /// Its headers.
    #[x_kube(validation = ("!has(self.remove) || size(self.remove) == 0", "header.remove is not supported for DirectResponse"))]
    pub header: Option<gateway::HTTPHeaderFilter>,
}

/// Adds credentials to requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HTTPCredentialInjectionFilter {
    /// Header to write; `Authorization` when unset.
    pub header: Option<String>,
    /// Replace a header that is there; off when unset.
    pub overwrite: Option<bool>,
    /// The credentials.
    pub credential: InjectedCredential,
}

/// Credentials.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectedCredential {
    /// Secret with the header's value under `credential`.
    pub value_ref: SecretObjectReference,
}

/// Further conditions of a rule, all of which hold.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("minProperties" = 1))]
pub struct HTTPRouteMatchFilter {
    /// Conditions on cookies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub cookies: Vec<HTTPCookieMatch>,
}

/// A condition on a cookie.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPCookieMatch {
    /// How to compare; `Exact` when unset.
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<CookieMatchType>,
    /// Name of the cookie.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Value to compare with.
    #[schemars(length(min = 1, max = 4096))]
    pub value: String,
}

open_enum! {
    /// How a cookie is compared.
    #[derive(Default)]
    pub enum CookieMatchType {
        /// It is the same.
        #[default]
        Exact,
        /// It matches an RE2 expression.
        RegularExpression,
    }
}

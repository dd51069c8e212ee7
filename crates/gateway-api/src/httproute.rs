//! HTTPRoute: rules that lead HTTP requests to backends.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::filter::{HTTPRouteFilter, http_filter_rules};
use super::gateway::GatewayDefaultScope;
use super::reference::{BackendRef, ParentReference};
use super::routestatus::RouteStatus;
use super::session::SessionPersistence;
use crate::open_enum;

/// Wanted state of an [`HTTPRoute`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "HTTPRoute",
    plural = "httproutes",
    namespaced,
    status = "RouteStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Rules that lead HTTP requests from listeners to backends.",
    printcolumn = r#"{"name": "Hostnames", "type": "string", "jsonPath": ".spec.hostnames"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteSpec {
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
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-validations" = match_limits(), "default" = [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}]))]
    pub rules: Vec<HTTPRouteRule>,
    /// Attaches the route to default Gateways of this scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<GatewayDefaultScope>,
}

/// Matches, and what is done with requests that match.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = rule_rules()))]
pub struct HTTPRouteRule {
    /// Backends that share the traffic by weight.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub backend_refs: Vec<HTTPBackendRef>,
    /// Steps applied, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = http_filter_rules()))]
    pub filters: Vec<HTTPRouteFilter>,
    /// Alternatives: a request that meets one matches the rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("default" = [{"path": {"type": "PathPrefix", "value": "/"}}]))]
    pub matches: Vec<HTTPRouteMatch>,
    /// Name of the rule, unique within the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub name: Option<String>,
    /// Retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<HTTPRouteRetry>,
    /// Session persistence of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<SessionPersistence>,
    /// Time limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<HTTPRouteTimeouts>,
}

/// A weighted backend with filters of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPBackendRef {
    /// The weighted backend.
    #[serde(flatten)]
    pub backend_ref: BackendRef,
    /// Steps applied only to traffic of this backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = http_filter_rules()))]
    pub filters: Vec<HTTPRouteFilter>,
}

impl std::ops::Deref for HTTPBackendRef {
    type Target = BackendRef;

    fn deref(&self) -> &BackendRef {
        &self.backend_ref
    }
}

/// A conjunction of conditions on a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteMatch {
    /// Conditions on headers; all must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub headers: Vec<HTTPHeaderMatch>,
    /// Request method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<HTTPMethod>,
    /// Condition on the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"type": "PathPrefix", "value": "/"}))]
    pub path: Option<HTTPPathMatch>,
    /// Conditions on query parameters; all must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub query_params: Vec<HTTPQueryParamMatch>,
}

/// When and how often requests to backends are retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPRouteRetry {
    /// How often a request is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::integer", range(min = 1))]
    pub attempts: Option<i32>,
    /// Shortest wait between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::duration")]
    pub backoff: Option<String>,
    /// Response codes that lead to a retry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "fields::status_codes", extend("x-kubernetes-list-type" = "set"))]
    pub codes: Vec<i32>,
}

/// Time limits of a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "!(has(self.request) && has(self.backendRequest) && duration(self.request) != duration('0s') && duration(self.backendRequest) > duration(self.request))", "message": "backendRequest timeout cannot be longer than request timeout" },
]))]
pub struct HTTPRouteTimeouts {
    /// Limit of one request to a backend; 0s is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::duration")]
    pub backend_request: Option<String>,
    /// Limit of the whole exchange with the client; 0s is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::duration")]
    pub request: Option<String>,
}

/// Condition on a request header.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPHeaderMatch {
    /// Header name, case-insensitive.
    #[schemars(schema_with = "fields::header_name")]
    pub name: String,
    /// Value to compare with.
    #[schemars(schema_with = "fields::header_value")]
    pub value: String,
    /// How the value is compared.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<HeaderMatchType>,
}

open_enum! {
    /// Request methods that can be matched.
    pub enum HTTPMethod {
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
    }
}

/// Condition on the path of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "(self.type in ['Exact','PathPrefix']) ? self.value.startsWith('/') : true", "message": "value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('//') : true", "message": "must not contain '//' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('/./') : true", "message": "must not contain '/./' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('/../') : true", "message": "must not contain '/../' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('%2f') : true", "message": "must not contain '%2f' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('%2F') : true", "message": "must not contain '%2F' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.contains('#') : true", "message": "must not contain '#' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.endsWith('/..') : true", "message": "must not end with '/..' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "(self.type in ['Exact','PathPrefix']) ? !self.value.endsWith('/.') : true", "message": "must not end with '/.' when type one of ['Exact', 'PathPrefix']" },
    { "rule": "self.type in ['Exact','PathPrefix'] || self.type == 'RegularExpression'", "message": "type must be one of ['Exact', 'PathPrefix', 'RegularExpression']" },
    { "rule": r#"(self.type in ['Exact','PathPrefix']) ? self.value.matches(r"""^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$""") : true"#, "message": "must only contain valid characters (matching ^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$) for types ['Exact', 'PathPrefix']" },
]))]
pub struct HTTPPathMatch {
    /// How the path is compared.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "PathPrefix"))]
    pub type_: Option<PathMatchType>,
    /// Path, prefix or expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), extend("default" = "/"))]
    pub value: Option<String>,
}

/// Condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct HTTPQueryParamMatch {
    /// Parameter name.
    #[schemars(schema_with = "fields::header_name")]
    pub name: String,
    /// Value to compare with.
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
    /// How the value is compared.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<QueryParamMatchType>,
}

open_enum! {
    /// How a header value is compared.
    #[derive(Default)]
    pub enum HeaderMatchType {
        /// Equal.
        #[default]
        Exact,
        /// Matches an expression (RE2).
        RegularExpression,
    }
}

open_enum! {
    /// How a path is compared.
    #[derive(Default)]
    pub enum PathMatchType {
        /// Equal.
        Exact,
        /// Equal by path elements up to the length of the value.
        #[default]
        PathPrefix,
        /// Matches an expression (RE2).
        RegularExpression,
    }
}

open_enum! {
    /// How the value of a query parameter is compared.
    #[derive(Default)]
    pub enum QueryParamMatchType {
        /// Equal.
        #[default]
        Exact,
        /// Matches an expression (RE2).
        RegularExpression,
    }
}

fn match_limits() -> serde_json::Value {
    fields::match_limits(|i| format!("self[{i}].matches.size()"))
}

/// A filter that replaces a path prefix makes sense only behind the one match that has a prefix.
fn rule_rules() -> serde_json::Value {
    let replaces = |filter: &str| {
        format!(
            "has(f.{filter}) && has(f.{filter}.path) && f.{filter}.path.type == 'ReplacePrefixMatch' && \
             has(f.{filter}.path.replacePrefixMatch)"
        )
    };
    let one_prefix = "((size(self.matches) != 1 || !has(self.matches[0].path) || self.matches[0].path.type != \
                      'PathPrefix') ? false : true) : true";
    let of_rule = |filter: &str, message: &str| {
        serde_json::json!({
            "rule": format!(
                "(has(self.filters) && self.filters.exists_one(f, {})) ? {one_prefix}",
                replaces(filter)
            ),
            "message": format!("{message} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"),
        })
    };
    let of_backend = |filter: &str, message: &str| {
        serde_json::json!({
            "rule": format!(
                "(has(self.backendRefs) && self.backendRefs.exists_one(b, (has(b.filters) && \
                 b.filters.exists_one(f, {})) )) ? {one_prefix}",
                replaces(filter)
            ),
            "message": format!("{message} filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified"),
        })
    };
    serde_json::json!([
        {
            "rule": "(has(self.backendRefs) && size(self.backendRefs) > 0) ? (!has(self.filters) || \
                     self.filters.all(f, !has(f.requestRedirect))): true",
            "message": "RequestRedirect filter must not be used together with backendRefs",
        },
        of_rule("requestRedirect", "When using RequestRedirect"),
        of_rule("urlRewrite", "When using URLRewrite"),
        of_backend("requestRedirect", "Within backendRefs, when using RequestRedirect"),
        of_backend("urlRewrite", "Within backendRefs, When using URLRewrite"),
    ])
}

//! Rate limits.

use crate::gateway::{HTTPMethod, PathMatchType};
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Limits on the number of requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitSpec {
    /// Which part applies; superseded by setting `global` and `local`.
    pub type_: Option<RateLimitType>,
    /// Limits counted across proxies by a rate limit service.
    pub global: Option<GlobalRateLimit>,
    /// Limits counted by each proxy.
    pub local: Option<LocalRateLimit>,
}

open_enum! {
    /// Where requests are counted.
    pub enum RateLimitType {
        /// In a service shared by all proxies.
        Global,
        /// In each proxy.
        Local,
    }
}

/// Limits counted by a rate limit service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GlobalRateLimit {
    /// The rules; each matching one counts the request.
    #[schemars(length(max = 256))]
    pub rules: Vec<RateLimitRule>,
}

/// A limit for a selection of requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitRule {
    /// Which requests; every condition holds. All requests when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub client_selectors: Vec<RateLimitSelectCondition>,
    /// How many requests in which time.
    pub limit: RateLimitValue,
    /// What a request counts; 1 before it is sent and 0 after the response when unset.
    pub cost: Option<RateLimitCost>,
    /// Count across all targets of the policy together; off when unset.
    pub shared: Option<bool>,
    /// Count but never refuse.
    pub shadow_mode: Option<bool>,
    /// Whether responses tell the limit; the listener's setting when unset.
    pub x_rate_limit_headers: Option<XRateLimitHeadersOption>,
}

/// A condition on requests; the parts that are set all hold.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.headers) || has(self.methods) || has(self.path) || has(self.sourceCIDR) || has(self.queryParams)", "at least one of headers, methods, path, sourceCIDR or queryParams must be specified"))]
pub struct RateLimitSelectCondition {
    /// Headers, all of which match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub headers: Vec<HeaderMatch>,
    /// Methods, one of which matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<MethodMatch>,
    /// The path.
    pub path: Option<PathMatch>,
    /// Address of the client.
    #[serde(rename = "sourceCIDR")]
    pub source_cidr: Option<SourceMatch>,
    /// Query parameters, all of which match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub query_params: Vec<QueryParamMatch>,
}

/// A condition on a header.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderMatch {
    /// How to compare; `Exact` when unset.
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<HeaderMatchType>,
    /// Name of the header, in any case.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Value to compare with; absent for `Distinct`.
    #[schemars(length(max = 1024))]
    pub value: Option<String>,
    /// Match where the comparison fails; absent for `Distinct`.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

open_enum! {
    /// How a header's value is compared.
    #[derive(Default)]
    pub enum HeaderMatchType {
        /// It is the same.
        #[default]
        Exact,
        /// It matches an RE2 expression.
        RegularExpression,
        /// Each value counts by itself.
        Distinct,
    }
}

/// A condition on the method.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MethodMatch {
    /// The method.
    pub value: HTTPMethod,
    /// Match any other method.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

/// A condition on the path.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathMatch {
    /// How to compare; by prefix when unset.
    #[schemars(extend("default" = "PathPrefix"))]
    pub type_: Option<PathMatchType>,
    /// Path to compare with; defaults to `/`.
    #[schemars(required, length(max = 1024), extend("default" = "/"))]
    pub value: Option<String>,
    /// Match where the comparison fails.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

/// A condition on the client's address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceMatch {
    /// How to compare; `Exact` when unset.
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<SourceMatchType>,
    /// Range of addresses in CIDR form.
    #[schemars(length(min = 1, max = 256))]
    pub value: String,
    /// Match addresses outside the range.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

open_enum! {
    /// How the client's address is compared.
    #[derive(Default)]
    pub enum SourceMatchType {
        /// All addresses in the range count together.
        #[default]
        Exact,
        /// Each address in the range counts by itself.
        Distinct,
    }
}

/// A condition on a query parameter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueryParamMatch {
    /// How to compare; `Exact` when unset.
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<QueryParamMatchType>,
    /// Name of the parameter.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Value to compare with; absent for `Distinct`.
    #[schemars(length(max = 1024))]
    pub value: Option<String>,
    /// Match where the comparison fails; absent for `Distinct`.
    #[schemars(extend("default" = false))]
    pub invert: Option<bool>,
}

open_enum! {
    /// How a query parameter's value is compared.
    #[derive(Default)]
    pub enum QueryParamMatchType {
        /// It is the same.
        #[default]
        Exact,
        /// It matches an RE2 expression.
        RegularExpression,
        /// Each value counts by itself.
        Distinct,
    }
}

/// A number of requests in a unit of time.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitValue {
    /// How many.
    #[schemars(range(min = 0, max = 4294967295_i64), extend("format" = "int64"))]
    pub requests: u32,
    /// In which time.
    pub unit: RateLimitUnit,
    /// Take the limit from dynamic metadata of the request where present.
    pub from_metadata: Option<RateLimitValueMetadata>,
}

open_enum! {
    /// Unit of time of a limit.
    #[allow(missing_docs)] // the wire forms say it
    pub enum RateLimitUnit {
        Second, Minute, Hour, Day, Week, Month, Year,
    }
}

/// Where dynamic metadata holds a limit.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RateLimitValueMetadata {
    /// Namespace of the metadata.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// Key in the namespace.
    #[schemars(length(min = 1))]
    pub key: String,
}

/// What a request counts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RateLimitCost {
    /// Before it is sent; 1 when unset.
    pub request: Option<RateLimitCostSpecifier>,
    /// After the response or when the stream ends; nothing when unset. Can exceed the limit, which then stops later
    /// requests.
    pub response: Option<RateLimitCostSpecifier>,
}

/// Source of a cost.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("!(has(self.number) && has(self.metadata))", "only one of number or metadata can be specified"))]
pub struct RateLimitCostSpecifier {
    /// Which source.
    pub from: RateLimitCostFrom,
    /// A fixed cost; 0 checks the limit without counting.
    pub number: Option<u64>,
    /// Where dynamic metadata holds the cost.
    pub metadata: Option<RateLimitCostMetadata>,
}

open_enum! {
    /// Source of a cost.
    pub enum RateLimitCostFrom {
        /// A fixed number.
        Number,
        /// Dynamic metadata.
        Metadata,
    }
}

/// Where dynamic metadata holds a cost.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RateLimitCostMetadata {
    /// Namespace of the metadata.
    pub namespace: String,
    /// Key in the namespace.
    pub key: String,
}

open_enum! {
    /// Response headers that tell the limit.
    pub enum XRateLimitHeadersOption {
        /// None.
        Off,
        /// Those of the third IETF draft.
        DraftVersion03,
    }
}

/// Limits counted by each proxy.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct LocalRateLimit {
    /// The rules; the strictest matching one applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = ("self.all(r, !has(r.cost) || !has(r.cost.response))", "response cost is not supported for Local Rate Limits"))]
    #[x_kube(validation = ("self.all(r, !has(r.limit.fromMetadata))", "limit fromMetadata is not supported for Local Rate Limits"))]
    pub rules: Vec<RateLimitRule>,
}

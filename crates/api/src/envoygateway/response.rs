//! Replaced responses.

use super::common::StringMatch;
use super::patterns::DNS_NAME;
use crate::gateway::{self, LocalObjectReference};
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Replaces some responses.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.response) && !has(self.redirect)) || (!has(self.response) && has(self.redirect))", "exactly one of response or redirect must be specified"))]
pub struct ResponseOverride {
    /// Which responses.
    pub match_: CustomResponseMatch,
    /// What to answer instead.
    pub response: Option<CustomResponse>,
    /// Where to send the client instead.
    pub redirect: Option<CustomRedirect>,
    /// Whose responses; `All` when unset.
    pub source: Option<ResponseOverrideSource>,
}

/// A condition on responses; both parts hold where both are given.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.statusCodes) || has(self.responseHeaders)", "at least one of statusCodes or responseHeaders must be specified"))]
pub struct CustomResponseMatch {
    /// Status codes, one of which matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 50))]
    pub status_codes: Vec<StatusCodeMatch>,
    /// Headers, all of which match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub response_headers: Vec<ResponseOverrideHeaderMatch>,
}

/// A status code or a range of them.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(!has(self.type) || self.type == 'Value')? has(self.value) : true", "value must be set for type Value"))]
#[x_kube(validation = ("(has(self.type) && self.type == 'Range')? has(self.range) : true", "range must be set for type Range"))]
pub struct StatusCodeMatch {
    /// Which of the two; `Value` when unset.
    #[schemars(required, extend("default" = "Value"))]
    pub type_: Option<StatusCodeValueType>,
    /// The code.
    #[schemars(extend("format" = null))]
    pub value: Option<i64>,
    /// The range.
    pub range: Option<StatusCodeRange>,
}

open_enum! {
    /// Form of a condition on status codes.
    #[derive(Default)]
    pub enum StatusCodeValueType {
        /// One code.
        #[default]
        Value,
        /// A range of codes.
        Range,
    }
}

/// A range of status codes.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("self.end > self.start", "end must be greater than start"))]
pub struct StatusCodeRange {
    /// First code.
    #[schemars(extend("format" = null))]
    pub start: i64,
    /// Last code, included.
    #[schemars(extend("format" = null))]
    pub end: i64,
}

/// A condition on a response header.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ResponseOverrideHeaderMatch {
    /// Name of the header, in any case.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$"))]
    pub name: String,
    /// Condition on its value.
    pub value: StringMatch,
}

/// A response in place of another.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomResponse {
    /// Its `Content-Type`.
    pub content_type: Option<String>,
    /// Its body; Envoy's command operators are expanded.
    pub body: Option<CustomResponseBody>,
    /// Its status code; unchanged when unset.
    #[schemars(extend("format" = null))]
    pub status_code: Option<i64>,
    /// Headers to add or set; removal is not supported here.
    #[x_kube(validation = ("!has(self.remove) || size(self.remove) == 0", "Remove is not supported for header in CustomResponse"))]
    pub header: Option<gateway::HTTPHeaderFilter>,
}

/// Text of a response.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(!has(self.type) || self.type == 'Inline')? has(self.inline) : true", "inline must be set for type Inline"))]
#[x_kube(validation = ("(has(self.type) && self.type == 'ValueRef')? has(self.valueRef) : true", "valueRef must be set for type ValueRef"))]
#[x_kube(validation = ("has(self.valueRef) ? self.valueRef.kind == 'ConfigMap' : true", "only ConfigMap is supported for ValueRef"))]
pub struct CustomResponseBody {
    /// Where it comes from; `Inline` when unset.
    #[schemars(required, extend("default" = "Inline"))]
    pub type_: Option<ResponseValueType>,
    /// The text itself.
    pub inline: Option<String>,
    /// ConfigMap with the text under `response.body`, else its first value.
    pub value_ref: Option<LocalObjectReference>,
}

open_enum! {
    /// Where the text of a response comes from.
    #[derive(Default)]
    pub enum ResponseValueType {
        /// The field `inline`.
        #[default]
        Inline,
        /// A ConfigMap.
        ValueRef,
    }
}

/// A redirect in place of a response.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomRedirect {
    /// Scheme of the location; the request's when unset.
    #[schemars(extend("enum" = ["http", "https"]))]
    pub scheme: Option<String>,
    /// Host of the location; the request's when unset.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub hostname: Option<String>,
    /// Path of the location; the request's when unset. Only a full replacement is supported.
    #[x_kube(validation = ("self.type == 'ReplaceFullPath'", "only ReplaceFullPath is supported for path.type"))]
    pub path: Option<gateway::HTTPPathModifier>,
    /// Port of the location; that of the scheme, else the listener's, when unset.
    pub port: Option<i32>,
    /// Status code; 302 when unset.
    #[schemars(extend("enum" = [301, 302], "format" = null, "default" = 302))]
    pub status_code: Option<i64>,
}

open_enum! {
    /// Whose responses are replaced.
    pub enum ResponseOverrideSource {
        /// Anyone's.
        All,
        /// The proxy's own, such as failed authentication.
        Local,
        /// The backend's.
        Backend,
    }
}

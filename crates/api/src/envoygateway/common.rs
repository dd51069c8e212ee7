//! Values that many kinds share.

use crate::gateway::{HTTPHeader, LocalObjectReference};
use crate::open_enum;
use crate::shared::{InvalidDuration, parse_duration};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// An HTTP status code, 100 to 599.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
#[schemars(inline, extend("format" = null, "minimum" = 100, "maximum" = 599))]
pub struct HTTPStatus(
    /// The code.
    pub i32,
);

open_enum! {
    /// How a policy is combined with that of a parent.
    pub enum MergeType {
        /// Not at all: the more specific one stands alone.
        Replace,
        /// Strategic merge patch: lists are merged by their keys.
        StrategicMerge,
        /// JSON merge patch (RFC 7386): lists are replaced.
        JSONMerge,
    }
}

/// A condition on a text.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StringMatch {
    /// How to compare; `Exact` when unset.
    #[schemars(extend("default" = "Exact"))]
    pub type_: Option<StringMatchType>,
    /// Text to compare with.
    #[schemars(length(min = 1, max = 1024))]
    pub value: String,
}

open_enum! {
    /// How a text is compared.
    #[derive(Default)]
    pub enum StringMatchType {
        /// It is the same.
        #[default]
        Exact,
        /// It starts so.
        Prefix,
        /// It ends so.
        Suffix,
        /// It matches an RE2 expression.
        RegularExpression,
    }
}

/// Changes to headers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPHeaderFilter {
    /// Headers to replace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-list-type" = "map"))]
    pub set: Vec<HTTPHeader>,
    /// Headers to append to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-list-type" = "map"))]
    pub add: Vec<HTTPHeader>,
    /// Headers to add where absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-list-type" = "map"))]
    pub add_if_absent: Vec<HTTPHeader>,
    /// Names of headers to remove, in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub remove: Vec<String>,
    /// Conditions on names of headers to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64))]
    pub remove_on_match: Vec<StringMatch>,
}

open_enum! {
    /// A log level.
    #[allow(missing_docs)] // the wire forms say it
    pub enum LogLevel {
        Trace = "trace", Debug = "debug", Info = "info", Warn = "warn", Error = "error", Off = "off",
        Critical = "critical",
    }
}

/// A key of an object in the same namespace.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("self.kind in ['ConfigMap', 'Secret'] && self.group in ['', 'v1']", "Only a reference to an object of kind ConfigMap or Secret belonging to default v1 API group is supported."))]
pub struct LocalObjectKeyReference {
    /// The object.
    #[serde(flatten)]
    pub reference: LocalObjectReference,
    /// The key.
    pub key: String,
}

/// A duration as Gateway API writes it, such as `1h30m` or `500ms`.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, Hash, PartialEq, Serialize)]
#[serde(transparent)]
#[schemars(inline, extend("pattern" = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"))]
pub struct Duration(
    /// The text.
    pub String,
);

impl Duration {
    /// The length of time.
    ///
    /// # Errors
    /// [`InvalidDuration`] when the text has another form.
    pub fn get(&self) -> Result<std::time::Duration, InvalidDuration> {
        parse_duration(&self.0)
    }
}

impl std::ops::Deref for Duration {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Duration {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

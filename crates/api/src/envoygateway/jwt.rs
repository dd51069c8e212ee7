//! JSON Web Tokens.

use super::cluster::BackendCluster;
use super::common::Duration;
use crate::gateway::LocalObjectReference;
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Authentication by JSON Web Tokens.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!(has(self.optional) && has(self.failOpen))", "optional and failOpen cannot both be set; failOpen already tolerates a missing JWT"))]
pub struct JWT {
    /// Accept requests without a token, but not with a bad one; off when unset.
    pub optional: Option<bool>,
    /// Accept requests with a missing or bad token too; off when unset.
    pub fail_open: Option<bool>,
    /// Issuers, one of which verifies the token.
    #[schemars(length(min = 1, max = 16))]
    pub providers: Vec<JWTProvider>,
}

/// An issuer of tokens.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.recomputeRoute) && self.recomputeRoute) ? size(self.claimToHeaders) > 0 : true", "claimToHeaders must be specified if recomputeRoute is enabled."))]
#[x_kube(validation = ("has(self.remoteJWKS) || has(self.localJWKS)", "either remoteJWKS or localJWKS must be specified."))]
#[x_kube(validation = ("!(has(self.remoteJWKS) && has(self.localJWKS))", "remoteJWKS and localJWKS cannot both be specified."))]
pub struct JWTProvider {
    /// Name of the provider.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Issuer in tokens; unchecked when unset.
    #[schemars(length(max = 253))]
    pub issuer: Option<String>,
    /// Accepted audiences; unchecked when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub audiences: Vec<String>,
    /// Keys at a URL.
    #[serde(rename = "remoteJWKS")]
    pub remote_jwks: Option<RemoteJWKS>,
    /// Keys in the cluster.
    #[serde(rename = "localJWKS")]
    pub local_jwks: Option<LocalJWKS>,
    /// Claims to pass on as headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claim_to_headers: Vec<ClaimToHeader>,
    /// Choose the route again once those headers are there; off when unset.
    pub recompute_route: Option<bool>,
    /// Where a request has its token; bearer token or `access_token` parameter when unset.
    pub extract_from: Option<JWTExtractor>,
}

/// Keys at a URL.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendSettings)? (has(self.backendSettings.retry)?(has(self.backendSettings.retry.perRetry)? !has(self.backendSettings.retry.perRetry.timeout):true):true):true", "Retry timeout is not supported."))]
#[x_kube(validation = ("has(self.backendSettings)? (has(self.backendSettings.retry)?(has(self.backendSettings.retry.retryOn)? !has(self.backendSettings.retry.retryOn.httpStatusCodes):true):true):true", "HTTPStatusCodes is not supported."))]
pub struct RemoteJWKS {
    /// The service to ask; the URL's host when unset.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// URL of the key set.
    #[schemars(length(min = 1, max = 253))]
    pub uri: String,
    /// How long keys are kept; defaults to 300 s.
    #[schemars(extend("default" = "300s"))]
    pub cache_duration: Option<Duration>,
    /// Wait after a failed fetch; 1 s when unset.
    pub failed_refetch_duration: Option<Duration>,
}

/// Keys in the cluster.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(self.type == 'Inline' && has(self.inline) && !has(self.valueRef)) || (self.type == 'ValueRef' && !has(self.inline) && has(self.valueRef))", "Exactly one of inline or valueRef must be set with correct type."))]
pub struct LocalJWKS {
    /// Where they are; defaults to `Inline`.
    #[schemars(required, extend("default" = "Inline"))]
    pub type_: Option<LocalJWKSType>,
    /// The key set itself.
    pub inline: Option<String>,
    /// ConfigMap with the key set under `jwks`, else its first value.
    pub value_ref: Option<LocalObjectReference>,
}

open_enum! {
    /// Where keys are.
    #[derive(Default)]
    pub enum LocalJWKSType {
        /// In the policy.
        #[default]
        Inline,
        /// In a ConfigMap.
        ValueRef,
    }
}

/// A claim passed on as a header.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClaimToHeader {
    /// Name of the header.
    pub header: String,
    /// Path of the claim, with dots; lists are not supported.
    pub claim: String,
}

/// Where a request has its token.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct JWTExtractor {
    /// Headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<JWTHeaderExtractor>,
    /// Cookies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cookies: Vec<String>,
    /// Query parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<String>,
}

/// A header with a token.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JWTHeaderExtractor {
    /// Name of the header.
    pub name: String,
    /// What precedes the token, such as `Bearer ` with the space.
    pub value_prefix: Option<String>,
}

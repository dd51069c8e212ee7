//! OpenID Connect.

use super::cluster::BackendCluster;
use super::common::{Duration, StringMatch};
use super::patterns::DNS_NAME;
use crate::gateway::SecretObjectReference;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Authentication by OpenID Connect.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.clientID) && !has(self.clientIDRef)) || (!has(self.clientID) && has(self.clientIDRef))", "only one of clientID or clientIDRef must be set"))]
#[x_kube(validation = ("!(has(self.forwardAccessToken) && self.forwardAccessToken && has(self.forwardIDToken) && self.forwardIDToken.header.lowerAscii() == 'authorization')", "forwardAccessToken cannot be true when forwardIDToken.header is Authorization"))]
pub struct OIDC {
    /// The provider.
    pub provider: OIDCProvider,
    /// Client identifier; excludes `clientIDRef`.
    #[serde(rename = "clientID")]
    #[schemars(length(min = 1))]
    pub client_id: Option<String>,
    /// Secret with the client identifier under `client-id`.
    #[serde(rename = "clientIDRef")]
    pub client_id_ref: Option<SecretObjectReference>,
    /// Secret with the client secret under `client-secret`.
    pub client_secret: SecretObjectReference,
    /// Names of cookies; generated when unset.
    pub cookie_names: Option<OIDCCookieNames>,
    /// Attributes of cookies.
    pub cookie_config: Option<OIDCCookieConfig>,
    /// Domain of cookies; the request's host when unset.
    #[schemars(regex(pattern = DNS_NAME))]
    pub cookie_domain: Option<String>,
    /// Scopes to ask for; `openid` is always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Resources to ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Where the provider sends users back; `/oauth2/callback` on the request's host when unset.
    #[serde(rename = "redirectURL")]
    pub redirect_url: Option<String>,
    /// Requests to refuse rather than send to the provider.
    pub deny_redirect: Option<OIDCDenyRedirect>,
    /// Path that logs out; `/logout` when unset.
    pub logout_path: Option<String>,
    /// Pass the access token on as a bearer token; off when unset.
    pub forward_access_token: Option<bool>,
    /// Pass the ID token on; off when unset.
    #[serde(rename = "forwardIDToken")]
    pub forward_id_token: Option<OIDCTokenForwarding>,
    /// Lifetime of tokens whose issuer names none.
    #[serde(rename = "defaultTokenTTL")]
    pub default_token_ttl: Option<Duration>,
    /// Renew tokens by the refresh token; on when unset.
    #[schemars(extend("default" = true))]
    pub refresh_token: Option<bool>,
    /// Lifetime of refresh tokens that name none; a week when unset.
    #[serde(rename = "defaultRefreshTokenTTL")]
    pub default_refresh_token_ttl: Option<Duration>,
    /// Lifetime of the token that guards a login; 10 min when unset.
    #[serde(rename = "csrfTokenTTL")]
    pub csrf_token_ttl: Option<Duration>,
    /// Keep tokens in cookies unencrypted; off when unset.
    pub disable_token_encryption: Option<bool>,
    /// Skip OIDC where a request has a token for JWT; off when unset.
    pub pass_through_auth_header: Option<bool>,
}

/// An OpenID Connect provider.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendSettings)? (has(self.backendSettings.retry)?(has(self.backendSettings.retry.perRetry)? !has(self.backendSettings.retry.perRetry.timeout):true):true):true", "Retry timeout is not supported."))]
#[x_kube(validation = ("has(self.backendSettings)? (has(self.backendSettings.retry)?(has(self.backendSettings.retry.retryOn)? !has(self.backendSettings.retry.retryOn.httpStatusCodes):true):true):true", "HTTPStatusCodes is not supported."))]
pub struct OIDCProvider {
    /// The service to ask; the URLs' hosts when unset.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Issuer, an https URL.
    #[schemars(length(min = 1))]
    pub issuer: String,
    /// Where users log in; discovered from the issuer when unset.
    pub authorization_endpoint: Option<String>,
    /// Where tokens are fetched; discovered from the issuer when unset.
    pub token_endpoint: Option<String>,
    /// Where users log out; discovered from the issuer when unset.
    pub end_session_endpoint: Option<String>,
}

/// Names of cookies.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OIDCCookieNames {
    /// Cookie of the access token.
    pub access_token: Option<String>,
    /// Cookie of the ID token.
    pub id_token: Option<String>,
}

/// Attributes of cookies.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OIDCCookieConfig {
    /// `Lax`, `Strict` or `None`.
    #[schemars(extend("enum" = ["Lax", "Strict", "None"]))]
    pub same_site: Option<String>,
}

/// Requests that are refused rather than sent to the provider.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct OIDCDenyRedirect {
    /// Conditions on headers, one of which matches.
    #[schemars(length(min = 1, max = 16))]
    pub headers: Vec<OIDCDenyRedirectHeader>,
}

/// A condition on a header.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct OIDCDenyRedirectHeader {
    /// Name of the header.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Condition on its value.
    #[serde(flatten)]
    pub matches: StringMatch,
}

/// How a token is passed on.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct OIDCTokenForwarding {
    /// Header to write; `Authorization` gets a bearer token.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]+$"))]
    #[x_kube(validation = ("self.lowerAscii() != 'host'", "header cannot be the Host header"))]
    pub header: String,
}

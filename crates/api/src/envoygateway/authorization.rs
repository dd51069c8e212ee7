//! Authorization rules.

use super::patterns::CIDR;
use super::rate_limit::PathMatch;
use crate::gateway::HTTPMethod;
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Rules by client, claim or header.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// The rules; the first match decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AuthorizationRule>,
    /// What happens where none matches; `Deny` when unset.
    pub default_action: Option<AuthorizationAction>,
}

/// A rule; all its parts hold.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.principal) || has(self.cel)", "at least one of principal or cel must be specified"))]
pub struct AuthorizationRule {
    /// Name of the rule; generated when unset.
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// What happens.
    pub action: AuthorizationAction,
    /// Which requests; all when unset.
    pub operation: Option<Operation>,
    /// Which clients.
    pub principal: Option<Principal>,
    /// CEL expression on Envoy attributes that holds.
    #[schemars(length(min = 1, max = 4096))]
    pub cel: Option<String>,
}

open_enum! {
    /// What happens to a request.
    pub enum AuthorizationAction {
        /// Let it pass.
        Allow,
        /// Refuse it with 403.
        Deny,
    }
}

/// Which requests.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.methods) || has(self.path)", "at least one of methods or path must be specified"))]
pub struct Operation {
    /// Methods, one of which matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub methods: Vec<HTTPMethod>,
    /// The path.
    pub path: Option<PathMatch>,
}

/// Which clients; all parts hold.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.clientCIDRs) || has(self.jwt) || has(self.headers) || has(self.clientIPGeoLocations))", "at least one of clientCIDRs, jwt, headers, or clientIPGeoLocations must be specified"))]
pub struct Principal {
    /// Ranges of addresses, one of which has the client's.
    #[serde(rename = "clientCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1), inner(regex(pattern = CIDR)))]
    pub client_cidrs: Vec<String>,
    /// Claims and scopes of its token.
    pub jwt: Option<JWTPrincipal>,
    /// Headers, all of which match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 256))]
    pub headers: Vec<AuthorizationHeaderMatch>,
    /// Locations, one of which matches; not for TCPRoutes.
    #[serde(rename = "clientIPGeoLocations", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub client_ip_geo_locations: Vec<ClientIPGeoLocation>,
}

/// A client by its token.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("(has(self.claims) || has(self.scopes))", "at least one of claims or scopes must be specified"))]
pub struct JWTPrincipal {
    /// Provider of the token in the same policy.
    #[schemars(length(min = 1, max = 253))]
    pub provider: String,
    /// Claims, all of which match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16))]
    pub claims: Vec<JWTClaim>,
    /// Scopes, all of which it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))]
    pub scopes: Vec<String>,
}

/// A condition on a claim.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JWTClaim {
    /// Path of the claim, with dots.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Type of the claim; defaults to `String`.
    #[schemars(extend("default" = "String"))]
    pub value_type: Option<JWTClaimValueType>,
    /// Accepted values, one of which it is or contains.
    #[schemars(length(min = 1, max = 128))]
    pub values: Vec<String>,
}

open_enum! {
    /// Type of a claim.
    #[derive(Default)]
    pub enum JWTClaimValueType {
        /// A text.
        #[default]
        String,
        /// A list of texts.
        StringArray,
    }
}

/// A condition on a header.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct AuthorizationHeaderMatch {
    /// Name of the header, in any case.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
    /// Accepted values.
    #[schemars(length(min = 1, max = 256))]
    pub values: Vec<String>,
}

/// A location; all parts hold.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.country) || has(self.region) || has(self.city) || has(self.asn) || has(self.isp) || has(self.anonymous)", "at least one of country, region, city, asn, isp, or anonymous must be specified"))]
pub struct ClientIPGeoLocation {
    /// ISO code of the country.
    #[schemars(length(min = 2, max = 2), regex(pattern = "^[A-Za-z]{2}$"))]
    pub country: Option<String>,
    /// ISO code of the region.
    #[schemars(length(min = 1, max = 16), regex(pattern = "^[A-Za-z0-9-]+$"))]
    pub region: Option<String>,
    /// Name of the city.
    #[schemars(length(min = 1, max = 128))]
    pub city: Option<String>,
    /// Number of the autonomous system.
    #[schemars(range(min = 1))]
    pub asn: Option<u32>,
    /// Internet provider.
    #[schemars(length(min = 1, max = 256))]
    pub isp: Option<String>,
    /// Signs of an anonymous network.
    pub anonymous: Option<GeoIPAnonymousMatch>,
}

/// Signs of an anonymous network; all that are set hold.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.isAnonymous) || has(self.isVPN) || has(self.isHosting) || has(self.isTor) || has(self.isProxy)", "at least one of isAnonymous, isVPN, isHosting, isTor, or isProxy must be specified"))]
pub struct GeoIPAnonymousMatch {
    /// Anonymous in any way.
    pub is_anonymous: Option<bool>,
    /// A VPN.
    #[serde(rename = "isVPN")]
    pub is_vpn: Option<bool>,
    /// A hosting provider.
    pub is_hosting: Option<bool>,
    /// A Tor exit.
    pub is_tor: Option<bool>,
    /// A public proxy.
    pub is_proxy: Option<bool>,
}

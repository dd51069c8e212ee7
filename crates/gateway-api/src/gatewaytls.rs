//! TLS settings that concern a whole Gateway: client certificates to backends, validation of clients.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reference::{ObjectReference, SecretObjectReference};
use crate::open_enum;

/// TLS settings of a whole Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GatewayTLSConfig {
    /// As a client of backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<GatewayBackendTLS>,
    /// Towards clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendTLSConfig>,
}

/// TLS settings of a Gateway as a client of its backends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GatewayBackendTLS {
    /// Certificate presented to backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// How HTTPS listeners treat clients, by default and per port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTLSConfig {
    /// Settings of ports without their own.
    pub default: TLSConfig,
    /// Settings of single ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["port"], "x-kubernetes-validations" = [
    { "rule": "self.all(t1, self.exists_one(t2, t1.port == t2.port))", "message": "Port for TLS configuration must be unique within the Gateway" },
]))]
    pub per_port: Vec<TLSPortConfig>,
}

/// TLS settings towards clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct TLSConfig {
    /// Validation of client certificates; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<FrontendTLSValidation>,
}

/// TLS settings towards clients of one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct TLSPortConfig {
    /// The port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Its settings.
    pub tls: TLSConfig,
}

/// How certificates of clients are validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct FrontendTLSValidation {
    /// Certificate authorities that client certificates must come from.
    #[schemars(length(min = 1, max = 16))]
    pub ca_certificate_refs: Vec<ObjectReference>,
    /// What happens to clients without a valid certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "AllowValidOnly"))]
    pub mode: Option<FrontendValidationModeType>,
}

open_enum! {
    /// What happens to clients without a valid certificate.
    #[derive(Default)]
    pub enum FrontendValidationModeType {
        /// Refused.
        #[default]
        AllowValidOnly,
        /// Accepted all the same.
        AllowInsecureFallback,
    }
}

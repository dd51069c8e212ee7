//! Listeners, as Gateway and ListenerSet share them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::reference::{RouteGroupKind, SecretObjectReference};
use crate::open_enum;

/// A port with a protocol, and which routes may attach to it.
/// Go names it `Listener` in Gateways and `ListenerEntry` in ListenerSets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// Name, unique within the object.
    #[schemars(schema_with = "fields::section_name")]
    pub name: String,
    /// Port that clients connect to.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP` or an implementation's own.
    #[schemars(
        length(min = 1, max = 255),
        regex(
            pattern = r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$|[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9]+$"
        )
    )]
    pub protocol: String,
    /// Which routes may attach; those of the same namespace by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"namespaces": {"from": "Same"}}))]
    pub allowed_routes: Option<AllowedRoutes>,
    /// Host name served; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::hostname")]
    pub hostname: Option<String>,
    /// TLS settings, for HTTPS and TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenerTLSConfig>,
}

/// The Go name of [`Listener`] in a ListenerSet.
pub type ListenerEntry = Listener;

/// Which routes may attach to a listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct AllowedRoutes {
    /// Kinds of routes allowed; those that fit the protocol when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub kinds: Vec<RouteGroupKind>,
    /// Namespaces allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"from": "Same"}))]
    pub namespaces: Option<RouteNamespaces>,
}

/// TLS settings of a listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "self.mode == 'Terminate' ? size(self.certificateRefs) > 0 || size(self.options) > 0 : true", "message": "certificateRefs or options must be specified when mode is Terminate" },
]))]
pub struct ListenerTLSConfig {
    /// Certificates with keys that the listener presents.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub certificate_refs: Vec<SecretObjectReference>,
    /// Who ends TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Terminate"))]
    pub mode: Option<TLSModeType>,
    /// Settings particular to the implementation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "fields::annotations")]
    pub options: BTreeMap<String, String>,
}

/// Namespaces whose routes may attach to a listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct RouteNamespaces {
    /// How namespaces are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["All", "Selector", "Same"], "default" = "Same"))]
    pub from: Option<FromNamespaces>,
    /// Labels of the namespaces, where `from` is `Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

open_enum! {
    /// Who ends a TLS session.
    #[derive(Default)]
    pub enum TLSModeType {
        /// The gateway.
        #[default]
        Terminate,
        /// The backend.
        Passthrough,
    }
}

open_enum! {
    /// How namespaces are chosen.
    #[derive(Default)]
    pub enum FromNamespaces {
        /// All.
        All,
        /// Namespaces with matching labels.
        Selector,
        /// The same namespace.
        #[default]
        Same,
        /// None.
        None,
    }
}

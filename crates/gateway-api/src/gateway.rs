//! Gateway: where traffic comes in.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::gatewaystatus::GatewayStatus;
use super::gatewaytls::GatewayTLSConfig;
use super::listener::{FromNamespaces, Listener};
use super::reference::LocalParametersReference;
use crate::open_enum;

/// Wanted state of a [`Gateway`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "Gateway",
    plural = "gateways",
    namespaced,
    shortname = "gtw",
    status = "GatewayStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Entry point for traffic: addresses and listeners.",
    printcolumn = r#"{"name": "Class", "type": "string", "jsonPath": ".spec.gatewayClassName"}"#,
    printcolumn = r#"{"name": "Address", "type": "string", "jsonPath": ".status.addresses[*].value"}"#,
    printcolumn = r#"{"name": "Programmed", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Programmed\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// Name of the GatewayClass.
    #[schemars(schema_with = "fields::object_name")]
    pub gateway_class_name: String,
    /// The listeners.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-validations" = [
    { "rule": "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)", "message": "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']" },
    { "rule": "self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)", "message": "tls mode must be Terminate for protocol HTTPS" },
    { "rule": "self.all(l, (l.protocol == 'TLS' ? has(l.tls) && has(l.tls.mode) && l.tls.mode != '' : true))", "message": "tls mode must be set for protocol TLS" },
    { "rule": "self.all(l, l.protocol in ['TCP', 'UDP']  ? (!has(l.hostname) || l.hostname == '') : true)", "message": "hostname must not be specified for protocols ['TCP', 'UDP']" },
    { "rule": "self.all(l1, self.exists_one(l2, l1.name == l2.name))", "message": "Listener name must be unique within the Gateway" },
    { "rule": "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))", "message": "Combination of port, protocol and hostname must be unique for each listener" },
]))]
    pub listeners: Vec<Listener>,
    /// Addresses asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = [
    { "rule": "self.all(a1, a1.type == 'IPAddress' && has(a1.value) ? self.exists_one(a2, a2.type == a1.type && has(a2.value) && a2.value == a1.value) : true )", "message": "IPAddress values must be unique" },
    { "rule": "self.all(a1, a1.type == 'Hostname'  && has(a1.value) ? self.exists_one(a2, a2.type == a1.type && has(a2.value) && a2.value == a1.value) : true )", "message": "Hostname values must be unique" },
]))]
    pub addresses: Vec<GatewaySpecAddress>,
    /// Which ListenerSets may attach; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_listeners: Option<AllowedListeners>,
    /// Makes the Gateway a default one for routes that ask for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_scope: Option<GatewayDefaultScope>,
    /// Properties of what is created to serve the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<GatewayInfrastructure>,
    /// TLS settings of the whole Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<GatewayTLSConfig>,
}

/// Address that a Gateway asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": r#"self.type == 'Hostname' ? (!has(self.value) || self.value.matches(r"""^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$""")): true"#, "message": r"Hostname value must be empty or contain only valid characters (matching ^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$)" },
]))]
#[schemars(extend("example" = {"oneOf": [{"properties": {"type": {"enum": ["IPAddress"]}, "value": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}}}, {"properties": {"type": {"not": {"enum": ["IPAddress"]}}}}]}))]
pub struct GatewaySpecAddress {
    /// Kind of address.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::address_type", extend("default" = "IPAddress"))]
    pub type_: Option<String>,
    /// The address; any of this type when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub value: Option<String>,
}

/// Which ListenerSets may attach to a Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct AllowedListeners {
    /// Namespaces allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"from": "None"}))]
    pub namespaces: Option<ListenerNamespaces>,
}

open_enum! {
    /// Reach of a Gateway that acts as default for routes without parents.
    pub enum GatewayDefaultScope {
        /// All.
        All,
        /// None.
        None,
    }
}

/// Properties of what is created to serve a Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfrastructure {
    /// Annotations of created objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "fields::annotations", extend("x-kubernetes-validations" = fields::key_rules("annotation")))]
    pub annotations: BTreeMap<String, String>,
    /// Labels of created objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "fields::labels", extend("x-kubernetes-validations" = fields::key_rules("label")))]
    pub labels: BTreeMap<String, String>,
    /// Object with parameters of the implementation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<LocalParametersReference>,
}

/// Namespaces whose ListenerSets may attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ListenerNamespaces {
    /// How namespaces are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "None"))]
    pub from: Option<FromNamespaces>,
    /// Labels of the namespaces, where `from` is `Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

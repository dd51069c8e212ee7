//! Status of a Gateway and of its listeners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::reference::RouteGroupKind;

/// Observed state of a [`Gateway`](super::Gateway).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = {"conditions": [{"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending", "status": "Unknown", "type": "Accepted"}, {"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending", "status": "Unknown", "type": "Programmed"}]}))]
pub struct GatewayStatus {
    /// Addresses in use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub addresses: Vec<GatewayStatusAddress>,
    /// Number of ListenerSets attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_listener_sets: Option<i32>,
    /// Latest observations, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::shared::conditions", extend("default" = [{"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending", "status": "Unknown", "type": "Accepted"}, {"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending", "status": "Unknown", "type": "Programmed"}]))]
    pub conditions: Vec<Condition>,
    /// The listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub listeners: Vec<ListenerStatus>,
}

/// Address that a Gateway is reachable at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": r#"self.type == 'Hostname' ? self.value.matches(r"""^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"""): true"#, "message": r"Hostname value must only contain valid characters (matching ^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$)" },
]))]
#[schemars(extend("example" = {"oneOf": [{"properties": {"type": {"enum": ["IPAddress"]}, "value": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}}}, {"properties": {"type": {"not": {"enum": ["IPAddress"]}}}}]}))]
pub struct GatewayStatusAddress {
    /// The address.
    #[schemars(schema_with = "fields::object_name")]
    pub value: String,
    /// Kind of address.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::address_type", extend("default" = "IPAddress"))]
    pub type_: Option<String>,
}

/// Observed state of one listener of a Gateway or ListenerSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Number of routes attached.
    pub attached_routes: i32,
    /// Latest observations, one for each type.
    #[schemars(schema_with = "crate::shared::conditions")]
    pub conditions: Vec<Condition>,
    /// Name of the listener.
    #[schemars(schema_with = "fields::section_name")]
    pub name: String,
    /// Kinds of routes that the listener serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub supported_kinds: Vec<RouteGroupKind>,
}

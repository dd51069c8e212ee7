//! GatewayClass: which controller a set of Gateways belongs to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::reference::ParametersReference;

/// Wanted state of a [`GatewayClass`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "GatewayClass",
    plural = "gatewayclasses",
    shortname = "gc",
    status = "GatewayClassStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Class of Gateways that one controller manages.",
    printcolumn = r#"{"name": "Controller", "type": "string", "jsonPath": ".spec.controllerName"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name": "Description", "type": "string", "jsonPath": ".spec.description", "priority": 1}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GatewayClassSpec {
    /// Controller that manages Gateways of this class; cannot change.
    #[schemars(schema_with = "fields::controller_name", extend("x-kubernetes-validations" = [
    { "rule": "self == oldSelf", "message": "Value is immutable" },
]))]
    pub controller_name: String,
    /// Description for people, up to 64 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub description: Option<String>,
    /// Object with parameters of the implementation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<ParametersReference>,
}

/// Observed state of a [`GatewayClass`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = {"conditions": [{"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending", "status": "Unknown", "type": "Accepted"}]}))]
pub struct GatewayClassStatus {
    /// Latest observations, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::shared::conditions", extend("default" = [{"lastTransitionTime": "1970-01-01T00:00:00Z", "message": "Waiting for controller", "reason": "Pending", "status": "Unknown", "type": "Accepted"}]))]
    pub conditions: Vec<Condition>,
    /// Conformance features supported, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub supported_features: Vec<SupportedFeature>,
}

/// Name of a conformance feature that a class supports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct SupportedFeature {
    /// Name of the feature.
    pub name: String,
}

//! References between objects.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;

/// Reference to an object with parameters of a controller, cluster-wide or in a namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ParametersReference {
    /// API group of the object; empty for the core group.
    #[schemars(schema_with = "fields::group")]
    pub group: String,
    /// Kind of the object.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// Namespace of the object; absent for cluster-wide kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: Option<String>,
}

/// Reference from a ListenerSet to its Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ParentGatewayReference {
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// API group of the object; empty for the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::group", extend("default" = "gateway.networking.k8s.io"))]
    pub group: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::kind", extend("default" = "Gateway"))]
    pub kind: Option<String>,
    /// Namespace of the object; the referring object's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: Option<String>,
}

/// Reference from a route to what it attaches to: usually a Gateway or ListenerSet, or a part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// API group of the object; empty for the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::group", extend("default" = "gateway.networking.k8s.io"))]
    pub group: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::kind", extend("default" = "Gateway"))]
    pub kind: Option<String>,
    /// Namespace of the object; the referring object's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: Option<String>,
    /// Port of the parent; every one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// Listener of the parent; every one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub section_name: Option<String>,
}

/// Reference to an object with parameters in the same namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct LocalParametersReference {
    /// API group of the object; empty for the core group.
    #[schemars(schema_with = "fields::group")]
    pub group: String,
    /// Kind of the object.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
}

/// Kind of routes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct RouteGroupKind {
    /// Kind of the routes.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// API group of the routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::group", extend("default" = "gateway.networking.k8s.io"))]
    pub group: Option<String>,
}

/// A weighted backend. Dereferences to its [`BackendObjectReference`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct BackendRef {
    /// The backend.
    #[serde(flatten)]
    pub object: BackendObjectReference,
    /// Share of the traffic, relative to the other backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1000000), extend("default" = 1))]
    pub weight: Option<i32>,
}

impl std::ops::Deref for BackendRef {
    type Target = BackendObjectReference;

    fn deref(&self) -> &BackendObjectReference {
        &self.object
    }
}

/// Reference to a backend: usually a Service and a port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "(size(self.group) == 0 && self.kind == 'Service') ? has(self.port) : true", "message": "Must have port for Service reference" },
]))]
pub struct BackendObjectReference {
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// API group of the object; empty for the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::group", extend("default" = ""))]
    pub group: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::kind", extend("default" = "Service"))]
    pub kind: Option<String>,
    /// Namespace of the object; the referring object's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: Option<String>,
    /// Port of the backend; a Service needs one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Reference to an object in the same namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    /// API group of the object; empty for the core group.
    #[schemars(schema_with = "fields::group")]
    pub group: String,
    /// Kind of the object.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
}

/// Reference to a Secret or another object that holds secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct SecretObjectReference {
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// API group of the object; empty for the core group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::group", extend("default" = ""))]
    pub group: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::kind", extend("default" = "Secret"))]
    pub kind: Option<String>,
    /// Namespace of the object; the referring object's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: Option<String>,
}

/// Reference to an object of a kind that has to be named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// API group of the object; empty for the core group.
    #[schemars(schema_with = "fields::group")]
    pub group: String,
    /// Kind of the object.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// Name of the object.
    #[schemars(schema_with = "fields::object_name")]
    pub name: String,
    /// Namespace of the object; the referring object's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: Option<String>,
}

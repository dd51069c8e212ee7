//! `EnvoyPatchPolicy` and JSON Patch.

use crate::gateway::{LocalPolicyTargetReference, PolicyStatus};
use crate::open_enum;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// What an `EnvoyPatchPolicy` asks for.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "EnvoyPatchPolicy",
    plural = "envoypatchpolicies",
    namespaced,
    derive = "PartialEq",
    shortname = "epp",
    category = "envoy-gateway",
    status = "PolicyStatus",
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.ancestors[0].conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Programmed",
        type_ = "string",
        json_path = r#".status.ancestors[0].conditions[?(@.type=="Programmed")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "Patches of the generated xDS resources; off unless the config file enables it."
)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyPatchPolicySpec {
    /// Kind of patches.
    pub type_: EnvoyPatchType,
    /// The patches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_patches: Vec<EnvoyJSONPatchConfig>,
    /// Gateway whose resources are patched, or GatewayClass where Gateways are merged.
    pub target_ref: LocalPolicyTargetReference,
    /// Policies with lower numbers are applied first; defaults to 0.
    pub priority: Option<i32>,
}

open_enum! {
    /// A kind of patches.
    pub enum EnvoyPatchType {
        /// JSON Patch (RFC 6902).
        JSONPatch,
    }
}

/// A patch of one resource.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyJSONPatchConfig {
    /// Type of the resource.
    pub type_: EnvoyResourceType,
    /// Name of the resource.
    pub name: String,
    /// The change.
    pub operation: JSONPatchOperation,
}

open_enum! {
    /// Type URL of an xDS resource.
    #[allow(missing_docs)] // the wire forms say it
    pub enum EnvoyResourceType {
        Listener = "type.googleapis.com/envoy.config.listener.v3.Listener",
        RouteConfiguration = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        Cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        ClusterLoadAssignment = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        Secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
    }
}

/// One operation of a JSON Patch.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JSONPatchOperation {
    /// Which operation.
    pub op: JSONPatchOperationType,
    /// JSON Pointer (RFC 6901) of the place, relative to `jsonPath` where both are set.
    pub path: Option<String>,
    /// JSONPath (RFC 9535) of the places; none found is an error.
    pub json_path: Option<String>,
    /// JSON Pointer of the source of a move or copy.
    pub from: Option<String>,
    /// New value, for all but remove, move and copy.
    #[serde(default)]
    #[schemars(schema_with = "crate::shared::any_value")]
    pub value: Option<Value>,
}

open_enum! {
    /// An operation of JSON Patch.
    #[allow(missing_docs)] // the wire forms say it
    pub enum JSONPatchOperationType {
        Add = "add", Remove = "remove", Replace = "replace", Move = "move", Copy = "copy", Test = "test",
    }
}

//! ReferenceGrant: consent to references from other namespaces.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;

/// Wanted state of a [`ReferenceGrant`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "ReferenceGrant",
    plural = "referencegrants",
    namespaced,
    shortname = "refgrant",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "Consent of a namespace to references from elsewhere.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantSpec {
    /// Who may refer; each entry is an addition.
    #[schemars(length(min = 1, max = 16))]
    pub from: Vec<ReferenceGrantFrom>,
    /// What may be referred to; each entry is an addition.
    #[schemars(length(min = 1, max = 16))]
    pub to: Vec<ReferenceGrantTo>,
}

/// Who may refer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantFrom {
    /// API group of the referring object.
    #[schemars(schema_with = "fields::group")]
    pub group: String,
    /// Kind of the referring object.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// Namespace of the referring object.
    #[schemars(schema_with = "fields::namespace")]
    pub namespace: String,
}

/// What may be referred to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ReferenceGrantTo {
    /// API group of the object; empty for the core group.
    #[schemars(schema_with = "fields::group")]
    pub group: String,
    /// Kind of the object.
    #[schemars(schema_with = "fields::kind")]
    pub kind: String,
    /// Name of the object; all of the kind when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::object_name")]
    pub name: Option<String>,
}

//! What policies share: targets and status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::reference::ParentReference;

/// Observed state of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct PolicyStatus {
    /// One entry for each ancestor and controller, at most 16.
    #[schemars(length(max = 16))]
    pub ancestors: Vec<PolicyAncestorStatus>,
}

/// How a policy stands with one ancestor (a Gateway, say), as one controller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestorStatus {
    /// The ancestor.
    pub ancestor_ref: ParentReference,
    /// Latest observations, one for each type.
    #[schemars(schema_with = "crate::shared::conditions", length(min = 1))]
    pub conditions: Vec<Condition>,
    /// Name of the controller, a domain and a path.
    #[schemars(schema_with = "fields::controller_name")]
    pub controller_name: String,
}

/// Target of a policy in its own namespace, or a part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct LocalPolicyTargetReferenceWithSectionName {
    /// The object.
    #[serde(flatten)]
    pub target: LocalPolicyTargetReference,
    /// Part of the object; the whole when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::section_name")]
    pub section_name: Option<String>,
}

impl std::ops::Deref for LocalPolicyTargetReferenceWithSectionName {
    type Target = LocalPolicyTargetReference;

    fn deref(&self) -> &LocalPolicyTargetReference {
        &self.target
    }
}

/// Target of a policy in its own namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct LocalPolicyTargetReference {
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

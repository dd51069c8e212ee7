//! Status that all routes share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::reference::ParentReference;

/// Observed state of a route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct RouteStatus {
    /// One entry for each parent and controller.
    #[schemars(length(max = 32))]
    pub parents: Vec<RouteParentStatus>,
}

/// How a route stands with one parent, as one controller sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct RouteParentStatus {
    /// Latest observations, one for each type.
    #[schemars(schema_with = "crate::shared::conditions", length(min = 1))]
    pub conditions: Vec<Condition>,
    /// Name of the controller, a domain and a path.
    #[schemars(schema_with = "fields::controller_name")]
    pub controller_name: String,
    /// The parent, as the route names it.
    pub parent_ref: ParentReference,
}

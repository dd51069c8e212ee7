//! ServiceImport of the multi-cluster services API: what a gateway reads of it.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum;

/// Wanted state of a [`ServiceImport`]: a service of a set of clusters, as one of them sees it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ServiceImport",
    plural = "serviceimports",
    namespaced,
    shortname = "svcim",
    status = "ServiceImportStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "A service of a set of clusters, imported into this one."
)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportSpec {
    /// Ports of the service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ServicePort>,
    /// Virtual addresses of the service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 2))]
    pub ips: Vec<String>,
    /// With one virtual address or with none.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<ServiceImportType>,
    /// Families of the addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_families: Vec<String>,
    /// `ClientIP` or `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_affinity: Option<String>,
}

/// Port of a [`ServiceImport`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ServicePort {
    /// Name, unique within the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `TCP`, `UDP` or `SCTP`; `TCP` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Application protocol, such as `kubernetes.io/h2c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_protocol: Option<String>,
    /// Port number.
    pub port: i32,
}

open_enum! {
    /// Ways to reach an imported service.
    #[derive(Default)]
    pub enum ServiceImportType {
        /// By a virtual address of the set of clusters.
        #[default]
        ClusterSetIP,
        /// By the addresses of its endpoints.
        Headless,
    }
}

/// Observed state of a [`ServiceImport`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ServiceImportStatus {
    /// Clusters that the service comes from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["cluster"]))]
    pub clusters: Vec<ClusterStatus>,
    /// Latest observations, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::shared::conditions_unbounded")]
    pub conditions: Vec<Condition>,
}

/// One cluster that exports a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub cluster: String,
    /// Anything else that an implementation tells.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, serde_json::Value>,
}

//! What policies are attached to.

use crate::gateway::LocalPolicyTargetReferenceWithSectionName;
use crate::open_enum;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// What a policy is attached to: named objects or a selection by label.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.targetRef) && !has(self.targetRefs)) || (!has(self.targetRef) && has(self.targetRefs)) || (has(self.targetSelectors) && self.targetSelectors.size() > 0) ", "either targetRef or targetRefs must be used"))]
pub struct PolicyTargetReferences {
    /// One target; superseded by `targetRefs`.
    pub target_ref: Option<LocalPolicyTargetReferenceWithSectionName>,
    /// Targets by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_refs: Vec<LocalPolicyTargetReferenceWithSectionName>,
    /// Targets by label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target_selectors: Vec<TargetSelector>,
}

/// Selects targets of one kind by label.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.group) ? self.group == 'gateway.networking.k8s.io' : true ", "group must be gateway.networking.k8s.io"))]
pub struct TargetSelector {
    /// API group of the targets; defaults to that of Gateway API.
    #[schemars(length(max = 253), regex(pattern = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"), extend("default" = "gateway.networking.k8s.io"))]
    pub group: Option<String>,
    /// Kind of the targets.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"))]
    pub kind: String,
    /// Namespaces to look in; the policy's own when unset.
    pub namespaces: Option<TargetSelectorNamespaces>,
    /// Labels that a target has with exactly these values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels, all of which hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Namespaces in which targets are looked for, among those that are watched.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("self.from != 'Selector' || has(self.selector)", "selector must be specified when from is Selector"))]
pub struct TargetSelectorNamespaces {
    /// Which namespaces; defaults to `Same`.
    #[schemars(required, extend("default" = "Same"))]
    pub from: Option<TargetNamespaceFrom>,
    /// Labels of the namespaces, for `Selector`.
    pub selector: Option<LabelSelector>,
}

open_enum! {
    /// Which namespaces a target selector covers.
    #[derive(Default)]
    pub enum TargetNamespaceFrom {
        /// The policy's own.
        #[default]
        Same,
        /// Every watched one.
        All,
        /// Watched ones whose labels match.
        Selector,
    }
}

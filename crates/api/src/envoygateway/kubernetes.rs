//! Kubernetes objects of a fleet.

use super::common::MergeType;
use crate::open_enum;
use k8s_openapi::api::apps::v1::{DaemonSetUpdateStrategy, DeploymentStrategy};
use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerBehavior, MetricSpec};
use k8s_openapi::api::core::v1::{
    Affinity, Container, EnvVar, LocalObjectReference, PodSecurityContext, ResourceRequirements, SecurityContext,
    Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// A Deployment.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesDeploymentSpec {
    /// Last changes to the object.
    pub patch: Option<KubernetesPatchSpec>,
    /// Number of pods; defaults to 1.
    pub replicas: Option<i32>,
    /// Replacement of pods.
    pub strategy: Option<DeploymentStrategy>,
    /// The pod.
    pub pod: Option<KubernetesPodSpec>,
    /// The main container.
    pub container: Option<KubernetesContainerSpec>,
    /// Init containers of the pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub init_containers: Vec<Container>,
    /// Name of the object; generated when unset.
    pub name: Option<String>,
}

/// A patch of a Kubernetes object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesPatchSpec {
    /// How to apply it; strategic merge when unset.
    #[schemars(with = "Option<String>")]
    pub type_: Option<MergeType>,
    /// The patch.
    #[schemars(schema_with = "crate::shared::any_value")]
    pub value: Value,
}

/// A pod.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesPodSpec {
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Security settings of all containers.
    pub security_context: Option<PodSecurityContext>,
    /// Scheduling constraints.
    pub affinity: Option<Affinity>,
    /// Tolerated taints.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Secrets with credentials of registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Labels that a node has.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Spread over the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    /// Priority class.
    pub priority_class_name: Option<String>,
}

/// A container.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.image) || !has(self.imageRepository)", "Either image or imageRepository can be set."))]
pub struct KubernetesContainerSpec {
    /// Environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Resources required.
    pub resources: Option<ResourceRequirements>,
    /// Security settings.
    pub security_context: Option<SecurityContext>,
    /// Image with a tag, in place of the default.
    #[x_kube(validation = ("self.matches('^[a-zA-Z0-9._-]+(:[0-9]+)?(/[a-zA-Z0-9._/-]+)?(:[a-zA-Z0-9._-]+)?(@sha256:[a-z0-9]+)?$')", "Image must include a tag and allowed characters only (e.g., 'repo:tag')."))]
    pub image: Option<String>,
    /// Image without a tag; the default tag is used.
    #[x_kube(validation = ("self.matches('^[a-zA-Z0-9._-]+(:[0-9]+)?[a-zA-Z0-9._/-]+$')", "ImageRepository must contain only allowed characters and must not include a tag."))]
    pub image_repository: Option<String>,
    /// Mounted volumes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
}

/// A DaemonSet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct KubernetesDaemonSetSpec {
    /// Last changes to the object.
    pub patch: Option<KubernetesPatchSpec>,
    /// Replacement of pods.
    pub strategy: Option<DaemonSetUpdateStrategy>,
    /// The pod.
    pub pod: Option<KubernetesPodSpec>,
    /// The main container.
    pub container: Option<KubernetesContainerSpec>,
    /// Name of the object; generated when unset.
    pub name: Option<String>,
}

/// A Service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.allocateLoadBalancerNodePorts) || self.type == 'LoadBalancer'", "allocateLoadBalancerNodePorts can only be set for LoadBalancer type"))]
#[x_kube(validation = ("!has(self.loadBalancerSourceRanges) || self.type == 'LoadBalancer'", "loadBalancerSourceRanges can only be set for LoadBalancer type"))]
#[x_kube(validation = ("!has(self.loadBalancerIP) || self.type == 'LoadBalancer'", "loadBalancerIP can only be set for LoadBalancer type"))]
pub struct KubernetesServiceSpec {
    /// Annotations to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels to add.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// How it is exposed; defaults to `LoadBalancer`.
    #[schemars(extend("default" = "LoadBalancer"))]
    pub type_: Option<ServiceType>,
    /// Implementation of load balancers to use.
    pub load_balancer_class: Option<String>,
    /// Allocate node ports for a load balancer; on when unset.
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// Client addresses that the load balancer lets in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub load_balancer_source_ranges: Vec<String>,
    /// Address of the load balancer, where the provider heeds it.
    #[serde(rename = "loadBalancerIP")]
    #[x_kube(validation = (r#"self.matches(r"^((25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)$")"#, "loadBalancerIP must be a valid IPv4 address"))]
    pub load_balancer_ip: Option<String>,
    /// Which nodes' pods take outside traffic; defaults to `Local`.
    #[schemars(extend("default" = "Local"))]
    pub external_traffic_policy: Option<ServiceExternalTrafficPolicy>,
    /// Last changes to the object.
    pub patch: Option<KubernetesPatchSpec>,
    /// Name of the object; generated when unset.
    pub name: Option<String>,
}

open_enum! {
    /// How a Service is exposed.
    #[derive(Default)]
    #[allow(missing_docs)] // the wire forms say it
    pub enum ServiceType {
        ClusterIP, #[default] LoadBalancer, NodePort,
    }
}

open_enum! {
    /// Which pods take outside traffic.
    #[derive(Default)]
    pub enum ServiceExternalTrafficPolicy {
        /// Those of the node that receives it, which keeps the client's address.
        #[default]
        Local,
        /// Those of all nodes.
        Cluster,
    }
}

/// A HorizontalPodAutoscaler.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.minReplicas) || self.maxReplicas >= self.minReplicas", "maxReplicas cannot be less than minReplicas"))]
pub struct KubernetesHorizontalPodAutoscalerSpec {
    /// Fewest pods; 1 when unset.
    #[x_kube(validation = ("self > 0", "minReplicas must be greater than 0"))]
    pub min_replicas: Option<i32>,
    /// Most pods.
    #[x_kube(validation = ("self > 0", "maxReplicas must be greater than 0"))]
    pub max_replicas: i32,
    /// What the number of pods follows; CPU at 80 percent when unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<MetricSpec>,
    /// Pace of scaling.
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
    /// Last changes to the object.
    pub patch: Option<KubernetesPatchSpec>,
    /// Name of the object; generated when unset.
    pub name: Option<String>,
}

/// A PodDisruptionBudget.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.minAvailable) && !has(self.maxUnavailable)) || (!has(self.minAvailable) && has(self.maxUnavailable))", "only one of minAvailable or maxUnavailable can be specified"))]
pub struct KubernetesPodDisruptionBudgetSpec {
    /// Pods that stay, as a number or percentage.
    pub min_available: Option<IntOrString>,
    /// Pods that may go, as a number or percentage.
    pub max_unavailable: Option<IntOrString>,
    /// Last changes to the object.
    pub patch: Option<KubernetesPatchSpec>,
    /// Name of the object; generated when unset.
    pub name: Option<String>,
}

/// A ServiceAccount.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct KubernetesServiceAccountSpec {
    /// Name of the object; generated when unset.
    pub name: Option<String>,
}

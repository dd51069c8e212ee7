//! Where resources come from, where proxies run, and how replicas agree on who writes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Duration, ExtensionService};
use crate::envoygateway::{
    KubernetesDeploymentSpec, KubernetesHorizontalPodAutoscalerSpec, KubernetesPodDisruptionBudgetSpec,
};

/// Where resources come from and where proxies run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// A cluster for both, or a choice for each.
    #[serde(rename = "type")]
    pub type_: ProviderType,
    /// Settings of type Kubernetes.
    #[serde(default)]
    pub kubernetes: KubernetesProvider,
    /// Settings of type Custom, needed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomProvider>,
}

impl Default for Provider {
    fn default() -> Self {
        Self { type_: ProviderType::Kubernetes, kubernetes: KubernetesProvider::default(), custom: None }
    }
}

/// Kind of provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderType {
    /// Resources from a cluster, proxies in it.
    Kubernetes,
    /// Resources and proxies each as `custom` says.
    Custom,
}

/// How a cluster is read and written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesProvider {
    /// Deployment of the global rate limit service. Unset: one replica of the usual image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_deployment: Option<KubernetesDeploymentSpec>,
    /// Autoscaler of the rate limit service; its Deployment's `replicas` is then left alone. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_hpa: Option<KubernetesHorizontalPodAutoscalerSpec>,
    /// Disruption budget of the rate limit service. Unset: none.
    #[serde(default, rename = "rateLimitPDB", skip_serializing_if = "Option::is_none")]
    pub rate_limit_pdb: Option<KubernetesPodDisruptionBudgetSpec>,
    /// Which namespaces are read. Unset: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchMode>,
    /// In which namespace proxies run. Unset: the controller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy: Option<DeployMode>,
    /// How replicas agree on who writes. Default: 15 s, 10 s and 2 s.
    #[serde(default = "LeaderElection::standard")]
    pub leader_election: LeaderElection,
    /// Where the last good state is kept, for a start while the API server is away. Unset: nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_state: Option<LastGoodState>,
    /// The sidecar that drains a proxy before it stops.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_manager: Option<ShutdownManager>,
    /// The client of the API server.
    #[serde(default)]
    pub client: KubernetesClient,
    /// The webhook that copies a node's zone to its proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_topology_injector: Option<ProxyTopologyInjector>,
    /// Time after which everything that was read is looked at again. Unset: 10 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_sync_period: Option<Duration>,
}

impl Default for KubernetesProvider {
    fn default() -> Self {
        Self {
            rate_limit_deployment: None,
            rate_limit_hpa: None,
            rate_limit_pdb: None,
            watch: None,
            deploy: None,
            leader_election: LeaderElection::standard(),
            last_good_state: None,
            shutdown_manager: None,
            client: KubernetesClient::default(),
            proxy_topology_injector: None,
            cache_sync_period: None,
        }
    }
}

/// Which namespaces are read. The controller's own always is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WatchMode {
    /// By name or by label. A `watch` section without it is refused.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<WatchModeType>,
    /// Names; needed with type Namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Labels; needed with type NamespaceSelector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// How namespaces are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WatchModeType {
    /// By name.
    Namespaces,
    /// By label.
    NamespaceSelector,
}

/// In which namespace proxies run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployMode {
    /// Unset: the controller's.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<DeployModeType>,
}

/// In which namespace proxies run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DeployModeType {
    /// In the controller's.
    #[default]
    ControllerNamespace,
    /// In that of their Gateway.
    GatewayNamespace,
}

/// How replicas agree on who writes. Explicit values win over the preset, the preset over 15 s, 10 s and 2 s.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderElection {
    /// Time that a candidate waits after it last saw the lease renewed. Unset: the preset's, or 15s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_duration: Option<Duration>,
    /// Time after its last successful renewal at which a leader stops writing. Unset: the preset's, or 10s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_deadline: Option<Duration>,
    /// Time between two attempts. Unset: the preset's, or 2s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_period: Option<Duration>,
    /// No election: this process always writes. For a single replica. Unset: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable: Option<bool>,
    /// A set of timings by purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<LeaderElectionPreset>,
    /// What a leader does when it loses the lease. Unset: Demote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_lost_lease: Option<OnLostLease>,
    /// Time without an answer of the API server after which the process ends with exit code 4. Unset: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_recovery_duration: Option<Duration>,
    /// Time that a single write may take. Unset: the preset's, or 3s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_timeout: Option<Duration>,
}

impl LeaderElection {
    /// What holds where the file has no `leaderElection`: 15 s, 10 s, 2 s, enabled.
    pub fn standard() -> Self {
        Self {
            lease_duration: Some(Duration::from_secs(15)),
            renew_deadline: Some(Duration::from_secs(10)),
            retry_period: Some(Duration::from_secs(2)),
            disable: Some(false),
            ..Self::default()
        }
    }
}

/// Where the last good state is kept, for a start while the API server is away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastGoodState {
    /// Absolute path of a folder of this process alone that outlives it. What is in it is sealed.
    pub folder: String,
    /// Time without a sign of life of the API server after which a starting process serves the saved state. Unset: 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Duration>,
}

/// A set of timings by purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LeaderElectionPreset {
    /// A dead leader is replaced soon; more requests to the API server.
    Fast,
    /// A slow or throttling API server costs no leader; a dead one is replaced late.
    Tolerant,
}

/// What a leader does when it loses the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnLostLease {
    /// Stop writing, go on serving, stay a candidate.
    #[default]
    Demote,
    /// End the process with exit code 3.
    Exit,
}

/// The sidecar that drains a proxy before it stops.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownManager {
    /// Its image. Unset: the controller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The client of the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesClient {
    /// How many requests it makes.
    #[serde(default)]
    pub rate_limit: KubernetesClientRateLimit,
}

/// How many requests the client makes; the election has a client of its own that this does not slow down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubernetesClientRateLimit {
    /// Requests a second in the long run, at least 1. Default: 50.
    #[serde(default = "KubernetesClientRateLimit::default_qps")]
    pub qps: u32,
    /// Requests at once after a pause, at least 1. Default: 100.
    #[serde(default = "KubernetesClientRateLimit::default_burst")]
    pub burst: u32,
}

impl KubernetesClientRateLimit {
    fn default_qps() -> u32 {
        50
    }

    fn default_burst() -> u32 {
        100
    }
}

impl Default for KubernetesClientRateLimit {
    fn default() -> Self {
        Self { qps: Self::default_qps(), burst: Self::default_burst() }
    }
}

/// The webhook that copies a node's zone to its proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyTopologyInjector {
    /// Do without it. Unset: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
}

/// Resources and proxies, each from where it is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomProvider {
    /// Where resources come from.
    pub resource: ResourceProvider,
    /// Who runs proxies. Unset: nobody; they are there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<InfrastructureProvider>,
}

/// Where resources come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceProvider {
    /// Files or a cluster.
    #[serde(rename = "type")]
    pub type_: ResourceProviderType,
    /// Needed with type File.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileResources>,
    /// Settings of type Kubernetes. Default there: as `provider.kubernetes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Box<KubernetesProvider>>,
}

/// Kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResourceProviderType {
    /// Files on disk, watched.
    File,
    /// A cluster.
    Kubernetes,
}

/// Resources in files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileResources {
    /// Files and folders, at least one. A folder stands for the files in it.
    #[serde(default)]
    pub paths: Vec<String>,
}

/// Who runs proxies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureProvider {
    /// This host, or a service.
    #[serde(rename = "type")]
    pub type_: InfrastructureProviderType,
    /// Needed with type Host; may be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostInfrastructure>,
    /// Needed with type Remote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteInfrastructure>,
}

/// Who runs proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InfrastructureProviderType {
    /// Processes of this host.
    Host,
    /// A gRPC service that is told what to run.
    Remote,
}

/// Folders of proxies that run as processes of this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HostInfrastructure {
    /// Configuration; certificates are in `certs/` below it. Unset: `~/.config/envoy-gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_home: Option<String>,
    /// What was fetched: Envoy binaries. Unset: `~/.local/share/envoy-gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_home: Option<String>,
    /// Logs and earlier runs. Unset: `~/.local/state/envoy-gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_home: Option<String>,
    /// Sockets and files of this run. Unset: `envoy-gateway-UID` in the folder for temporary files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_dir: Option<String>,
}

/// A gRPC service that runs proxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemoteInfrastructure {
    /// How it is reached; needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ExtensionService>,
}

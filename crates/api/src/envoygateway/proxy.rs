//! `EnvoyProxy`.

use super::access_log::ProxyAccessLog;
use super::common::{Duration, LogLevel, MergeType};
use super::kubernetes::{
    KubernetesDaemonSetSpec, KubernetesDeploymentSpec, KubernetesHorizontalPodAutoscalerSpec,
    KubernetesPodDisruptionBudgetSpec, KubernetesServiceAccountSpec, KubernetesServiceSpec,
};
use super::patch::JSONPatchOperation;
use super::telemetry::{ProxyHealthCheckLog, ProxyMetrics, ProxyTracing};
use super::tls::BackendTLSConfig;
use crate::gateway::ParentReference;
use crate::open_enum;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

open_enum! {
    /// Address that traffic is sent to.
    pub enum RoutingType {
        /// Cluster IP of the Service.
        Service,
        /// Endpoints behind the Service.
        Endpoint,
    }
}

/// What an `EnvoyProxy` asks for.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "EnvoyProxy",
    plural = "envoyproxies",
    namespaced,
    derive = "PartialEq",
    shortname = "eproxy",
    category = "envoy-gateway",
    status = "EnvoyProxyStatus",
    doc = "A fleet of proxies: where it runs, what it logs and how it starts.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.luaValidation) || !has(self.lua)", "only one of luaValidation or lua may be set"))]
#[x_kube(validation = ("!(has(self.mergeGateways) && self.mergeGateways && has(self.mergeBackends))", "mergeGateways and mergeBackends cannot both be enabled"))]
pub struct EnvoyProxySpec {
    /// What runs the proxies; Kubernetes when unset.
    pub provider: Option<EnvoyProxyProvider>,
    /// Log levels; defaults to `warn` for all components.
    #[schemars(extend("default" = {"level": {"default": "warn"}}))]
    pub logging: Option<ProxyLogging>,
    /// Access logs, traces and metrics.
    pub telemetry: Option<ProxyTelemetry>,
    /// Changes to the bootstrap configuration.
    pub bootstrap: Option<ProxyBootstrap>,
    /// Worker threads; one per CPU when unset.
    pub concurrency: Option<i32>,
    /// Send to Service addresses or to endpoints; the latter when unset.
    #[schemars(with = "Option<String>")]
    pub routing_type: Option<RoutingType>,
    /// Further command line options; those in use already are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// Serve all Gateways of the class from one fleet; off when unset.
    pub merge_gateways: Option<bool>,
    /// Share one cluster among routes with the same backend; off when absent.
    pub merge_backends: Option<MergeBackendsConfig>,
    /// Graceful shutdown.
    pub shutdown: Option<ShutdownConfig>,
    /// Changes to the order of HTTP filters, applied in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter_order: Vec<FilterPosition>,
    /// The proxy's side of TLS to backends that use TLS.
    #[serde(rename = "backendTLS")]
    pub backend_tls: Option<BackendTLSConfig>,
    /// Address families of listeners; IPv4 when unset.
    pub ip_family: Option<IPFamily>,
    /// Match rules in the order written instead of by precedence; off when unset.
    pub preserve_route_order: Option<bool>,
    /// How Lua scripts are checked; superseded by `lua`.
    pub lua_validation: Option<LuaValidation>,
    /// Checks of Lua scripts.
    pub lua: Option<LuaSettings>,
    /// Modules that policies may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-list-type" = "map"))]
    pub dynamic_modules: Vec<DynamicModuleEntry>,
    /// Look-up of locations by address.
    #[serde(rename = "geoIP")]
    pub geo_ip: Option<EnvoyProxyGeoIP>,
    /// How to combine with less specific settings; unset replaces them.
    pub merge_type: Option<MergeType>,
}

/// What runs the proxies.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyProxyProvider {
    /// Which provider.
    pub type_: EnvoyProxyProviderType,
    /// Settings of `Kubernetes`.
    pub kubernetes: Option<EnvoyProxyKubernetesProvider>,
    /// Settings of `Host`.
    pub host: Option<EnvoyProxyHostProvider>,
}

open_enum! {
    /// A provider of proxies.
    pub enum EnvoyProxyProviderType {
        /// A Kubernetes cluster.
        Kubernetes,
        /// A child process on this host.
        Host,
    }
}

/// Kubernetes objects of a fleet.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("((has(self.envoyDeployment) && !has(self.envoyDaemonSet)) || (!has(self.envoyDeployment) && has(self.envoyDaemonSet))) || (!has(self.envoyDeployment) && !has(self.envoyDaemonSet))", "only one of envoyDeployment or envoyDaemonSet can be specified"))]
#[x_kube(validation = ("((has(self.envoyHpa) && !has(self.envoyDaemonSet)) || (!has(self.envoyHpa) && has(self.envoyDaemonSet))) || (!has(self.envoyHpa) && !has(self.envoyDaemonSet))", "cannot use envoyHpa if envoyDaemonSet is used"))]
pub struct EnvoyProxyKubernetesProvider {
    /// Its Deployment.
    pub envoy_deployment: Option<KubernetesDeploymentSpec>,
    /// Its DaemonSet, in place of a Deployment.
    pub envoy_daemon_set: Option<KubernetesDaemonSetSpec>,
    /// Its Service.
    pub envoy_service: Option<KubernetesServiceSpec>,
    /// Its HorizontalPodAutoscaler, which then sets the replicas.
    pub envoy_hpa: Option<KubernetesHorizontalPodAutoscalerSpec>,
    /// Listen on ports below 1024 as they are instead of shifted by 10000; off when unset.
    pub use_listener_port_as_container_port: Option<bool>,
    /// Its PodDisruptionBudget.
    #[serde(rename = "envoyPDB")]
    pub envoy_pdb: Option<KubernetesPodDisruptionBudgetSpec>,
    /// Its ServiceAccount.
    pub envoy_service_account: Option<KubernetesServiceAccountSpec>,
}

/// Proxies as child processes.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyProxyHostProvider {
    /// Version of Envoy; the one this release is built for when unset.
    pub envoy_version: Option<String>,
}

/// Log levels of a proxy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ProxyLogging {
    /// Level by component; `default` stands for all others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("default" = {"default": "warn"}))]
    pub level: BTreeMap<String, LogLevel>,
}

/// Telemetry of proxies.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProxyTelemetry {
    /// Access logs; to standard output when unset.
    pub access_log: Option<ProxyAccessLog>,
    /// Traces; none when unset.
    pub tracing: Option<ProxyTracing>,
    /// Metrics.
    pub metrics: Option<ProxyMetrics>,
    /// Request identifiers.
    #[serde(rename = "requestID")]
    pub request_id: Option<RequestIDSettings>,
    /// Log of the health of routes' backends.
    pub health_check_log: Option<ProxyHealthCheckLog>,
}

/// Request identifiers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RequestIDSettings {
    /// How they relate to tracing; `PackAndSample` when unset.
    pub tracing: Option<RequestIDExtensionAction>,
}

open_enum! {
    /// How request identifiers relate to tracing.
    pub enum RequestIDExtensionAction {
        /// Carry the decision to trace and take part in it.
        PackAndSample,
        /// Take part in the decision only.
        Sample,
        /// Carry the decision only.
        Pack,
        /// Neither.
        Disable,
    }
}

/// Changes to the bootstrap configuration.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'JSONPatch' ? self.jsonPatches.size() > 0 : has(self.value)", "provided bootstrap patch doesn't match the configured patch type"))]
pub struct ProxyBootstrap {
    /// How to apply them; `Replace` when unset.
    #[schemars(extend("default" = "Replace"))]
    pub type_: Option<BootstrapType>,
    /// The configuration as YAML.
    pub value: Option<String>,
    /// Operations on the default one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_patches: Vec<JSONPatchOperation>,
}

open_enum! {
    /// How a bootstrap configuration is changed.
    #[derive(Default)]
    pub enum BootstrapType {
        /// Merged into the default one.
        Merge,
        /// In place of the default one.
        #[default]
        Replace,
        /// By JSON Patch.
        JSONPatch,
    }
}

/// Sharing of clusters; its presence turns it on.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct MergeBackendsConfig {
    /// Labels of the backends that share; all when unset.
    pub selector: Option<LabelSelector>,
}

/// Graceful shutdown.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShutdownConfig {
    /// Wait before health checks fail; none when unset.
    pub health_check_failure_delay: Option<Duration>,
    /// Time to drain connections, shorter than the pod's grace period; defaults to 60 s.
    pub drain_timeout: Option<Duration>,
    /// Shortest drain, so that endpoints are withdrawn first; defaults to 10 s.
    pub min_drain_duration: Option<Duration>,
}

/// Position of an HTTP filter relative to another.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("(has(self.before) || has(self.after))", "one of before or after must be specified"))]
#[x_kube(validation = ("(has(self.before) && !has(self.after)) || (!has(self.before) && has(self.after))", "only one of before or after can be specified"))]
pub struct FilterPosition {
    /// The filter.
    pub name: EnvoyFilter,
    /// Filter that it precedes.
    pub before: Option<EnvoyFilter>,
    /// Filter that it follows.
    pub after: Option<EnvoyFilter>,
}

open_enum! {
    /// An HTTP filter that can be moved.
    #[allow(missing_docs)] // the wire forms say it
    pub enum EnvoyFilter {
        CustomResponse = "envoy.filters.http.custom_response", HealthCheck = "envoy.filters.http.health_check",
        Fault = "envoy.filters.http.fault", CORS = "envoy.filters.http.cors", CSRF = "envoy.filters.http.csrf",
        HeaderMutation = "envoy.filters.http.header_mutation", ExtAuthz = "envoy.filters.http.ext_authz",
        APIKeyAuth = "envoy.filters.http.api_key_auth", BasicAuth = "envoy.filters.http.basic_auth",
        OAuth2 = "envoy.filters.http.oauth2", JWTAuthn = "envoy.filters.http.jwt_authn",
        SessionPersistence = "envoy.filters.http.stateful_session", Buffer = "envoy.filters.http.buffer",
        Lua = "envoy.filters.http.lua", ExtProc = "envoy.filters.http.ext_proc", Wasm = "envoy.filters.http.wasm",
        DynamicModules = "envoy.filters.http.dynamic_modules", GeoIP = "envoy.filters.http.geoip",
        RBAC = "envoy.filters.http.rbac", LocalRateLimit = "envoy.filters.http.local_ratelimit",
        RateLimit = "envoy.filters.http.ratelimit", BandwidthLimit = "envoy.filters.http.bandwidth_limit",
        GRPCWeb = "envoy.filters.http.grpc_web", GRPCStats = "envoy.filters.http.grpc_stats",
        CredentialInjector = "envoy.filters.http.credential_injector", Compressor = "envoy.filters.http.compressor",
        DynamicForwardProxy = "envoy.filters.http.dynamic_forward_proxy",
    }
}

open_enum! {
    /// Address families of a fleet.
    #[allow(missing_docs)] // the wire forms say it
    pub enum IPFamily {
        IPv4, IPv6, DualStack,
    }
}

open_enum! {
    /// How Lua scripts are checked before use.
    #[derive(Default)]
    pub enum LuaValidation {
        /// Run in a sandbox.
        #[default]
        Strict,
        /// Parsed only.
        InsecureSyntax,
        /// Not at all.
        Disabled,
    }
}

/// Checks of Lua scripts.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.strictValidation) || !has(self.validationType) || self.validationType == 'Strict'", "strictValidation can only be set when validationType is Strict"))]
pub struct LuaSettings {
    /// How they are checked; defaults to `Strict`.
    #[schemars(extend("default" = "Strict"))]
    pub validation_type: Option<LuaValidation>,
    /// What the sandbox of `Strict` lets scripts do.
    pub strict_validation: Option<LuaStrictValidation>,
}

/// What the sandbox lets scripts do while they are checked.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LuaStrictValidation {
    /// Environment variables that scripts may use while they are checked; none when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 256)))]
    #[x_kube(validation = ("self.all(e, e.trim() != '')", "allowedEnvVars entries must not be blank or whitespace-only"))]
    pub allowed_env_vars: Vec<String>,
    /// Files and folders that scripts may use while they are checked; none when empty. Some, such as `/etc` and
    /// `/proc`, stay closed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 4096)))]
    #[x_kube(validation = ("self.all(p, p.trim() != '')", "allowedPaths entries must not be blank or whitespace-only"))]
    #[x_kube(validation = ("self.all(p, !p.matches('^/+$'))", "allowedPaths entries must not be the filesystem root"))]
    pub allowed_paths: Vec<String>,
}

/// A module that policies may use.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamicModuleEntry {
    /// Name that policies use.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub name: String,
    /// Where the module is.
    pub source: DynamicModuleSource,
    /// Never unload it; off when unset.
    #[schemars(extend("default" = false))]
    pub do_not_close: Option<bool>,
    /// Share its symbols (`RTLD_GLOBAL`); off when unset.
    #[schemars(extend("default" = false))]
    pub load_globally: Option<bool>,
}

/// Where a module is.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'Remote' ? has(self.remote) : !has(self.remote)", "If type is Remote, remote field needs to be set."))]
#[x_kube(validation = ("self.type != 'Local' || has(self.local)", "If type is Local, local field needs to be set."))]
#[x_kube(validation = ("self.type == 'Remote' ? !has(self.local) : true", "If type is Remote, local field must not be set."))]
pub struct DynamicModuleSource {
    /// Kind of place; defaults to `Local`.
    #[schemars(extend("default" = "Local"))]
    pub type_: Option<DynamicModuleSourceType>,
    /// Settings of `Local`.
    pub local: Option<LocalDynamicModuleSource>,
    /// Settings of `Remote`.
    pub remote: Option<RemoteDynamicModuleSource>,
}

open_enum! {
    /// Kind of place of a module.
    #[derive(Default)]
    pub enum DynamicModuleSourceType {
        /// The proxy's file system.
        #[default]
        Local,
        /// A URL.
        Remote,
    }
}

/// A module in the proxy's file system.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LocalDynamicModuleSource {
    /// Absolute path of the shared library.
    #[schemars(length(min = 1, max = 4096))]
    pub path: String,
}

/// A module at a URL, fetched by the proxy.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct RemoteDynamicModuleSource {
    /// HTTP or HTTPS URL of the shared library.
    #[schemars(length(min = 1, max = 4096), regex(pattern = "^https?://[^/?#]+(?:[/?#].*)?$"))]
    pub url: String,
    /// Its checksum in hex.
    #[schemars(regex(pattern = "^[a-f0-9]{64}$"))]
    pub sha256: String,
}

/// Look-up of locations by address.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct EnvoyProxyGeoIP {
    /// The source of locations.
    pub provider: GeoIPProvider,
}

/// A source of locations.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'MaxMind' ? has(self.maxMind) : true", "maxMind must be set when type is MaxMind"))]
pub struct GeoIPProvider {
    /// Kind of source.
    pub type_: GeoIPProviderType,
    /// Settings of `MaxMind`.
    pub max_mind: Option<GeoIPMaxMind>,
}

open_enum! {
    /// Kind of source of locations.
    pub enum GeoIPProviderType {
        /// MaxMind databases.
        MaxMind,
    }
}

/// MaxMind databases, mounted into the proxy.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.cityDbSource) || has(self.countryDbSource) || has(self.asnDbSource) || has(self.ispDbSource) || has(self.anonymousIpDbSource)", "at least one MaxMind database source must be specified"))]
pub struct GeoIPMaxMind {
    /// Cities.
    pub city_db_source: Option<GeoIPDBSource>,
    /// Countries.
    pub country_db_source: Option<GeoIPDBSource>,
    /// Autonomous systems.
    pub asn_db_source: Option<GeoIPDBSource>,
    /// Internet providers.
    pub isp_db_source: Option<GeoIPDBSource>,
    /// Anonymous addresses.
    pub anonymous_ip_db_source: Option<GeoIPDBSource>,
}

/// Where a database is.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct GeoIPDBSource {
    /// A file.
    pub local: LocalGeoIPDBSource,
}

/// A database file.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct LocalGeoIPDBSource {
    /// Its path.
    #[schemars(regex(pattern = r"^.*\.mmdb$"))]
    pub path: String,
}

/// Observed state of an `EnvoyProxy`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct EnvoyProxyStatus {
    /// State for each Gateway or GatewayClass that refers to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ancestors: Vec<EnvoyProxyAncestorStatus>,
}

/// State for one Gateway or GatewayClass.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyProxyAncestorStatus {
    /// Latest observations, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::shared::conditions_unbounded")]
    pub conditions: Vec<Condition>,
    /// The Gateway or GatewayClass.
    pub ancestor_ref: ParentReference,
}

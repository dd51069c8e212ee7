//! The `EnvoyGateway` config file: what the control plane itself is told at start.
//!
//! The file is a single YAML or JSON document of `apiVersion: gateway.envoyproxy.io/v1alpha1`, `kind: EnvoyGateway`.
//! It is read by the process, never stored in a cluster, so there is no CRD for it; `settings` reads, completes and
//! checks it.
//!
//! Values which the control plane always needs have their default here (`gateway`, `provider`, `logging`, `admin`,
//! `xdsServer`); `Option` is left where "not said" means something of its own.
//!
//! Source: the recorded effective configurations of Envoy Gateway, and the reference of its configuration API. Ours,
//! in addition: `preset`, `onLostLease`, `maxRecoveryDuration` and `writeTimeout` of [`LeaderElection`], and
//! [`LastGoodState`].

mod admin;
mod duration;
mod extension;
mod features;
mod logging;
mod provider;
mod rate_limit;
mod size;
mod telemetry;

pub use admin::{Admin, AdminAddress, XdsServer};
pub use duration::{Duration, InvalidDuration};
pub use extension::{
    ExtensionHooks, ExtensionManager, ExtensionService, ExtensionServiceRetry, ExtensionTls, GroupVersionKind,
    RetryableGrpcStatus, TranslationConfig, TranslationScope, XdsTranslatorHook, XdsTranslatorHooks,
};
pub use features::{ExperimentalGatewayApi, ExtensionApis, GatewayApiSettings, RuntimeFlag, RuntimeFlags};
pub use logging::{LogComponent, LogEncoder, LogLevel, Logging};
pub use provider::{
    CustomProvider, DeployMode, DeployModeType, FileResources, HostInfrastructure, InfrastructureProvider,
    InfrastructureProviderType, KubernetesClient, KubernetesClientRateLimit, KubernetesProvider, LastGoodState,
    LeaderElection, LeaderElectionPreset, OnLostLease, Provider, ProviderType, ProxyTopologyInjector,
    RemoteInfrastructure, ResourceProvider, ResourceProviderType, ShutdownManager, WatchMode, WatchModeType,
};
pub use rate_limit::{
    RateLimit, RateLimitBackend, RateLimitBackendType, RateLimitMetrics, RateLimitPrometheus, RateLimitTelemetry,
    RateLimitTracing, RateLimitTracingProvider, RateLimitTracingProviderType, RedisSettings, RedisTls, RedisUrlSource,
};
pub use size::{ByteSize, InvalidSize};
pub use telemetry::{
    BatchSpanProcessor, Metrics, MetricsSink, OpenTelemetrySink, OtlpProtocol, Prometheus, SinkType, Telemetry,
    TraceSink, Traces,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::envoygateway::EnvoyProxySpec;

/// Group and version of the file.
pub const API_VERSION: &str = "gateway.envoyproxy.io/v1alpha1";
/// Kind of the file.
pub const KIND: &str = "EnvoyGateway";
/// Controller name that GatewayClasses carry unless `gateway.controllerName` says otherwise.
pub const DEFAULT_CONTROLLER_NAME: &str = "gateway.envoyproxy.io/gatewayclass-controller";

/// Configuration of the control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnvoyGateway {
    /// Always [`API_VERSION`].
    pub api_version: String,
    /// Always [`KIND`].
    pub kind: String,
    /// Which GatewayClasses are ours.
    #[serde(default)]
    pub gateway: Gateway,
    /// Where resources come from and where proxies run. Default: a Kubernetes cluster for both.
    #[serde(default)]
    pub provider: Provider,
    /// What the process logs. Default: everything from `info` up, as text.
    #[serde(default)]
    pub logging: Logging,
    /// The admin server. Default: 127.0.0.1:19000.
    #[serde(default)]
    pub admin: Admin,
    /// Metrics and traces of the control plane. Default: Prometheus metrics, no traces.
    #[serde(default)]
    pub telemetry: Telemetry,
    /// The xDS server.
    #[serde(default)]
    pub xds_server: XdsServer,
    /// The global rate limit service. Unset: none runs, and global limits are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    /// One extension server. Excludes `extensionManagers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_manager: Option<ExtensionManager>,
    /// Extension servers, called one after the other in this order; each has a name of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extension_managers: Vec<ExtensionManager>,
    /// Which of our own kinds are in use.
    #[serde(default, skip_serializing_if = "ExtensionApis::is_default")]
    pub extension_apis: ExtensionApis,
    /// Which experimental Gateway API kinds are in use.
    #[serde(default, rename = "gatewayAPI", skip_serializing_if = "GatewayApiSettings::is_default")]
    pub gateway_api: GatewayApiSettings,
    /// Switches for behaviour that is about to change.
    #[serde(default, skip_serializing_if = "RuntimeFlags::is_default")]
    pub runtime_flags: RuntimeFlags,
    /// The lowest layer of every proxy's settings, below the EnvoyProxy of a GatewayClass and of a Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy_proxy: Option<Box<EnvoyProxySpec>>,
}

impl Default for EnvoyGateway {
    fn default() -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            gateway: Gateway::default(),
            provider: Provider::default(),
            logging: Logging::default(),
            admin: Admin::default(),
            telemetry: Telemetry::default(),
            xds_server: XdsServer::default(),
            rate_limit: None,
            extension_manager: None,
            extension_managers: Vec::new(),
            extension_apis: ExtensionApis::default(),
            gateway_api: GatewayApiSettings::default(),
            runtime_flags: RuntimeFlags::default(),
            envoy_proxy: None,
        }
    }
}

/// Which GatewayClasses the controller takes care of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gateway {
    /// The `controllerName` of our GatewayClasses. A `gateway` section without it is refused; without the section the
    /// default is [`DEFAULT_CONTROLLER_NAME`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub controller_name: String,
}

impl Default for Gateway {
    fn default() -> Self {
        Self { controller_name: DEFAULT_CONTROLLER_NAME.to_owned() }
    }
}

#[cfg(test)]
mod tests;

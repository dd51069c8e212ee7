//! What the translation depends on besides the objects of the cluster.

use api::{
    config::{DeployModeType, EnvoyGateway, InfrastructureProviderType, RuntimeFlag},
    envoygateway::EnvoyProxySpec,
};
use ir::Name;

/// Settings of the control plane as far as they shape the translation. A pure value: the same settings and objects give
/// the same translation on every replica.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `spec.controllerName` of the GatewayClasses that are served.
    pub controller_name: Name,
    /// Namespace of the control plane; fleets live there unless [`Config::gateway_namespaces`] says otherwise.
    pub controller_namespace: Name,
    /// DNS domain of the cluster, `cluster.local` by default.
    pub dns_domain: Name,
    /// Optional APIs.
    pub extension_apis: ExtensionApis,
    /// Who runs the proxies.
    pub infrastructure: Infrastructure,
    /// Fleets live in the namespace of their Gateway.
    pub gateway_namespaces: bool,
    /// Names of listeners and route tables follow the second scheme (`tcp-PORT`, `http-PORT`).
    pub xds_name_scheme_v2: bool,
    /// One secret for the CAs of the proxies' system for each object that asks for them, instead of one for all.
    pub per_resource_system_ca_secret: bool,
    /// Lowest layer of all EnvoyProxy settings.
    pub envoy_proxy: Option<EnvoyProxySpec>,
    /// Seconds since the epoch, for the expiry of certificates; without it no certificate counts as expired.
    pub now: Option<i64>,
}

/// Optional APIs; all off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtensionApis {
    /// Routes may lead to Backend objects.
    pub backend: bool,
    /// EnvoyPatchPolicy is obeyed.
    pub envoy_patch_policy: bool,
    /// Lua extensions are obeyed.
    pub lua: bool,
    /// Secrets may point to an SDS server.
    pub sds_secret_ref: bool,
}

/// Who runs the proxies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Infrastructure {
    /// Kubernetes: privileged ports are shifted by 10,000 inside the pod, the Service keeps them.
    #[default]
    Kubernetes,
    /// A process on this host: ports are bound as they are, loopback backends make sense.
    Host,
}

// === impl Config ===

impl Default for Config {
    fn default() -> Self {
        Self {
            controller_name: "gateway.envoyproxy.io/gatewayclass-controller".into(),
            controller_namespace: "envoy-gateway-system".into(),
            dns_domain: "cluster.local".into(),
            extension_apis: ExtensionApis::default(),
            infrastructure: Infrastructure::default(),
            gateway_namespaces: false,
            xds_name_scheme_v2: false,
            per_resource_system_ca_secret: false,
            envoy_proxy: None,
            now: None,
        }
    }
}

impl From<&EnvoyGateway> for Config {
    /// What of the configuration file shapes the translation; the rest is as in [`Config::default`].
    fn from(file: &EnvoyGateway) -> Self {
        let custom = file.provider.custom.as_ref();
        let on_host =
            custom.and_then(|c| c.infrastructure.as_ref()).is_some_and(|i| i.type_ == InfrastructureProviderType::Host);
        let deploy = file.provider.kubernetes.deploy.as_ref().and_then(|d| d.type_);
        let flag = |flag: RuntimeFlag| file.runtime_flags.is_enabled(&flag);
        Self {
            controller_name: file.gateway.controller_name.as_str().into(),
            extension_apis: ExtensionApis {
                backend: file.extension_apis.enable_backend,
                envoy_patch_policy: file.extension_apis.enable_envoy_patch_policy,
                lua: file.extension_apis.lua(),
                sds_secret_ref: file.extension_apis.enable_sds_secret_ref,
            },
            infrastructure: if on_host { Infrastructure::Host } else { Infrastructure::Kubernetes },
            gateway_namespaces: deploy == Some(DeployModeType::GatewayNamespace),
            xds_name_scheme_v2: flag(RuntimeFlag::XDSNameSchemeV2),
            per_resource_system_ca_secret: flag(RuntimeFlag::PerResourceSystemCASecret),
            envoy_proxy: file.envoy_proxy.as_deref().cloned(),
            ..Self::default()
        }
    }
}

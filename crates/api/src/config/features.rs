//! Switches: our own kinds, experimental kinds, behaviour that is about to change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::open_enum;

/// Which of our own kinds are in use. What is off is told in the status of the objects that need it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionApis {
    /// EnvoyPatchPolicy: whoever may write one can change anything in a proxy. Default: false.
    #[serde(default)]
    pub enable_envoy_patch_policy: bool,
    /// Backend: whoever may write one can send traffic to any address the proxy reaches. Default: false.
    #[serde(default)]
    pub enable_backend: bool,
    /// The older switch for Lua; `enableLua` wins over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_lua: Option<bool>,
    /// Lua in EnvoyExtensionPolicy. Unset: off, unless `disableLua: false` asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_lua: Option<bool>,
    /// Secrets of type `gateway.envoyproxy.io/sds-ref`, which point to another SDS server. Default: false.
    #[serde(default, rename = "enableSDSSecretRef")]
    pub enable_sds_secret_ref: bool,
}

impl ExtensionApis {
    /// True when nothing is switched.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Whether Lua is on: `enableLua` where it is given, else the opposite of `disableLua`, else off.
    pub fn lua(&self) -> bool {
        self.enable_lua.unwrap_or_else(|| self.disable_lua.is_some_and(|disabled| !disabled))
    }
}

/// Which experimental Gateway API kinds are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GatewayApiSettings {
    /// Kinds to read. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<ExperimentalGatewayApi>,
}

impl GatewayApiSettings {
    /// True when nothing is enabled.
    pub fn is_default(&self) -> bool {
        self.enabled.is_empty()
    }
}

open_enum! {
    /// A kind of `gateway.networking.x-k8s.io`. A name that this release does not know is ignored with a warning.
    pub enum ExperimentalGatewayApi {
        /// Listeners that join a Gateway of someone else.
        XListenerSet,
        /// Retry budgets and session persistence of a Service.
        XBackendTrafficPolicy,
        /// A mesh.
        XMesh,
    }
}

/// Switches for behaviour that is about to change. A flag in both lists is off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeFlags {
    /// Flags to switch on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<RuntimeFlag>,
    /// Flags to switch off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<RuntimeFlag>,
}

impl RuntimeFlags {
    /// True when no flag is named.
    pub fn is_default(&self) -> bool {
        self.enabled.is_empty() && self.disabled.is_empty()
    }

    /// Whether `flag` is on: as the lists say, else its own default.
    pub fn is_enabled(&self, flag: &RuntimeFlag) -> bool {
        if self.disabled.contains(flag) {
            false
        } else {
            self.enabled.contains(flag) || *flag == RuntimeFlag::EndpointSliceIndex
        }
    }
}

open_enum! {
    /// A switch. A name that this release does not know is ignored with a warning.
    pub enum RuntimeFlag {
        /// Listeners are named after protocol and port. Off unless enabled.
        XDSNameSchemeV2,
        /// EndpointSlices are found by an index. On unless disabled.
        EndpointSliceIndex,
        /// The system's CA bundle is one secret for each resource that uses it. Off unless enabled.
        PerResourceSystemCASecret,
    }
}

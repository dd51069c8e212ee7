//! Servers of the control plane: admin and xDS.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, Duration};

/// The admin server: JSON views of resources, configuration, xDS and proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Admin {
    /// Where it listens. Default: 127.0.0.1:19000.
    #[serde(default)]
    pub address: AdminAddress,
    /// Write the configuration to the log at start. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_dump_config: bool,
    /// Serve profiles under `/debug/pprof`. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_pprof: bool,
}

/// Where the admin server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AdminAddress {
    /// Host name or IP address. Default: 127.0.0.1.
    #[serde(default = "AdminAddress::default_host")]
    pub host: String,
    /// TCP port; 0 takes a free one. Default: 19000.
    #[serde(default = "AdminAddress::default_port")]
    pub port: u16,
}

impl AdminAddress {
    fn default_host() -> String {
        "127.0.0.1".to_owned()
    }

    fn default_port() -> u16 {
        19000
    }
}

impl Default for AdminAddress {
    fn default() -> Self {
        Self { host: Self::default_host(), port: Self::default_port() }
    }
}

/// The gRPC server that proxies take their configuration from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct XdsServer {
    /// Age at which a connection is asked to close, so that proxies spread over replicas again; above zero. Unset:
    /// 10, 11 or 12 hours, drawn at start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connection_age: Option<Duration>,
    /// Time from there until the connection is cut; above zero. Unset: 2 minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_connection_age_grace: Option<Duration>,
    /// Largest message that is accepted. Unset: 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_receive_message_size: Option<ByteSize>,
}

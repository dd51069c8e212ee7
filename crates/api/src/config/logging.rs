//! What the control plane logs, and how.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Levels for each component, and the form of the lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Logging {
    /// Lowest level that is written, for each component. Default: `default: info`.
    #[serde(default = "Logging::default_level")]
    #[schemars(schema_with = "level_schema")]
    pub level: BTreeMap<LogComponent, LogLevel>,
    /// Form of the lines. Unset: text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoder: Option<LogEncoder>,
}

impl Logging {
    fn default_level() -> BTreeMap<LogComponent, LogLevel> {
        BTreeMap::from([(LogComponent::Default, LogLevel::Info)])
    }
}

impl Default for Logging {
    fn default() -> Self {
        Self { level: Self::default_level(), encoder: None }
    }
}

/// A field for each component.
fn level_schema(generator: &mut SchemaGenerator) -> Schema {
    let level = generator.subschema_for::<LogLevel>();
    let fields: BTreeMap<_, _> = LogComponent::ALL.map(|component| (component.as_str(), level.clone())).into();
    json_schema!({ "type": "object", "properties": fields })
}

/// A part of the control plane whose level can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogComponent {
    /// Whatever has no level of its own.
    Default,
    /// The process itself: start, stop, leadership, certificates, admin.
    System,
    /// Reading resources.
    Provider,
    /// Translation of Gateway API resources.
    GatewayApi,
    /// Translation to Envoy's configuration.
    XdsTranslator,
    /// Serving configuration to proxies.
    XdsServer,
    /// Both of xDS.
    Xds,
    /// Running proxies.
    Infrastructure,
    /// The global rate limit service.
    GlobalRatelimit,
}

impl LogComponent {
    /// Every component, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::System,
        Self::Provider,
        Self::GatewayApi,
        Self::XdsTranslator,
        Self::XdsServer,
        Self::Xds,
        Self::Infrastructure,
        Self::GlobalRatelimit,
    ];

    /// The name in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::System => "system",
            Self::Provider => "provider",
            Self::GatewayApi => "gateway-api",
            Self::XdsTranslator => "xds-translator",
            Self::XdsServer => "xds-server",
            Self::Xds => "xds",
            Self::Infrastructure => "infrastructure",
            Self::GlobalRatelimit => "global-ratelimit",
        }
    }
}

/// How grave a line must be to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// What an operator may want to read later.
    #[default]
    Info,
    /// What may need attention.
    Warn,
    /// What failed.
    Error,
}

/// Form of the log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum LogEncoder {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    #[serde(rename = "JSON")]
    Json,
}

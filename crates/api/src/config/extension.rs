//! Extension servers: gRPC services that see and change what is sent to proxies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, Duration};
use crate::envoygateway::{FQDNEndpoint, IPEndpoint, UnixSocket};
use crate::gateway::{Fraction, SecretObjectReference};
use crate::open_enum;

/// An extension server. Whoever controls it can change anything in a proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionManager {
    /// Its name in logs, metrics and errors. Needed, and unique, in `extensionManagers`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Kinds that routes may name as a filter (`extensionRef`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<GroupVersionKind>,
    /// Kinds that attach to Gateways and routes as policies, from the same namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policy_resources: Vec<GroupVersionKind>,
    /// Kinds that routes may name as a backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_resources: Vec<GroupVersionKind>,
    /// What it is asked; at least one hook is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hooks: Option<ExtensionHooks>,
    /// How it is reached; needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ExtensionService>,
    /// Go on without its changes when it fails, instead of holding the update back. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fail_open: bool,
    /// Largest message in both directions. Unset: 4M.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_message_size: Option<ByteSize>,
}

/// A kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupVersionKind {
    /// API group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// What an extension server is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionHooks {
    /// Questions during the translation to Envoy's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xds_translator: Option<XdsTranslatorHooks>,
}

/// Questions during the translation to Envoy's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct XdsTranslatorHooks {
    /// Asked before a thing is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pre: Vec<XdsTranslatorHook>,
    /// Asked after a thing is made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub post: Vec<XdsTranslatorHook>,
    /// What the hook Translation is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<TranslationConfig>,
}

/// A point of the translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum XdsTranslatorHook {
    /// One virtual host.
    VirtualHost,
    /// One route.
    Route,
    /// One HTTP listener.
    #[serde(rename = "HTTPListener")]
    HttpListener,
    /// One cluster.
    Cluster,
    /// The endpoints of one cluster.
    Endpoints,
    /// Everything that one fleet of proxies is sent.
    Translation,
}

/// What the hook Translation is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranslationConfig {
    /// Listeners. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener: Option<TranslationScope>,
    /// Routes. Unset: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<TranslationScope>,
    /// Clusters. Unset: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<TranslationScope>,
    /// Secrets. Unset: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<TranslationScope>,
}

/// How much of one sort the hook Translation is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TranslationScope {
    /// All, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_all: Option<bool>,
}

/// How a gRPC service is reached: exactly one of `fqdn`, `ip`, `unix` and the older `host` with `port`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionService {
    /// By name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<FQDNEndpoint>,
    /// By address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<IPEndpoint>,
    /// By a Unix domain socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unix: Option<UnixSocket>,
    /// Zone of the endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Host name; the older form of `fqdn`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// TCP port for `host`. Unset: 80.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// TLS. Unset: plain text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExtensionTls>,
    /// What is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<ExtensionServiceRetry>,
}

/// TLS towards a gRPC service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionTls {
    /// Secret with the CA certificate under `tls.crt`.
    pub certificate_ref: SecretObjectReference,
    /// Secret with a client certificate under `tls.crt` and its key under `tls.key`. Unset: none is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// What is tried again when a gRPC service fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionServiceRetry {
    /// Most attempts, the first included. Unset: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Wait before the second attempt. Unset: 100 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_backoff: Option<Duration>,
    /// Longest wait. Unset: 1 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_backoff: Option<Duration>,
    /// Factor from one wait to the next. Unset: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_multiplier: Option<Fraction>,
    /// Answers that are worth another attempt. Unset: UNAVAILABLE. (The capital R is the field's name.)
    #[serde(default, rename = "RetryableStatusCodes", skip_serializing_if = "Vec::is_empty")]
    pub retryable_status_codes: Vec<RetryableGrpcStatus>,
}

open_enum! {
    /// A gRPC status code by its name.
    pub enum RetryableGrpcStatus {
        /// 1.
        Cancelled = "CANCELLED",
        /// 2.
        UnknownStatus = "UNKNOWN",
        /// 3.
        InvalidArgument = "INVALID_ARGUMENT",
        /// 4.
        DeadlineExceeded = "DEADLINE_EXCEEDED",
        /// 5.
        NotFound = "NOT_FOUND",
        /// 6.
        AlreadyExists = "ALREADY_EXISTS",
        /// 7.
        PermissionDenied = "PERMISSION_DENIED",
        /// 8.
        ResourceExhausted = "RESOURCE_EXHAUSTED",
        /// 9.
        FailedPrecondition = "FAILED_PRECONDITION",
        /// 10.
        Aborted = "ABORTED",
        /// 11.
        OutOfRange = "OUT_OF_RANGE",
        /// 12.
        Unimplemented = "UNIMPLEMENTED",
        /// 13.
        Internal = "INTERNAL",
        /// 14.
        Unavailable = "UNAVAILABLE",
        /// 15.
        DataLoss = "DATA_LOSS",
        /// 16.
        Unauthenticated = "UNAUTHENTICATED",
    }
}

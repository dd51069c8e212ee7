//! `EnvoyExtensionPolicy`: Wasm, Lua, external processors and dynamic modules.

use super::cluster::BackendCluster;
use super::common::{Duration, MergeType};
use super::target::PolicyTargetReferences;
use crate::gateway::{LocalObjectReference, PolicyStatus, SecretObjectReference};
use crate::open_enum;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;

/// What an `EnvoyExtensionPolicy` asks for.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "EnvoyExtensionPolicy",
    plural = "envoyextensionpolicies",
    namespaced,
    derive = "PartialEq",
    shortname = "eep",
    status = "PolicyStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "Extensions of proxies for the Gateways or routes that it is attached to.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.group == 'gateway.networking.k8s.io' : true", "this policy can only have a targetRef.group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'] : true", "this policy can only have a targetRef.kind of Gateway/ListenerSet/HTTPRoute/GRPCRoute/TCPRoute/UDPRoute/TLSRoute"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.group == 'gateway.networking.k8s.io') : true ", "this policy can only have a targetRefs[*].group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute']) : true ", "this policy can only have a targetRefs[*].kind of Gateway/ListenerSet/HTTPRoute/GRPCRoute/TCPRoute/UDPRoute/TLSRoute"))]
#[x_kube(validation = ("!has(self.mergeType) || ((!has(self.targetRef) || self.targetRef.kind in ['HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute']) && (!has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ['HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'])) && (!has(self.targetSelectors) || self.targetSelectors.all(sel, sel.kind in ['HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'])))", "mergeType can only be used with xRoute targets"))]
pub struct EnvoyExtensionPolicySpec {
    /// What the policy is attached to.
    #[serde(flatten)]
    pub targets: PolicyTargetReferences,
    /// How to combine with the policy of the closest parent; unset replaces it.
    #[schemars(with = "Option<String>")]
    #[x_kube(validation = ("self != 'Replace'", "Replace is not a valid MergeType for EnvoyExtensionPolicy"))]
    pub merge_type: Option<MergeType>,
    /// Wasm extensions in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub wasm: Vec<Wasm>,
    /// External processors in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub ext_proc: Vec<ExtProc>,
    /// Lua scripts in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub lua: Vec<Lua>,
    /// Dynamic modules in order; each is registered in the `EnvoyProxy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub dynamic_module: Vec<DynamicModule>,
}

/// A Wasm extension.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wasm {
    /// Name of the extension; generated when unset.
    pub name: Option<String>,
    /// Extensions with the same root in a VM share their context.
    #[serde(rename = "rootID")]
    pub root_id: Option<String>,
    /// Where the code is.
    pub code: WasmCodeSource,
    /// Configuration handed to it as JSON.
    #[serde(default)]
    #[schemars(schema_with = "crate::shared::any_value")]
    pub config: Option<Value>,
    /// Let requests pass when it fails; off when unset.
    #[schemars(extend("default" = false))]
    pub fail_open: Option<bool>,
    /// Its environment.
    pub env: Option<WasmEnv>,
}

/// Where Wasm code is.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'HTTP' ? has(self.http) : !has(self.http)", "If type is HTTP, http field needs to be set."))]
#[x_kube(validation = ("self.type == 'Image' ? has(self.image) : !has(self.image)", "If type is Image, image field needs to be set."))]
pub struct WasmCodeSource {
    /// Kind of place.
    pub type_: WasmCodeSourceType,
    /// Settings of `HTTP`.
    pub http: Option<HTTPWasmCodeSource>,
    /// Settings of `Image`.
    pub image: Option<ImageWasmCodeSource>,
    /// When to fetch again; without effect where a checksum is given.
    pub pull_policy: Option<ImagePullPolicy>,
}

open_enum! {
    /// Kind of place of Wasm code.
    pub enum WasmCodeSourceType {
        /// A URL.
        HTTP,
        /// An OCI image.
        Image,
    }
}

/// Wasm code at a URL.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HTTPWasmCodeSource {
    /// The URL.
    #[schemars(regex(
        pattern = r"^((https?:)(\/\/\/?)([\w]*(?::[\w]*)?@)?([\d\w\.-]+)(?::(\d+))?)?([\/\\\w\.()-]*)?(?:([?][^#]*)?(#.*)?)*"
    ))]
    pub url: String,
    /// Checksum in hex; unchecked when unset.
    pub sha256: Option<String>,
    /// TLS towards the server; the system's CAs when unset.
    pub tls: Option<WasmCodeSourceTLSConfig>,
}

/// TLS towards a server of Wasm code.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WasmCodeSourceTLSConfig {
    /// ConfigMap or Secret with the CA bundle.
    pub ca_certificate_ref: SecretObjectReference,
}

/// Wasm code in an OCI image.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageWasmCodeSource {
    /// Image as `registry/image:tag` or `registry/image@sha256:digest`.
    pub url: String,
    /// Digest of the image in hex; unchecked when unset.
    pub sha256: Option<String>,
    /// Secret with credentials of the registry.
    #[x_kube(validation = ("self.kind == 'Secret'", "only support Secret kind."))]
    pub pull_secret_ref: Option<SecretObjectReference>,
    /// TLS towards the registry; the system's CAs when unset.
    pub tls: Option<WasmCodeSourceTLSConfig>,
}

open_enum! {
    /// When to fetch Wasm code again.
    pub enum ImagePullPolicy {
        /// When it is not there; the default except for the tag `latest`.
        IfNotPresent,
        /// On every change of the policy's version.
        Always,
    }
}

/// Environment of a Wasm VM.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WasmEnv {
    /// Variables of the proxy to pass on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_keys: Vec<String>,
}

/// An external processor.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.backendRef)", "BackendRefs must be used, backendRef is not supported."))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'ServiceImport' || f.kind == 'Backend') : true", "BackendRefs only supports Service, ServiceImport, and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'multicluster.x-k8s.io' || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only supports Core, multicluster.x-k8s.io, and gateway.envoyproxy.io groups."))]
#[x_kube(validation = ("!(has(self.failOpen) && self.failOpen == true && has(self.processingMode) && ((has(self.processingMode.request) && has(self.processingMode.request.body) && self.processingMode.request.body == 'FullDuplexStreamed') || (has(self.processingMode.response) && has(self.processingMode.response.body) && self.processingMode.response.body == 'FullDuplexStreamed')))", "If FullDuplexStreamed body processing mode is used, FailOpen must be false."))]
#[x_kube(validation = ("!(has(self.shadowMode) && self.shadowMode == true && has(self.processingMode) && ((has(self.processingMode.request) && has(self.processingMode.request.body) && self.processingMode.request.body != 'Streamed') || (has(self.processingMode.response) && has(self.processingMode.response.body) && self.processingMode.response.body != 'Streamed')))", "If shadowMode is enabled, body processing mode must be Streamed or unset."))]
pub struct ExtProc {
    /// The service.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Time to wait for each answer; defaults to 200 ms.
    pub message_timeout: Option<Duration>,
    /// Let requests pass when it fails; off when unset.
    #[schemars(extend("default" = false))]
    pub fail_open: Option<bool>,
    /// What to send; neither headers nor bodies when unset.
    pub processing_mode: Option<ExtProcProcessingMode>,
    /// Send without waiting for answers; off when unset.
    pub shadow_mode: Option<bool>,
    /// Dynamic metadata to share.
    pub metadata: Option<ExtProcMetadata>,
    /// Status code when it fails; defaults to 500.
    #[schemars(extend("enum" = [400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 424, 426, 428, 429, 431, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511]))]
    pub status_on_error: Option<i32>,
}

/// What an external processor is sent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtProcProcessingMode {
    /// Of requests; headers if present.
    pub request: Option<ProcessingModeOptions>,
    /// Of responses; headers if present.
    pub response: Option<ProcessingModeOptions>,
    /// Let the processor change this; off when unset.
    pub allow_mode_override: Option<bool>,
}

/// What an external processor is sent of one direction.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ProcessingModeOptions {
    /// How the body is sent; not at all when unset.
    pub body: Option<ExtProcBodyProcessingMode>,
    /// Envoy attributes to send, such as `request.path`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(
        pattern = r"^(connection\.|source\.|destination\.|request\.|response\.|upstream\.|xds\.route_)[a-z_1-9]*$"
    )))]
    pub attributes: Vec<String>,
}

open_enum! {
    /// How bodies are sent to an external processor.
    pub enum ExtProcBodyProcessingMode {
        /// In pieces as they come.
        Streamed,
        /// As a whole; too large is an error.
        Buffered,
        /// As a whole up to the buffer's size.
        BufferedPartial,
        /// In pieces, with answers in pieces of their own.
        FullDuplexStreamed,
    }
}

/// Dynamic metadata shared with an external processor.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtProcMetadata {
    /// Namespaces that it is sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accessible_namespaces: Vec<String>,
    /// Namespaces that it may write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(validation = ("self.all(f, !f.startsWith('envoy.filters.http'))", "writableNamespaces cannot contain well-known Envoy HTTP filter namespaces"))]
    pub writable_namespaces: Vec<String>,
}

/// A Lua script.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(self.type == 'Inline' && has(self.inline) && !has(self.valueRef)) || (self.type == 'ValueRef' && !has(self.inline) && has(self.valueRef))", "Exactly one of inline or valueRef must be set with correct type."))]
pub struct Lua {
    /// Where it is; `Inline` when unset.
    #[schemars(required, extend("default" = "Inline"))]
    pub type_: Option<LuaValueType>,
    /// The script itself.
    pub inline: Option<String>,
    /// ConfigMap with the script under `lua`, else its first value.
    #[x_kube(validation = ("self.kind == 'ConfigMap' && (self.group == 'v1' || self.group == '')", "Only a reference to an object of kind ConfigMap belonging to default v1 API group is supported."))]
    pub value_ref: Option<LocalObjectReference>,
    /// JSON object that the script reads as its filter context.
    #[serde(default)]
    #[schemars(schema_with = "crate::shared::any_value")]
    pub filter_context: Option<Value>,
}

open_enum! {
    /// Where a Lua script is.
    #[derive(Default)]
    pub enum LuaValueType {
        /// In the policy.
        #[default]
        Inline,
        /// In a ConfigMap.
        ValueRef,
    }
}

/// A dynamic module as an HTTP filter.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamicModule {
    /// Name of the registered module.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub name: String,
    /// Which of the module's filters.
    #[schemars(length(max = 253))]
    pub filter_name: Option<String>,
    /// Configuration handed to it as JSON.
    #[serde(default)]
    #[schemars(schema_with = "crate::shared::any_value")]
    pub config: Option<Value>,
    /// The module answers by itself, without a backend; off when unset.
    #[schemars(extend("default" = false))]
    pub terminal_filter: Option<bool>,
}

//! `SecurityPolicy`, API keys, Basic authentication, CORS, CSRF and authorization services.

use super::authorization::Authorization;
use super::cluster::BackendCluster;
use super::common::{Duration, LocalObjectKeyReference, MergeType};
use super::jwt::JWT;
use super::oidc::OIDC;
use super::patterns::ORIGIN;
use super::target::PolicyTargetReferences;
use crate::gateway::{Fraction, PolicyStatus, SecretObjectReference};
use crate::open_enum;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What a `SecurityPolicy` asks for.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "SecurityPolicy",
    plural = "securitypolicies",
    namespaced,
    derive = "PartialEq",
    shortname = "sp",
    category = "envoy-gateway",
    status = "PolicyStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "Who may call the Gateways or routes that it is attached to.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.group == 'gateway.networking.k8s.io' : true", "this policy can only have a targetRef.group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'TCPRoute'] : true", "this policy can only have a targetRef.kind of Gateway/ListenerSet/HTTPRoute/GRPCRoute/TCPRoute"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.group == 'gateway.networking.k8s.io') : true ", "this policy can only have a targetRefs[*].group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'TCPRoute']) : true ", "this policy can only have a targetRefs[*].kind of Gateway/ListenerSet/HTTPRoute/GRPCRoute/TCPRoute"))]
#[x_kube(validation = ("!has(self.mergeType) || ((!has(self.targetRef) || self.targetRef.kind in ['HTTPRoute', 'GRPCRoute', 'TCPRoute']) && (!has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ['HTTPRoute', 'GRPCRoute', 'TCPRoute'])) && (!has(self.targetSelectors) || self.targetSelectors.all(sel, sel.kind in ['HTTPRoute', 'GRPCRoute', 'TCPRoute'])))", "mergeType can only be used with xRoute targets"))]
#[x_kube(validation = ("(has(self.authorization) && has(self.authorization.rules) && self.authorization.rules.exists(r, has(r.principal) ? has(r.principal.jwt) : false)) ? has(self.jwt) : true", "if authorization.rules.principal.jwt is used, jwt must be defined"))]
pub struct SecurityPolicySpec {
    /// What the policy is attached to.
    #[serde(flatten)]
    pub targets: PolicyTargetReferences,
    /// How to combine with the policy of the closest parent; unset replaces it.
    #[schemars(with = "Option<String>")]
    #[x_kube(validation = ("self != 'Replace'", "Replace is not a valid MergeType for SecurityPolicy"))]
    pub merge_type: Option<MergeType>,
    /// API keys.
    pub api_key_auth: Option<APIKeyAuth>,
    /// Cross-origin resource sharing.
    pub cors: Option<CORS>,
    /// Protection from forged cross-site requests.
    pub csrf: Option<CSRF>,
    /// HTTP Basic authentication.
    pub basic_auth: Option<BasicAuth>,
    /// JSON Web Tokens.
    pub jwt: Option<JWT>,
    /// OpenID Connect.
    pub oidc: Option<OIDC>,
    /// An authorization service.
    pub ext_auth: Option<ExtAuth>,
    /// Rules by client, claim or header.
    pub authorization: Option<Authorization>,
}

/// Authentication by API keys.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct APIKeyAuth {
    /// Secrets with one key for each client; the first one wins for a client in several.
    pub credential_refs: Vec<SecretObjectReference>,
    /// Where a request has its key; the first one found counts.
    #[schemars(length(min = 1))]
    pub extract_from: Vec<ExtractFrom>,
    /// Header that tells the backend the client.
    #[serde(rename = "forwardClientIDHeader")]
    pub forward_client_id_header: Option<String>,
    /// Remove the key before forwarding; off when unset.
    pub sanitize: Option<bool>,
}

/// Where a request has its key: exactly one of these.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("(has(self.headers) ? 1 : 0) + (has(self.params) ? 1 : 0) + (has(self.cookies) ? 1 : 0) == 1", "exactly one of headers, params, or cookies must be specified"))]
pub struct ExtractFrom {
    /// Headers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub headers: Vec<String>,
    /// Query parameters, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub params: Vec<String>,
    /// Cookies, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1), inner(length(min = 1)))]
    pub cookies: Vec<String>,
}

/// Cross-origin resource sharing.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CORS {
    /// Origins that may call; `*` is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(length(min = 1, max = 253), regex(pattern = ORIGIN)))]
    pub allow_origins: Vec<String>,
    /// Methods that they may use; `*` is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_methods: Vec<String>,
    /// Headers that they may send; `*` is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_headers: Vec<String>,
    /// Headers that scripts may read; `*` is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expose_headers: Vec<String>,
    /// How long browsers may keep a preflight's result.
    pub max_age: Option<Duration>,
    /// Whether they may send credentials.
    pub allow_credentials: Option<bool>,
}

/// Protection from forged cross-site requests: the origin of a mutating request must be known.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CSRF {
    /// Share of requests that are judged but let pass.
    pub shadow_fraction: Option<Fraction>,
    /// Origins accepted besides the destination's own; `*` is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 253), regex(pattern = ORIGIN)))]
    pub additional_origins: Vec<String>,
}

/// HTTP Basic authentication.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BasicAuth {
    /// Secret with users in htpasswd format (SHA) under `.htpasswd`.
    pub users: SecretObjectReference,
    /// Header that tells the backend the user; none when unset.
    pub forward_username_header: Option<String>,
}

/// An authorization service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.grpc) || has(self.http))", "one of grpc or http must be specified"))]
#[x_kube(validation = ("(has(self.grpc) && !has(self.http)) || (!has(self.grpc) && has(self.http))", "only one of grpc or http can be specified"))]
pub struct ExtAuth {
    /// A gRPC service.
    pub grpc: Option<GRPCExtAuthService>,
    /// An HTTP service.
    pub http: Option<HTTPExtAuthService>,
    /// Request headers to send to it; all for gRPC and a few for HTTP when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_to_ext_auth: Vec<String>,
    /// Send it the body too.
    pub body_to_ext_auth: Option<BodyToExtAuth>,
    /// Time to wait for it; 10 s when unset.
    pub timeout: Option<Duration>,
    /// Let requests pass when it fails; off when unset.
    #[schemars(extend("default" = false))]
    pub fail_open: Option<bool>,
    /// Choose the route again once its headers are there; off when unset.
    pub recompute_route: Option<bool>,
    /// Send it the metadata of the route; off when unset.
    pub include_route_metadata: Option<bool>,
    /// Further values to send to it only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-map-keys" = ["name"], "x-kubernetes-list-type" = "map"))]
    pub context_extensions: Vec<ContextExtension>,
    /// Status code when it fails; 403 when unset.
    #[schemars(extend("enum" = [400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 421, 422, 423, 424, 426, 428, 429, 431, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511]))]
    pub status_on_error: Option<i32>,
}

/// A gRPC authorization service.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("has(self.backendRef) || self.backendRefs.size() > 0", "backendRef or backendRefs needs to be set"))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'ServiceImport' || f.kind == 'Backend') : true", "BackendRefs only supports Service, ServiceImport, and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'multicluster.x-k8s.io' || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only supports Core, multicluster.x-k8s.io, and gateway.envoyproxy.io groups."))]
pub struct GRPCExtAuthService {
    /// The service.
    #[serde(flatten)]
    pub backend: BackendCluster,
}

/// An HTTP authorization service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.backendRef) || self.backendRefs.size() > 0", "backendRef or backendRefs needs to be set"))]
#[x_kube(validation = ("has(self.backendRefs) ? self.backendRefs.all(f, f.kind == 'Service' || f.kind == 'ServiceImport' || f.kind == 'Backend') : true", "BackendRefs only supports Service, ServiceImport, and Backend kind."))]
#[x_kube(validation = (r#"has(self.backendRefs) ? (self.backendRefs.all(f, f.group == "" || f.group == 'multicluster.x-k8s.io' || f.group == 'gateway.envoyproxy.io')) : true"#, "BackendRefs only supports Core, multicluster.x-k8s.io, and gateway.envoyproxy.io groups."))]
#[x_kube(validation = ("!(has(self.path) && has(self.pathOverride))", "only one of path or pathOverride can be specified"))]
pub struct HTTPExtAuthService {
    /// The service.
    #[serde(flatten)]
    pub backend: BackendCluster,
    /// Put before the path of the request.
    pub path: Option<String>,
    /// In place of the path of the request.
    pub path_override: Option<String>,
    /// Headers of its response to pass to the backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers_to_backend: Vec<String>,
}

/// The body as sent to an authorization service.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BodyToExtAuth {
    /// Largest body in bytes; a larger one is answered with 413.
    #[schemars(range(min = 1))]
    pub max_request_bytes: u32,
}

/// A value for an authorization service.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(self.type == 'Value' && has(self.value) && !has(self.valueRef)) || (self.type == 'ValueRef' && !has(self.value) && has(self.valueRef))", "Exactly one of value or valueRef must be set with correct type."))]
pub struct ContextExtension {
    /// Name of the value.
    pub name: String,
    /// Where it is; defaults to `Value`.
    #[schemars(required, extend("default" = "Value"))]
    pub type_: Option<ContextExtensionValueType>,
    /// The value itself.
    pub value: Option<String>,
    /// ConfigMap or Secret with the value.
    pub value_ref: Option<LocalObjectKeyReference>,
}

open_enum! {
    /// Where a value is.
    #[derive(Default)]
    pub enum ContextExtensionValueType {
        /// In the policy.
        #[default]
        Value,
        /// In a ConfigMap or Secret.
        ValueRef,
    }
}

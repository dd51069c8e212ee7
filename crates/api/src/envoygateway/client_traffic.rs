//! `ClientTrafficPolicy`: how clients are treated.

use super::cluster::{HTTP2Settings, TCPKeepalive};
use super::common::{Duration, HTTPHeaderFilter, StringMatch};
use super::patterns::{CIDR, SIZE};
use super::target::PolicyTargetReferences;
use super::tls::ClientTLSSettings;
use crate::gateway::PolicyStatus;
use crate::open_enum;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What a `ClientTrafficPolicy` asks for.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "ClientTrafficPolicy",
    plural = "clienttrafficpolicies",
    namespaced,
    derive = "PartialEq",
    shortname = "ctp",
    category = "envoy-gateway",
    status = "PolicyStatus",
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "How proxies treat clients of the Gateways or listeners that it is attached to.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.group == 'gateway.networking.k8s.io' : true", "this policy can only have a targetRef.group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRef) ? self.targetRef.kind in ['Gateway', 'ListenerSet'] : true", "this policy can only have a targetRef.kind of Gateway or ListenerSet"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.group == 'gateway.networking.k8s.io') : true", "this policy can only have a targetRefs[*].group of gateway.networking.k8s.io"))]
#[x_kube(validation = ("has(self.targetRefs) ? self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet']) : true", "this policy can only have a targetRefs[*].kind of Gateway or ListenerSet"))]
pub struct ClientTrafficPolicySpec {
    /// What the policy is attached to.
    #[serde(flatten)]
    pub targets: PolicyTargetReferences,
    /// TCP keep-alive on client connections; off when unset.
    pub tcp_keepalive: Option<TCPKeepalive>,
    /// Former switch of `proxyProtocol`.
    pub enable_proxy_protocol: Option<bool>,
    /// Expect a PROXY protocol header on connections; wins over `enableProxyProtocol`.
    pub proxy_protocol: Option<ProxyProtocolSettings>,
    /// How the client's address is found; the peer's address when unset.
    #[serde(rename = "clientIPDetection")]
    pub client_ip_detection: Option<ClientIPDetectionSettings>,
    /// TLS with clients.
    pub tls: Option<ClientTLSSettings>,
    /// Normalisation of paths.
    pub path: Option<PathSettings>,
    /// Treatment of headers.
    pub headers: Option<HeaderSettings>,
    /// Time limits.
    pub timeout: Option<ClientTimeout>,
    /// Limits of connections.
    pub connection: Option<ClientConnection>,
    /// HTTP/1.
    pub http1: Option<HTTP1Settings>,
    /// HTTP/2.
    pub http2: Option<HTTP2Settings>,
    /// HTTP/3; off when unset.
    pub http3: Option<HTTP3Settings>,
    /// gRPC.
    pub grpc: Option<GRPCSettings>,
    /// Path on which the proxy itself answers health checks.
    pub health_check: Option<HealthCheckSettings>,
    /// Scheme that backends see; `Preserve` when unset.
    pub scheme: Option<SchemeHeaderTransform>,
}

/// PROXY protocol from clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[schemars(extend("minProperties" = 0))]
pub struct ProxyProtocolSettings {
    /// Accept connections without the header too; off when unset.
    pub optional: Option<bool>,
}

/// Where the client's address comes from: exactly one source.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("[has(self.xForwardedFor), has(self.customHeader), has(self.directSourceIP)].filter(x, x).size() == 1", "exactly one of xForwardedFor, customHeader, or directSourceIP must be set"))]
pub struct ClientIPDetectionSettings {
    /// The `X-Forwarded-For` header.
    pub x_forwarded_for: Option<XForwardedForSettings>,
    /// Another header.
    pub custom_header: Option<CustomHeaderExtensionSettings>,
    /// The peer's address, for look-ups by location.
    #[serde(rename = "directSourceIP")]
    pub direct_source_ip: Option<DirectSourceIPSettings>,
}

/// Trust in `X-Forwarded-For`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.numTrustedHops) && !has(self.trustedCIDRs)) || (!has(self.numTrustedHops) && has(self.trustedCIDRs))", "only one of numTrustedHops or trustedCIDRs must be set"))]
pub struct XForwardedForSettings {
    /// Trusted hops, counted from the right.
    pub num_trusted_hops: Option<u32>,
    /// Addresses of trusted hops.
    #[serde(rename = "trustedCIDRs", default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1), inner(regex(pattern = CIDR)))]
    pub trusted_cidrs: Vec<String>,
    /// Do not append the peer's address; an incoming header is kept as it is.
    pub disable_x_forwarded_for_append: Option<bool>,
}

/// Client address in a header.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CustomHeaderExtensionSettings {
    /// Name of the header.
    #[schemars(length(min = 1, max = 255), regex(pattern = "^[A-Za-z0-9-]+$"))]
    pub name: String,
    /// Answer 403 where no address is found; off when unset.
    pub fail_closed: Option<bool>,
}

/// Use of the peer's address; nothing to set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct DirectSourceIPSettings {}

/// Normalisation of paths.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PathSettings {
    /// What to do with escaped slashes; `UnescapeAndRedirect` when unset.
    pub escaped_slashes_action: Option<PathEscapedSlashAction>,
    /// Keep adjacent slashes apart; off when unset.
    pub disable_merge_slashes: Option<bool>,
}

open_enum! {
    /// What to do with `%2F` and `%5C` in a path.
    pub enum PathEscapedSlashAction {
        /// Leave them.
        KeepUnchanged,
        /// Answer 400.
        RejectRequest,
        /// Unescape and go on.
        UnescapeAndForward,
        /// Redirect to the unescaped path.
        UnescapeAndRedirect,
    }
}

/// Treatment of headers.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!(has(self.preserveXRequestID) && has(self.requestID))", "preserveXRequestID and requestID cannot both be set."))]
pub struct HeaderSettings {
    /// Add `X-Envoy-` headers; off when unset.
    pub enable_envoy_headers: Option<bool>,
    /// Do not tell rate limits in responses.
    pub disable_rate_limit_headers: Option<bool>,
    /// The `x-forwarded-client-cert` header.
    pub x_forwarded_client_cert: Option<XForwardedClientCert>,
    /// What to do about names with underscores; reject when unset.
    pub with_underscores_action: Option<WithUnderscoresAction>,
    /// Former form of `requestID: Preserve`.
    #[serde(rename = "preserveXRequestID")]
    pub preserve_x_request_id: Option<bool>,
    /// The `X-Request-ID` header; generated when unset.
    #[serde(rename = "requestID")]
    pub request_id: Option<RequestIDAction>,
    /// Changes to request headers before anything else, routing included.
    pub early_request_headers: Option<HTTPHeaderFilter>,
    /// Changes to all response headers at the end.
    pub late_response_headers: Option<HTTPHeaderFilter>,
    /// Normalisation of the host.
    pub host: Option<HostSettings>,
    /// Largest size of all request headers together in bytes, rounded up to KiB, at most 8192 KiB; 60 KiB when unset.
    /// More is answered with 431.
    #[schemars(extend("pattern" = SIZE))]
    pub max_request_header_limit: Option<Quantity>,
}

/// The `x-forwarded-client-cert` header.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("(has(self.certDetailsToAdd) && self.certDetailsToAdd.size() > 0) ? (self.mode == 'AppendForward' || self.mode == 'SanitizeSet') : true", "certDetailsToAdd can only be set when mode is AppendForward or SanitizeSet"))]
pub struct XForwardedClientCert {
    /// How to handle it; `Sanitize` when unset.
    pub mode: Option<XFCCForwardMode>,
    /// Details of the client's certificate to add besides hash and URI.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub cert_details_to_add: Vec<XFCCCertData>,
}

open_enum! {
    /// How `x-forwarded-client-cert` is handled.
    pub enum XFCCForwardMode {
        /// Remove it.
        Sanitize,
        /// Pass it on for mutual TLS.
        ForwardOnly,
        /// Append to it for mutual TLS.
        AppendForward,
        /// Replace it for mutual TLS.
        SanitizeSet,
        /// Always pass it on.
        AlwaysForwardOnly,
    }
}

open_enum! {
    /// A detail of a client certificate.
    pub enum XFCCCertData {
        /// The subject.
        Subject,
        /// The certificate in PEM.
        Cert,
        /// The whole chain in PEM.
        Chain,
        /// DNS names.
        DNS,
        /// The URI name.
        URI,
    }
}

open_enum! {
    /// What to do about header names with underscores.
    pub enum WithUnderscoresAction {
        /// Accept them.
        Allow,
        /// Refuse the request.
        RejectRequest,
        /// Drop the header.
        DropHeader,
    }
}

open_enum! {
    /// Handling of `X-Request-ID`.
    pub enum RequestIDAction {
        /// Keep it; generate one if absent.
        PreserveOrGenerate,
        /// Keep it; generate none.
        Preserve,
        /// Always generate one.
        Generate,
        /// Leave the header alone.
        Disable,
    }
}

/// Normalisation of the host.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostSettings {
    /// Drop a dot at its end; off when unset.
    pub strip_trailing_host_dot: Option<bool>,
}

/// Time limits with clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct ClientTimeout {
    /// Limits of connections.
    pub tcp: Option<TCPClientTimeout>,
    /// Limits of HTTP.
    pub http: Option<HTTPClientTimeout>,
}

/// Time limits of client connections.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TCPClientTimeout {
    /// Without bytes in either direction; defaults to 1 h.
    pub idle_timeout: Option<Duration>,
    /// To finish the TLS handshake; none when unset.
    pub tls_handshake_timeout: Option<Duration>,
    /// To detect TLS, server name and protocol; defaults to 15 s.
    pub connection_inspection_timeout: Option<Duration>,
}

/// Time limits of HTTP with clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTPClientTimeout {
    /// Until the whole request is there; none when unset.
    pub request_received_timeout: Option<Duration>,
    /// Until its headers are there; none when unset.
    pub request_headers_received_timeout: Option<Duration>,
    /// A connection without requests; defaults to 1 h.
    pub idle_timeout: Option<Duration>,
    /// A stream without activity; defaults to 5 min.
    pub stream_idle_timeout: Option<Duration>,
}

/// Limits of client connections.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientConnection {
    /// Limits of number and lifetime.
    pub connection_limit: Option<ConnectionLimit>,
    /// Buffer of a connection in bytes; defaults to 32 KiB.
    #[schemars(extend("pattern" = SIZE))]
    pub buffer_limit: Option<Quantity>,
    /// Buffer of a socket in bytes.
    #[schemars(extend("pattern" = SIZE))]
    pub socket_buffer_limit: Option<Quantity>,
    /// Connections accepted in one go, 0 for all; defaults to 1.
    #[schemars(extend("default" = 1))]
    pub max_accept_per_socket_event: Option<u32>,
}

/// Limits of number and lifetime.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.closeDelay) || has(self.value)", "closeDelay can only be configured when value is set"))]
pub struct ConnectionLimit {
    /// Connections at the same time.
    #[schemars(range(min = 1))]
    pub value: Option<i64>,
    /// Delay before an excess connection is closed; none when unset.
    pub close_delay: Option<Duration>,
    /// Lifetime of a connection; unlimited when unset.
    pub max_connection_duration: Option<Duration>,
    /// Requests over one connection; unlimited when unset, and 1 turns keep-alive off.
    pub max_requests_per_connection: Option<u32>,
    /// Lifetime of a stream; unlimited when unset.
    pub max_stream_duration: Option<Duration>,
}

/// HTTP/1 with clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTP1Settings {
    /// Pass trailers on; off when unset.
    pub enable_trailers: Option<bool>,
    /// Keep the case of header names; lower case when unset.
    pub preserve_header_case: Option<bool>,
    /// Accept HTTP/1.0 and 0.9.
    pub http10: Option<HTTP10Settings>,
    /// Close connections at their lifetime's end even without a last response to announce it.
    pub disable_safe_max_connection_duration: Option<bool>,
    /// Upgrades to disregard rather than answer with 403.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored_upgrade_types: Vec<StringMatch>,
}

/// HTTP/1.0 from clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HTTP10Settings {
    /// Supply a missing Host header from the listener or route.
    pub use_default_host: Option<bool>,
}

/// HTTP/3 with clients; its presence turns it on.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HTTP3Settings {}

/// gRPC with clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GRPCSettings {
    /// Translate gRPC-Web; on for GRPCRoutes and off for HTTPRoutes when unset.
    pub enable_web: Option<bool>,
}

/// Health checks that the proxy answers.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct HealthCheckSettings {
    /// The path, compared in full.
    #[schemars(length(min = 1, max = 1024))]
    pub path: String,
}

open_enum! {
    /// Scheme that backends see.
    pub enum SchemeHeaderTransform {
        /// The client's.
        Preserve,
        /// That of the connection to the backend.
        MatchBackend,
    }
}

//! `Backend`: addresses outside of Services.

use super::patterns::DNS_NAME;
use super::tls::BackendTLSConfig;
use crate::gateway::LocalObjectReference;
use crate::open_enum;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// What a `Backend` consists of.
#[skip_serializing_none]
#[derive(Clone, CustomResource, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "gateway.envoyproxy.io",
    version = "v1alpha1",
    kind = "Backend",
    plural = "backends",
    namespaced,
    derive = "PartialEq",
    shortname = "be",
    category = "envoy-gateway",
    status = "BackendStatus",
    printcolumn(name = "Status", type_ = "string", json_path = r#".status.conditions[?(@.type=="Accepted")].reason"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "A place to send traffic to that is not a Kubernetes Service.",
    derive = "Default"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type != 'DynamicResolver' || !has(self.endpoints)", "DynamicResolver type cannot have endpoints specified"))]
#[x_kube(validation = ("self.type != 'DynamicResolver' || !has(self.tls) || !(has(self.tls.autoSNIFromEndpointHostname) && self.tls.autoSNIFromEndpointHostname)", "DynamicResolver type cannot use autoSNIFromEndpointHostname"))]
#[x_kube(validation = ("!has(self.tls) || !(has(self.tls.autoSNIFromEndpointHostname) && self.tls.autoSNIFromEndpointHostname) || self.endpoints.all(e, (!has(e.ip) && !has(e.unix)) || has(e.hostname))", "when autoSNIFromEndpointHostname is enabled, IP and Unix endpoints must define a hostname"))]
pub struct BackendSpec {
    /// How addresses are found; `Endpoints` when unset.
    #[schemars(extend("default" = "Endpoints"))]
    pub type_: Option<BackendType>,
    /// Addresses to connect to; none for `DynamicResolver`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 256))]
    #[x_kube(validation = ("self.all(f, has(f.fqdn)) || !self.exists(f, has(f.fqdn))", "fqdn addresses cannot be mixed with other address types"))]
    pub endpoints: Vec<BackendEndpoint>,
    /// Protocols that the endpoints speak.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub app_protocols: Vec<AppProtocolType>,
    /// Use these endpoints only while the primary ones are unhealthy; needs health checks to be useful.
    pub fallback: Option<bool>,
    /// TLS towards the endpoints; a `BackendTLSPolicy` on the same backend wins field by field.
    pub tls: Option<BackendTLSSettings>,
}

open_enum! {
    /// Where the addresses of a `Backend` come from.
    #[derive(Default)]
    pub enum BackendType {
        /// The list in `endpoints`.
        #[default]
        Endpoints,
        /// The host of each request, resolved by the proxy at that time.
        DynamicResolver,
    }
}

/// One address: exactly one of `fqdn`, `ip` and `unix`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[x_kube(validation = ("(has(self.fqdn) || has(self.ip) || has(self.unix))", "one of fqdn, ip or unix must be specified"))]
#[x_kube(validation = ("((has(self.fqdn) && !(has(self.ip) || has(self.unix))) || (has(self.ip) && !(has(self.fqdn) || has(self.unix))) || (has(self.unix) && !(has(self.ip) || has(self.fqdn))))", "only one of fqdn, ip or unix can be specified"))]
pub struct BackendEndpoint {
    /// Name by which the endpoint is known, for SNI and health checks.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub hostname: Option<String>,
    /// A host name to be resolved by DNS.
    pub fqdn: Option<FQDNEndpoint>,
    /// An IPv4 or IPv6 address.
    pub ip: Option<IPEndpoint>,
    /// A Unix domain socket on the proxy's host.
    pub unix: Option<UnixSocket>,
    /// Zone that the endpoint runs in.
    pub zone: Option<String>,
}

/// A host name and port.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct FQDNEndpoint {
    /// Fully qualified domain name.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\.?$")
    )]
    pub hostname: String,
    /// TCP or UDP port.
    #[schemars(range(min = 0, max = 65535))]
    pub port: i32,
}

/// An IP address and port.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct IPEndpoint {
    /// IPv4 or IPv6 address.
    #[schemars(
        length(min = 3, max = 45),
        regex(
            pattern = r"^((25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)\.){3}(25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)$|^(([0-9a-fA-F]{1,4}:){1,7}[0-9a-fA-F]{1,4}|::|(([0-9a-fA-F]{1,4}:){0,5})?(:[0-9a-fA-F]{1,4}){1,2})$"
        )
    )]
    pub address: String,
    /// TCP or UDP port.
    #[schemars(range(min = 0, max = 65535))]
    pub port: i32,
}

/// A Unix domain socket.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
pub struct UnixSocket {
    /// Path of the socket, at most 108 bytes.
    #[x_kube(validation = ("size(self) <= 108", "unix domain socket path must not exceed 108 characters"))]
    pub path: String,
}

open_enum! {
    /// Protocol that a backend speaks beyond plain HTTP/1.1.
    pub enum AppProtocolType {
        /// HTTP/2 without TLS.
        H2C = "gateway.envoyproxy.io/h2c",
        /// WebSocket over HTTP/1.1.
        WS = "gateway.envoyproxy.io/ws",
        /// WebSocket over TLS.
        WSS = "gateway.envoyproxy.io/wss",
    }
}

/// TLS towards a `Backend`.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (r#"!(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 && has(self.wellKnownCACertificates) && self.wellKnownCACertificates != "")"#, "must not contain both CACertificateRefs and WellKnownCACertificates"))]
#[x_kube(validation = (r#"!((has(self.insecureSkipVerify) && self.insecureSkipVerify) && ((has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0) || (has(self.wellKnownCACertificates) && self.wellKnownCACertificates != "")))"#, "must not contain either CACertificateRefs or WellKnownCACertificates when InsecureSkipVerify is enabled"))]
#[x_kube(validation = ("!(has(self.sni) && has(self.autoSNIFromEndpointHostname) && self.autoSNIFromEndpointHostname)", "sni and autoSNIFromEndpointHostname are mutually exclusive"))]
pub struct BackendTLSSettings {
    /// ConfigMaps or Secrets with the CA bundle (`ca.crt`) that server certificates are checked against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub ca_certificate_refs: Vec<LocalObjectReference>,
    /// Trust the CAs of the proxy's system instead of given ones.
    #[serde(rename = "wellKnownCACertificates")]
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = r"^(System|([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]))$"
        )
    )]
    pub well_known_ca_certificates: Option<String>,
    /// Accept any server certificate; off when unset.
    #[schemars(extend("default" = false))]
    pub insecure_skip_verify: Option<bool>,
    /// Server name to send; when unset it follows the request's host.
    #[schemars(length(min = 1, max = 253), regex(pattern = DNS_NAME))]
    pub sni: Option<String>,
    /// Send each endpoint's own hostname as the server name.
    #[serde(rename = "autoSNIFromEndpointHostname")]
    pub auto_sni_from_endpoint_hostname: Option<bool>,
    /// Client certificate and protocol parameters; where absent, those of the `EnvoyProxy` apply.
    #[serde(flatten)]
    pub config: BackendTLSConfig,
}

/// Observed state of a `Backend`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct BackendStatus {
    /// Latest observations, one for each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::shared::conditions")]
    pub conditions: Vec<Condition>,
}

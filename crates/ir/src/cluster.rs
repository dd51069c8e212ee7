//! Clusters, endpoints and secrets.

use std::net::IpAddr;

use crate::{ClusterSettings, Millis, Name, Origin};

/// One upstream cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// xDS name.
    pub name: Name,
    /// How endpoints are found.
    pub discovery: Discovery,
    /// Time to connect.
    pub connect_timeout: Millis,
    /// Protocol spoken to the endpoints.
    pub protocol: UpstreamProtocol,
    /// TLS as a client, the same for all endpoints (dynamic forward proxy).
    pub tls: Option<UpstreamTls>,
    /// TLS as a client that endpoints choose by [`Endpoint::tls`]; in order.
    pub tls_matches: Vec<TlsMatch>,
    /// Endpoints that choose no TLS are spoken to in plain text; without it they are not reached by accident.
    pub plain_endpoints: bool,
    /// The server name (SNI) of upstream connections follows the request's authority.
    pub auto_sni: bool,
    /// The certificate of the endpoint must bear the request's authority.
    pub auto_san: bool,
    /// How an endpoint is chosen; means nothing where [`Discovery::Dynamic`] chooses.
    pub load_balancing: LoadBalancing,
    /// Bytes buffered per connection.
    pub buffer_limit: u32,
    /// Object that it comes from, if the cluster stands for one.
    pub origin: Option<Origin>,
    /// DNS family.
    pub dns_family: DnsFamily,
    /// What a policy says about it.
    pub settings: ClusterSettings,
}

/// How the endpoints of a cluster are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// By EDS, under the cluster's name.
    Eds,
    /// Fixed, in the cluster.
    Static(Vec<Locality>),
    /// By DNS.
    Dns(Vec<Locality>),
    /// By the request's authority (dynamic forward proxy); Envoy's DNS cache bears this name.
    Dynamic {
        /// Name of the DNS cache.
        cache: Name,
    },
    /// No endpoints ever: a bare static cluster of which nothing but the name is sent.
    Empty,
    /// An SDS server on a Unix socket: HTTP/2, connect time-out, one endpoint, nothing else is sent.
    SdsSocket {
        /// Path of the socket.
        path: Name,
    },
}

/// Protocol spoken to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1, or TCP: Envoy's default, nothing is sent.
    Http1,
    /// HTTP/1.1, said outright (WebSocket backends).
    Http1Only,
    /// HTTP/2 without negotiation.
    Http2,
    /// As negotiated by ALPN (TLS).
    Auto,
}

/// Family that is preferred when names are looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFamily {
    /// IPv4 where there is one.
    V4Preferred,
    /// IPv4 only.
    V4Only,
    /// IPv6 where there is one.
    V6Preferred,
    /// IPv6 only.
    V6Only,
    /// Both.
    All,
}

/// How an endpoint is chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadBalancing {
    /// Fewest requests under way; localities by weight.
    LeastRequestByLocality,
    /// Fewest requests under way; own zone preferred (for the proxies' own service).
    LeastRequestZoneAware,
    /// Fewest requests under way, no locality settings.
    LeastRequest,
}

/// TLS as a client for those endpoints that name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsMatch {
    /// Name of the match, `CLUSTER/tls/K`.
    pub name: Name,
    /// The TLS settings.
    pub tls: UpstreamTls,
}

/// TLS as a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// Name of the [`Secret`] with the CAs; none: certificates are not verified.
    pub ca: Option<Name>,
    /// Name of the secret with the client certificate.
    pub client_certificate: Option<Name>,
    /// Server name sent.
    pub sni: Option<Name>,
    /// The certificate must bear the server name that was sent.
    pub auto_san: bool,
    /// Versions and ciphers.
    pub params: TlsParams,
    /// Names that the certificate must bear.
    pub subject_names: Vec<SubjectName>,
    /// Application protocols.
    pub alpn: Vec<Name>,
}

/// Versions, ciphers and curves of TLS; what is empty is left to Envoy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsParams {
    /// Lowest version.
    pub min_version: Option<TlsVersion>,
    /// Highest version.
    pub max_version: Option<TlsVersion>,
    /// Cipher suites, in order of preference.
    pub ciphers: Vec<Name>,
    /// ECDH curves, in order of preference.
    pub ecdh_curves: Vec<Name>,
    /// Signature algorithms, in order of preference.
    pub signature_algorithms: Vec<Name>,
}

/// Version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// Left to Envoy.
    Auto,
    /// 1.0.
    V1_0,
    /// 1.1.
    V1_1,
    /// 1.2.
    V1_2,
    /// 1.3.
    V1_3,
}

/// A name that a certificate must bear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectName {
    /// A DNS name.
    Dns(Name),
    /// A URI.
    Uri(Name),
}

/// The endpoints of an EDS cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Name of the cluster.
    pub cluster: Name,
    /// Groups of endpoints.
    pub localities: Vec<Locality>,
}

/// The endpoints of one backend or zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locality {
    /// Region: `CLUSTER/backend/K`; none for the proxies' own service.
    pub region: Option<Name>,
    /// Zone.
    pub zone: Option<Name>,
    /// Weight among localities.
    pub weight: Option<u32>,
    /// Priority, 0 first.
    pub priority: u32,
    /// Endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Object that they come from.
    pub origin: Option<Origin>,
}

/// One endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Address.
    pub address: EndpointAddress,
    /// Host name for health checks and `auto` host rewrites.
    pub hostname: Option<Name>,
    /// Weight among the endpoints of the locality.
    pub weight: u32,
    /// Draining: gets no new connections.
    pub draining: bool,
    /// Name of the cluster's [`TlsMatch`] that applies.
    pub tls: Option<Name>,
    /// Where it is probed; none: it is not.
    pub health_check: Option<HealthCheckAt>,
}

/// Where an endpoint is probed, as far as that differs from the endpoint itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HealthCheckAt {
    /// Port.
    pub port: Option<u16>,
    /// Host that probes name.
    pub hostname: Option<Name>,
}

/// Address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointAddress {
    /// IP and port.
    Socket(IpAddr, u16),
    /// Name, looked up by DNS, and port.
    Name(Name, u16),
    /// Path of a Unix socket.
    Unix(Name),
}

/// A secret that Envoy asks for by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// xDS name.
    pub name: Name,
    /// Content.
    pub content: SecretContent,
}

/// Content of a secret.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretContent {
    /// Certificate chain and key, PEM.
    Certificate {
        /// Chain, leaf first.
        chain: Vec<u8>,
        /// Private key.
        key: Vec<u8>,
        /// OCSP staple, DER.
        ocsp: Option<Vec<u8>>,
    },
    /// CAs, PEM.
    Ca {
        /// The CA bundle.
        bundle: Vec<u8>,
        /// Accept certificates that do not chain to it (insecure fallback).
        accept_untrusted: bool,
        /// SANs, any of which the certificate must bear; empty: any certificate of the CAs.
        subject_names: Vec<SubjectName>,
    },
    /// CAs from a file of the proxy, such as those of its operating system.
    CaFile(Name),
}

// === impl Secret ===

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Certificate { .. } => "Certificate(redacted)",
            Self::Ca { .. } => "Ca",
            Self::CaFile(_) => "CaFile",
        })
    }
}

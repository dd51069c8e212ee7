//! Listeners and their filter chains.

use std::sync::Arc;

use crate::{Compressor, HashPolicy, Millis, Name, Origin, ResponseOverride, SessionPersistence, TlsParams};

/// One socket of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// xDS name: that of the first Gateway listener on the port, `NS/GW/LISTENER`.
    pub name: Name,
    /// Address to bind, `0.0.0.0` or `::`.
    pub address: Name,
    /// With `::`: also accept IPv4.
    pub ipv4_compat: bool,
    /// Port that the proxy binds (container port, after the shift of privileged ports).
    pub port: u16,
    /// TCP or UDP.
    pub protocol: Transport,
    /// Filter chains, tried by specificity. The listener filters (TLS inspector) are derived from them.
    pub chains: Vec<FilterChain>,
    /// Chain for connections that no other chain matches: all plain HTTP of the port.
    pub default_chain: Option<FilterChain>,
    /// UDP proxy, instead of chains.
    pub udp: Option<UdpProxy>,
    /// Access logs of connections that no chain took.
    pub access_logs: Vec<AccessLog>,
    /// Bytes buffered per connection.
    pub buffer_limit: u32,
    /// Connections accepted per event of the socket.
    pub max_accepts_per_event: u32,
    /// Object that the socket comes from.
    pub origin: Origin,
}

/// The listener that answers readiness probes of a fleet on port 19003, path `/ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyListener {
    /// Address to bind, `0.0.0.0` or `::`.
    pub address: Name,
    /// With `::`: also accept IPv4.
    pub ipv4_compat: bool,
    /// Port, 19003 but for several fleets on one host.
    pub port: u16,
}

/// A UDP proxy to one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpProxy {
    /// `stat_prefix`.
    pub stat_prefix: Name,
    /// The cluster.
    pub cluster: Name,
    /// Access logs of sessions, in order.
    pub access_logs: Vec<AccessLog>,
}

/// Transport protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// What happens to the connections of one set of server names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterChain {
    /// xDS name of the chain.
    pub name: Name,
    /// Server names (SNI) that select the chain; empty selects all. `*` alone is written as empty.
    pub server_names: Vec<Name>,
    /// TLS terminated here.
    pub tls: Option<DownstreamTls>,
    /// What runs on the connection.
    pub kind: ChainKind,
}

/// What runs on the connection of a filter chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainKind {
    /// HTTP connection manager.
    Http(Box<HttpConnection>),
    /// TCP proxy to clusters.
    Tcp(TcpProxy),
}

/// The HTTP connection manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConnection {
    /// `stat_prefix`, such as `http-10080`.
    pub stat_prefix: Name,
    /// Name of the [`crate::RouteTable`] asked for over RDS.
    pub route_table: Name,
    /// Access logs, in order.
    pub access_logs: Vec<AccessLog>,
    /// HTTP filters before the router, in order.
    pub filters: Vec<HttpFilter>,
    /// HTTP/2 window of a stream, bytes.
    pub initial_stream_window: u32,
    /// HTTP/2 window of a connection, bytes.
    pub initial_connection_window: u32,
    /// Concurrent HTTP/2 streams.
    pub max_concurrent_streams: u32,
}

/// HTTP filters ahead of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpFilter {
    /// Answers preflight requests; configured per route.
    Cors,
    /// gRPC statistics.
    GrpcStats,
    /// gRPC-Web bridging.
    GrpcWeb,
    /// Pins a session to a host; switched off but for the routes that say otherwise. Envoy wants a valid setting here
    /// too: that of any route will do.
    StatefulSession(SessionPersistence),
    /// Refuses requests whose authority is the proxy itself; configured per route.
    LoopbackDeny,
    /// Replaces responses; switched off but for the routes that say otherwise.
    ResponseOverride(Arc<ResponseOverride>),
    /// Delays and aborts; configured per route.
    Fault,
    /// Holds requests; switched off but for the routes that say otherwise, for which the size is that of any route.
    Buffer {
        /// Largest request.
        max_bytes: u32,
    },
    /// Limits counted by the proxy; configured per route.
    LocalRateLimit,
    /// Bytes per second towards backends; switched off but for the routes that say otherwise.
    RequestBandwidth,
    /// Bytes per second from backends; switched off but for the routes that say otherwise.
    ResponseBandwidth,
    /// Compresses responses; switched off but for the routes that say otherwise.
    Compressor(Compressor),
}

/// A weighted TCP proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpProxy {
    /// `stat_prefix`, such as `tcp-10080`.
    pub stat_prefix: Name,
    /// Cluster with its weight; one entry means no weights are sent.
    pub clusters: Vec<(Name, u32)>,
    /// Access logs, in order.
    pub access_logs: Vec<AccessLog>,
    /// Cut after so long without bytes.
    pub idle_timeout: Option<Millis>,
    /// How an endpoint is picked where the cluster hashes.
    pub hash_policies: Vec<HashPolicy>,
}

/// TLS as a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownstreamTls {
    /// Certificates, in order.
    pub certificates: Vec<CertificateRef>,
    /// Name of the secret with the CAs that client certificates must chain to.
    pub client_ca: Option<Name>,
    /// A client certificate must be presented.
    pub require_client_certificate: bool,
    /// Client certificates are asked for but not verified against the CAs (insecure fallback).
    pub accept_untrusted: bool,
    /// Application protocols, in order of preference.
    pub alpn: Vec<Name>,
    /// Versions and ciphers.
    pub params: TlsParams,
}

/// Where the certificate of a listener comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateRef {
    /// The [`crate::Secret`] of this name.
    Secret(Name),
    /// A secret of another SDS server.
    Sds {
        /// Name of the secret there.
        name: Name,
        /// Cluster of the SDS server ([`crate::Discovery::SdsSocket`]).
        cluster: Name,
    },
}

/// One access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// A file, one JSON object per request.
    FileJson {
        /// Path of the file.
        path: Name,
        /// Fields: name and Envoy command, in order of their names.
        fields: Vec<(Name, Name)>,
        /// Only connections that no filter chain took (response flag NR).
        only_no_route: bool,
    },
}

// === impl ReadyListener ===

impl ReadyListener {
    /// xDS name, `envoy-gateway-proxy-ready-ADDRESS-PORT`.
    #[must_use]
    pub fn name(&self) -> Name {
        format!("envoy-gateway-proxy-ready-{}-{}", self.address, self.port).into()
    }
}

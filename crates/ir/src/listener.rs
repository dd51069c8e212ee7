//! Listeners and their filter chains.

use crate::{Millis, Name, Origin};

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
    /// Listener filters such as the TLS inspector are derived from the chains.
    pub chains: Vec<FilterChain>,
    /// Chain for connections that no other chain matches: all plain HTTP of the port.
    pub default_chain: Option<FilterChain>,
    /// Access logs of connections that no chain took.
    pub access_logs: Vec<AccessLog>,
    /// Bytes buffered per connection.
    pub buffer_limit: u32,
    /// Connections accepted per event of the socket.
    pub max_accepts_per_event: u32,
    /// Object that the socket comes from.
    pub origin: Origin,
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
    /// Names of HTTP filters before the router, in order.
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
    /// Pins a session to a host; configured per route.
    StatefulSession,
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
}

/// TLS as a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownstreamTls {
    /// Names of the [`crate::Secret`]s with the certificates, in order.
    pub certificates: Vec<Name>,
    /// Name of the secret with the CAs that client certificates must chain to.
    pub client_ca: Option<Name>,
    /// A client certificate must be presented.
    pub require_client_certificate: bool,
    /// Client certificates are asked for but not verified against the CAs (insecure fallback).
    pub accept_untrusted: bool,
    /// Application protocols, in order of preference.
    pub alpn: Vec<Name>,
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

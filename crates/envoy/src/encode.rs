//! One value of the IR to one encoded resource.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    sync::Arc,
};

use bytes::Bytes;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use ir::{
    Action, CertificateRef, ChainKind, Cluster, Destination, Discovery, DownstreamTls, Endpoints, FilterChain,
    Listener, Name, Route, RouteTable, UpstreamTls, VirtualHost, XdsKey, XdsKind, XdsValue,
};
use prost::Message;
use sha2::{Digest, Sha256};

use crate::{EncodeError, cluster, endpoints, json, listener, pb, route, tls, validate, wire};

/// An xDS resource as it goes over the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Type URL, such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`.
    pub type_url: &'static str,
    /// Name of the resource.
    pub name: Name,
    /// Digest of `message` in hexadecimal: the same content has the same version on every replica and after every
    /// restart.
    pub version: Arc<str>,
    /// The encoded message; an `Any` of it needs the type URL around it.
    pub message: Bytes,
    /// What the order of updates depends on.
    pub hints: Hints,
}

/// What other resources a resource leans on, for the order of updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hints {
    /// A cluster.
    Cluster {
        /// Name under which its endpoints are asked for; none if they are part of it or looked up.
        endpoints: Option<Name>,
        /// It takes traffic well only once it is warm: it waits for a secret, for DNS or for a health check.
        warms: bool,
        /// Secrets that it asks for, sorted.
        secrets: Vec<Name>,
    },
    /// A listener.
    Listener {
        /// Route tables that it asks for, sorted.
        route_tables: Vec<Name>,
        /// Secrets that it asks for, sorted.
        secrets: Vec<Name>,
        /// Clusters that it names itself (TCP, UDP), sorted.
        clusters: Vec<Name>,
    },
    /// A route table.
    RouteTable {
        /// Clusters that its routes name, sorted.
        clusters: Vec<Name>,
    },
    /// Endpoints or a secret, which lean on nothing.
    None,
}

/// Encodes values, and remembers virtual hosts: of a route table, only those that changed are encoded again.
#[derive(Debug, Default)]
pub struct Encoder {
    /// The virtual hosts of each table as last encoded. Each is held, so that its address is not given to another.
    tables: BTreeMap<Name, BTreeMap<usize, (Arc<VirtualHost>, Host)>>,
}

/// A virtual host, encoded.
#[derive(Clone, Debug)]
struct Host {
    bytes: Bytes,
    clusters: Arc<BTreeSet<Name>>,
    /// The longest body that a route answers with by itself, in bytes.
    longest_body: usize,
}

const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const ROUTE_TABLE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Field number of `RouteConfiguration.virtual_hosts`.
const VIRTUAL_HOSTS: u32 = 2;

/// The longest body of a direct response that Envoy takes in a route table that does not say more, in bytes.
const DEFAULT_BODY: usize = 4096;
/// What a table with a longer one says at least: as much as an object may hold.
const LARGE_BODY: usize = 1024 * 1024;

/// Type URL of a kind of resource.
#[must_use]
pub fn type_url(kind: XdsKind) -> &'static str {
    match kind {
        XdsKind::Cluster => CLUSTER,
        XdsKind::Endpoints => ENDPOINTS,
        XdsKind::Listener => LISTENER,
        XdsKind::RouteTable => ROUTE_TABLE,
        XdsKind::Secret => SECRET,
    }
}

/// Encodes one value; for many versions of the same resources, an [`Encoder`] is faster.
///
/// # Errors
/// [`EncodeError`] when Envoy would refuse the resource.
pub fn encode(value: &XdsValue) -> Result<Encoded, EncodeError> {
    Encoder::default().encode(value)
}

/// A cluster that takes its endpoints under another name than its own.
pub(crate) fn cluster_with_endpoints(c: &Cluster, endpoints: &Name) -> Encoded {
    let mut message = cluster::cluster(c);
    if let Some(config) = &mut message.eds_cluster_config {
        config.service_name = endpoints.to_string();
    }
    let message = wire::encode(&message);
    let hints = match cluster_hints(c) {
        Hints::Cluster { warms, secrets, .. } => Hints::Cluster { endpoints: Some(endpoints.clone()), warms, secrets },
        other => other,
    };
    Encoded { type_url: CLUSTER, name: c.name.clone(), version: digest(&message), message: message.into(), hints }
}

/// Endpoints under another name than their cluster's.
pub(crate) fn endpoints_under(e: &Arc<Endpoints>, name: &Name) -> Result<Encoded, EncodeError> {
    validate::resource(&XdsValue::Endpoints(Arc::clone(e)))?;
    let message = wire::encode(&endpoints::assignment(name, &e.localities));
    let version = digest(&message);
    Ok(Encoded { type_url: ENDPOINTS, name: name.clone(), version, message: message.into(), hints: Hints::None })
}

// === impl Encoded ===

impl Encoded {
    /// The resource as canonical protobuf JSON.
    ///
    /// # Errors
    /// When its type is not known to [`crate::json`], which holds for none that this crate makes.
    pub fn to_value(&self) -> Result<serde_json::Value, json::JsonError> {
        json::to_value(json::short(self.type_url), &self.message)
    }
}

// === impl Encoder ===

impl Encoder {
    /// An encoder that remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Encodes one value.
    ///
    /// # Errors
    /// [`EncodeError`] when Envoy would refuse the resource.
    pub fn encode(&mut self, value: &XdsValue) -> Result<Encoded, EncodeError> {
        validate::resource(value)?;
        let (message, hints) = match value {
            XdsValue::Cluster(c) => (wire::encode(&cluster::cluster(c)), cluster_hints(c)),
            XdsValue::Endpoints(e) => (wire::encode(&endpoints::assignment(&e.cluster, &e.localities)), Hints::None),
            XdsValue::Listener(l) => (wire::encode(&listener::listener(l)), listener_hints(l)),
            XdsValue::Ready(r) => (
                wire::encode(&listener::ready(r)),
                Hints::Listener { route_tables: Vec::new(), secrets: Vec::new(), clusters: Vec::new() },
            ),
            XdsValue::RouteTable(t) => self.route_table(t),
            XdsValue::Secret(s) => (wire::encode(&tls::secret(s)), Hints::None),
        };
        let (kind, name) = value.key();
        let type_url = type_url(kind);
        Ok(Encoded { type_url, name, version: digest(&message), message: message.into(), hints })
    }

    /// Forgets a resource that is gone.
    pub fn forget(&mut self, (kind, name): &XdsKey) {
        if *kind == XdsKind::RouteTable {
            self.tables.remove(name);
        }
    }

    /// The table's own fields, then the bytes of each virtual host as they are.
    fn route_table(&mut self, table: &RouteTable) -> (Vec<u8>, Hints) {
        let before = self.tables.remove(&table.name).unwrap_or_default();
        let mut hosts = BTreeMap::new();
        let mut clusters = BTreeSet::new();
        let mut longest_body = 0;
        let mut bytes = RouteConfiguration { name: table.name.to_string(), ..Default::default() }.encode_to_vec();
        for virtual_host in &table.virtual_hosts {
            let address = Arc::as_ptr(virtual_host).addr();
            let host = match before.get(&address) {
                Some((_, host)) => host.clone(),
                None => Host::new(virtual_host),
            };
            wire::put(VIRTUAL_HOSTS, &host.bytes, &mut bytes);
            clusters.extend(host.clusters.iter().cloned());
            longest_body = longest_body.max(host.longest_body);
            hosts.insert(address, (virtual_host.clone(), host));
        }
        let limit = (longest_body > DEFAULT_BODY).then(|| longest_body.max(LARGE_BODY));
        let rest = RouteConfiguration {
            ignore_port_in_host_matching: table.ignore_port_in_host,
            max_direct_response_body_size_bytes: limit
                .and_then(|bytes| pb::u32_value(u32::try_from(bytes).unwrap_or(u32::MAX))),
            ..Default::default()
        };
        rest.encode_raw(&mut bytes);
        self.tables.insert(table.name.clone(), hosts);
        (bytes, Hints::RouteTable { clusters: clusters.into_iter().collect() })
    }
}

// === impl Host ===

impl Host {
    fn new(virtual_host: &VirtualHost) -> Self {
        let clusters = virtual_host.routes.iter().flat_map(clusters_of).collect();
        let bodies = virtual_host.routes.iter().filter_map(|route| match &route.action {
            Action::Respond { body, .. } => body.as_ref().map(|body| body.len()),
            Action::Forward(_) | Action::Redirect(_) => None,
        });
        Self {
            bytes: wire::encode(&route::virtual_host(virtual_host)).into(),
            clusters: Arc::new(clusters),
            longest_body: bodies.max().unwrap_or_default(),
        }
    }
}

fn digest(message: &[u8]) -> Arc<str> {
    let mut out = String::with_capacity(32);
    for byte in &Sha256::digest(message)[..16] {
        let _ = write!(out, "{byte:02x}");
    }
    out.into()
}

fn sorted(names: impl IntoIterator<Item = Name>) -> Vec<Name> {
    names.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

fn clusters_of(route: &Route) -> Vec<Name> {
    let Action::Forward(forward) = &route.action else { return Vec::new() };
    let mut out: Vec<Name> = match &forward.to {
        Destination::Cluster(name) => vec![name.clone()],
        Destination::Weighted(clusters) => {
            clusters.iter().filter(|c| &*c.cluster != ir::INVALID_BACKEND_CLUSTER).map(|c| c.cluster.clone()).collect()
        }
    };
    out.extend(forward.mirrors.iter().map(|m| m.cluster.clone()));
    out
}

fn cluster_hints(c: &Cluster) -> Hints {
    let of_tls = |t: &UpstreamTls| [t.ca.clone(), t.client_certificate.clone()];
    let secrets = sorted(c.tls.iter().chain(c.tls_matches.iter().map(|m| &m.tls)).flat_map(of_tls).flatten());
    let eds = matches!(c.discovery, Discovery::Eds);
    Hints::Cluster {
        endpoints: eds.then(|| c.name.clone()),
        warms: !secrets.is_empty() || matches!(c.discovery, Discovery::Dns(_)) || c.settings.active_check.is_some(),
        secrets,
    }
}

fn listener_hints(l: &Listener) -> Hints {
    let chains = || l.chains.iter().chain(&l.default_chain);
    let of_tls = |t: &DownstreamTls| {
        let certificates = t.certificates.iter().filter_map(|c| match c {
            CertificateRef::Secret(name) => Some(name.clone()),
            CertificateRef::Sds { .. } => None,
        });
        certificates.chain(t.client_ca.clone()).collect::<Vec<_>>()
    };
    let of_chain = |c: &FilterChain| match &c.kind {
        ChainKind::Http(_) => Vec::new(),
        ChainKind::Tcp(t) => t.clusters.iter().map(|(name, _)| name.clone()).collect(),
    };
    Hints::Listener {
        route_tables: sorted(chains().filter_map(|c| match &c.kind {
            ChainKind::Http(h) => Some(h.route_table.clone()),
            ChainKind::Tcp(_) => None,
        })),
        secrets: sorted(chains().filter_map(|c| c.tls.as_ref()).flat_map(of_tls)),
        clusters: sorted(chains().flat_map(of_chain).chain(l.udp.iter().map(|u| u.cluster.clone()))),
    }
}

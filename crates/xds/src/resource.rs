//! A resource as the server sees it: bytes, their digest, and what the order of updates has to know.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sha2::{Digest, Sha256};

/// The name of a resource within its type.
pub type Name = Arc<str>;

/// The proxies that share one configuration, by the `node.cluster` that they send (in Envoy Gateway `NAMESPACE/GATEWAY`, or the name
/// of the GatewayClass when gateways are merged).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeGroup(pub Arc<str>);

impl From<&str> for NodeGroup {
    fn from(cluster: &str) -> Self {
        Self(cluster.into())
    }
}

impl fmt::Display for NodeGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the order of updates needs to know about a resource and cannot read from its bytes.
///
/// Hints never reach the proxy and are no part of the version. Wrong hints cost order, not content: a cluster that a route table
/// does not name here may be removed while the table still uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hints {
    /// Nothing is known. A cluster is taken as one that has to warm up, a listener or a route table as one that may use every
    /// cluster: correct, and slower. Also right for endpoints and secrets, which use nothing.
    #[default]
    Unknown,
    /// Of a cluster.
    Cluster {
        /// Whether more than endpoints is needed before the proxy uses it: an active health check, secrets, slow DNS. Such
        /// clusters travel in responses of their own.
        warms: bool,
        /// The name under which the proxy asks for its endpoints (the service name, else the cluster's name); `None` for a cluster
        /// that is not of type EDS.
        endpoints: Option<Name>,
        /// The secrets that its transport socket takes over SDS.
        secrets: Arc<[Name]>,
    },
    /// Of a listener.
    Listener {
        /// The route tables that it takes over RDS.
        routes: Arc<[Name]>,
        /// The secrets that it takes over SDS.
        secrets: Arc<[Name]>,
        /// The clusters that it names itself (TCP proxies, access logs, authorisation services, tracing).
        clusters: Arc<[Name]>,
    },
    /// Of a route table.
    RouteConfiguration {
        /// The clusters that its routes name, mirrors and weighted ones included.
        clusters: Arc<[Name]>,
    },
}

/// An immutable resource: encoded bytes, a version that is the digest of these bytes, and [`Hints`]. Cloning shares everything.
#[derive(Clone)]
pub struct Resource(Arc<Inner>);

struct Inner {
    version: Arc<str>,
    body: Bytes,
    hints: Hints,
}

impl Resource {
    /// A resource of these bytes (the `value` of its `Any`). The version is 32 hexadecimal digits of the SHA-256 of the bytes, so
    /// equal content has the same version in every replica and after every restart.
    pub fn new(body: impl Into<Bytes>, hints: Hints) -> Self {
        let body = body.into();
        let version = hex(&Sha256::digest(&body)[..16]).into();
        Self::with_version(version, body, hints)
    }

    /// As [`Resource::new`] for an encoder that has computed the digest already. Equal versions must mean equal bytes.
    pub fn with_version(version: Arc<str>, body: Bytes, hints: Hints) -> Self {
        Self(Arc::new(Inner { version, body, hints }))
    }

    /// The digest of the content.
    pub fn version(&self) -> &Arc<str> {
        &self.0.version
    }

    /// The encoded message.
    pub fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// What the order of updates knows about it.
    pub fn hints(&self) -> &Hints {
        &self.0.hints
    }

    /// The EDS name of a cluster called `name`.
    pub(crate) fn endpoints_name(&self, name: &Name) -> Option<Name> {
        match self.hints() {
            Hints::Cluster { endpoints, .. } => endpoints.clone(),
            Hints::Unknown => Some(name.clone()),
            _ => None,
        }
    }

    /// Whether a cluster needs more than endpoints to be warm.
    pub(crate) fn warms(&self) -> bool {
        match self.hints() {
            Hints::Cluster { warms, .. } => *warms,
            Hints::Unknown => true,
            _ => false,
        }
    }

    /// The clusters that it names, `None` when nobody knows.
    pub(crate) fn clusters(&self) -> Option<&[Name]> {
        match self.hints() {
            Hints::Unknown => None,
            Hints::Cluster { .. } => Some(&[]),
            Hints::Listener { clusters, .. } | Hints::RouteConfiguration { clusters } => Some(clusters),
        }
    }

    /// The route tables that it names.
    pub(crate) fn routes(&self) -> &[Name] {
        match self.hints() {
            Hints::Listener { routes, .. } => routes,
            _ => &[],
        }
    }

    /// The secrets that it names.
    pub(crate) fn secrets(&self) -> &[Name] {
        match self.hints() {
            Hints::Cluster { secrets, .. } | Hints::Listener { secrets, .. } => secrets,
            _ => &[],
        }
    }

    /// A load assignment without endpoints: what a proxy is sent for a cluster that has none.
    pub(crate) fn empty_assignment(name: &str) -> Self {
        use prost::Message;
        let empty = envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment {
            cluster_name: name.to_owned(),
            ..Default::default()
        };
        Self::new(empty.encode_to_vec(), Hints::Unknown)
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Bodies may hold private keys: only their size is shown.
        f.debug_struct("Resource")
            .field("version", &self.0.version)
            .field("bytes", &self.0.body.len())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.version == other.0.version && self.0.hints == other.0.hints)
    }
}

impl Eq for Resource {}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_digest_of_the_bytes_and_nothing_else() {
        let one = Resource::new("abc", Hints::Unknown);
        let other = Resource::new("abc", Hints::RouteConfiguration { clusters: Arc::new(["c".into()]) });
        assert_eq!(one.version(), other.version());
        assert_eq!(&**one.version(), "ba7816bf8f01cfea414140de5dae2223");
        assert_ne!(one.version(), Resource::new("abd", Hints::Unknown).version());
    }

    #[test]
    fn debug_text_shows_no_content() {
        let secret = Resource::new("-----BEGIN PRIVATE KEY-----", Hints::Unknown);
        assert!(!format!("{secret:?}").contains("PRIVATE"));
    }
}

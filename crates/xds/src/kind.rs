//! The resource types that the server carries.

use std::fmt;

/// A type of xDS resource, by its protobuf type URL (xDS transport protocol, "Resource types").
///
/// The set is closed: each variant has a place of its own in the order of updates. Requests for other types are counted and left
/// unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TypeUrl {
    /// `envoy.config.cluster.v3.Cluster` (CDS).
    Cluster,
    /// `envoy.config.endpoint.v3.ClusterLoadAssignment` (EDS).
    ClusterLoadAssignment,
    /// `envoy.extensions.transport_sockets.tls.v3.Secret` (SDS).
    Secret,
    /// `envoy.config.listener.v3.Listener` (LDS).
    Listener,
    /// `envoy.config.route.v3.RouteConfiguration` (RDS).
    RouteConfiguration,
}

impl TypeUrl {
    /// How many types there are.
    pub const COUNT: usize = 5;

    /// Every type, in the order in which an update is sent.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Cluster, Self::ClusterLoadAssignment, Self::Secret, Self::Listener, Self::RouteConfiguration];

    /// The type URL as it stands in requests, responses and `Any`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::ClusterLoadAssignment => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::RouteConfiguration => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The type with this URL, if the server carries it.
    pub fn parse(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == url)
    }

    /// Whether a first request without names means "everything" (the protocol allows it for clusters and listeners only) and a
    /// state-of-the-world response carries the whole state.
    pub const fn is_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for TypeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_back_and_others_are_not_known() {
        for (at, kind) in TypeUrl::ALL.into_iter().enumerate() {
            assert_eq!(TypeUrl::parse(kind.as_str()), Some(kind));
            assert_eq!(kind.index(), at);
        }
        assert_eq!(TypeUrl::parse("type.googleapis.com/envoy.service.runtime.v3.Runtime"), None);
        assert_eq!(TypeUrl::parse(""), None);
    }
}

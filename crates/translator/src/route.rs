//! What all kinds of routes have in common.

use api::gateway::{GRPCRoute, HTTPRoute, ParentReference, TCPRoute, TLSRoute, UDPRoute};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use resources::{Kind, ObjectKey, Precedence};

/// Kinds of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RouteKind {
    Http,
    Grpc,
    Tls,
    Tcp,
    Udp,
}

impl RouteKind {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Http => "HTTPRoute",
            Self::Grpc => "GRPCRoute",
            Self::Tls => "TLSRoute",
            Self::Tcp => "TCPRoute",
            Self::Udp => "UDPRoute",
        }
    }

    /// First part of the names of clusters and routes.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Self::Http => "httproute",
            Self::Grpc => "grpcroute",
            Self::Tls => "tlsroute",
            Self::Tcp => "tcproute",
            Self::Udp => "udproute",
        }
    }

    fn key(self) -> Kind {
        match self {
            Self::Http => Kind::HttpRoute,
            Self::Grpc => Kind::GrpcRoute,
            Self::Tls => Kind::TlsRoute,
            Self::Tcp => Kind::TcpRoute,
            Self::Udp => Kind::UdpRoute,
        }
    }
}

/// A route of any kind.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Route<'a> {
    Http(&'a HTTPRoute),
    Grpc(&'a GRPCRoute),
    Tls(&'a TLSRoute),
    Tcp(&'a TCPRoute),
    Udp(&'a UDPRoute),
}

impl<'a> Route<'a> {
    pub(crate) fn kind(self) -> RouteKind {
        match self {
            Self::Http(_) => RouteKind::Http,
            Self::Grpc(_) => RouteKind::Grpc,
            Self::Tls(_) => RouteKind::Tls,
            Self::Tcp(_) => RouteKind::Tcp,
            Self::Udp(_) => RouteKind::Udp,
        }
    }

    pub(crate) fn meta(self) -> &'a ObjectMeta {
        match self {
            Self::Http(r) => &r.metadata,
            Self::Grpc(r) => &r.metadata,
            Self::Tls(r) => &r.metadata,
            Self::Tcp(r) => &r.metadata,
            Self::Udp(r) => &r.metadata,
        }
    }

    pub(crate) fn parents(self) -> &'a [ParentReference] {
        match self {
            Self::Http(r) => &r.spec.parent_refs,
            Self::Grpc(r) => &r.spec.parent_refs,
            Self::Tls(r) => &r.spec.parent_refs,
            Self::Tcp(r) => &r.spec.parent_refs,
            Self::Udp(r) => &r.spec.parent_refs,
        }
    }

    /// Hostnames; none for kinds that have none.
    pub(crate) fn hostnames(self) -> &'a [String] {
        match self {
            Self::Http(r) => &r.spec.hostnames,
            Self::Grpc(r) => &r.spec.hostnames,
            Self::Tls(r) => &r.spec.hostnames,
            Self::Tcp(_) | Self::Udp(_) => &[],
        }
    }

    /// Names of the rules, as far as they have any.
    pub(crate) fn rule_names(self) -> Vec<Option<&'a str>> {
        match self {
            Self::Http(r) => r.spec.rules.iter().map(|r| r.name.as_deref()).collect(),
            Self::Grpc(r) => r.spec.rules.iter().map(|r| r.name.as_deref()).collect(),
            Self::Tls(r) => r.spec.rules.iter().map(|r| r.name.as_deref()).collect(),
            Self::Tcp(r) => r.spec.rules.iter().map(|r| r.name.as_deref()).collect(),
            Self::Udp(r) => r.spec.rules.iter().map(|r| r.name.as_deref()).collect(),
        }
    }

    pub(crate) fn namespace(self) -> &'a str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    pub(crate) fn name(self) -> &'a str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    pub(crate) fn key(self) -> ObjectKey {
        ObjectKey::new(self.kind().key(), self.namespace(), self.name())
    }

    pub(crate) fn precedence(self) -> Precedence {
        Precedence::from(self.meta())
    }

    /// `httproute/NS/NAME` and so on.
    pub(crate) fn path(self) -> String {
        format!("{}/{}/{}", self.kind().prefix(), self.namespace(), self.name())
    }
}

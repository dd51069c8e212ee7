//! Endpoints of clusters.

use envoy_types::pb::envoy::config::{
    core::v3::{
        Address, HealthStatus, Locality, Metadata, Pipe, SocketAddress, address, socket_address::PortSpecifier,
    },
    endpoint::v3::{
        ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, endpoint::HealthCheckConfig,
        lb_endpoint::HostIdentifier,
    },
};
use ir::{EndpointAddress, HealthCheckAt};

use crate::pb::{origin, structure, text, u32_value};

/// Key of the endpoint metadata by which a cluster chooses its TLS settings.
const TRANSPORT_SOCKET_MATCH: &str = "envoy.transport_socket_match";

pub(crate) fn assignment(cluster: &str, localities: &[ir::Locality]) -> ClusterLoadAssignment {
    ClusterLoadAssignment {
        cluster_name: cluster.to_owned(),
        endpoints: localities.iter().map(locality).collect(),
        ..Default::default()
    }
}

fn locality(l: &ir::Locality) -> LocalityLbEndpoints {
    let text = |s: &Option<ir::Name>| s.as_deref().unwrap_or_default().to_owned();
    LocalityLbEndpoints {
        locality: Some(Locality { region: text(&l.region), zone: text(&l.zone), sub_zone: String::new() }),
        metadata: l.origin.as_ref().map(origin),
        lb_endpoints: l.endpoints.iter().map(endpoint).collect(),
        load_balancing_weight: l.weight.and_then(u32_value),
        priority: l.priority,
        ..Default::default()
    }
}

fn endpoint(e: &ir::Endpoint) -> LbEndpoint {
    let status = if e.draining { HealthStatus::Draining } else { HealthStatus::Unknown };
    LbEndpoint {
        health_status: status as i32,
        metadata: e.tls.as_deref().map(|name| Metadata {
            filter_metadata: [(TRANSPORT_SOCKET_MATCH.to_owned(), structure([("name", text(name))]))].into(),
            ..Default::default()
        }),
        load_balancing_weight: u32_value(e.weight),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(address(&e.address)),
            hostname: e.hostname.as_deref().unwrap_or_default().to_owned(),
            health_check_config: e.health_check.as_ref().filter(|h| **h != HealthCheckAt::default()).map(|h| {
                HealthCheckConfig {
                    port_value: h.port.unwrap_or_default().into(),
                    hostname: h.hostname.as_deref().unwrap_or_default().to_owned(),
                    ..Default::default()
                }
            }),
            ..Default::default()
        })),
    }
}

fn address(a: &EndpointAddress) -> Address {
    match a {
        EndpointAddress::Socket(ip, port) => socket(&ip.to_string(), *port),
        EndpointAddress::Name(name, port) => socket(name, *port),
        EndpointAddress::Unix(path) => pipe(path),
    }
}

pub(crate) fn pipe(path: &str) -> Address {
    Address { address: Some(address::Address::Pipe(Pipe { path: path.to_owned(), mode: 0 })) }
}

/// A TCP socket.
pub(crate) fn socket(host: &str, port: u16) -> Address {
    let address = SocketAddress {
        address: host.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port.into())),
        ..Default::default()
    };
    Address { address: Some(address::Address::SocketAddress(address)) }
}

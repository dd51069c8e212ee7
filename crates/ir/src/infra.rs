//! Wanted proxy fleets.

use std::collections::BTreeMap;

use crate::Name;

/// One fleet of proxies: of a Gateway, or of all Gateways of a class that merges them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Gateway or class that owns the fleet: the group key, `NS/GW` or the class name.
    pub group: Name,
    /// Namespace of the owner; empty for a class.
    pub namespace: Name,
    /// Name of the owner.
    pub name: Name,
    /// Labels for the fleet's objects (`gateway.envoyproxy.io/owning-gateway-name` and such, and the Gateway's own).
    pub labels: BTreeMap<Name, Name>,
    /// Annotations for the fleet's objects.
    pub annotations: BTreeMap<Name, Name>,
    /// Ports served, in order of service port.
    pub ports: Vec<ProxyPort>,
    /// Addresses asked for in `spec.addresses`.
    pub addresses: Vec<Name>,
    /// IP family of the fleet.
    pub family: IpFamily,
}

/// One port of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyPort {
    /// Port that clients use.
    pub service_port: u16,
    /// Port that the proxy binds.
    pub container_port: u16,
    /// Name of the Gateway listener.
    pub name: Name,
    /// TCP or UDP.
    pub protocol: crate::Transport,
}

/// IP family of a fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IpFamily {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
    /// Both.
    Dual,
}

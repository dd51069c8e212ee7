//! Wanted proxy fleets.

use std::{collections::BTreeMap, sync::Arc};

use api::envoygateway::EnvoyProxySpec;
use resources::ObjectKey;

use crate::{Name, Transport};

/// One fleet of proxies: of a Gateway, or of all Gateways of a class that merges them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Gateway or class that owns the fleet: the group key, `NS/GW` or the class name.
    pub group: Name,
    /// Namespace of the owner; empty for a class.
    pub namespace: Name,
    /// Name of the owner.
    pub name: Name,
    /// Object that the fleet's objects go with: when it is gone, so are they.
    pub owner: FleetOwner,
    /// Gateways that the fleet serves, in order.
    pub gateways: Vec<ObjectKey>,
    /// Labels for the fleet's objects (`gateway.envoyproxy.io/owning-gateway-name` and such, and the Gateway's own).
    pub labels: BTreeMap<Name, Name>,
    /// Annotations for the fleet's objects.
    pub annotations: BTreeMap<Name, Name>,
    /// Ports served, in the order of the listeners.
    pub ports: Vec<ProxyPort>,
    /// Addresses asked for in `spec.addresses`.
    pub addresses: Vec<Name>,
    /// IP family of the fleet.
    pub family: IpFamily,
    /// Bytes of memory that a proxy may use, where that is limited.
    pub memory_limit: Option<u64>,
    /// Where the proxies send their statistics.
    pub metric_sinks: Vec<MetricSink>,
    /// How the fleet is run: the effective EnvoyProxy.
    pub settings: FleetSettings,
}

/// Owner of a fleet's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetOwner {
    /// `GatewayClass`, or `Gateway` where fleets live in the namespace of their Gateway.
    pub kind: &'static str,
    /// Name.
    pub name: Name,
    /// Its uid; empty where it has none (resources from files).
    pub uid: Name,
}

/// The effective `spec` of an EnvoyProxy, shared.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSettings(pub Arc<EnvoyProxySpec>);

/// One port of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyPort {
    /// Port that clients use.
    pub service_port: u16,
    /// Port that the proxy binds.
    pub container_port: u16,
    /// Name of the port in Services: the listener's protocol and the port, such as `https-443`.
    pub name: Name,
    /// TCP or UDP.
    pub protocol: Transport,
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

/// An OpenTelemetry collector that statistics are sent to over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricSink {
    /// Host (name or IP address) of the collector.
    pub host: Name,
    /// Port of the collector.
    pub port: u16,
    /// Authority of the calls, where it is not the host.
    pub authority: Option<Name>,
    /// Headers of the calls, in order.
    pub headers: Vec<(Name, Name)>,
    /// Attributes of the resource that the statistics are of.
    pub resource_attributes: BTreeMap<Name, Name>,
    /// Counters are sent as differences.
    pub counters_as_deltas: bool,
    /// Histograms are sent as differences.
    pub histograms_as_deltas: bool,
    /// TLS towards the collector.
    pub tls: Option<SinkTls>,
}

/// TLS towards a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkTls {
    /// Server name.
    pub sni: Option<Name>,
    /// CAs as PEM; without it, those of the proxy's system.
    pub ca: Option<Vec<u8>>,
}

// === impl FleetSettings ===

/// A spec comes from JSON, which has no value that differs from itself.
impl Eq for FleetSettings {}

impl std::ops::Deref for FleetSettings {
    type Target = EnvoyProxySpec;

    fn deref(&self) -> &EnvoyProxySpec {
        &self.0
    }
}

//! The fleet's own cluster, by which Envoy knows the zones of its siblings.

use std::{collections::BTreeMap, sync::Arc};

use ir::{
    Cluster, Discovery, Endpoint, EndpointAddress, Endpoints, Group, LoadBalancing, Locality, UpstreamProtocol,
    XdsValue,
};

use crate::{
    cluster::{BUFFER_LIMIT, CONNECT_TIMEOUT},
    fleet,
    gateways::GatewayUnit,
    view::{self, View},
};

/// Adds the cluster if the Service of the fleet is there.
pub(crate) fn add(group: &mut Group, view: &View<'_>, unit: &GatewayUnit<'_>) {
    let (namespace, name) = if unit.fleet.merged { ("", &*unit.group) } else { (unit.namespace, unit.name) };
    let Some(service) = view.fleet_service(namespace, &fleet::label(name)) else { return };
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let Some(port) = service.spec.as_ref().and_then(|s| s.ports.as_ref()).and_then(|p| p.first()) else { return };
    let origin = view::origin("Service", &service.metadata, Some(port.port.to_string().into()));
    let mut zones: BTreeMap<Option<&str>, Vec<Endpoint>> = BTreeMap::new();
    for slice in view.slices(namespace, name) {
        let port_name = port.name.as_deref().unwrap_or_default();
        let number = slice.ports.iter().flatten().find(|p| p.name.as_deref().unwrap_or_default() == port_name);
        let Some(number) = number.and_then(|p| p.port).and_then(|p| u16::try_from(p).ok()) else { continue };
        for e in &slice.endpoints {
            if e.conditions.as_ref().and_then(|c| c.ready) == Some(false) {
                continue;
            }
            for address in e.addresses.iter().filter_map(|a| a.parse().ok()) {
                zones.entry(e.zone.as_deref()).or_default().push(Endpoint {
                    address: EndpointAddress::Socket(address, number),
                    hostname: None,
                    weight: 1,
                    draining: false,
                    tls: None,
                    health_check: None,
                });
            }
        }
    }
    let localities = zones.into_iter().map(|(zone, endpoints)| Locality {
        region: None,
        zone: zone.map(Into::into),
        weight: None,
        priority: 0,
        endpoints,
        origin: Some(origin.clone()),
    });
    let endpoints = Endpoints { cluster: unit.group.clone(), localities: localities.collect() };
    group.insert(XdsValue::Endpoints(Arc::new(endpoints)));
    group.insert(XdsValue::Cluster(Arc::new(Cluster {
        name: unit.group.clone(),
        discovery: Discovery::Eds,
        connect_timeout: CONNECT_TIMEOUT,
        protocol: UpstreamProtocol::Http1,
        tls: None,
        tls_matches: Vec::new(),
        plain_endpoints: false,
        auto_sni: false,
        auto_san: false,
        load_balancing: LoadBalancing::LeastRequestZoneAware,
        buffer_limit: BUFFER_LIMIT,
        origin: Some(origin),
        dns_family: unit.fleet.dns_family(),
        settings: ir::ClusterSettings::default(),
    })));
}

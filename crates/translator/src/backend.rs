//! Backends that routes refer to: found, allowed, and turned into endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use api::{
    envoygateway::{AppProtocolType, Backend, BackendType},
    gateway::BackendObjectReference,
};
use ir::{Endpoint, EndpointAddress, IpFamily, Name, Origin, Secret, UpstreamTls};
use k8s_openapi::api::{
    core::v1::{Service, ServicePort},
    discovery::v1::EndpointSlice,
};

use crate::{
    condition::Problem,
    config::Infrastructure,
    gateways::GatewayUnit,
    route::{Route, RouteKind},
    upstream_tls,
    view::{self, From, To, View},
};

/// Group of ServiceImport.
pub(crate) const IMPORT_GROUP: &str = "multicluster.x-k8s.io";

/// A backend that exists and may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// In order; empty when nothing is ready.
    pub(crate) endpoints: Vec<Endpoint>,
    /// Zones of those endpoints that have one.
    pub(crate) zones: BTreeMap<EndpointAddress, Name>,
    /// Endpoints have names that DNS resolves.
    pub(crate) by_dns: bool,
    /// The request says where to go; there are no endpoints.
    pub(crate) dynamic: bool,
    pub(crate) protocol: AppProtocol,
    /// Endpoints are used only when those of other backends are gone.
    pub(crate) fallback: bool,
    pub(crate) tls: Option<UpstreamTls>,
    /// Server name and certificate follow the request.
    pub(crate) auto_sni: bool,
    /// What TLS needs.
    pub(crate) secrets: Vec<Secret>,
    pub(crate) origin: Origin,
}

/// Protocol that a backend speaks, as its object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AppProtocol {
    Default,
    Http2,
    WebSocket,
}

/// Finds the backend of a reference.
///
/// # Errors
/// What is wrong with the reference. A backend without ready endpoints is no error: its target is empty.
pub(crate) fn resolve(
    view: &View<'_>,
    unit: &GatewayUnit<'_>,
    route: Route<'_>,
    reference: &BackendObjectReference,
    service_routing: Option<bool>,
) -> Result<Target, Problem> {
    let group = reference.group.as_deref().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let namespace = reference.namespace.as_deref().unwrap_or(route.namespace());
    let name = reference.name.as_str();
    if !matches!(
        (group, kind),
        ("", "Service") | (IMPORT_GROUP, "ServiceImport") | (api::envoygateway::GROUP, "Backend")
    ) {
        let message = format!(
            "{} cannot be a backend; refer to a Service, a ServiceImport or a Backend",
            api::shared::group_kind(group, kind)
        );
        return Err(Problem::reference("InvalidKind", message));
    }
    let by_service = service_routing.unwrap_or(unit.fleet.service_routing);
    let from = From { group: api::gateway::GROUP, kind: route.kind().kind(), namespace: route.namespace() };
    if !view.granted(from, To { group, kind, namespace, name }) {
        let message = format!(
            "{kind} {namespace}/{name} is in another namespace and no ReferenceGrant there allows it; \
             create one in {namespace} from {} of namespace {} to {kind} {name}",
            route.kind().kind(),
            route.namespace()
        );
        return Err(Problem::reference("RefNotPermitted", message));
    }
    let mut target = match kind {
        "Service" => service(view, unit, route, reference, namespace, by_service)?,
        "ServiceImport" => import(view, unit, route, reference, namespace, by_service)?,
        _ => backend(view, namespace, name)?,
    };
    if route.kind() == RouteKind::Grpc && target.protocol == AppProtocol::Default {
        target.protocol = AppProtocol::Http2;
    }
    if !matches!(route.kind(), RouteKind::Udp) {
        upstream_tls::apply(view, unit, route, reference, namespace, &mut target)?;
    }
    Ok(target)
}

fn transport(kind: RouteKind) -> &'static str {
    if kind == RouteKind::Udp { "UDP" } else { "TCP" }
}

fn service(
    view: &View<'_>,
    unit: &GatewayUnit<'_>,
    route: Route<'_>,
    reference: &BackendObjectReference,
    namespace: &str,
    by_service: bool,
) -> Result<Target, Problem> {
    let name = reference.name.as_str();
    let Some(service) = view.service(namespace, name) else {
        let message = format!("Service {namespace}/{name} does not exist; create it or correct the reference");
        return Err(Problem::reference("BackendNotFound", message));
    };
    let number = number(reference, "Service", namespace)?;
    let spec = service.spec.as_ref();
    if spec.and_then(|s| s.type_.as_deref()) == Some("ExternalName") {
        let message = format!(
            "Service {namespace}/{name} has type ExternalName, which is not supported; use a Backend with an fqdn endpoint"
        );
        return Err(Problem::reference("UnsupportedValue", message));
    }
    let protocol = transport(route.kind());
    let ports = spec.and_then(|s| s.ports.as_deref()).unwrap_or_default();
    let found = ports.iter().find(|p| p.port == number && p.protocol.as_deref().unwrap_or("TCP") == protocol);
    let Some(port) = found else {
        return Err(no_port(number, protocol, "Service", namespace, name));
    };
    let (endpoints, by_dns, zones) = match cluster_ip(service).filter(|_| by_service) {
        Some(ip) => (vec![endpoint(EndpointAddress::Socket(ip, port_number(number)))], false, BTreeMap::new()),
        None => of_slices(view.slices(namespace, name), port.name.as_deref(), protocol, unit.fleet.family)?,
    };
    Ok(Target {
        endpoints,
        zones,
        by_dns,
        dynamic: false,
        protocol: app_protocol(port),
        fallback: false,
        tls: None,
        auto_sni: false,
        secrets: Vec::new(),
        origin: view::origin("Service", &service.metadata, Some(number.to_string().into())),
    })
}

fn number(reference: &BackendObjectReference, kind: &str, namespace: &str) -> Result<i32, Problem> {
    reference.port.ok_or_else(|| {
        let message = format!("a reference to {kind} {namespace}/{} needs a port; add it", reference.name);
        Problem::reference("PortNotSpecified", message)
    })
}

fn no_port(number: i32, protocol: &str, kind: &str, namespace: &str, name: &str) -> Problem {
    let message =
        format!("{kind} {namespace}/{name} has no {protocol} port {number}; correct the port of the reference");
    Problem::reference("PortNotFound", message)
}

fn app_protocol(port: &ServicePort) -> AppProtocol {
    match port.app_protocol.as_deref() {
        Some("kubernetes.io/h2c" | "grpc") => AppProtocol::Http2,
        Some("kubernetes.io/ws" | "kubernetes.io/wss") => AppProtocol::WebSocket,
        _ => AppProtocol::Default,
    }
}

/// The Service's own address, if it has one.
fn cluster_ip(service: &Service) -> Option<IpAddr> {
    service.spec.as_ref()?.cluster_ip.as_deref()?.parse().ok()
}

fn import(
    view: &View<'_>,
    unit: &GatewayUnit<'_>,
    route: Route<'_>,
    reference: &BackendObjectReference,
    namespace: &str,
    by_service: bool,
) -> Result<Target, Problem> {
    let name = reference.name.as_str();
    let Some(import) = view.import(namespace, name) else {
        let message = format!("ServiceImport {namespace}/{name} does not exist; create it or correct the reference");
        return Err(Problem::reference("BackendNotFound", message));
    };
    let number = number(reference, "ServiceImport", namespace)?;
    let protocol = transport(route.kind());
    let found =
        import.spec.ports.iter().find(|p| p.port == number && p.protocol.as_deref().unwrap_or("TCP") == protocol);
    let Some(port) = found else {
        return Err(no_port(number, protocol, "ServiceImport", namespace, name));
    };
    let ip = import.spec.ips.first().and_then(|ip| ip.parse().ok()).filter(|_| by_service);
    let (endpoints, by_dns, zones) = match ip {
        Some(ip) => (vec![endpoint(EndpointAddress::Socket(ip, port_number(number)))], false, BTreeMap::new()),
        None => of_slices(view.import_slices(namespace, name), port.name.as_deref(), protocol, unit.fleet.family)?,
    };
    let protocol = match port.app_protocol.as_deref() {
        Some("kubernetes.io/h2c" | "grpc") => AppProtocol::Http2,
        Some("kubernetes.io/ws" | "kubernetes.io/wss") => AppProtocol::WebSocket,
        _ => AppProtocol::Default,
    };
    Ok(Target {
        endpoints,
        zones,
        by_dns,
        dynamic: false,
        protocol,
        fallback: false,
        tls: None,
        auto_sni: false,
        secrets: Vec::new(),
        origin: view::origin("ServiceImport", &import.metadata, Some(number.to_string().into())),
    })
}

fn endpoint(address: EndpointAddress) -> Endpoint {
    Endpoint { address, hostname: None, weight: 1, draining: false, tls: None, health_check: None }
}

fn port_number(number: i32) -> u16 {
    u16::try_from(number).unwrap_or_default()
}

/// Endpoints, whether DNS resolves them, and their zones.
type Found = (Vec<Endpoint>, bool, BTreeMap<EndpointAddress, Name>);

/// Endpoints of a port, each address once. An endpoint is used when it is ready or, while it terminates, still serves;
/// in the latter case it gets no new connections.
fn of_slices(
    slices: &[&EndpointSlice],
    port_name: Option<&str>,
    protocol: &str,
    family: IpFamily,
) -> Result<Found, Problem> {
    let port_name = port_name.unwrap_or_default();
    let mut seen = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let mut zones = BTreeMap::new();
    let mut out = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten().filter(|p| {
            p.name.as_deref().unwrap_or_default() == port_name && p.protocol.as_deref().unwrap_or("TCP") == protocol
        });
        for port in ports.filter_map(|p| p.port).map(port_number) {
            for e in &slice.endpoints {
                let conditions = e.conditions.as_ref();
                let is = |f: fn(&k8s_openapi::api::discovery::v1::EndpointConditions) -> Option<bool>| {
                    conditions.and_then(f)
                };
                let ready = is(|c| c.ready).unwrap_or(true);
                let terminating = is(|c| c.terminating).unwrap_or(false);
                let draining = !ready && terminating && is(|c| c.serving).unwrap_or(false);
                if !ready && !draining {
                    continue;
                }
                for text in &e.addresses {
                    let address = match text.parse::<IpAddr>() {
                        Ok(ip) if slice.address_type != "FQDN" => EndpointAddress::Socket(ip, port),
                        _ => EndpointAddress::Name(text.as_str().into(), port),
                    };
                    kinds.insert(matches!(address, EndpointAddress::Name(..)));
                    if let Some(zone) = &e.zone {
                        zones.insert(address.clone(), zone.as_str().into());
                    }
                    if seen.insert(address.clone()) {
                        out.push(Endpoint { draining, ..endpoint(address) });
                    }
                }
            }
        }
    }
    if kinds.len() > 1 {
        let message =
            "its EndpointSlices mix IP addresses and DNS names, which one backend cannot do; keep to one kind";
        return Err(Problem::reference("UnsupportedAddressType", message));
    }
    // A fleet of one family takes the endpoints of the other only if there are none of its own.
    let fits = |e: &Endpoint| match (&e.address, family) {
        (EndpointAddress::Socket(ip, _), IpFamily::V4) => ip.is_ipv4(),
        (EndpointAddress::Socket(ip, _), IpFamily::V6) => ip.is_ipv6(),
        _ => true,
    };
    if out.iter().any(fits) {
        out.retain(fits);
    }
    Ok((out, kinds.contains(&true), zones))
}

fn backend(view: &View<'_>, namespace: &str, name: &str) -> Result<Target, Problem> {
    if !view.config.extension_apis.backend {
        let message = format!(
            "Backend {namespace}/{name}: the Backend API is off; set extensionApis.enableBackend in the EnvoyGateway configuration"
        );
        return Err(Problem::reference("UnsupportedValue", message));
    }
    let Some(backend) = view.backend(namespace, name) else {
        let message = format!("Backend {namespace}/{name} does not exist; create it or correct the reference");
        return Err(Problem::reference("BackendNotFound", message));
    };
    if let Err(message) = check_backend(view, backend) {
        return Err(Problem::reference("InvalidAddress", format!("Backend {namespace}/{name}: {message}")));
    }
    let spec = &backend.spec;
    let mut target = Target {
        endpoints: Vec::new(),
        zones: BTreeMap::new(),
        by_dns: false,
        dynamic: spec.type_ == Some(BackendType::DynamicResolver),
        protocol: AppProtocol::Default,
        fallback: spec.fallback == Some(true),
        tls: None,
        auto_sni: false,
        secrets: Vec::new(),
        origin: view::origin("Backend", &backend.metadata, None),
    };
    for protocol in &spec.app_protocols {
        match protocol {
            AppProtocolType::H2C => target.protocol = AppProtocol::Http2,
            AppProtocolType::WS | AppProtocolType::WSS => target.protocol = AppProtocol::WebSocket,
            AppProtocolType::Unknown(_) => {}
        }
    }
    for e in &spec.endpoints {
        let address = if let Some(ip) = &e.ip {
            let Ok(address) = ip.address.parse() else { continue };
            EndpointAddress::Socket(address, port_number(ip.port))
        } else if let Some(fqdn) = &e.fqdn {
            target.by_dns = true;
            EndpointAddress::Name(fqdn.hostname.as_str().into(), port_number(fqdn.port))
        } else if e.unix.is_some() {
            let message = format!(
                "Backend {namespace}/{name} has a Unix socket, which routes cannot reach; give an ip or fqdn endpoint"
            );
            return Err(Problem::reference("UnsupportedAddressType", message));
        } else {
            continue;
        };
        if let Some(zone) = &e.zone {
            target.zones.insert(address.clone(), zone.as_str().into());
        }
        target.endpoints.push(Endpoint { hostname: e.hostname.as_deref().map(Into::into), ..endpoint(address) });
    }
    Ok(target)
}

/// Checks the addresses of a Backend; also what its `Accepted` condition says.
pub(crate) fn check_backend(view: &View<'_>, backend: &Backend) -> Result<(), String> {
    let host = view.config.infrastructure == Infrastructure::Host;
    for (i, endpoint) in backend.spec.endpoints.iter().enumerate() {
        if let Some(fqdn) = &endpoint.fqdn {
            let name = &fqdn.hostname;
            if !host && !name.trim_end_matches('.').contains('.') {
                return Err(format!(
                    "endpoints[{i}].fqdn.hostname: {name} is no domain of at least two parts joined by a dot; \
                     write it in full"
                ));
            }
            if name.parse::<IpAddr>().is_ok() {
                return Err(format!("endpoints[{i}].fqdn.hostname: {name} is an IP address; use ip.address"));
            }
        }
        if let Some(ip) = &endpoint.ip {
            let text = &ip.address;
            let Ok(address) = text.parse::<IpAddr>() else {
                return Err(format!(
                    "endpoints[{i}].ip.address: {text} is no IP address; use fqdn.hostname for a name"
                ));
            };
            if address.is_loopback() && !host {
                return Err(format!(
                    "endpoints[{i}].ip.address: {text} is a loopback address, which only makes sense where the proxy \
                     runs on the same host; give an address that the proxy reaches"
                ));
            }
        }
    }
    Ok(())
}

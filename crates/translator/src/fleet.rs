//! Settings of the fleet that serves a Gateway, and the fleet that is wanted.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    envoygateway::{EnvoyProxy, EnvoyProxySpec, IPFamily, MergeType, RoutingType},
    gateway::{Gateway, GatewayClass},
};
use ir::{DnsFamily, FleetOwner, FleetSettings, IpFamily, Name, Proxy, ProxyPort, Transport};
use resources::{Kind, ObjectKey, merge, quantity};

use crate::{
    gateways::{GatewayUnit, ListenerUnit, Protocol, shifted},
    sinks,
    view::View,
};

/// Settings of a fleet as far as they shape the translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fleet {
    pub(crate) group: Name,
    /// It serves all Gateways of the class.
    pub(crate) merged: bool,
    pub(crate) family: IpFamily,
    /// Endpoints are the Service's own address instead of its pods.
    pub(crate) service_routing: bool,
    /// Names of listeners, route tables and virtual hosts follow the second scheme.
    pub(crate) names_v2: bool,
    /// Rules stay in the order in which they are written.
    pub(crate) keep_order: bool,
    /// The effective settings: those of the Gateway's EnvoyProxy over those of its class over those of the control plane.
    pub(crate) spec: FleetSettings,
    shift: Option<crate::config::Infrastructure>,
}

impl Fleet {
    /// Port that the proxy binds for a port that clients use.
    pub(crate) fn container_port(&self, port: u16) -> u16 {
        self.shift.map_or(port, |i| shifted(port, i))
    }

    /// Address that listeners bind, and whether IPv4 is taken along on an IPv6 address.
    pub(crate) fn bind(&self) -> (Name, bool) {
        match self.family {
            IpFamily::V4 => ("0.0.0.0".into(), false),
            IpFamily::V6 => ("::".into(), false),
            IpFamily::Dual => ("::".into(), true),
        }
    }

    /// Family in which names are looked up.
    pub(crate) fn dns_family(&self) -> DnsFamily {
        match self.family {
            IpFamily::V4 => DnsFamily::V4Preferred,
            IpFamily::V6 => DnsFamily::V6Only,
            IpFamily::Dual => DnsFamily::All,
        }
    }
}

/// Settings of the fleet of a Gateway, and what is wrong with them.
pub(crate) fn of(view: &View<'_>, gateway: &Gateway) -> (Fleet, Option<String>) {
    let namespace = gateway.metadata.namespace.as_deref().unwrap_or_default();
    let name = gateway.metadata.name.as_deref().unwrap_or_default();
    let mut spec = view.config.envoy_proxy.clone().unwrap_or_default();
    if let Some(class) = class_proxy(view, &gateway.spec.gateway_class_name) {
        spec = layered(spec, class);
    }
    let merged = spec.merge_gateways == Some(true);
    let problem = match proxy_of_gateway(view, gateway, namespace) {
        // One fleet for all has one set of settings.
        Ok(Some(_)) if merged => Some(
            "spec.infrastructure.parametersRef has no effect: the Gateways of the class share one fleet; remove it, or \
             mergeGateways of the class's EnvoyProxy"
                .to_owned(),
        ),
        Ok(Some(own)) => {
            spec = layered(spec, &own.spec);
            None
        }
        Ok(None) => None,
        Err(message) => Some(message),
    };
    let own = gateway.spec.infrastructure.as_ref().and_then(|i| i.parameters_ref.as_ref()).map(|_| namespace);
    let problem = problem.or_else(|| {
        let missing = policy::proxies::missing_collector(view.store, &spec, own)?;
        Some(format!("EnvoyProxy: {missing}"))
    });
    let kubernetes = spec.provider.as_ref().and_then(|p| p.kubernetes.as_ref());
    let as_they_are = kubernetes.is_some_and(|k| k.use_listener_port_as_container_port == Some(true));
    let fleet = Fleet {
        group: if merged {
            gateway.spec.gateway_class_name.as_str().into()
        } else {
            format!("{namespace}/{name}").into()
        },
        merged,
        family: match spec.ip_family {
            Some(IPFamily::IPv6) => IpFamily::V6,
            Some(IPFamily::DualStack) => IpFamily::Dual,
            _ => IpFamily::V4,
        },
        service_routing: spec.routing_type == Some(RoutingType::Service),
        names_v2: view.config.xds_name_scheme_v2,
        keep_order: spec.preserve_route_order == Some(true),
        shift: (!as_they_are).then_some(view.config.infrastructure),
        spec: FleetSettings(Arc::new(spec)),
    };
    (fleet, problem)
}

/// Settings over less specific ones: in their place, unless they say how to merge.
fn layered(below: EnvoyProxySpec, above: &EnvoyProxySpec) -> EnvoyProxySpec {
    let join: fn(&mut serde_json::Value, &serde_json::Value) = match above.merge_type {
        Some(MergeType::JSONMerge) => merge::json,
        Some(MergeType::StrategicMerge) => merge::strategic,
        _ => return above.clone(),
    };
    let merged = serde_json::to_value(&below).and_then(|mut tree| {
        join(&mut tree, &serde_json::to_value(above)?);
        serde_json::from_value(tree)
    });
    // Two trees of one type merge to a tree of that type; where they do not, the more specific one counts.
    merged.unwrap_or_else(|_| above.clone())
}

fn proxy_of_gateway<'a>(view: &View<'a>, gateway: &Gateway, namespace: &str) -> Result<Option<&'a EnvoyProxy>, String> {
    let Some(reference) = gateway.spec.infrastructure.as_ref().and_then(|i| i.parameters_ref.as_ref()) else {
        return Ok(None);
    };
    let field = "spec.infrastructure.parametersRef";
    if reference.group != api::envoygateway::GROUP || reference.kind != "EnvoyProxy" {
        let kind = api::shared::group_kind(&reference.group, &reference.kind);
        return Err(format!(
            "{field}: {kind} is not supported; refer to an EnvoyProxy of group {}",
            api::envoygateway::GROUP
        ));
    }
    let name = &reference.name;
    match view.store.get::<EnvoyProxy>(namespace, name) {
        Some(p) => match policy::proxies::check(&p.spec) {
            Ok(()) => Ok(Some(p)),
            Err(e) => Err(format!("{field}: EnvoyProxy {namespace}/{name}: {e}")),
        },
        None => {
            Err(format!("{field}: EnvoyProxy {namespace}/{name} does not exist; create it or remove the reference"))
        }
    }
}

fn class_proxy<'a>(view: &View<'a>, class: &str) -> Option<&'a EnvoyProxySpec> {
    let class = view.store.get::<GatewayClass>("", class)?;
    let reference = class.spec.parameters_ref.as_ref()?;
    let namespace = reference.namespace.as_deref()?;
    view.store.get::<EnvoyProxy>(namespace, &reference.name).map(|p| &p.spec)
}

/// Value of a label that names an object: names can be longer than labels.
pub(crate) fn label(text: &str) -> Name {
    use sha2::Digest;
    if text.len() <= 63 {
        return text.into();
    }
    let digest = sha2::Sha256::digest(text.as_bytes());
    let hex: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{}-{hex}", &text[..text.floor_char_boundary(54)]).into()
}

/// Name of a port in Services.
fn port_name(listener: &ListenerUnit<'_>) -> Name {
    format!("{}-{}", listener.spec.protocol.to_ascii_lowercase(), listener.port).into()
}

/// The fleet that a Gateway wants.
pub(crate) fn wanted(view: &View<'_>, unit: &GatewayUnit<'_>) -> Proxy {
    let class = unit.object.spec.gateway_class_name.as_str();
    let mut labels: BTreeMap<Name, Name> = BTreeMap::new();
    let mut annotations: BTreeMap<Name, Name> = BTreeMap::new();
    if unit.fleet.merged {
        labels.insert("gateway.envoyproxy.io/owning-gatewayclass".into(), label(class));
    } else {
        if let Some(infrastructure) = &unit.object.spec.infrastructure {
            labels.extend(infrastructure.labels.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
            annotations.extend(infrastructure.annotations.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())));
        }
        labels.insert("gateway.envoyproxy.io/owning-gateway-name".into(), label(unit.name));
        labels.insert("gateway.envoyproxy.io/owning-gateway-namespace".into(), unit.namespace.into());
    }
    let owner = if view.config.gateway_namespaces && !unit.fleet.merged {
        labels.insert("gateway.networking.k8s.io/gateway-name".into(), label(unit.name));
        owner("Gateway", &unit.object.metadata)
    } else {
        match view.store.get::<GatewayClass>("", class) {
            Some(class) => owner("GatewayClass", &class.metadata),
            None => FleetOwner { kind: "GatewayClass", name: class.into(), uid: "".into() },
        }
    };
    let mut ports: Vec<ProxyPort> = Vec::new();
    for listener in unit.listeners.iter().filter(|l| l.programmed) {
        let protocol = if listener.protocol == Protocol::Udp { Transport::Udp } else { Transport::Tcp };
        if !ports.iter().any(|p| p.service_port == listener.port && p.protocol == protocol) {
            ports.push(ProxyPort {
                service_port: listener.port,
                container_port: listener.container_port,
                name: port_name(listener),
                protocol,
            });
        }
    }
    let spec = &unit.fleet.spec;
    let kubernetes = spec.provider.as_ref().and_then(|p| p.kubernetes.as_ref());
    let container = kubernetes.and_then(|k| {
        let of_set = k.envoy_daemon_set.as_ref().and_then(|d| d.container.as_ref());
        of_set.or(k.envoy_deployment.as_ref().and_then(|d| d.container.as_ref()))
    });
    let limits = container.and_then(|c| c.resources.as_ref()).and_then(|r| r.limits.as_ref());
    let addresses = unit.object.spec.addresses.iter().filter(|a| a.type_.as_deref() != Some("Hostname"));
    Proxy {
        group: unit.group.clone(),
        namespace: if unit.fleet.merged { "".into() } else { unit.namespace.into() },
        name: if unit.fleet.merged { class.into() } else { unit.name.into() },
        owner,
        gateways: vec![ObjectKey::new(Kind::Gateway, unit.namespace, unit.name)],
        labels,
        annotations,
        ports,
        addresses: addresses.filter_map(|a| a.value.as_deref().map(Name::from)).collect(),
        family: unit.fleet.family,
        memory_limit: limits.and_then(|l| l.get("memory")).and_then(|q| quantity::units(&q.0)),
        metric_sinks: sinks::resolve(view, spec, unit.namespace),
        settings: spec.clone(),
    }
}

fn owner(kind: &'static str, meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> FleetOwner {
    FleetOwner {
        kind,
        name: meta.name.as_deref().unwrap_or_default().into(),
        uid: meta.uid.as_deref().unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_cut_between_characters() {
        assert_eq!(&*label("web"), "web");
        assert_eq!(label(&"x".repeat(200)).len(), 63);
        // Files may name objects in any form; the 54th byte is in the midst of a character of these names.
        for name in ["ü".repeat(40) + "x", format!("x{}", "日本語".repeat(10)), "👩".repeat(20)] {
            let label = label(&name);
            assert!(label.len() <= 63 && name.starts_with(label.rsplit_once('-').expect("a digest").0), "{label}");
        }
    }
}

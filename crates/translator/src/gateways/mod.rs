//! Gateways and their listeners: what is valid, what it is called, whom it lets in.

mod certificates;
mod conflicts;
mod frontend;
mod overlap;
mod status;

use api::gateway::{FromNamespaces, Gateway, Listener, ListenerSet, TLSModeType};
use ir::{Condition, Name, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

pub(crate) use self::{
    frontend::ca_text,
    status::{gateway_status, set_status},
};
use policy::selector;

use crate::{
    condition::Conditions,
    config::Infrastructure,
    fleet::{self, Fleet},
    route::RouteKind,
    view::View,
};

/// A Gateway of ours with everything about it that does not depend on routes.
#[derive(Debug)]
pub(crate) struct GatewayUnit<'a> {
    pub(crate) object: &'a Gateway,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Key of its fleet: `NS/GW`, or the class when Gateways are merged.
    pub(crate) group: Name,
    pub(crate) fleet: Fleet,
    /// Those of the Gateway in the order of its spec, then those of its ListenerSets, oldest first.
    pub(crate) listeners: Vec<ListenerUnit<'a>>,
    /// ListenerSets that name it, allowed or not.
    pub(crate) sets: Vec<SetUnit<'a>>,
    /// Conditions of the Gateway itself.
    pub(crate) conditions: Vec<Condition>,
    /// Secret with the certificate that the Gateway shows to backends.
    pub(crate) client_certificate: Option<Secret>,
    /// It is served at all.
    pub(crate) accepted: bool,
}

/// A ListenerSet of a Gateway of ours.
#[derive(Debug)]
pub(crate) struct SetUnit<'a> {
    pub(crate) object: &'a ListenerSet,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The Gateway lets it attach.
    pub(crate) allowed: bool,
}

/// One listener of a Gateway or ListenerSet.
#[derive(Debug)]
pub(crate) struct ListenerUnit<'a> {
    pub(crate) spec: &'a Listener,
    /// Position in [`GatewayUnit::sets`]; none for the Gateway's own.
    pub(crate) set: Option<usize>,
    /// Namespace of the object that declares it.
    pub(crate) namespace: &'a str,
    /// `NS/GW/LISTENER` or `NS/GW/LSNS/LS/LISTENER`.
    pub(crate) xds_name: Name,
    pub(crate) protocol: Protocol,
    pub(crate) hostname: Option<&'a str>,
    /// Port that clients use.
    pub(crate) port: u16,
    /// Port that the proxy binds.
    pub(crate) container_port: u16,
    /// Kinds of routes that may attach.
    pub(crate) kinds: Vec<RouteKind>,
    pub(crate) allowed: Allowed<'a>,
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) frontend: Option<Frontend>,
    /// HTTP/2 is not offered, because browsers would reuse its connections for other listeners.
    pub(crate) http1_only: bool,
    pub(crate) conditions: Vec<Condition>,
    /// It is sent to the proxies.
    pub(crate) programmed: bool,
}

/// Protocols of listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protocol {
    Http,
    Https,
    TlsPassthrough,
    TlsTerminate,
    Tcp,
    Udp,
    Unknown,
}

/// Namespaces from which routes may attach.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Allowed<'a> {
    All,
    Same,
    Selector(&'a LabelSelector),
    Nothing,
}

/// A certificate of a listener.
#[derive(Clone, Debug)]
pub(crate) enum Certificate {
    /// Sent by us.
    Inline { secret: Secret, names: Vec<String> },
    /// Fetched by the proxy from an SDS server on a Unix socket.
    Sds { name: Name, cluster: Name, path: Name },
}

/// Validation of client certificates.
#[derive(Clone, Debug)]
pub(crate) struct Frontend {
    pub(crate) secret: Secret,
    /// Certificates that do not verify are let in.
    pub(crate) fallback: bool,
}

// === impl Protocol ===

impl Protocol {
    fn of(listener: &Listener) -> Self {
        match listener.protocol.as_str() {
            "HTTP" => Self::Http,
            "HTTPS" => Self::Https,
            "TLS" => match listener.tls.as_ref().and_then(|t| t.mode.as_ref()) {
                Some(TLSModeType::Passthrough) => Self::TlsPassthrough,
                _ => Self::TlsTerminate,
            },
            "TCP" => Self::Tcp,
            "UDP" => Self::Udp,
            _ => Self::Unknown,
        }
    }

    /// Serves HTTP.
    pub(crate) fn is_http(self) -> bool {
        matches!(self, Self::Http | Self::Https)
    }

    fn kinds(self) -> &'static [RouteKind] {
        match self {
            Self::Http | Self::Https => &[RouteKind::Http, RouteKind::Grpc],
            Self::TlsPassthrough => &[RouteKind::Tls],
            Self::TlsTerminate => &[RouteKind::Tcp, RouteKind::Tls],
            Self::Tcp => &[RouteKind::Tcp],
            Self::Udp => &[RouteKind::Udp],
            Self::Unknown => &[],
        }
    }
}

// === impl ListenerUnit ===

impl<'a> ListenerUnit<'a> {
    fn new(
        spec: &'a Listener,
        gateway: (&str, &str),
        set: Option<(usize, &'a str, &str)>,
        namespace: &'a str,
        fleet: &Fleet,
    ) -> Self {
        let (gateway_namespace, gateway_name) = gateway;
        let xds_name = match set {
            None => format!("{gateway_namespace}/{gateway_name}/{}", spec.name),
            Some((_, ns, name)) => format!("{gateway_namespace}/{gateway_name}/{ns}/{name}/{}", spec.name),
        };
        let port = u16::try_from(spec.port).unwrap_or_default();
        Self {
            spec,
            set: set.map(|(i, ..)| i),
            namespace,
            xds_name: xds_name.into(),
            protocol: Protocol::of(spec),
            hostname: spec.hostname.as_deref().filter(|h| !h.is_empty()),
            port,
            container_port: fleet.container_port(port),
            kinds: Vec::new(),
            allowed: Allowed::Same,
            certificates: Vec::new(),
            frontend: None,
            http1_only: false,
            conditions: Vec::new(),
            programmed: false,
        }
    }

    /// Routes of this namespace may attach.
    pub(crate) fn admits(&self, view: &View<'_>, namespace: &str) -> bool {
        match self.allowed {
            Allowed::All => true,
            Allowed::Same => namespace == self.namespace,
            Allowed::Selector(s) => selector::matches(s, view.namespace_labels(namespace)),
            Allowed::Nothing => false,
        }
    }

    pub(crate) fn has(&self, kind: &str) -> bool {
        self.conditions.iter().any(|c| c.kind == kind)
    }
}

/// Evaluates a Gateway whose class is ours.
pub(crate) fn evaluate<'a>(view: &View<'a>, gateway: &'a Gateway) -> GatewayUnit<'a> {
    let namespace = gateway.metadata.namespace.as_deref().unwrap_or_default();
    let name = gateway.metadata.name.as_deref().unwrap_or_default();
    let make = Conditions::of(&gateway.metadata);
    let (fleet, problem) = fleet::of(view, gateway);
    let mut unit = GatewayUnit {
        object: gateway,
        namespace,
        name,
        group: fleet.group.clone(),
        fleet,
        listeners: Vec::new(),
        sets: Vec::new(),
        conditions: Vec::new(),
        client_certificate: None,
        accepted: true,
    };
    if let Some(message) = problem {
        // Told, but the Gateway goes on with the defaults: traffic does not stop for it.
        unit.conditions.push(make.no("Accepted", "InvalidParameters", message));
    }
    if let Some((i, address)) = gateway
        .spec
        .addresses
        .iter()
        .enumerate()
        .find(|(_, a)| a.type_.as_deref().is_some_and(|t| t != "IPAddress" && t != "Hostname"))
    {
        let kind = address.type_.as_deref().unwrap_or_default();
        let message = format!(
            "spec.addresses[{i}].type: {kind} is not supported, only IPAddress and Hostname are; remove the address or give one of those"
        );
        unit.conditions.push(make.no("Accepted", "UnsupportedAddress", message));
        unit.accepted = false;
        return unit;
    }
    collect(view, &mut unit);
    conflicts::find(&mut unit);
    for i in 0..unit.listeners.len() {
        judge(view, &mut unit, i);
    }
    overlap::find(&mut unit);
    frontend::gateway(view, &mut unit);
    unit
}

/// Gathers the listeners of the Gateway and of the ListenerSets that it lets attach.
fn collect<'a>(view: &View<'a>, unit: &mut GatewayUnit<'a>) {
    let names = (unit.namespace, unit.name);
    for listener in &unit.object.spec.listeners {
        unit.listeners.push(ListenerUnit::new(listener, names, None, unit.namespace, &unit.fleet));
    }
    for set in view.listener_sets(unit.namespace, unit.name) {
        let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
        let name = set.metadata.name.as_deref().unwrap_or_default();
        let allowed = lets_attach(view, unit, namespace);
        let index = unit.sets.len();
        unit.sets.push(SetUnit { object: set, namespace, name, allowed });
        if allowed {
            for listener in &set.spec.listeners {
                let place = Some((index, namespace, name));
                unit.listeners.push(ListenerUnit::new(listener, names, place, namespace, &unit.fleet));
            }
        }
    }
}

fn lets_attach(view: &View<'_>, unit: &GatewayUnit<'_>, namespace: &str) -> bool {
    let Some(namespaces) = unit.object.spec.allowed_listeners.as_ref().and_then(|a| a.namespaces.as_ref()) else {
        return false;
    };
    match namespaces.from {
        Some(FromNamespaces::All) => true,
        Some(FromNamespaces::Same) => namespace == unit.namespace,
        Some(FromNamespaces::Selector) => {
            namespaces.selector.as_ref().is_some_and(|s| selector::matches(s, view.namespace_labels(namespace)))
        }
        _ => false,
    }
}

/// Judges one listener: protocol, kinds, namespaces, certificates; then sums up.
fn judge<'a>(view: &View<'a>, unit: &mut GatewayUnit<'a>, index: usize) {
    let (meta, invalid) = match unit.listeners[index].set {
        None => (&unit.object.metadata, "Invalid"),
        Some(s) => (&unit.sets[s].object.metadata, "ListenersNotValid"),
    };
    let make = Conditions::of(meta);
    let listener = &mut unit.listeners[index];
    kinds(listener, make);
    namespaces(listener, make, invalid);
    if listener.protocol == Protocol::Unknown {
        let message = format!("protocol {} is not supported: use HTTP, HTTPS, TLS, TCP or UDP", listener.spec.protocol);
        listener.conditions.push(make.no("Accepted", "UnsupportedProtocol", message));
    } else if listener.conditions.is_empty() {
        match listener.protocol {
            Protocol::Https | Protocol::TlsTerminate => {
                certificates::resolve(view, unit, index, make);
                if unit.listeners[index].protocol == Protocol::Https {
                    frontend::listener(view, unit, index, make);
                }
            }
            Protocol::Http | Protocol::Tcp | Protocol::Udp if listener.spec.tls.is_some() => {
                let message =
                    format!("tls: a listener with protocol {} takes no tls; remove it", listener.spec.protocol);
                listener.conditions.push(make.no("Programmed", invalid, message));
            }
            _ => {}
        }
    }
    sum_up(&mut unit.listeners[index], make, invalid);
}

fn kinds(listener: &mut ListenerUnit<'_>, make: Conditions) {
    let supported = listener.protocol.kinds();
    let wanted = listener.spec.allowed_routes.as_ref().map(|a| a.kinds.as_slice()).unwrap_or_default();
    if wanted.is_empty() {
        listener.kinds = supported.to_vec();
        return;
    }
    let mut wrong = Vec::new();
    for (i, kind) in wanted.iter().enumerate() {
        let known = kind.group.as_deref().unwrap_or(api::gateway::GROUP) == api::gateway::GROUP;
        match supported.iter().find(|s| known && s.kind() == kind.kind) {
            Some(s) => {
                if !listener.kinds.contains(s) {
                    listener.kinds.push(*s);
                }
            }
            None => {
                let group = kind.group.as_deref().unwrap_or(api::gateway::GROUP);
                wrong.push(format!("allowedRoutes.kinds[{i}]: {}", api::shared::group_kind(group, &kind.kind)));
            }
        }
    }
    if !wrong.is_empty() {
        let names: Vec<_> = supported.iter().map(|s| s.kind()).collect();
        let message = format!(
            "{} cannot attach to a listener with protocol {}; it takes {} of group {}",
            wrong.join(", "),
            listener.spec.protocol,
            names.join(", "),
            api::gateway::GROUP,
        );
        listener.conditions.push(make.no("ResolvedRefs", "InvalidRouteKinds", message));
    }
}

fn namespaces(listener: &mut ListenerUnit<'_>, make: Conditions, invalid: &'static str) {
    let Some(wanted) = listener.spec.allowed_routes.as_ref().and_then(|a| a.namespaces.as_ref()) else { return };
    listener.allowed = match wanted.from {
        Some(FromNamespaces::All) => Allowed::All,
        None | Some(FromNamespaces::Same) => Allowed::Same,
        Some(FromNamespaces::Selector) => match &wanted.selector {
            Some(s) => Allowed::Selector(s),
            None => {
                let message = "allowedRoutes.namespaces.selector is missing though from is Selector; \
                               add a selector or set from to Same or All";
                listener.conditions.push(make.no("Programmed", invalid, message));
                Allowed::Nothing
            }
        },
        Some(_) => Allowed::Nothing,
    };
}

/// Adds the conditions that follow from those that are there.
fn sum_up(listener: &mut ListenerUnit<'_>, make: Conditions, invalid: &'static str) {
    // Some but not all certificates can be used: told, and served with those.
    let partial = listener.conditions.iter().all(|c| c.reason == "PartiallyInvalidCertificateRef");
    if partial {
        listener.programmed = true;
        listener.conditions.push(make.yes("Programmed", "Programmed", "The listener is sent to the proxies"));
        listener.conditions.push(make.yes("Accepted", "Accepted", "The listener is valid"));
    } else {
        let cause = listener.conditions.iter().find(|c| c.kind != "Programmed").map(|c| (c.kind, c.message.clone()));
        if let (Some((kind, message)), false) = (cause, listener.has("Programmed")) {
            listener.conditions.push(make.no("Programmed", invalid, format!("See {kind}: {message}")));
        }
        if listener.conditions.iter().any(|c| c.reason == "InvalidCertificateRef") {
            listener.conditions.push(make.yes("Accepted", "Accepted", "The listener is valid but for its references"));
        }
    }
    if !listener.has("ResolvedRefs") {
        listener.conditions.push(make.yes("ResolvedRefs", "ResolvedRefs", "All references are resolved"));
    }
    if listener.set.is_some() && !listener.has("Conflicted") && listener.programmed {
        listener.conditions.push(make.no("Conflicted", "NoConflicts", "No other listener is in its way"));
    }
}

/// Another Gateway of a merged fleet has what the listener asks for.
pub(crate) fn lost(unit: &mut GatewayUnit<'_>, index: usize, reason: &'static str, message: String) {
    let set = unit.listeners[index].set;
    let (meta, invalid) = match set {
        None => (&unit.object.metadata, "Invalid"),
        Some(s) => (&unit.sets[s].object.metadata, "ListenersNotValid"),
    };
    let make = Conditions::of(meta);
    let listener = &mut unit.listeners[index];
    listener.programmed = false;
    listener.conditions.retain(|c| c.kind == "ResolvedRefs");
    listener.conditions.insert(0, make.yes("Conflicted", reason, message));
    sum_up(listener, make, invalid);
}

/// How a listener is called in messages.
pub(crate) fn place(unit: &GatewayUnit<'_>, listener: &ListenerUnit<'_>) -> String {
    match listener.set.map(|s| &unit.sets[s]) {
        None => format!("Gateway {}/{} listener {}", unit.namespace, unit.name, listener.spec.name),
        Some(s) => format!("ListenerSet {}/{} listener {}", s.namespace, s.name, listener.spec.name),
    }
}

/// Privileged ports are shifted where the proxy runs without the right to bind them.
pub(crate) fn shifted(port: u16, infrastructure: Infrastructure) -> u16 {
    match infrastructure {
        Infrastructure::Kubernetes if port < 1024 => port + 10_000,
        _ => port,
    }
}

//! Which listeners a route attaches to, by each of its parents.

use std::collections::{BTreeMap, BTreeSet};

use api::gateway::ParentReference;

use crate::{
    gateways::{GatewayUnit, ListenerUnit},
    host,
    route::{Route, RouteKind},
    view::View,
};

/// Where objects that can be parents are found.
#[derive(Debug, Default)]
pub(crate) struct Parents<'a> {
    gateways: BTreeMap<(&'a str, &'a str), usize>,
    sets: BTreeMap<(&'a str, &'a str), (usize, usize)>,
}

/// What one parent reference leads to.
#[derive(Debug)]
pub(crate) struct Attachment<'a> {
    pub(crate) reference: &'a ParentReference,
    /// Position of the Gateway.
    pub(crate) gateway: usize,
    /// Position of the ListenerSet, if the reference is to one.
    pub(crate) set: Option<usize>,
    /// Listeners that take the route, with the hosts it serves there.
    pub(crate) listeners: Vec<(usize, BTreeSet<String>)>,
    /// Why there are none: reason and message.
    pub(crate) refusal: Option<(&'static str, String)>,
}

impl<'a> Parents<'a> {
    pub(crate) fn new(gateways: &[GatewayUnit<'a>]) -> Self {
        let mut parents = Self::default();
        for (i, unit) in gateways.iter().enumerate() {
            parents.gateways.insert((unit.namespace, unit.name), i);
            for (j, set) in unit.sets.iter().enumerate() {
                parents.sets.insert((set.namespace, set.name), (i, j));
            }
        }
        parents
    }

    fn find(&self, reference: &ParentReference, own: &str) -> Option<(usize, Option<usize>)> {
        if reference.group.as_deref().unwrap_or(api::gateway::GROUP) != api::gateway::GROUP {
            return None;
        }
        let key = (reference.namespace.as_deref().unwrap_or(own), reference.name.as_str());
        match reference.kind.as_deref().unwrap_or("Gateway") {
            "Gateway" => self.gateways.get(&key).map(|i| (*i, None)),
            "ListenerSet" => self.sets.get(&key).map(|(i, j)| (*i, Some(*j))),
            _ => None,
        }
    }
}

/// Attaches a route; parents that are not ours are left out.
pub(crate) fn attach<'a>(
    view: &View<'a>,
    gateways: &[GatewayUnit<'a>],
    parents: &Parents<'a>,
    route: Route<'a>,
) -> Vec<Attachment<'a>> {
    let mut out = Vec::new();
    for reference in route.parents() {
        let Some((gateway, set)) = parents.find(reference, route.namespace()) else { continue };
        let mut attachment = Attachment { reference, gateway, set, listeners: Vec::new(), refusal: None };
        match listeners(view, &gateways[gateway], set, reference, route) {
            Ok(l) => attachment.listeners = l,
            Err(refusal) => attachment.refusal = Some(refusal),
        }
        out.push(attachment);
    }
    out
}

type Refusal = (&'static str, String);

fn listeners(
    view: &View<'_>,
    unit: &GatewayUnit<'_>,
    set: Option<usize>,
    reference: &ParentReference,
    route: Route<'_>,
) -> Result<Vec<(usize, BTreeSet<String>)>, Refusal> {
    let parent = parent_name(unit, set);
    if let Some(s) = set.map(|s| &unit.sets[s]).filter(|s| !s.allowed) {
        let message = format!(
            "ListenerSet {}/{} is not accepted by Gateway {}/{}; change spec.allowedListeners of the Gateway",
            s.namespace, s.name, unit.namespace, unit.name
        );
        return Err(("NotAllowedByListeners", message));
    }
    let named: Vec<usize> = (0..unit.listeners.len())
        .filter(|i| {
            let l = &unit.listeners[*i];
            l.set == set
                && reference.section_name.as_deref().is_none_or(|s| s == l.spec.name)
                && reference.port.is_none_or(|p| p == l.spec.port)
        })
        .collect();
    if named.is_empty() {
        let what = match (&reference.section_name, reference.port) {
            (None, None) => "any listener".to_owned(),
            (Some(s), None) => format!("a listener named {s}"),
            (None, Some(p)) => format!("a listener on port {p}"),
            (Some(s), Some(p)) => format!("a listener named {s} on port {p}"),
        };
        let message = format!("{parent} does not have {what}; correct sectionName or port of the parentRef");
        return Err(("NoMatchingParent", message));
    }
    let kind = route.kind();
    let allowed: Vec<usize> = named
        .iter()
        .copied()
        .filter(|i| {
            let l = &unit.listeners[*i];
            l.kinds.contains(&kind) && l.admits(view, route.namespace())
        })
        .collect();
    if allowed.is_empty() {
        let names: Vec<_> = named.iter().map(|i| unit.listeners[*i].spec.name.as_str()).collect();
        let message = format!(
            "listener {} of {parent} does not take {} from namespace {}; change its protocol or allowedRoutes, or refer to another",
            names.join(", "),
            kind.kind(),
            route.namespace()
        );
        return Err(("NotAllowedByListeners", message));
    }
    let mut out = Vec::new();
    for i in allowed {
        let hosts = hosts(unit, i, route);
        if !hosts.is_empty() {
            out.push((i, hosts));
        }
    }
    if out.is_empty() {
        let message = format!(
            "no hostname of the route ({}) is served by a listener of {parent} that it refers to; change spec.hostnames or the listener's hostname",
            route.hostnames().join(", ")
        );
        return Err(("NoMatchingListenerHostname", message));
    }
    Ok(out)
}

fn hosts(unit: &GatewayUnit<'_>, index: usize, route: Route<'_>) -> BTreeSet<String> {
    let listener = &unit.listeners[index];
    match route.kind() {
        RouteKind::Tcp | RouteKind::Udp => BTreeSet::from([listener.hostname.unwrap_or("*").to_owned()]),
        RouteKind::Tls => host::meet(route.hostnames(), listener.hostname),
        RouteKind::Http | RouteKind::Grpc => {
            let mut hosts = host::meet(route.hostnames(), listener.hostname);
            if !route.hostnames().is_empty() {
                hosts.retain(|h| !unit.isolated(listener, h));
            }
            hosts
        }
    }
}

impl GatewayUnit<'_> {
    /// Another HTTP listener of the port is closer to the host: requests for it belong there and nowhere else.
    fn isolated(&self, listener: &ListenerUnit<'_>, host: &str) -> bool {
        let own = host::closeness(listener.hostname);
        self.closer_hosts(listener).any(|h| host::closeness(Some(h)) > own && host::covers(h, host))
    }

    fn closer_hosts<'s>(&'s self, listener: &'s ListenerUnit<'_>) -> impl Iterator<Item = &'s str> {
        self.listeners
            .iter()
            .filter(move |l| {
                l.port == listener.port
                    && l.protocol.is_http()
                    && l.protocol == listener.protocol
                    && !std::ptr::eq(*l, listener)
                    && !l.has("Conflicted")
            })
            .filter_map(|l| l.hostname)
    }
}

fn parent_name(unit: &GatewayUnit<'_>, set: Option<usize>) -> String {
    match set.map(|s| &unit.sets[s]) {
        None => format!("Gateway {}/{}", unit.namespace, unit.name),
        Some(s) => format!("ListenerSet {}/{}", s.namespace, s.name),
    }
}

//! BackendTrafficPolicies, as the units ask for them.

use std::{collections::BTreeMap, sync::Arc};

use ir::Status;
use policy::{BackendTraffic, Effective, Gateway, Listener, Parent, Place, Topology};
use resources::ObjectKey;

use crate::{attach::Attachment, gateways::GatewayUnit, route::Route, view::View};

/// All policies, attached to the Gateways and routes of ours.
#[derive(Debug)]
pub(crate) struct Traffic<'a> {
    topology: Topology<'a>,
    policies: BackendTraffic<'a>,
}

/// What policies say about one route on one Gateway.
#[derive(Debug)]
pub(crate) struct OfRoute<'t, 'a> {
    traffic: &'t Traffic<'a>,
    gateway: usize,
    route: usize,
    /// Listeners that serve the route, those that are sent to the proxies first.
    listeners: Vec<usize>,
    /// A host of the route, for probes that need one.
    pub(crate) host: Option<String>,
}

// === impl Traffic ===

impl<'a> Traffic<'a> {
    pub(crate) fn new(
        view: &View<'a>,
        gateways: &[GatewayUnit<'a>],
        routes: &[Route<'a>],
        attachments: &[Vec<Attachment<'a>>],
    ) -> Self {
        let gateway = |g: &GatewayUnit<'a>| Gateway {
            meta: &g.object.metadata,
            listeners: g.listeners.iter().map(|l| Listener { name: &l.spec.name, set: l.set }).collect(),
            sets: g.sets.iter().map(|s| &s.object.metadata).collect(),
        };
        let parent = |a: &Attachment<'a>| Parent {
            gateway: a.gateway,
            set: a.set,
            section: a.reference.section_name.as_deref(),
            listeners: a.listeners.iter().map(|(l, _)| *l).collect(),
        };
        let route = |(r, all): (&Route<'a>, &Vec<Attachment<'a>>)| policy::Route {
            kind: r.kind().kind(),
            meta: r.meta(),
            rules: r.rule_names(),
            parents: all.iter().map(parent).collect(),
        };
        let topology = Topology {
            gateways: gateways.iter().map(gateway).collect(),
            routes: routes.iter().zip(attachments).map(route).collect(),
        };
        let policies = BackendTraffic::new(view.store, &topology);
        Self { topology, policies }
    }

    /// What they say about a route, given by its position, on a Gateway.
    pub(crate) fn of<'t>(
        &'t self,
        unit: &GatewayUnit<'a>,
        gateway: usize,
        route: usize,
        attachments: &[Attachment<'a>],
    ) -> OfRoute<'t, 'a> {
        let mut listeners: Vec<(usize, Option<String>)> = attachments
            .iter()
            .filter(|a| a.gateway == gateway)
            .flat_map(|a| &a.listeners)
            .map(|(l, hosts)| (*l, hosts.first().cloned()))
            .collect();
        listeners.sort_by_key(|(l, _)| (!unit.listeners[*l].programmed, *l));
        let host = listeners.first().and_then(|(_, h)| h.clone());
        let listeners = listeners.into_iter().map(|(l, _)| l).collect();
        OfRoute { traffic: self, gateway, route, listeners, host }
    }

    pub(crate) fn statuses(&self, view: &View<'_>, out: &mut BTreeMap<ObjectKey, Arc<Status>>) {
        out.extend(self.policies.statuses(&self.topology, &view.config.controller_name));
    }
}

// === impl OfRoute ===

impl OfRoute<'_, '_> {
    /// What holds for a rule, by listener.
    pub(crate) fn rule(&self, rule: usize) -> BTreeMap<usize, Arc<Effective>> {
        let at = |listener: usize| {
            let place = Place { gateway: self.gateway, listener, route: self.route, rule };
            Some((listener, Arc::clone(self.traffic.policies.at(&self.traffic.topology, place)?)))
        };
        self.listeners.iter().filter_map(|l| at(*l)).collect()
    }

    /// What holds for the clusters of a rule, of which there is one set for all listeners: what the first of them says.
    pub(crate) fn clusters<'e>(&self, of_rule: &'e BTreeMap<usize, Arc<Effective>>) -> Option<&'e Effective> {
        self.listeners.first().and_then(|l| of_rule.get(l)).map(|e| &**e)
    }
}

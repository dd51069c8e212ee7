//! Route tables: the matches of all rules, grouped by listener and host, in the order in which they are tried.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::gateway::BackendObjectReference;
use ir::{Name, PathMatch, Route, RouteMatch, VirtualHost};
use resources::ObjectKey;

use super::{Overlaps, features, order::Rank, rule::RouteUnit};
use crate::{
    gateways::{GatewayUnit, Protocol},
    host, view,
};

/// An object that BackendTLSPolicies can target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TlsTarget {
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) port: Option<i32>,
}

impl TlsTarget {
    pub(crate) fn new(reference: &BackendObjectReference, own: &str) -> Self {
        Self {
            kind: reference.kind.clone().unwrap_or_else(|| "Service".to_owned()),
            namespace: reference.namespace.clone().unwrap_or_else(|| own.to_owned()),
            name: reference.name.clone(),
            port: reference.port,
        }
    }
}

/// The matches on the hosts of a Gateway's HTTP listeners.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    hosts: BTreeMap<(usize, String), Vec<Item>>,
}

/// One match of one rule of one route, by positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Item {
    rank: Rank,
    route: usize,
    rule: usize,
    entry: usize,
}

impl Tables {
    /// Adds a route to a host of a listener. Routes come in the order of their precedence.
    pub(crate) fn add(&mut self, listener: usize, host: &str, index: usize, unit: &RouteUnit) {
        let items = self.hosts.entry((listener, host.to_owned())).or_default();
        for (rule, r) in unit.rules.iter().enumerate() {
            for (entry, e) in r.entries.iter().enumerate() {
                let item = Item { rank: e.rank, route: index, rule, entry };
                // A route that names a listener in two parents is there once.
                if items.last() != Some(&item) {
                    items.push(item);
                }
            }
        }
    }

    /// The virtual hosts of a listener. `units` gives a route by the position under which it was added.
    pub(crate) fn virtual_hosts<'u>(
        &self,
        gateway: &GatewayUnit<'_>,
        index: usize,
        units: impl Fn(usize) -> &'u RouteUnit,
    ) -> Vec<Arc<VirtualHost>> {
        let from = (index, String::new());
        self.hosts
            .range(from..)
            .take_while(|((l, _), _)| *l == index)
            .map(|((_, host), items)| {
                let mut items = items.clone();
                if gateway.fleet.keep_order {
                    items.sort_by_key(|i| (i.route, i.rule, i.entry));
                } else {
                    items.sort();
                }
                items.dedup();
                Arc::new(virtual_host(gateway, index, host, &items, &units))
            })
            .collect()
    }

    /// Positions of the routes on those listeners.
    pub(crate) fn routes(&self, listeners: impl Fn(usize) -> bool) -> BTreeSet<usize> {
        self.hosts
            .iter()
            .filter(|((l, _), _)| listeners(*l))
            .flat_map(|(_, items)| items.iter().map(|i| i.route))
            .collect()
    }

    /// Notes all matches for the search of equal ones.
    pub(crate) fn note<'u>(
        &self,
        gateway: &GatewayUnit<'_>,
        units: impl Fn(usize) -> (&'u RouteUnit, &'u ObjectKey),
        overlaps: &mut Overlaps,
    ) {
        for ((listener, host), items) in &self.hosts {
            if items.iter().all(|i| i.route == items[0].route) {
                continue;
            }
            let name: Name = format!("{}/{host}", gateway.listeners[*listener].xds_name).into();
            for item in items {
                let (unit, key) = units(item.route);
                let rule = &unit.rules[item.rule];
                let entry = &rule.entries[item.entry];
                if rule.policies.get(listener).is_some_and(|p| features::connects(p)) {
                    let matches = RouteMatch { path: PathMatch::Connect, ..entry.matches.clone() };
                    overlaps.note(&name, &matches, key);
                } else if !entry.label.ends_with("cors-preflight") {
                    overlaps.note(&name, &entry.matches, key);
                }
            }
        }
    }

    /// Hosts of a listener that has no virtual host of its own name although a less close listener of its port would
    /// take its requests: they get an empty one, so that each listener stays by itself.
    pub(crate) fn shields(&self, gateway: &GatewayUnit<'_>, members: &[usize]) -> Vec<(usize, String)> {
        let mut out = Vec::new();
        for &i in members {
            let Some(own) = gateway.listeners[i].hostname else { continue };
            if self.hosts.contains_key(&(i, own.to_owned())) {
                continue;
            }
            let closeness = host::closeness(Some(own));
            let taken = members.iter().filter(|m| **m != i).any(|m| {
                host::closeness(gateway.listeners[*m].hostname) < closeness
                    && self
                        .hosts
                        .range((*m, String::new())..)
                        .take_while(|((l, _), _)| l == m)
                        .any(|((_, h), _)| host::covers(h, own))
            });
            if taken {
                out.push((i, own.to_owned()));
            }
        }
        out
    }
}

/// An empty virtual host: its requests are answered 404.
pub(crate) fn shield(gateway: &GatewayUnit<'_>, index: usize, host: &str) -> Arc<VirtualHost> {
    let nothing = |_: usize| -> &RouteUnit { unreachable!("a host without items asks for no route") };
    Arc::new(virtual_host(gateway, index, host, &[], &nothing))
}

fn virtual_host<'u>(
    gateway: &GatewayUnit<'_>,
    index: usize,
    host: &str,
    items: &[Item],
    units: &impl Fn(usize) -> &'u RouteUnit,
) -> VirtualHost {
    let listener = &gateway.listeners[index];
    let label = host.replace('.', "_");
    let tls = listener.protocol == Protocol::Https;
    let routes = items.iter().map(|item| {
        let rule = &units(item.route).rules[item.rule];
        let entry = &rule.entries[item.entry];
        let route = Route {
            name: format!("{}/{}/{label}", rule.path, entry.label).into(),
            origin: rule.origin.clone(),
            matches: entry.matches.clone(),
            action: rule.action(entry, listener.port, tls),
            request_headers: rule.request.clone(),
            response_headers: rule.response.clone(),
            cors: rule.cors.clone(),
            session: rule.session(entry),
            deny_loopback: rule.deny_loopback,
            policies: Vec::new(),
            features: Vec::new(),
            stat_prefix: None,
        };
        match rule.policies.get(&index) {
            Some(policy) => features::apply(policy, route),
            None => route,
        }
    });
    VirtualHost {
        name: if gateway.fleet.names_v2 {
            label.as_str().into()
        } else {
            format!("{}/{label}", listener.xds_name).into()
        },
        domains: vec![host.into()],
        routes: routes.collect(),
        origin: view::origin("Gateway", &gateway.object.metadata, Some(listener.spec.name.as_str().into())),
    }
}

//! From a state of the cluster to everything that follows from it: which unit function is called for what, in which
//! order. Nothing here knows what changed; the units are pure functions of the view.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::gateway::{GRPCRoute, Gateway, GatewayClass, HTTPRoute, TCPRoute, TLSRoute, UDPRoute};
use ir::{Full, Group, Name, ParentStatus, Status, XdsValue};
use resources::{Kind, ObjectKey, Precedence, Store};

use crate::{
    Config,
    attach::{self, Attachment, Parents},
    class,
    cluster::Built,
    condition::Problem,
    fleet,
    gateways::{self, GatewayUnit},
    http::{self, Overlaps, RouteUnit, Tables},
    l4::{self, L4Unit},
    listeners::{self, L4Routes, Routed},
    local, merged,
    route::{Route, RouteKind},
    route_status,
    tls_policy::Ancestors,
    traffic::Traffic,
    view::View,
};

/// A route as one Gateway serves it.
enum Served {
    Http(usize),
    L4(usize),
}

/// All that is served by one Gateway.
#[derive(Default)]
struct Work {
    tables: Tables,
    http: Vec<(RouteUnit, ObjectKey)>,
    l4: Vec<(L4Unit, BTreeMap<usize, Vec<Name>>)>,
    /// Listeners with GRPCRoutes.
    grpc: BTreeSet<usize>,
    attached: Vec<i32>,
}

/// Computes everything.
pub(crate) fn full(store: &Store, config: &Config) -> Full {
    let view = View::new(store, config);
    let mut out = Full::default();
    let classes = class::evaluate(&view, &mut out.statuses);
    class::backends(&view, &mut out.statuses);
    let mut gateways: Vec<GatewayUnit<'_>> = store
        .all::<Gateway>()
        .filter(|g| classes.get(g.spec.gateway_class_name.as_str()) == Some(&true))
        .map(|g| gateways::evaluate(&view, g))
        .collect();
    gateways.sort_by_cached_key(|g| Precedence::from(&g.object.metadata));
    merged::conflicts(&mut gateways);
    let parents = Parents::new(&gateways);
    let mut works: Vec<Work> =
        gateways.iter().map(|g| Work { attached: vec![0; g.listeners.len()], ..Work::default() }).collect();
    let routes = routes(store);
    let attachments: Vec<_> = routes.iter().map(|r| attach::attach(&view, &gateways, &parents, *r)).collect();
    let traffic = Traffic::new(&view, &gateways, &routes, &attachments);
    let mut served = Vec::with_capacity(routes.len());
    for (i, attachments) in attachments.iter().enumerate() {
        served.push(serve(&view, &gateways, &mut works, (i, routes[i]), attachments, &traffic));
    }
    let mut overlaps = Vec::new();
    for (gateway, work) in gateways.iter().zip(&works) {
        let mut found = Overlaps::default();
        work.tables.note(gateway, |i| (&work.http[i].0, &work.http[i].1), &mut found);
        overlaps.push(found.found());
    }
    let mut ancestors = Ancestors::default();
    for ((route, attachments), served) in routes.iter().zip(&attachments).zip(&served) {
        let key = route.key();
        let mut entries: Vec<ParentStatus> = Vec::new();
        for attachment in attachments {
            let work = &works[attachment.gateway];
            let (problems, rules, targets): (&[(usize, Problem)], usize, _) = match &served[&attachment.gateway] {
                Served::Http(i) => {
                    let unit = &work.http[*i].0;
                    (&unit.problems, unit.rule_count, &unit.tls_targets)
                }
                Served::L4(i) => (&work.l4[*i].0.problems, 1, &work.l4[*i].0.tls_targets),
            };
            let entry = route_status::parent(
                &config.controller_name,
                *route,
                attachment,
                problems,
                rules,
                overlaps[attachment.gateway].get(&key),
            );
            ancestors.note(&view, &entry.parent, targets);
            entries.push(entry);
        }
        if !entries.is_empty() {
            out.statuses.insert(key, Arc::new(Status::Route { parents: entries }));
        }
    }
    ancestors.statuses(&view, &mut out.statuses);
    traffic.statuses(&view, &mut out.statuses);
    let ours = store
        .all::<GatewayClass>()
        .map(|c| &**c)
        .filter(|c| classes.contains_key(c.metadata.name.as_deref().unwrap_or_default()));
    out.statuses.extend(policy::proxies::statuses(store, ours, gateways.iter().map(|g| g.object)));
    for (gateway, work) in gateways.iter().zip(&works) {
        finish(&view, gateway, work, &mut out);
    }
    out
}

/// All routes in the order of their precedence.
fn routes(store: &Store) -> Vec<Route<'_>> {
    let mut all: Vec<Route<'_>> = Vec::new();
    all.extend(store.all::<HTTPRoute>().map(|r| Route::Http(r)));
    all.extend(store.all::<GRPCRoute>().map(|r| Route::Grpc(r)));
    all.extend(store.all::<TLSRoute>().map(|r| Route::Tls(r)));
    all.extend(store.all::<TCPRoute>().map(|r| Route::Tcp(r)));
    all.extend(store.all::<UDPRoute>().map(|r| Route::Udp(r)));
    all.sort_by_cached_key(|r| (r.precedence(), r.kind()));
    all
}

/// Translates a route for each Gateway that it names, and puts it where its listeners are.
fn serve<'a>(
    view: &View<'a>,
    gateways: &[GatewayUnit<'a>],
    works: &mut [Work],
    (index, route): (usize, Route<'a>),
    attachments: &[Attachment<'a>],
    traffic: &Traffic<'a>,
) -> BTreeMap<usize, Served> {
    let mut out = BTreeMap::new();
    // A route that names a listener twice is one route of it.
    let mut counted = BTreeSet::new();
    for attachment in attachments {
        let gateway = &gateways[attachment.gateway];
        let work = &mut works[attachment.gateway];
        let http = matches!(route.kind(), RouteKind::Http | RouteKind::Grpc);
        let served = out.entry(attachment.gateway).or_insert_with(|| {
            let traffic = traffic.of(gateway, attachment.gateway, index, attachments);
            if http {
                work.http.push((http::translate(view, gateway, route, &traffic), route.key()));
                Served::Http(work.http.len() - 1)
            } else {
                work.l4.push((l4::translate(view, gateway, route, &traffic), BTreeMap::new()));
                Served::L4(work.l4.len() - 1)
            }
        });
        for (listener, hosts) in &attachment.listeners {
            if counted.insert((attachment.gateway, *listener)) {
                work.attached[*listener] += 1;
            }
            match served {
                Served::Http(i) => {
                    let unit = &work.http[*i].0;
                    for host in hosts {
                        work.tables.add(*listener, &host.to_ascii_lowercase(), *i, unit);
                    }
                    if route.kind() == RouteKind::Grpc {
                        work.grpc.insert(*listener);
                    }
                }
                Served::L4(i) => {
                    let names = hosts.iter().map(|h| h.to_ascii_lowercase().into());
                    work.l4[*i].1.entry(*listener).or_default().extend(names);
                }
            }
        }
    }
    out
}

/// xDS, fleet and status of one Gateway.
fn finish(view: &View<'_>, gateway: &GatewayUnit<'_>, work: &Work, out: &mut Full) {
    let mut group = Group::default();
    let mut l4: L4Routes<'_> = BTreeMap::new();
    for (unit, places) in &work.l4 {
        for (listener, hosts) in places {
            l4.entry(*listener).or_default().push((unit, hosts.clone()));
        }
    }
    if gateway.accepted {
        let routed =
            Routed { tables: &work.tables, units: &|i| &work.http[i].0, grpc: &|i| work.grpc.contains(&i), l4: &l4 };
        listeners::add(&mut group, gateway, &routed);
        for i in reached(gateway, work) {
            for rule in &work.http[i].0.rules {
                add(&mut group, &rule.built);
            }
        }
        for (unit, places) in &work.l4 {
            if places.keys().any(|l| gateway.listeners[*l].programmed) && in_use(&group, unit) {
                add(&mut group, &unit.built);
            }
        }
        local::add(&mut group, view, gateway);
        let wanted = fleet::wanted(view, gateway);
        match out.infra.get_mut(&gateway.group) {
            Some(fleet) => merged::join_fleet(Arc::make_mut(fleet), wanted),
            None => drop(out.infra.insert(gateway.group.clone(), Arc::new(wanted))),
        }
    }
    match out.groups.get_mut(&gateway.group) {
        Some(older) => merged::join(older, group),
        None => drop(out.groups.insert(gateway.group.clone(), group)),
    }
    let key = ObjectKey::new(Kind::Gateway, gateway.namespace, gateway.name);
    out.statuses.insert(key, Arc::new(gateways::gateway_status(gateway, &work.attached)));
    for (i, set) in gateway.sets.iter().enumerate() {
        let key = ObjectKey::new(Kind::ListenerSet, set.namespace, set.name);
        out.statuses.insert(key, Arc::new(gateways::set_status(gateway, i, &work.attached)));
    }
}

/// Routes that a programmed listener serves.
fn reached(gateway: &GatewayUnit<'_>, work: &Work) -> BTreeSet<usize> {
    work.tables.routes(|listener| gateway.listeners[listener].programmed)
}

/// A chain or UDP listener of the group leads to the route.
fn in_use(group: &Group, unit: &L4Unit) -> bool {
    group.resources.values().any(|v| match v {
        XdsValue::Listener(l) => {
            l.chains.iter().any(|c| c.name == unit.name)
                || l.udp.as_ref().is_some_and(|u| unit.clusters.iter().any(|(c, _)| *c == u.cluster))
        }
        _ => false,
    })
}

fn add(group: &mut Group, built: &Built) {
    for cluster in &built.clusters {
        group.insert(XdsValue::Cluster(Arc::new(cluster.clone())));
    }
    for endpoints in &built.endpoints {
        group.insert(XdsValue::Endpoints(Arc::new(endpoints.clone())));
    }
    for secret in &built.secrets {
        group.insert(XdsValue::Secret(Arc::new(secret.clone())));
    }
}

//! TLSRoute, TCPRoute and UDPRoute.

use std::collections::BTreeSet;

use api::gateway::BackendRef;
use ir::{HashPolicy, Name, Origin};

use crate::{
    backend,
    cluster::{self, Built, Changes, Share, Wishes},
    condition::Problem,
    gateways::GatewayUnit,
    http::TlsTarget,
    route::Route,
    traffic::OfRoute,
    view::{self, View},
};

/// A route below HTTP, for one fleet.
#[derive(Debug)]
pub(crate) struct L4Unit {
    /// Name of its filter chain, `tcproute/NS/NAME`.
    pub(crate) name: Name,
    pub(crate) clusters: Vec<(Name, u32)>,
    pub(crate) built: Built,
    pub(crate) problems: Vec<(usize, Problem)>,
    pub(crate) tls_targets: BTreeSet<TlsTarget>,
    /// How an endpoint is picked for a connection.
    pub(crate) hash_policies: Vec<HashPolicy>,
}

/// Translates a route for a fleet. Such a route has one rule.
pub(crate) fn translate<'a>(
    view: &View<'a>,
    unit: &GatewayUnit<'a>,
    route: Route<'a>,
    traffic: &OfRoute<'_, 'a>,
) -> L4Unit {
    let rules: Vec<(Option<&str>, &[BackendRef])> = match route {
        Route::Tls(r) => r.spec.rules.iter().map(|r| (r.name.as_deref(), r.backend_refs.as_slice())).collect(),
        Route::Tcp(r) => r.spec.rules.iter().map(|r| (r.name.as_deref(), r.backend_refs.as_slice())).collect(),
        Route::Udp(r) => r.spec.rules.iter().map(|r| (r.name.as_deref(), r.backend_refs.as_slice())).collect(),
        Route::Http(_) | Route::Grpc(_) => Vec::new(),
    };
    let path = route.path();
    let mut out = L4Unit {
        name: path.as_str().into(),
        clusters: Vec::new(),
        built: Built::default(),
        problems: Vec::new(),
        tls_targets: BTreeSet::new(),
        hash_policies: Vec::new(),
    };
    let of_rule = traffic.rule(0);
    let policy = traffic.clusters(&of_rule);
    let settings = policy.and_then(|p| p.settings.as_ref());
    if let Some(s) = settings {
        out.hash_policies.clone_from(&s.upstream.hash_policies);
    }
    if let Some(refused) = Problem::refused(view, route) {
        out.problems.push((0, refused));
        return out;
    }
    if rules.len() > 1 {
        let message = format!("spec.rules: a {} can have one rule; split it", route.kind().kind());
        out.problems.push((0, Problem::value("InvalidRule", message)));
        return out;
    }
    let Some((name, backends)) = rules.into_iter().next() else { return out };
    let mut shares = Vec::new();
    for (i, reference) in backends.iter().enumerate() {
        let field = format!("spec.rules[0].backendRefs[{i}]");
        let weight = u32::try_from(reference.weight.unwrap_or(1)).unwrap_or(0);
        out.tls_targets.insert(TlsTarget::new(reference, route.namespace()));
        match backend::resolve(view, unit, route, reference, settings.and_then(|s| s.service_routing)) {
            Ok(target) => {
                if target.endpoints.is_empty() && !target.dynamic {
                    let message = format!(
                        "{field}: {} {}/{} has no ready endpoints; start its pods or check its selector",
                        target.origin.kind, target.origin.namespace, target.origin.name
                    );
                    out.problems.push((0, Problem::unavailable(message)));
                }
                let index = i32::try_from(i).unwrap_or(i32::MAX);
                shares.push(Share { index, weight, target: Some(target), changes: Changes::default() });
            }
            Err(p) => out.problems.push((0, p.at(&field))),
        }
    }
    if shares.len() > 1 && shares.iter().any(|s| s.target.as_ref().is_some_and(|t| t.dynamic)) {
        let message =
            "spec.rules[0].backendRefs: a Backend of type DynamicResolver must be the only one; remove the others";
        out.problems.push((0, Problem::reference("InvalidBackendRef", message)));
        shares.clear();
    }
    shares.retain(|s| s.weight > 0);
    let rule = format!("{path}/rule/-1");
    let origin = view::origin(route.kind().kind(), route.meta(), name.map(Into::into));
    clusters(unit, &mut out, &rule, &origin, &shares, Wishes { policy, host: None });
    out
}

fn clusters(
    unit: &GatewayUnit<'_>,
    out: &mut L4Unit,
    rule: &str,
    origin: &Origin,
    shares: &[Share],
    wishes: Wishes<'_>,
) {
    let kinds: BTreeSet<bool> = shares.iter().filter_map(|s| s.target.as_ref()).map(|t| t.by_dns).collect();
    if kinds.len() < 2 {
        cluster::add(&unit.fleet, &mut out.built, rule.into(), rule, Some(origin), shares, wishes);
        out.clusters.push((rule.into(), 1));
        return;
    }
    for share in shares {
        let name: Name = format!("{rule}/backend/{}", share.index).into();
        cluster::add(
            &unit.fleet,
            &mut out.built,
            name.clone(),
            rule,
            Some(origin),
            std::slice::from_ref(share),
            wishes,
        );
        out.clusters.push((name, share.weight));
    }
}

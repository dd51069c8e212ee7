//! Rules of a route, as far as they do not depend on a listener.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::{
    gateway::{
        BackendObjectReference, BackendRef, CookieLifetimeType, HTTPRouteFilter, HTTPRouteRetry, HTTPRouteTimeouts,
        SessionPersistence, SessionPersistenceType,
    },
    shared::parse_duration,
};
use ir::{Action, Cors, Forward, HeaderMutation, Millis, Name, Origin, PathMatch, Redirect, Retry};
use policy::Effective;

use super::{
    filters::{self, Wanted},
    grpc, matches,
    matches::Entry,
    table::TlsTarget,
};
use crate::{
    backend,
    cluster::{self, Built, Outcome, Share, Wishes},
    condition::{Area, Problem},
    gateways::GatewayUnit,
    route::{Route, RouteKind},
    traffic::OfRoute,
    view::{self, View},
};

/// A route with its rules, for one fleet.
#[derive(Debug)]
pub(crate) struct RouteUnit {
    pub(crate) rules: Vec<RuleUnit>,
    /// What is wrong, by rule.
    pub(crate) problems: Vec<(usize, Problem)>,
    /// Number of rules in the spec.
    pub(crate) rule_count: usize,
    /// Objects whose BackendTLSPolicies matter to the route.
    pub(crate) tls_targets: BTreeSet<TlsTarget>,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct RuleUnit {
    /// `httproute/NS/NAME/rule/I`.
    pub(crate) path: String,
    pub(crate) origin: Origin,
    pub(crate) entries: Vec<Entry>,
    pub(crate) request: HeaderMutation,
    pub(crate) response: HeaderMutation,
    pub(crate) cors: Option<Cors>,
    pub(crate) deny_loopback: bool,
    pub(crate) built: Built,
    /// What policies say about it, by listener.
    pub(crate) policies: BTreeMap<usize, Arc<Effective>>,
    plan: Plan,
    session: Option<SessionPersistence>,
}

/// What is done with a request that matches.
#[derive(Debug)]
enum Plan {
    Respond { status: u16, body: Option<Name> },
    Redirect(Redirect, Option<filters::Path>),
    Forward(Box<Forward>, Option<filters::Path>),
}

/// What the parts of a rule look at.
#[derive(Debug)]
pub(super) struct Context<'v, 'a> {
    pub(super) view: &'v View<'a>,
    pub(super) unit: &'v GatewayUnit<'a>,
    pub(super) route: Route<'a>,
    pub(super) rule: usize,
    pub(super) rule_path: String,
    pub(super) origin: Origin,
    tls_targets: RefCell<BTreeSet<TlsTarget>>,
}

impl Context<'_, '_> {
    /// Remembers a backend for the statuses of BackendTLSPolicies.
    pub(super) fn saw(&self, reference: &BackendObjectReference) {
        self.tls_targets.borrow_mut().insert(TlsTarget::new(reference, self.route.namespace()));
    }
}

/// A rule of either kind of route.
struct Rule<'a> {
    name: Option<&'a str>,
    filters: Cow<'a, [HTTPRouteFilter]>,
    backends: Vec<(&'a BackendRef, Cow<'a, [HTTPRouteFilter]>)>,
    timeouts: Option<&'a HTTPRouteTimeouts>,
    retry: Option<&'a HTTPRouteRetry>,
    session: Option<&'a SessionPersistence>,
}

/// Translates an HTTPRoute or GRPCRoute for a fleet.
pub(crate) fn translate<'a>(
    view: &View<'a>,
    unit: &GatewayUnit<'a>,
    route: Route<'a>,
    traffic: &OfRoute<'_, 'a>,
) -> RouteUnit {
    let count = match route {
        Route::Http(r) => r.spec.rules.len(),
        Route::Grpc(r) => r.spec.rules.len(),
        _ => 0,
    };
    let mut out =
        RouteUnit { rules: Vec::new(), problems: Vec::new(), rule_count: count, tls_targets: BTreeSet::new() };
    if let Some(refused) = Problem::refused(view, route) {
        out.problems = (0..count.max(1)).map(|i| (i, refused.clone())).collect();
        return out;
    }
    for index in 0..count {
        let (rule, entries) = match route {
            Route::Http(r) => {
                let rule = &r.spec.rules[index];
                let backends = rule.backend_refs.iter().map(|b| (&b.backend_ref, Cow::from(&b.filters))).collect();
                let parts = Rule {
                    name: rule.name.as_deref(),
                    filters: Cow::from(&rule.filters),
                    backends,
                    timeouts: rule.timeouts.as_ref(),
                    retry: rule.retry.as_ref(),
                    session: rule.session_persistence.as_ref(),
                };
                (parts, matches::of_rule(&rule.matches, index))
            }
            Route::Grpc(r) => {
                let rule = &r.spec.rules[index];
                let backends = rule.backend_refs.iter();
                let parts = Rule {
                    name: rule.name.as_deref(),
                    filters: Cow::from(grpc::filters(&rule.filters)),
                    backends: backends.map(|b| (&b.backend_ref, Cow::from(grpc::filters(&b.filters)))).collect(),
                    timeouts: None,
                    retry: None,
                    session: rule.session_persistence.as_ref(),
                };
                (parts, grpc::of_rule(&rule.matches, index))
            }
            _ => continue,
        };
        let context = Context {
            view,
            unit,
            route,
            rule: index,
            rule_path: format!("{}/rule/{index}", route.path()),
            origin: view::origin(route.kind().kind(), route.meta(), rule.name.map(Into::into)),
            tls_targets: RefCell::default(),
        };
        let policies = traffic.rule(index);
        let wishes = Wishes { policy: traffic.clusters(&policies), host: traffic.host.as_deref() };
        let mut problems = Vec::new();
        match entries {
            Ok(entries) => {
                let unit = one(&context, &rule, entries, wishes, &mut problems);
                out.rules.push(RuleUnit { policies, ..unit });
            }
            // Without its conditions the rule cannot even be answered: it is left out.
            Err(p) => problems.push(p),
        }
        out.problems.extend(problems.into_iter().map(|p| (index, p)));
        out.tls_targets.extend(context.tls_targets.into_inner());
    }
    out
}

fn one(
    context: &Context<'_, '_>,
    rule: &Rule<'_>,
    entries: Vec<Entry>,
    wishes: Wishes<'_>,
    problems: &mut Vec<Problem>,
) -> RuleUnit {
    let mut built = Built::default();
    let wanted = filters::of_rule(context, &rule.filters, &mut built, problems);
    let timing = timing(context, rule, problems);
    let broken = problems.iter().any(|p| p.area != Area::Availability);
    let settings = wishes.policy.and_then(|p| p.settings.as_ref());
    let service_routing = settings.and_then(|s| s.service_routing);
    let (shares, dynamic) = shares(context, rule, service_routing, problems);
    let Wanted { request, response, redirect, respond, path, host, keep_old_host, mirrors, cors } = wanted;
    let plan = if broken {
        built = Built::default();
        Plan::Respond { status: 500, body: None }
    } else if let Some((redirect, path)) = redirect {
        Plan::Redirect(redirect, path)
    } else if let Some((status, body)) = respond {
        Plan::Respond { status, body }
    } else {
        let (outcome, clusters) =
            cluster::build(&context.unit.fleet, &context.rule_path, &context.origin, shares, wishes);
        match outcome {
            Outcome::Status(status) => {
                built = Built::default();
                Plan::Respond { status, body: None }
            }
            Outcome::To(to) => {
                built.clusters.extend(clusters.clusters);
                built.endpoints.extend(clusters.endpoints);
                built.secrets.extend(clusters.secrets);
                let (timeout, retry) = timing;
                let forward = Forward {
                    to,
                    path: None,
                    host,
                    mirrors,
                    timeout,
                    retry,
                    idle_timeout: timeout.map(idle),
                    max_stream_duration: None,
                    upgrades: if context.route.kind() == RouteKind::Http { vec![websocket()] } else { vec![] },
                    hash_policies: Vec::new(),
                    append_x_forwarded_host: keep_old_host,
                };
                Plan::Forward(Box::new(forward), path)
            }
        }
    };
    let respond_only = broken || matches!(plan, Plan::Respond { .. });
    RuleUnit {
        path: context.rule_path.clone(),
        origin: context.origin.clone(),
        entries: if cors.is_some() { super::cors::with_preflights(entries) } else { entries },
        request: if respond_only { HeaderMutation::default() } else { request },
        response: if broken { HeaderMutation::default() } else { response },
        cors: cors.filter(|_| !broken),
        deny_loopback: dynamic && matches!(plan, Plan::Forward(..)),
        built,
        session: rule.session.cloned().filter(|_| matches!(plan, Plan::Forward(..))),
        plan,
        policies: BTreeMap::new(),
    }
}

fn websocket() -> ir::Upgrade {
    ir::Upgrade { protocol: "websocket".into(), terminate: false }
}

/// The backends of a rule with their shares; whether the request itself may say where to go.
fn shares(
    context: &Context<'_, '_>,
    rule: &Rule<'_>,
    service_routing: Option<bool>,
    problems: &mut Vec<Problem>,
) -> (Vec<Share>, bool) {
    let mut shares = Vec::new();
    let mut dynamic = 0;
    for (i, (reference, filters)) in rule.backends.iter().enumerate() {
        let field = format!("spec.rules[{}].backendRefs[{i}]", context.rule);
        let weight = u32::try_from(reference.weight.unwrap_or(1)).unwrap_or(0);
        let index = i32::try_from(i).unwrap_or(i32::MAX);
        let found = backend::resolve(context.view, context.unit, context.route, reference, service_routing);
        context.saw(reference);
        let found = found
            .map_err(|p| p.at(&field))
            .and_then(|t| filters::of_backend(filters, &field).map(|changes| (t, changes)));
        match found {
            Ok((target, changes)) => {
                if target.dynamic {
                    dynamic += 1;
                } else if target.endpoints.is_empty() {
                    let message = format!(
                        "{field}: {} {}/{} has no ready endpoints, requests are answered 503; start its pods or check its selector",
                        target.origin.kind, target.origin.namespace, target.origin.name
                    );
                    problems.push(Problem::unavailable(message));
                }
                shares.push(Share { index, weight, target: Some(target), changes });
            }
            Err(p) => {
                problems.push(p);
                shares.push(Share { index, weight, target: None, changes: cluster::Changes::default() });
            }
        }
    }
    if dynamic > 0 && shares.len() > 1 {
        let message = format!(
            "spec.rules[{}].backendRefs: a Backend of type DynamicResolver must be the only one; remove the others",
            context.rule
        );
        problems.push(Problem::reference("InvalidBackendRef", message));
        return (Vec::new(), false);
    }
    (shares, dynamic > 0)
}

/// Idle time-out of a stream: never shorter than the time-out of the request, and off with it.
pub(super) fn idle(timeout: Millis) -> Millis {
    const HOUR: u64 = 3_600_000;
    if timeout.0 == 0 { timeout } else { Millis(timeout.0.max(HOUR)) }
}

fn timing(context: &Context<'_, '_>, rule: &Rule<'_>, problems: &mut Vec<Problem>) -> (Option<Millis>, Option<Retry>) {
    let mut read = |text: Option<&str>, field: &str| -> Option<Millis> {
        match parse_duration(text?) {
            Ok(d) => Some(Millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))),
            Err(e) => {
                let message = format!("spec.rules[{}].{field}: {e}", context.rule);
                problems.push(Problem::value("UnsupportedValue", message));
                None
            }
        }
    };
    let request = read(rule.timeouts.and_then(|t| t.request.as_deref()), "timeouts.request");
    let each = read(rule.timeouts.and_then(|t| t.backend_request.as_deref()), "timeouts.backendRequest");
    let Some(retry) = rule.retry else {
        // With a single try the two are one: the shorter holds, 0 means none.
        let timeout = match (request, each) {
            (Some(Millis(0)), Some(e)) => Some(e),
            (Some(r), Some(Millis(0))) => Some(r),
            (Some(r), Some(e)) => Some(r.min(e)),
            (r, e) => r.or(e),
        };
        return (timeout, None);
    };
    let codes: Vec<u32> = retry.codes.iter().filter_map(|c| u32::try_from(*c).ok()).collect();
    let words = ["connect-failure", "refused-stream", "unavailable", "cancelled", "retriable-status-codes"];
    let policy = Retry {
        on: words.iter().map(|w| Name::from(*w)).collect(),
        status_codes: if codes.is_empty() { vec![503] } else { codes },
        attempts: Some(retry.attempts.and_then(|a| u32::try_from(a).ok()).unwrap_or(2)),
        per_try_timeout: each,
        backoff_base: read(retry.backoff.as_deref(), "retry.backoff").filter(|b| b.0 > 0),
        backoff_max: None,
        avoid_previous_hosts: true,
        attempts_per_priority: None,
    };
    (request, Some(policy))
}

impl RuleUnit {
    /// What is done on a listener with this port and TLS or none, for requests that this entry matches.
    pub(crate) fn action(&self, entry: &Entry, port: u16, tls: bool) -> Action {
        match &self.plan {
            Plan::Respond { status, body } => Action::Respond { status: *status, body: body.clone() },
            Plan::Redirect(redirect, path) => {
                let mut redirect = redirect.clone();
                redirect.port = redirect_port(&redirect, port, tls);
                redirect.path = path.as_ref().map(|p| p.redirect(&entry.matches.path));
                Action::Redirect(redirect)
            }
            Plan::Forward(forward, path) => {
                let mut forward = forward.clone();
                forward.path = path.as_ref().map(|p| p.rewrite(&entry.matches.path));
                Action::Forward(forward)
            }
        }
    }

    /// Session affinity for requests that this entry matches.
    pub(crate) fn session(&self, entry: &Entry) -> Option<ir::SessionPersistence> {
        let session = self.session.as_ref()?;
        let name: Name = session.session_name.as_deref().unwrap_or("envoy-gateway-session").into();
        if session.type_ == Some(SessionPersistenceType::Header) {
            return Some(ir::SessionPersistence::Header { name });
        }
        let permanent = session.cookie_config.as_ref().and_then(|c| c.lifetime_type.as_ref())
            == Some(&CookieLifetimeType::Permanent);
        let ttl = session.absolute_timeout.as_deref().filter(|_| permanent).and_then(|t| parse_duration(t).ok());
        Some(ir::SessionPersistence::Cookie {
            name,
            ttl: ttl.map(|d| Millis(u64::try_from(d.as_millis()).unwrap_or(u64::MAX))),
            path: cookie_path(&entry.matches.path),
        })
    }
}

/// The part of the path that all requests of a route have in common.
fn cookie_path(path: &PathMatch) -> Name {
    match path {
        PathMatch::Prefix(p) | PathMatch::SeparatedPrefix(p) | PathMatch::Exact(p) => p.clone(),
        PathMatch::Connect => "/".into(),
        PathMatch::Regex(p) => {
            let plain = p.find(|c: char| r"\.+*?()|[]{}^$".contains(c)).map_or(&**p, |at| &p[..at]);
            // The last character may be repeated or left out by what follows it; keep whole segments.
            match plain.rfind('/') {
                Some(at) if plain.len() < p.len() => {
                    if at == 0 {
                        "/".into()
                    } else {
                        plain[..at].into()
                    }
                }
                _ if plain.is_empty() => "/".into(),
                _ => plain.into(),
            }
        }
    }
}

/// The port in the answer: the one asked for, else that of the new scheme, else the listener's; left out where it is
/// the one that the scheme implies.
fn redirect_port(redirect: &Redirect, port: u16, tls: bool) -> Option<u16> {
    let scheme = redirect.scheme.as_deref().unwrap_or(if tls { "https" } else { "http" });
    let implied = if scheme == "https" { 443 } else { 80 };
    let wanted = match (redirect.port, &redirect.scheme) {
        (Some(p), _) => p,
        (None, Some(_)) => implied,
        (None, None) => port,
    };
    (wanted != implied).then_some(wanted)
}

//! What policies make of routes, and the HTTP filters that a listener needs for it.

use ir::{Action, Compressor, Feature, HeaderMutation, HttpFilter, PathMatch, Route, VirtualHost};
use policy::Effective;

use super::rule::idle;

/// A route with what a policy says about it.
pub(super) fn apply(policy: &Effective, route: Route) -> Route {
    let Some(settings) = &policy.settings else {
        // Fails closed: what was to protect the route does not make sense.
        return Route {
            action: Action::Respond { status: 500, body: None },
            request_headers: HeaderMutation::default(),
            response_headers: HeaderMutation::default(),
            session: None,
            deny_loopback: false,
            ..route
        };
    };
    let (of_route, upstream) = (&settings.route, &settings.upstream);
    let mut route = Route {
        policies: vec![policy.policy.clone()],
        features: of_route.features.clone(),
        stat_prefix: of_route.stat_name.as_deref().map(|p| policy::stat_prefix(p, &route.origin)),
        ..route
    };
    if of_route.compresses {
        route.request_headers.remove.push("accept-encoding".into());
    }
    if upstream.drop_load_reports {
        route.response_headers.remove.extend(policy::LOAD_REPORTS.map(Into::into));
    }
    if connects(policy) {
        route.matches.path = PathMatch::Connect;
    }
    if let Action::Forward(forward) = &mut route.action {
        forward.timeout = forward.timeout.or(of_route.timeout);
        let idle_timeout = of_route.idle_timeout.or(forward.timeout.map(idle));
        forward.idle_timeout = idle_timeout;
        forward.max_stream_duration = of_route.max_stream_duration;
        if forward.retry.is_none() {
            forward.retry.clone_from(&of_route.retry);
        }
        if let Some(upgrades) = &of_route.upgrades {
            forward.upgrades.clone_from(upgrades);
        }
        forward.hash_policies.clone_from(&upstream.hash_policies);
    }
    route
}

/// The policy lets `CONNECT` through: such requests have no path.
pub(super) fn connects(policy: &Effective) -> bool {
    let upgrades = policy.settings.as_ref().and_then(|s| s.route.upgrades.as_ref());
    upgrades.is_some_and(|all| all.iter().any(|u| u.protocol.eq_ignore_ascii_case("CONNECT")))
}

/// The filters that the routes of some virtual hosts need, before and after those for which [`crate::listeners`] looks
/// itself: filters that answer in the backend's place, filters between, and filters close to the backend.
pub(crate) fn filters<'a>(hosts: impl Iterator<Item = &'a VirtualHost>) -> [Vec<HttpFilter>; 4] {
    let (mut overrides, mut fault, mut buffer) = (Vec::new(), false, None);
    let (mut limits, mut request, mut response) = (false, false, false);
    let mut compressors: Vec<Compressor> = Vec::new();
    for feature in hosts.flat_map(|h| &h.routes).flat_map(|r| &r.features) {
        match feature {
            Feature::ResponseOverride(o) => {
                let filter = HttpFilter::ResponseOverride(o.clone());
                if !overrides.contains(&filter) {
                    overrides.push(filter);
                }
            }
            Feature::Fault(_) => fault = true,
            Feature::Buffer { max_bytes } => buffer = buffer.or(Some(*max_bytes)),
            Feature::LocalRateLimit(_) => limits = true,
            Feature::Bandwidth(b) => {
                request |= b.request.is_some();
                response |= b.response.is_some();
            }
            Feature::Compression(list) => {
                for c in list {
                    if compressors.iter().all(|known| known.algorithm != c.algorithm) {
                        compressors.push(*c);
                    }
                }
            }
        }
    }
    overrides.sort_by(|a, b| override_name(a).cmp(override_name(b)));
    overrides.dedup_by(|a, b| override_name(a) == override_name(b));
    compressors.sort();
    let mut first = overrides;
    first.extend(fault.then_some(HttpFilter::Fault));
    let mut late = Vec::new();
    late.extend(limits.then_some(HttpFilter::LocalRateLimit));
    late.extend(request.then_some(HttpFilter::RequestBandwidth));
    late.extend(response.then_some(HttpFilter::ResponseBandwidth));
    [
        first,
        buffer.map(|max_bytes| HttpFilter::Buffer { max_bytes }).into_iter().collect(),
        late,
        compressors.into_iter().map(HttpFilter::Compressor).collect(),
    ]
}

fn override_name(filter: &HttpFilter) -> &str {
    match filter {
        HttpFilter::ResponseOverride(o) => &o.name,
        _ => "",
    }
}

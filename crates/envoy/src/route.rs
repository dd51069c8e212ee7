//! Virtual hosts and routes.

use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::{
                DataSource, HeaderValue, HeaderValueOption, RuntimeFractionalPercent, data_source::Specifier,
                header_value_option::HeaderAppendAction,
            },
            route::v3::{
                DirectResponseAction, HeaderMatcher, QueryParameterMatcher, RedirectAction, RetryPolicy, Route,
                RouteAction, RouteMatch, VirtualHost, WeightedCluster,
                header_matcher::HeaderMatchSpecifier,
                query_parameter_matcher::QueryParameterMatchSpecifier,
                redirect_action::{PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier},
                retry_policy::{RetryBackOff, RetryHostPredicate, RetryPriority, retry_host_predicate, retry_priority},
                route::Action,
                route_action::{
                    ClusterNotFoundResponseCode, ClusterSpecifier, HostRewriteSpecifier, MaxStreamDuration,
                    RequestMirrorPolicy, UpgradeConfig, upgrade_config::ConnectConfig,
                },
                route_match::{ConnectMatcher, PathSpecifier},
                weighted_cluster::{ClusterWeight, RandomValueSpecifier, cluster_weight},
            },
        },
        extensions::retry::{
            host::previous_hosts::v3::PreviousHostsPredicate,
            priority::previous_priorities::v3::PreviousPrioritiesConfig,
        },
        r#type::{
            matcher::v3::{RegexMatchAndSubstitute, RegexMatcher, StringMatcher, string_matcher::MatchPattern},
            v3::{FractionalPercent, fractional_percent::DenominatorType},
        },
    },
    google::protobuf::BoolValue,
};
use ir::{Destination, HostRewrite, PathMatch, PathRewrite, RedirectPath, StringMatch};

use crate::{
    feature, http,
    pb::{any, bool_value, duration, origin, origin_with, u32_value},
    per_route,
};

/// Times that another host is looked for when the chosen one was tried already.
const HOST_SELECTION_ATTEMPTS: i64 = 5;

pub(crate) fn virtual_host(v: &ir::VirtualHost) -> VirtualHost {
    VirtualHost {
        name: v.name.to_string(),
        domains: v.domains.iter().map(ToString::to_string).collect(),
        routes: v.routes.iter().map(route).collect(),
        metadata: Some(origin(&v.origin)),
        ..Default::default()
    }
}

fn route(r: &ir::Route) -> Route {
    let action = match &r.action {
        ir::Action::Forward(f) => Action::Route(forward(f)),
        ir::Action::Redirect(d) => Action::Redirect(redirect(d)),
        ir::Action::Respond { status, body } => Action::DirectResponse(DirectResponseAction {
            status: u32::from(*status),
            body: body
                .as_ref()
                .map(|b| DataSource { specifier: Some(Specifier::InlineString(b.to_string())), ..Default::default() }),
            ..Default::default()
        }),
    };
    let mut filters = Vec::new();
    if let Some(cors) = &r.cors {
        filters.push((http::CORS.to_owned(), any(&per_route::cors(cors))));
    }
    if let Some(session) = &r.session {
        filters.push((http::STATEFUL_SESSION.to_owned(), any(&per_route::session(session))));
    }
    if r.deny_loopback {
        filters.push((http::LOOPBACK_DENY.to_owned(), any(&per_route::deny_loopback())));
    }
    filters.extend(r.features.iter().flat_map(feature::of_route));
    Route {
        name: r.name.to_string(),
        r#match: Some(route_match(&r.matches)),
        action: Some(action),
        metadata: Some(origin_with(&r.origin, &r.policies)),
        stat_prefix: r.stat_prefix.as_deref().unwrap_or_default().to_owned(),
        request_headers_to_add: added(&r.request_headers),
        request_headers_to_remove: removed(&r.request_headers),
        response_headers_to_add: added(&r.response_headers),
        response_headers_to_remove: removed(&r.response_headers),
        typed_per_filter_config: filters.into_iter().collect(),
        ..Default::default()
    }
}

fn route_match(m: &ir::RouteMatch) -> RouteMatch {
    let path = match &m.path {
        PathMatch::Prefix(p) => PathSpecifier::Prefix(p.to_string()),
        PathMatch::SeparatedPrefix(p) => PathSpecifier::PathSeparatedPrefix(p.to_string()),
        PathMatch::Exact(p) => PathSpecifier::Path(p.to_string()),
        PathMatch::Regex(p) => PathSpecifier::SafeRegex(regex(p)),
        PathMatch::Connect => PathSpecifier::ConnectMatcher(ConnectMatcher {}),
    };
    let header = |name: &str, text: StringMatcher| HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(text)),
        ..Default::default()
    };
    let mut headers: Vec<_> = m.headers.iter().map(|(n, v)| header(n, string_match(v))).collect();
    // Path of a gRPC call and method of a request are headers to Envoy.
    headers.extend(m.method.iter().map(|v| header(":method", exact(v))));
    RouteMatch {
        path_specifier: Some(path),
        headers,
        query_parameters: m
            .query
            .iter()
            .map(|(name, value)| QueryParameterMatcher {
                name: name.to_string(),
                query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(string_match(value))),
            })
            .collect(),
        ..Default::default()
    }
}

pub(crate) fn regex(pattern: &str) -> RegexMatcher {
    RegexMatcher { regex: pattern.to_owned(), engine_type: None }
}

fn exact(text: &str) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Exact(text.to_owned())), ..Default::default() }
}

pub(crate) fn string_match(m: &StringMatch) -> StringMatcher {
    let pattern = match m {
        StringMatch::Exact(s) => MatchPattern::Exact(s.to_string()),
        StringMatch::Prefix(s) => MatchPattern::Prefix(s.to_string()),
        StringMatch::Suffix(s) => MatchPattern::Suffix(s.to_string()),
        StringMatch::Contains(s) => MatchPattern::Contains(s.to_string()),
        StringMatch::Regex(s) => MatchPattern::SafeRegex(regex(s)),
    };
    StringMatcher { match_pattern: Some(pattern), ..Default::default() }
}

fn substitution(pattern: &str, substitution: &str) -> RegexMatchAndSubstitute {
    RegexMatchAndSubstitute { pattern: Some(regex(pattern)), substitution: substitution.to_owned() }
}

fn forward(f: &ir::Forward) -> RouteAction {
    let mut out = RouteAction {
        timeout: f.timeout.map(duration),
        idle_timeout: f.idle_timeout.map(duration),
        retry_policy: f.retry.as_ref().map(retry),
        request_mirror_policies: f.mirrors.iter().map(mirror).collect(),
        upgrade_configs: f
            .upgrades
            .iter()
            .map(|u| UpgradeConfig {
                upgrade_type: u.protocol.to_string(),
                connect_config: u.terminate.then(ConnectConfig::default),
                ..Default::default()
            })
            .collect(),
        hash_policy: f.hash_policies.iter().map(feature::hash_policy).collect(),
        max_stream_duration: f
            .max_stream_duration
            .map(|t| MaxStreamDuration { max_stream_duration: Some(duration(t)), ..Default::default() }),
        append_x_forwarded_host: f.append_x_forwarded_host,
        ..Default::default()
    };
    match &f.to {
        Destination::Cluster(name) => out.cluster_specifier = Some(ClusterSpecifier::Cluster(name.to_string())),
        Destination::Weighted(clusters) => {
            // The share of an invalid backend goes to a cluster that does not exist; the answer to that is 500.
            out.cluster_not_found_response_code = ClusterNotFoundResponseCode::InternalServerError as i32;
            out.cluster_specifier = Some(ClusterSpecifier::WeightedClusters(WeightedCluster {
                clusters: clusters.iter().map(weighted).collect(),
                // Who hashes wants the same endpoint again, so the same cluster first.
                random_value_specifier: (!f.hash_policies.is_empty())
                    .then_some(RandomValueSpecifier::UseHashPolicy(BoolValue { value: true })),
                ..Default::default()
            }));
        }
    }
    match &f.path {
        None => {}
        Some(PathRewrite::Prefix(p)) => out.prefix_rewrite = p.to_string(),
        Some(PathRewrite::Regex { pattern, substitution: to }) => out.regex_rewrite = Some(substitution(pattern, to)),
    }
    out.host_rewrite_specifier = f.host.as_ref().and_then(|h| match h {
        HostRewrite::Literal(name) => Some(HostRewriteSpecifier::HostRewriteLiteral(name.to_string())),
        HostRewrite::Header(name) => Some(HostRewriteSpecifier::HostRewriteHeader(name.to_string())),
        HostRewrite::Endpoint => bool_value(true).map(HostRewriteSpecifier::AutoHostRewrite),
    });
    out
}

fn weighted(c: &ir::WeightedCluster) -> ClusterWeight {
    // Per cluster, Envoy knows only the fixed name.
    let host = match &c.host {
        Some(HostRewrite::Literal(name)) => {
            Some(cluster_weight::HostRewriteSpecifier::HostRewriteLiteral(name.to_string()))
        }
        Some(HostRewrite::Header(_) | HostRewrite::Endpoint) | None => None,
    };
    ClusterWeight {
        name: c.cluster.to_string(),
        weight: u32_value(c.weight),
        request_headers_to_add: added(&c.request_headers),
        request_headers_to_remove: removed(&c.request_headers),
        response_headers_to_add: added(&c.response_headers),
        response_headers_to_remove: removed(&c.response_headers),
        host_rewrite_specifier: host,
        ..Default::default()
    }
}

fn added(m: &ir::HeaderMutation) -> Vec<HeaderValueOption> {
    let header = |h: &ir::HeaderAdd| HeaderValueOption {
        header: Some(HeaderValue { key: h.name.to_string(), value: h.value.to_string(), ..Default::default() }),
        append_action: match h.overwrite {
            true => HeaderAppendAction::OverwriteIfExistsOrAdd,
            false => HeaderAppendAction::AppendIfExistsOrAdd,
        } as i32,
        // An empty value was asked for.
        keep_empty_value: h.value.is_empty(),
        ..Default::default()
    };
    m.add.iter().map(header).collect()
}

fn removed(m: &ir::HeaderMutation) -> Vec<String> {
    m.remove.iter().map(ToString::to_string).collect()
}

fn mirror(m: &ir::Mirror) -> RequestMirrorPolicy {
    let (numerator, denominator) = m.fraction.map_or((100, 100), |f| (f.numerator, f.denominator));
    let denominator = match denominator {
        1_000_000 => DenominatorType::Million,
        10_000 => DenominatorType::TenThousand,
        _ => DenominatorType::Hundred,
    };
    RequestMirrorPolicy {
        cluster: m.cluster.to_string(),
        runtime_fraction: Some(RuntimeFractionalPercent {
            default_value: Some(FractionalPercent { numerator, denominator: denominator as i32 }),
            ..Default::default()
        }),
        disable_shadow_host_suffix_append: true,
        ..Default::default()
    }
}

fn retry(r: &ir::Retry) -> RetryPolicy {
    let predicate = RetryHostPredicate {
        name: "envoy.retry_host_predicates.previous_hosts".to_owned(),
        config_type: Some(retry_host_predicate::ConfigType::TypedConfig(any(&PreviousHostsPredicate {}))),
    };
    RetryPolicy {
        retry_on: r.on.join(","),
        num_retries: r.attempts.and_then(u32_value),
        per_try_timeout: r.per_try_timeout.map(duration),
        retry_host_predicate: r.avoid_previous_hosts.then_some(predicate).into_iter().collect(),
        retry_priority: r.attempts_per_priority.map(priority),
        host_selection_retry_max_attempts: if r.avoid_previous_hosts { HOST_SELECTION_ATTEMPTS } else { 0 },
        retriable_status_codes: r.status_codes.clone(),
        retry_back_off: (r.backoff_base.is_some() || r.backoff_max.is_some()).then(|| RetryBackOff {
            base_interval: r.backoff_base.map(duration),
            max_interval: r.backoff_max.map(duration),
        }),
        ..Default::default()
    }
}

/// After so many tries at one priority the next is tried.
fn priority(attempts: u32) -> RetryPriority {
    let update_frequency = i32::try_from(attempts).unwrap_or(i32::MAX);
    RetryPriority {
        name: "envoy.retry_priorities.previous_priorities".to_owned(),
        config_type: Some(retry_priority::ConfigType::TypedConfig(any(&PreviousPrioritiesConfig { update_frequency }))),
    }
}

pub(crate) fn redirect(d: &ir::Redirect) -> RedirectAction {
    RedirectAction {
        host_redirect: d.host.as_deref().unwrap_or_default().to_owned(),
        port_redirect: d.port.unwrap_or_default().into(),
        scheme_rewrite_specifier: d.scheme.as_ref().map(|s| SchemeRewriteSpecifier::SchemeRedirect(s.to_string())),
        path_rewrite_specifier: d.path.as_ref().map(|p| match p {
            RedirectPath::Full(p) => PathRewriteSpecifier::PathRedirect(p.to_string()),
            RedirectPath::Prefix(p) => PathRewriteSpecifier::PrefixRewrite(p.to_string()),
            RedirectPath::Regex { pattern, substitution: to } => {
                PathRewriteSpecifier::RegexRewrite(substitution(pattern, to))
            }
        }),
        response_code: match d.status {
            302 => RedirectResponseCode::Found,
            303 => RedirectResponseCode::SeeOther,
            307 => RedirectResponseCode::TemporaryRedirect,
            308 => RedirectResponseCode::PermanentRedirect,
            _ => RedirectResponseCode::MovedPermanently,
        } as i32,
        ..Default::default()
    }
}

//! The HTTP connection manager and its filters.

use envoy_types::pb::envoy::{
    config::{
        core::v3::{Http2ProtocolOptions, HttpProtocolOptions, http_protocol_options::HeadersWithUnderscoresAction},
        listener::v3::Filter,
        route::v3::{
            DirectResponseAction, HeaderMatcher, Route, RouteConfiguration, RouteMatch, VirtualHost,
            header_matcher::HeaderMatchSpecifier, route::Action, route_match::PathSpecifier,
        },
    },
    extensions::{
        filters::{
            http::{
                cors::v3::Cors,
                grpc_stats::v3::{FilterConfig, filter_config::PerMethodStatSpecifier},
                grpc_web::v3::GrpcWeb,
                health_check::v3::HealthCheck,
                rbac::v3::Rbac,
                router::v3::Router,
                stateful_session::v3::StatefulSession,
            },
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, Rds,
                http_connection_manager::{PathWithEscapedSlashesAction, RouteSpecifier, ServerHeaderTransformation},
                http_filter::ConfigType,
            },
        },
        http::stateful_session::{cookie::v3::CookieBasedSessionState, header::v3::HeaderBasedSessionState},
    },
    r#type::{
        http::v3::Cookie,
        matcher::v3::{StringMatcher, string_matcher::MatchPattern},
    },
};
use ir::SessionPersistence;
use prost::{Message, Name};

use crate::{
    access_log, feature,
    listener::network_filter,
    pb::{ads_without_timeout, any, bool_value, duration, extension, u32_value},
};

pub(crate) const CORS: &str = "envoy.filters.http.cors";
pub(crate) const STATEFUL_SESSION: &str = "envoy.filters.http.stateful_session";
pub(crate) const LOOPBACK_DENY: &str = "envoy.filters.http.rbac.dfp_loopback_deny";
const CONNECTION_MANAGER: &str = "envoy.filters.network.http_connection_manager";

pub(crate) fn connection_manager(h: &ir::HttpConnection) -> Filter {
    let mut http_filters: Vec<HttpFilter> = h.filters.iter().map(filter).collect();
    http_filters.push(router());
    let manager = HttpConnectionManager {
        stat_prefix: h.stat_prefix.to_string(),
        access_log: access_log::all(&h.access_logs),
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(ads_without_timeout()),
            route_config_name: h.route_table.to_string(),
        })),
        http_filters,
        common_http_protocol_options: Some(HttpProtocolOptions {
            headers_with_underscores_action: HeadersWithUnderscoresAction::RejectRequest as i32,
            ..Default::default()
        }),
        http2_protocol_options: Some(Http2ProtocolOptions {
            initial_stream_window_size: u32_value(h.initial_stream_window),
            initial_connection_window_size: u32_value(h.initial_connection_window),
            max_concurrent_streams: u32_value(h.max_concurrent_streams),
            ..Default::default()
        }),
        server_header_transformation: ServerHeaderTransformation::PassThrough as i32,
        normalize_path: bool_value(true),
        merge_slashes: true,
        path_with_escaped_slashes_action: PathWithEscapedSlashesAction::UnescapeAndRedirect as i32,
        use_remote_address: bool_value(true),
        ..Default::default()
    };
    network_filter(CONNECTION_MANAGER, &manager)
}

/// Answers `/ready` with 200 while the proxy is not draining, everything else with 500.
pub(crate) fn ready() -> Filter {
    let path = StringMatcher { match_pattern: Some(MatchPattern::Exact("/ready".to_owned())), ..Default::default() };
    let health_check = HealthCheck {
        pass_through_mode: bool_value(false),
        headers: vec![HeaderMatcher {
            name: ":path".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(path)),
            ..Default::default()
        }],
        ..Default::default()
    };
    let route = Route {
        r#match: Some(RouteMatch { path_specifier: Some(PathSpecifier::Prefix("/".to_owned())), ..Default::default() }),
        action: Some(Action::DirectResponse(DirectResponseAction { status: 500, ..Default::default() })),
        ..Default::default()
    };
    let name = "ready_route".to_owned();
    let host =
        VirtualHost { name: name.clone(), domains: vec!["*".to_owned()], routes: vec![route], ..Default::default() };
    let manager = HttpConnectionManager {
        stat_prefix: "eg-ready-http".to_owned(),
        http_filters: vec![http_filter("envoy.filters.http.health_check", &health_check), router()],
        route_specifier: Some(RouteSpecifier::RouteConfig(RouteConfiguration {
            name,
            virtual_hosts: vec![host],
            ..Default::default()
        })),
        ..Default::default()
    };
    network_filter(CONNECTION_MANAGER, &manager)
}

fn filter(f: &ir::HttpFilter) -> HttpFilter {
    match f {
        ir::HttpFilter::Cors => http_filter(CORS, &Cors {}),
        ir::HttpFilter::GrpcWeb => http_filter("envoy.filters.http.grpc_web", &GrpcWeb {}),
        ir::HttpFilter::GrpcStats => http_filter(
            "envoy.filters.http.grpc_stats",
            &FilterConfig {
                emit_filter_state: true,
                per_method_stat_specifier: bool_value(true).map(PerMethodStatSpecifier::StatsForAllMethods),
                ..Default::default()
            },
        ),
        ir::HttpFilter::StatefulSession(s) => {
            HttpFilter { disabled: true, ..http_filter(STATEFUL_SESSION, &session(s)) }
        }
        ir::HttpFilter::LoopbackDeny => http_filter(LOOPBACK_DENY, &Rbac::default()),
        of_policy => feature::filter(of_policy).expect("a filter that is not one of the above is made for a policy"),
    }
}

fn router() -> HttpFilter {
    http_filter("envoy.filters.http.router", &Router { suppress_envoy_headers: true, ..Default::default() })
}

pub(crate) fn http_filter<M: Message + Name>(name: &str, settings: &M) -> HttpFilter {
    HttpFilter {
        name: name.to_owned(),
        config_type: Some(ConfigType::TypedConfig(any(settings))),
        ..Default::default()
    }
}

/// Session affinity, for the filter and for a route.
pub(crate) fn session(s: &SessionPersistence) -> StatefulSession {
    let state = match s {
        SessionPersistence::Cookie { name, ttl, path } => extension(
            "envoy.http.stateful_session.cookie",
            &CookieBasedSessionState {
                cookie: Some(Cookie {
                    name: name.to_string(),
                    ttl: ttl.map(duration),
                    path: path.to_string(),
                    ..Default::default()
                }),
            },
        ),
        SessionPersistence::Header { name } => {
            extension("envoy.http.stateful_session.header", &HeaderBasedSessionState { name: name.to_string() })
        }
    };
    StatefulSession { session_state: Some(state), ..Default::default() }
}

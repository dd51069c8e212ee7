//! Settings of HTTP filters for single routes.

use envoy_types::pb::{
    envoy::{
        config::rbac::v3::{Action as RbacVerdict, rbac::Action as Verdict},
        extensions::filters::http::{
            cors::v3::CorsPolicy,
            rbac::v3::{Rbac, RbacPerRoute},
            stateful_session::v3::{StatefulSessionPerRoute, stateful_session_per_route::Override},
        },
        r#type::matcher::v3::HttpRequestHeaderMatchInput,
    },
    google::protobuf::BoolValue,
    xds::{
        core::v3::TypedExtensionConfig,
        r#type::matcher::v3::{
            Matcher, RegexMatcher, StringMatcher,
            matcher::{
                MatcherList, MatcherType, OnMatch,
                matcher_list::{
                    FieldMatcher, Predicate,
                    predicate::{MatchType, PredicateList, SinglePredicate, single_predicate},
                },
                on_match,
            },
            regex_matcher::{EngineType, GoogleRe2},
            string_matcher::MatchPattern,
        },
    },
};
use ir::SessionPersistence;
use prost::{Message, Name};

use crate::{
    http,
    pb::{any, bool_value},
    route::string_match,
};

pub(crate) fn cors(c: &ir::Cors) -> CorsPolicy {
    let joined = |v: &[ir::Name]| v.join(", ");
    CorsPolicy {
        allow_origin_string_match: c.allow_origins.iter().map(string_match).collect(),
        allow_methods: joined(&c.allow_methods),
        allow_headers: joined(&c.allow_headers),
        expose_headers: joined(&c.expose_headers),
        max_age: c.max_age.map(|t| (t.0 / 1000).to_string()).unwrap_or_default(),
        allow_credentials: c.allow_credentials.map(|value| BoolValue { value }),
        // A preflight from an origin that is not allowed is answered here, not by the backend.
        forward_not_matching_preflights: bool_value(false),
        ..Default::default()
    }
}

pub(crate) fn session(s: &SessionPersistence) -> StatefulSessionPerRoute {
    StatefulSessionPerRoute { r#override: Some(Override::StatefulSession(http::session(s))) }
}

/// Authorities by which a request would reach the proxy itself, with or without a port.
const LOOPBACK: [&str; 7] =
    [r"127\.0\.0\.1", "localhost", r"localhost\.localdomain", "ip6-localhost", "ip6-loopback", r"\[::1\]", "::1"];

/// With a dynamic forward proxy the client names the upstream; that must not be the proxy's own host.
pub(crate) fn deny_loopback() -> RbacPerRoute {
    let predicate = LOOPBACK.map(|host| Predicate { match_type: Some(authority(&format!(r"^{host}(?::\d+)?$"))) });
    let matcher = FieldMatcher {
        predicate: Some(Predicate {
            match_type: Some(MatchType::OrMatcher(PredicateList { predicate: predicate.into() })),
        }),
        on_match: Some(verdict("deny-loopback-host", "DENY", Verdict::Deny)),
    };
    RbacPerRoute {
        rbac: Some(Rbac {
            matcher: Some(Matcher {
                on_no_match: Some(Box::new(verdict("default", "ALLOW", Verdict::Allow))),
                matcher_type: Some(MatcherType::MatcherList(MatcherList { matchers: vec![matcher] })),
            }),
            ..Default::default()
        }),
    }
}

fn authority(pattern: &str) -> MatchType {
    let input = HttpRequestHeaderMatchInput { header_name: ":authority".to_owned() };
    let regex = RegexMatcher { regex: pattern.to_owned(), engine_type: Some(EngineType::GoogleRe2(GoogleRe2 {})) };
    let value = StringMatcher { match_pattern: Some(MatchPattern::SafeRegex(regex)), ..Default::default() };
    MatchType::SinglePredicate(SinglePredicate {
        input: Some(config("http_header", &input)),
        matcher: Some(single_predicate::Matcher::ValueMatch(value)),
    })
}

fn verdict(name: &str, verdict_name: &str, verdict: Verdict) -> OnMatch {
    let action = RbacVerdict { name: verdict_name.to_owned(), action: verdict as i32 };
    OnMatch { on_match: Some(on_match::OnMatch::Action(config(name, &action))), ..Default::default() }
}

fn config<M: Message + Name>(name: &str, message: &M) -> TypedExtensionConfig {
    TypedExtensionConfig { name: name.to_owned(), typed_config: Some(any(message)) }
}

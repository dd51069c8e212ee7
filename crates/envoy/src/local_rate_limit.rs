//! Rate limits that the proxy counts by itself.

use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::RuntimeFractionalPercent,
            route::v3::{
                HeaderMatcher, QueryParameterMatcher, RateLimit,
                header_matcher::HeaderMatchSpecifier,
                query_parameter_matcher::QueryParameterMatchSpecifier,
                rate_limit::{
                    Action, HitsAddend, XRateLimitOption,
                    action::{
                        ActionSpecifier, HeaderValueMatch, QueryParameterValueMatch, QueryParameters,
                        RemoteAddressMatch, RequestHeaders,
                    },
                },
            },
        },
        extensions::{
            common::ratelimit::v3::{
                LocalRateLimitDescriptor, XRateLimitHeadersRfcVersion, rate_limit_descriptor::Entry,
            },
            filters::http::local_ratelimit::v3::LocalRateLimit,
        },
        r#type::{
            matcher::v3::AddressMatcher,
            v3::{FractionalPercent, TokenBucket, fractional_percent::DenominatorType},
        },
    },
    xds::core::v3::CidrRange,
};
use ir::{Cost, LocalRule, RateCondition, RateTest};

use crate::{
    pb::{bool_value, duration, u32_value, u64_value},
    route::string_match,
};

/// Descriptors that values of requests make, at the same time; older ones are forgotten.
const DYNAMIC_DESCRIPTORS: u32 = 10_000;
const STAT_PREFIX: &str = "http_local_rate_limiter";
/// The client's address in a descriptor.
const CLIENT: &str = "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%";

/// The filter of a listener, which limits nothing by itself.
pub(crate) fn filter() -> LocalRateLimit {
    LocalRateLimit {
        stat_prefix: STAT_PREFIX.to_owned(),
        max_dynamic_descriptors: u32_value(DYNAMIC_DESCRIPTORS),
        ..Default::default()
    }
}

/// The limits of a route.
pub(crate) fn of_route(limit: &ir::LocalRateLimit) -> LocalRateLimit {
    let share = |numerator| RuntimeFractionalPercent {
        default_value: Some(FractionalPercent { numerator, denominator: DenominatorType::Hundred as i32 }),
        ..Default::default()
    };
    let headers =
        if limit.headers { XRateLimitHeadersRfcVersion::DraftVersion03 } else { XRateLimitHeadersRfcVersion::Off };
    LocalRateLimit {
        stat_prefix: STAT_PREFIX.to_owned(),
        token_bucket: Some(bucket(&limit.default)),
        filter_enabled: Some(share(100)),
        filter_enforced: Some(share(if limit.shadow { 0 } else { 100 })),
        descriptors: limit.rules.iter().map(descriptor).collect(),
        rate_limits: limit.rules.iter().map(rate_limit).collect(),
        enable_x_ratelimit_headers: headers as i32,
        // A rule is counted instead of the default, not beside it.
        always_consume_default_token_bucket: bool_value(false),
        ..Default::default()
    }
}

fn bucket(b: &ir::TokenBucket) -> TokenBucket {
    TokenBucket {
        max_tokens: b.tokens,
        tokens_per_fill: u32_value(b.tokens),
        fill_interval: Some(duration(b.interval)),
    }
}

fn descriptor(rule: &LocalRule) -> LocalRateLimitDescriptor {
    let entry = |c: &RateCondition| Entry {
        key: c.name.to_string(),
        // An entry without a value takes each value by itself.
        value: match &c.test {
            RateTest::EachHeader(_) | RateTest::EachQuery(_) | RateTest::EachSource { .. } => String::new(),
            RateTest::Source { range, .. } => range.to_string(),
            RateTest::Header { .. } | RateTest::Query { .. } => c.name.to_string(),
        },
    };
    LocalRateLimitDescriptor {
        entries: rule.conditions.iter().map(entry).collect(),
        token_bucket: Some(bucket(&rule.limit)),
        shadow_mode: rule.shadow,
    }
}

fn rate_limit(rule: &LocalRule) -> RateLimit {
    let cost = |c: &Cost| match c {
        Cost::Number(n) => HitsAddend { number: u64_value(*n), ..Default::default() },
        Cost::Format(f) => HitsAddend { format: f.to_string(), ..Default::default() },
    };
    let headers = match rule.headers {
        None => XRateLimitOption::Unspecified,
        Some(true) => XRateLimitOption::DraftVersion03,
        Some(false) => XRateLimitOption::Off,
    };
    RateLimit {
        actions: rule.conditions.iter().map(action).collect(),
        hits_addend: rule.cost.as_ref().map(cost),
        x_ratelimit_option: headers as i32,
        ..Default::default()
    }
}

fn action(c: &RateCondition) -> Action {
    let name = || c.name.to_string();
    let within = |address: &str, prefix, invert_match| {
        let range = CidrRange { address_prefix: address.to_owned(), prefix_len: u32_value(prefix) };
        Some(AddressMatcher { ranges: vec![range], invert_match })
    };
    let specifier = match &c.test {
        RateTest::Header { name: header, value, invert } => ActionSpecifier::HeaderValueMatch(HeaderValueMatch {
            descriptor_key: name(),
            descriptor_value: name(),
            expect_match: bool_value(!invert),
            headers: vec![HeaderMatcher {
                name: header.to_string(),
                header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(string_match(value))),
                ..Default::default()
            }],
            ..Default::default()
        }),
        RateTest::EachHeader(header) => ActionSpecifier::RequestHeaders(RequestHeaders {
            descriptor_key: name(),
            header_name: header.to_string(),
            ..Default::default()
        }),
        RateTest::Query { name: parameter, value, invert } => {
            ActionSpecifier::QueryParameterValueMatch(QueryParameterValueMatch {
                descriptor_key: name(),
                descriptor_value: name(),
                expect_match: bool_value(!invert),
                query_parameters: vec![QueryParameterMatcher {
                    name: parameter.to_string(),
                    query_parameter_match_specifier: Some(QueryParameterMatchSpecifier::StringMatch(string_match(
                        value,
                    ))),
                }],
                ..Default::default()
            })
        }
        RateTest::EachQuery(parameter) => ActionSpecifier::QueryParameters(QueryParameters {
            descriptor_key: name(),
            query_parameter_name: parameter.to_string(),
            ..Default::default()
        }),
        RateTest::Source { range, address, prefix, invert } => {
            ActionSpecifier::RemoteAddressMatch(RemoteAddressMatch {
                descriptor_key: name(),
                descriptor_value: range.to_string(),
                address_matcher: within(address, *prefix, *invert),
                ..Default::default()
            })
        }
        RateTest::EachSource { address, prefix, invert } => ActionSpecifier::RemoteAddressMatch(RemoteAddressMatch {
            descriptor_key: name(),
            descriptor_value: CLIENT.to_owned(),
            address_matcher: within(address, *prefix, *invert),
            ..Default::default()
        }),
    };
    Action { action_specifier: Some(specifier) }
}

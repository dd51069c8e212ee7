//! Rate limits that the proxy counts by itself.

use std::{net::IpAddr, sync::Arc};

use api::{
    envoygateway::{
        self as eg, HeaderMatchType, QueryParamMatchType, RateLimitRule, RateLimitSelectCondition, RateLimitUnit,
        SourceMatchType, XRateLimitHeadersOption,
    },
    gateway::PathMatchType,
};
use ir::{Cost, LocalRateLimit, LocalRule, Millis, Name, RateCondition, RateTest, StringMatch, TokenBucket};

use crate::read::Wrong;

/// The limits of a policy; nothing where one of them makes no sense, which is told.
pub(crate) fn local(spec: &eg::LocalRateLimit, wrong: &mut Wrong) -> Option<Arc<LocalRateLimit>> {
    let field = |i: usize| format!("spec.rateLimit.local.rules[{i}]");
    let mut default: Option<(usize, &RateLimitRule)> = None;
    for (i, rule) in spec.rules.iter().enumerate().filter(|(_, r)| r.client_selectors.is_empty()) {
        if let Some((first, _)) = default {
            wrong.add(format!(
                "{}: rule {first} is for all requests already, and so is this one; give one of them clientSelectors",
                field(i)
            ));
            return None;
        }
        default = Some((i, rule));
    }
    let (bucket, shadow) = match default {
        Some((_, rule)) => (bucket(&rule.limit), rule.shadow_mode == Some(true)),
        // Envoy wants a limit for all requests: one that is never reached.
        None => (TokenBucket { tokens: u32::MAX, interval: Millis(1000) }, false),
    };
    for (i, rule) in spec.rules.iter().enumerate() {
        if !self::bucket(&rule.limit).interval.0.is_multiple_of(bucket.interval.0) {
            wrong.add(format!(
                "{}.limit.unit: must be a multiple of the unit of the rule without clientSelectors; choose a longer one",
                field(i)
            ));
            return None;
        }
    }
    let mut rules = Vec::new();
    for (i, rule) in spec.rules.iter().enumerate().filter(|(_, r)| !r.client_selectors.is_empty()) {
        let index = rules.len();
        let cost = rule.cost.as_ref().and_then(|c| c.request.as_ref());
        rules.push(LocalRule {
            index,
            conditions: conditions(&rule.client_selectors, index, &field(i), wrong)?,
            limit: self::bucket(&rule.limit),
            shadow: rule.shadow_mode == Some(true),
            cost: cost.and_then(self::cost),
            headers: rule.x_rate_limit_headers.as_ref().map(|h| *h == XRateLimitHeadersOption::DraftVersion03),
        });
    }
    Some(Arc::new(LocalRateLimit { default: bucket, rules, headers: true, shadow }))
}

fn cost(cost: &eg::RateLimitCostSpecifier) -> Option<Cost> {
    let metadata = || {
        let m = cost.metadata.as_ref()?;
        Some(Cost::Format(format!("%DYNAMIC_METADATA({}:{})%", m.namespace, m.key).into()))
    };
    cost.number.map(Cost::Number).or_else(metadata)
}

fn bucket(limit: &eg::RateLimitValue) -> TokenBucket {
    const DAY: u64 = 86_400;
    let seconds = match limit.unit {
        RateLimitUnit::Second | RateLimitUnit::Unknown(_) => 1,
        RateLimitUnit::Minute => 60,
        RateLimitUnit::Hour => 3_600,
        RateLimitUnit::Day => DAY,
        RateLimitUnit::Week => 7 * DAY,
        RateLimitUnit::Month => 30 * DAY,
        RateLimitUnit::Year => 365 * DAY,
    };
    TokenBucket { tokens: limit.requests, interval: Millis(seconds * 1000) }
}

/// The conditions of a rule: of all its selectors, headers first.
fn conditions(
    selectors: &[RateLimitSelectCondition],
    index: usize,
    field: &str,
    wrong: &mut Wrong,
) -> Option<Vec<RateCondition>> {
    let mut out = Vec::new();
    let mut rest = Vec::new();
    let mut matches = 0;
    let mut next = || {
        matches += 1;
        Name::from(format!("rule-{index}-match-{}", matches - 1))
    };
    for (s, selector) in selectors.iter().enumerate() {
        let field = format!("{field}.clientSelectors[{s}]");
        for (i, h) in selector.headers.iter().enumerate() {
            let field = format!("{field}.headers[{i}]");
            let kind = match &h.type_ {
                None | Some(HeaderMatchType::Exact) => Kind::Exact,
                Some(HeaderMatchType::RegularExpression) => Kind::Regex,
                Some(HeaderMatchType::Distinct) => Kind::Each,
                Some(HeaderMatchType::Unknown(_)) => Kind::Unknown,
            };
            let invert = h.invert == Some(true);
            let test = match value(kind, h.value.as_deref(), invert, &field, wrong)? {
                None => RateTest::EachHeader(h.name.as_str().into()),
                Some(value) => RateTest::Header { name: h.name.as_str().into(), value, invert },
            };
            out.push(RateCondition { name: next(), test });
        }
        for (i, q) in selector.query_params.iter().enumerate() {
            let field = format!("{field}.queryParams[{i}]");
            let kind = match &q.type_ {
                None | Some(QueryParamMatchType::Exact) => Kind::Exact,
                Some(QueryParamMatchType::RegularExpression) => Kind::Regex,
                Some(QueryParamMatchType::Distinct) => Kind::Each,
                Some(QueryParamMatchType::Unknown(_)) => Kind::Unknown,
            };
            let invert = q.invert == Some(true);
            let test = match value(kind, q.value.as_deref(), invert, &field, wrong)? {
                None => RateTest::EachQuery(q.name.as_str().into()),
                Some(value) => RateTest::Query { name: q.name.as_str().into(), value, invert },
            };
            out.push(RateCondition { name: next(), test });
        }
        for m in &selector.methods {
            let value = StringMatch::Exact(m.value.as_str().into());
            let test = RateTest::Header { name: ":method".into(), value, invert: m.invert == Some(true) };
            rest.push(RateCondition { name: format!("rule-{index}-method").into(), test });
        }
        if let Some(p) = &selector.path {
            let value = path(p, &format!("{field}.path"), wrong)?;
            let test = RateTest::Header { name: ":path".into(), value, invert: p.invert == Some(true) };
            rest.push(RateCondition { name: format!("rule-{index}-path").into(), test });
        }
        if let Some(source) = &selector.source_cidr {
            let Some((range, address, prefix)) = range(&source.value) else {
                wrong.add(format!(
                    "{field}.sourceCIDR.value: {} is no range of addresses; write it as 10.0.0.0/8",
                    source.value
                ));
                return None;
            };
            let invert = source.invert == Some(true);
            let test = RateTest::Source { range, address: address.clone(), prefix, invert };
            rest.push(RateCondition { name: format!("rule-{index}-masked-remote-address").into(), test });
            if source.type_ == Some(SourceMatchType::Distinct) {
                let test = RateTest::EachSource { address, prefix, invert };
                rest.push(RateCondition { name: format!("rule-{index}-remote-address").into(), test });
            }
        }
    }
    out.extend(rest);
    Some(out)
}

/// How a value is compared.
enum Kind {
    Exact,
    Regex,
    Each,
    Unknown,
}

/// What a value must be; nothing inside where each value counts by itself, nothing outside where it makes no sense.
#[allow(clippy::option_option, reason = "the two are different answers")]
fn value(kind: Kind, value: Option<&str>, invert: bool, field: &str, wrong: &mut Wrong) -> Option<Option<StringMatch>> {
    match (kind, value) {
        (Kind::Exact, Some(text)) => Some(Some(StringMatch::Exact(text.into()))),
        (Kind::Regex, Some(text)) => {
            wrong.pattern(&format!("{field}.value"), text).map(|p| Some(StringMatch::Regex(p)))
        }
        (Kind::Each, None) if invert => {
            wrong.add(format!("{field}.invert: does not go with type Distinct; remove one of them"));
            None
        }
        (Kind::Each, None) => Some(None),
        _ => {
            wrong.add(format!(
                "{field}: type and value do not fit; Exact and RegularExpression want a value, Distinct wants none"
            ));
            None
        }
    }
}

fn path(p: &eg::PathMatch, field: &str, wrong: &mut Wrong) -> Option<StringMatch> {
    let value = p.value.as_deref().unwrap_or("/");
    Some(match &p.type_ {
        Some(PathMatchType::Exact) => StringMatch::Exact(value.into()),
        Some(PathMatchType::RegularExpression) => StringMatch::Regex(wrong.pattern(&format!("{field}.value"), value)?),
        _ if value == "/" => StringMatch::Prefix("/".into()),
        // A rate limit knows no prefix by whole elements of a path.
        _ => StringMatch::Regex(format!(r"^{}(/.*|\?.*|#.*|;.*|$)", re2::quote(value.trim_end_matches('/'))).into()),
    })
}

/// A range of addresses: as text, its address with the host's part cleared, and its length.
pub(crate) fn range(text: &str) -> Option<(Name, Name, u32)> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u32 = prefix.parse().ok()?;
    let first: IpAddr = match address {
        IpAddr::V4(a) if prefix <= 32 => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            std::net::Ipv4Addr::from(u32::from(a) & mask).into()
        }
        IpAddr::V6(a) if prefix <= 128 => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            std::net::Ipv6Addr::from(u128::from(a) & mask).into()
        }
        _ => return None,
    };
    Some((format!("{first}/{prefix}").into(), first.to_string().into(), prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_loses_the_hosts_part() {
        let of = |text| range(text).map(|(r, a, p)| (r.to_string(), a.to_string(), p));
        assert_eq!(of("10.1.2.3/8"), Some(("10.0.0.0/8".into(), "10.0.0.0".into(), 8)));
        assert_eq!(of("0.0.0.0/0"), Some(("0.0.0.0/0".into(), "0.0.0.0".into(), 0)));
        assert_eq!(of("2001:db8::1/64"), Some(("2001:db8::/64".into(), "2001:db8::".into(), 64)));
        for text in ["10.0.0.0", "10.0.0.0/33", "x/8", "10.0.0.0/-1", "::/129"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    fn read(spec: serde_json::Value) -> Result<Arc<LocalRateLimit>, Vec<String>> {
        let spec: eg::LocalRateLimit = serde_json::from_value(spec).expect("limits");
        let mut wrong = Wrong::default();
        local(&spec, &mut wrong).ok_or_else(|| wrong.into_messages())
    }

    #[test]
    fn the_rule_without_selectors_is_the_default_and_there_is_one() {
        let all = serde_json::json!({"limit": {"requests": 5, "unit": "Minute"}});
        let some = serde_json::json!({"clientSelectors": [{"headers": [{"name": "a", "value": "b"}]}],
            "limit": {"requests": 2, "unit": "Hour"}});
        let limit = read(serde_json::json!({"rules": [all, some]})).unwrap();
        assert_eq!(limit.default, TokenBucket { tokens: 5, interval: Millis(60_000) });
        assert_eq!(limit.rules.len(), 1);
        assert_eq!(&*limit.rules[0].conditions[0].name, "rule-0-match-0");
        let messages = read(serde_json::json!({"rules": [all, all]})).unwrap_err();
        assert!(messages[0].contains("rules[1]"), "{messages:?}");
        let short = serde_json::json!({"clientSelectors": [{"methods": [{"value": "GET"}]}],
            "limit": {"requests": 2, "unit": "Second"}});
        let messages = read(serde_json::json!({"rules": [all, short]})).unwrap_err();
        assert!(messages[0].contains("rules[1].limit.unit"), "{messages:?}");
        assert_eq!(read(serde_json::json!({"rules": [short]})).unwrap().default.tokens, u32::MAX);
    }
}

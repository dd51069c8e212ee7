//! Conditions of a rule.

use std::collections::BTreeSet;

use api::gateway::{HTTPRouteMatch, HeaderMatchType, PathMatchType, QueryParamMatchType};
use ir::{Name, PathMatch, RouteMatch, StringMatch};

use super::order::Rank;
use crate::condition::Problem;

/// One way to match a rule.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Last part of the route's name before the host, `match/0`.
    pub(crate) label: String,
    pub(crate) matches: RouteMatch,
    pub(crate) rank: Rank,
}

/// The matches of an HTTPRoute rule; one that matches everything if it names none.
pub(super) fn of_rule(matches: &[HTTPRouteMatch], rule: usize) -> Result<Vec<Entry>, Problem> {
    if matches.is_empty() {
        let all =
            RouteMatch { path: PathMatch::Prefix("/".into()), method: None, headers: Vec::new(), query: Vec::new() };
        return Ok(vec![Entry { label: "match/-1".to_owned(), rank: Rank::of(&all), matches: all }]);
    }
    matches.iter().enumerate().map(|(i, m)| one(m, rule, i)).collect()
}

fn one(m: &HTTPRouteMatch, rule: usize, index: usize) -> Result<Entry, Problem> {
    let field = format!("spec.rules[{rule}].matches[{index}]");
    let value = m.path.as_ref().and_then(|p| p.value.as_deref()).filter(|v| !v.is_empty()).unwrap_or("/");
    let path = match m.path.as_ref().and_then(|p| p.type_.as_ref()) {
        None | Some(PathMatchType::PathPrefix) => prefix(value),
        Some(PathMatchType::Exact) => PathMatch::Exact(value.into()),
        Some(PathMatchType::RegularExpression) => PathMatch::Regex(pattern(value, &format!("{field}.path.value"))?),
        Some(PathMatchType::Unknown(t)) => {
            let message = format!("{field}.path.type: {t} is not known; use Exact, PathPrefix or RegularExpression");
            return Err(Problem::value("UnsupportedValue", message));
        }
    };
    let mut headers = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, h) in m.headers.iter().enumerate() {
        // Of entries with the same name only the first counts.
        if !seen.insert(h.name.to_ascii_lowercase()) {
            continue;
        }
        let regex = match &h.type_ {
            None | Some(HeaderMatchType::Exact) => false,
            Some(HeaderMatchType::RegularExpression) => true,
            Some(HeaderMatchType::Unknown(t)) => return Err(unknown(&format!("{field}.headers[{i}]"), t)),
        };
        headers.push((h.name.as_str().into(), text(&h.value, regex, &format!("{field}.headers[{i}].value"))?));
    }
    let mut query = Vec::new();
    let mut seen = BTreeSet::new();
    for (i, q) in m.query_params.iter().enumerate() {
        if !seen.insert(q.name.as_str()) {
            continue;
        }
        let regex = match &q.type_ {
            None | Some(QueryParamMatchType::Exact) => false,
            Some(QueryParamMatchType::RegularExpression) => true,
            Some(QueryParamMatchType::Unknown(t)) => return Err(unknown(&format!("{field}.queryParams[{i}]"), t)),
        };
        query.push((q.name.as_str().into(), text(&q.value, regex, &format!("{field}.queryParams[{i}].value"))?));
    }
    let method = m.method.as_ref().map(|m| m.as_str().into());
    let matches = RouteMatch { path, method, headers, query };
    Ok(Entry { label: format!("match/{index}"), rank: Rank::of(&matches), matches })
}

fn unknown(field: &str, kind: &str) -> Problem {
    let message = format!("{field}.type: {kind} is not known; use Exact or RegularExpression");
    Problem::value("UnsupportedValue", message)
}

fn prefix(value: &str) -> PathMatch {
    match value.trim_end_matches('/') {
        "" => PathMatch::Prefix("/".into()),
        trimmed => PathMatch::SeparatedPrefix(trimmed.into()),
    }
}

pub(super) fn text(value: &str, regex: bool, field: &str) -> Result<StringMatch, Problem> {
    if regex { pattern(value, field).map(StringMatch::Regex) } else { Ok(StringMatch::Exact(value.into())) }
}

/// A pattern that Envoy will take: one that it does not would make it refuse the whole route table.
pub(super) fn pattern(value: &str, field: &str) -> Result<Name, Problem> {
    match re2::check(value) {
        Ok(()) => Ok(value.into()),
        Err(e) => {
            let message = format!("{field}: `{value}` is no RE2 expression: {e}; correct it");
            Err(Problem::value("UnsupportedValue", message))
        }
    }
}

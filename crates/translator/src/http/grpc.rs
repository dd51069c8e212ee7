//! GRPCRoute, read as an HTTPRoute whose paths are `/SERVICE/METHOD`.

use api::gateway::{
    GRPCHeaderMatchType, GRPCMethodMatch, GRPCMethodMatchType, GRPCRouteFilter, GRPCRouteFilterType, GRPCRouteMatch,
    HTTPRouteFilter, HTTPRouteFilterType,
};
use ir::{PathMatch, RouteMatch, StringMatch};

use super::{
    matches::{Entry, pattern, text},
    order::Rank,
};
use crate::condition::Problem;

const ANY_SERVICE: &str = r"(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*";
const ANY_METHOD: &str = "[A-Za-z_][A-Za-z_0-9]*";

/// The matches of a GRPCRoute rule.
pub(super) fn of_rule(matches: &[GRPCRouteMatch], rule: usize) -> Result<Vec<Entry>, Problem> {
    if matches.is_empty() {
        return super::matches::of_rule(&[], rule);
    }
    matches.iter().enumerate().map(|(i, m)| one(m, rule, i)).collect()
}

fn one(m: &GRPCRouteMatch, rule: usize, index: usize) -> Result<Entry, Problem> {
    let field = format!("spec.rules[{rule}].matches[{index}]");
    let mut headers = Vec::new();
    let path = method(m.method.as_ref(), &field, &mut headers)?;
    for (i, h) in m.headers.iter().enumerate() {
        let regex = h.type_ == Some(GRPCHeaderMatchType::RegularExpression);
        headers.push((h.name.as_str().into(), text(&h.value, regex, &format!("{field}.headers[{i}].value"))?));
    }
    let matches = RouteMatch { path, method: None, headers, query: Vec::new() };
    Ok(Entry { label: format!("match/{index}"), rank: Rank::of(&matches), matches })
}

fn method(
    method: Option<&GRPCMethodMatch>,
    field: &str,
    headers: &mut Vec<(ir::Name, StringMatch)>,
) -> Result<PathMatch, Problem> {
    let all = PathMatch::Prefix("/".into());
    let Some(m) = method else { return Ok(all) };
    let (service, method) = (m.service.as_deref(), m.method.as_deref());
    if m.type_ == Some(GRPCMethodMatchType::RegularExpression) {
        for (name, text) in [("service", service), ("method", method)] {
            if let Some(text) = text {
                pattern(text, &format!("{field}.method.{name}"))?;
            }
        }
        let service = service.unwrap_or(ANY_SERVICE);
        let method = method.unwrap_or(ANY_METHOD);
        let whole = format!("/{service}/{method}");
        return Ok(PathMatch::Regex(pattern(&whole, &format!("{field}.method"))?));
    }
    Ok(match (service, method) {
        (Some(s), Some(m)) => PathMatch::Exact(format!("/{s}/{m}").into()),
        (Some(s), None) => PathMatch::SeparatedPrefix(format!("/{s}").into()),
        (None, Some(m)) => {
            headers.push((":path".into(), StringMatch::Suffix(format!("/{m}").into())));
            all
        }
        (None, None) => all,
    })
}

/// Filters in the form that HTTPRoute gives them.
pub(super) fn filters(filters: &[GRPCRouteFilter]) -> Vec<HTTPRouteFilter> {
    filters
        .iter()
        .map(|f| HTTPRouteFilter {
            type_: match &f.type_ {
                GRPCRouteFilterType::RequestHeaderModifier => HTTPRouteFilterType::RequestHeaderModifier,
                GRPCRouteFilterType::ResponseHeaderModifier => HTTPRouteFilterType::ResponseHeaderModifier,
                GRPCRouteFilterType::RequestMirror => HTTPRouteFilterType::RequestMirror,
                GRPCRouteFilterType::ExtensionRef => HTTPRouteFilterType::ExtensionRef,
                GRPCRouteFilterType::Unknown(t) => HTTPRouteFilterType::Unknown(t.clone()),
            },
            extension_ref: f.extension_ref.clone(),
            request_header_modifier: f.request_header_modifier.clone(),
            response_header_modifier: f.response_header_modifier.clone(),
            request_mirror: f.request_mirror.clone(),
            ..HTTPRouteFilter::default()
        })
        .collect()
}

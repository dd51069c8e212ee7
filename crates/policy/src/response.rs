//! Responses that are replaced.

use std::sync::Arc;

use api::{
    envoygateway::{
        self as eg, CustomResponseBody, ResponseOverrideSource, ResponseValueType, StatusCodeValueType, StringMatchType,
    },
    gateway::HTTPHeader,
};
use ir::{Answer, HeaderAdd, Name, OverrideRule, Redirect, RedirectPath, StringMatch};
use k8s_openapi::api::core::v1::ConfigMap;
use resources::Store;

use crate::read::Wrong;

/// Key of the body in a ConfigMap.
const KEY: &str = "response.body";

/// Reads the rules. `name` is that of the policy as `NS/NAME`; ConfigMaps are looked for in `namespace`.
pub(crate) fn overrides(
    rules: &[eg::ResponseOverride],
    name: &str,
    namespace: &str,
    store: &Store,
    wrong: &mut Wrong,
) -> Option<Arc<ir::ResponseOverride>> {
    if rules.is_empty() {
        return None;
    }
    let rules = rules
        .iter()
        .enumerate()
        .map(|(i, rule)| {
            let field = format!("spec.responseOverride[{i}]");
            one(rule, &field, namespace, store, wrong)
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Arc::new(ir::ResponseOverride { name: format!("backendtrafficpolicy/{name}").into(), rules }))
}

fn one(
    rule: &eg::ResponseOverride,
    field: &str,
    namespace: &str,
    store: &Store,
    wrong: &mut Wrong,
) -> Option<OverrideRule> {
    let code = |n: i64| u32::try_from(n).unwrap_or_default();
    let statuses = rule.match_.status_codes.iter().filter_map(|s| match (&s.type_, &s.range, s.value) {
        (Some(StatusCodeValueType::Range), Some(r), _) => Some((code(r.start), code(r.end))),
        (_, _, Some(v)) => Some((code(v), code(v))),
        _ => None,
    });
    let statuses = statuses.collect();
    let mut headers = Vec::new();
    for (i, h) in rule.match_.response_headers.iter().enumerate() {
        let text: Name = h.value.value.as_str().into();
        let value = match h.value.type_.clone().unwrap_or_default() {
            StringMatchType::Prefix => StringMatch::Prefix(text),
            StringMatchType::Suffix => StringMatch::Suffix(text),
            StringMatchType::RegularExpression => {
                let field = format!("{field}.match.responseHeaders[{i}].value.value");
                StringMatch::Regex(wrong.pattern(&field, &text)?)
            }
            _ => StringMatch::Exact(text),
        };
        headers.push((h.name.as_str().into(), value));
    }
    let local = match rule.source {
        Some(ResponseOverrideSource::Local) => Some(true),
        Some(ResponseOverrideSource::Backend) => Some(false),
        _ => None,
    };
    let answer = match (&rule.redirect, &rule.response) {
        (Some(r), _) => Answer::Redirect(Redirect {
            scheme: r.scheme.as_deref().map(Into::into),
            host: r.hostname.as_deref().map(Into::into),
            port: r.port.and_then(|p| u16::try_from(p).ok()),
            path: r.path.as_ref().and_then(|p| p.replace_full_path.as_deref()).map(|p| RedirectPath::Full(p.into())),
            status: r.status_code.and_then(|s| u16::try_from(s).ok()).unwrap_or(302),
        }),
        (None, Some(r)) => {
            let mut added = Vec::new();
            let header = |h: &HTTPHeader, overwrite| HeaderAdd {
                name: h.name.as_str().into(),
                value: h.value.as_str().into(),
                overwrite,
            };
            added.extend(r.content_type.as_deref().map(|t| HeaderAdd {
                name: "Content-Type".into(),
                value: t.into(),
                overwrite: true,
            }));
            if let Some(h) = &r.header {
                added.extend(h.add.iter().map(|h| header(h, false)));
                added.extend(h.set.iter().map(|h| header(h, true)));
            }
            let body = match &r.body {
                Some(body) => body_of(body, &format!("{field}.response.body"), namespace, store, wrong)?,
                None => None,
            };
            Answer::Response { status: r.status_code.map(code), body, headers: added }
        }
        (None, None) => {
            wrong.add(format!("{field}: there is neither response nor redirect; give one"));
            return None;
        }
    };
    Some(OverrideRule { statuses, headers, local, answer })
}

/// The body, if any; nothing where a ConfigMap does not have it.
#[allow(clippy::option_option, reason = "no body and no answer are different")]
fn body_of(
    body: &CustomResponseBody,
    field: &str,
    namespace: &str,
    store: &Store,
    wrong: &mut Wrong,
) -> Option<Option<Vec<u8>>> {
    if body.type_ != Some(ResponseValueType::ValueRef) {
        return Some(body.inline.as_ref().map(|t| t.clone().into_bytes()));
    }
    let Some(reference) = &body.value_ref else {
        wrong.add(format!("{field}.valueRef is missing though type asks for it; add it"));
        return None;
    };
    match config_map(namespace, &reference.name, store) {
        Ok(bytes) => Some(Some(bytes)),
        Err(message) => {
            wrong.add(format!("{field}.valueRef: {message}"));
            None
        }
    }
}

/// The body that a ConfigMap holds: under its own key, else the first there is.
fn config_map(namespace: &str, name: &str, store: &Store) -> Result<Vec<u8>, String> {
    let Some(map) = store.get::<ConfigMap>(namespace, name) else {
        return Err(format!("ConfigMap {namespace}/{name} does not exist; create it or correct the reference"));
    };
    let text = map.data.as_ref().and_then(|d| d.get(KEY).or_else(|| d.values().next()));
    let binary = || map.binary_data.as_ref().and_then(|d| d.values().next()).map(|b| b.0.clone());
    text.map(|t| t.clone().into_bytes())
        .or_else(binary)
        .ok_or_else(|| format!("ConfigMap {namespace}/{name} has no key {KEY}; add it"))
}

//! Filters that are objects of their own.

use api::{
    envoygateway::{HTTPHostnameModifierType, HTTPRouteFilter},
    gateway::LocalObjectReference,
};
use ir::HostRewrite;

use super::{
    filters::{Path, Wanted},
    matches,
    rule::Context,
};
use crate::condition::Problem;

/// Applies the HTTPRouteFilter that a rule refers to.
pub(super) fn apply(
    context: &Context<'_, '_>,
    reference: &LocalObjectReference,
    field: &str,
    wanted: &mut Wanted,
) -> Result<(), Problem> {
    let refuse = |text: String| Err(Problem::value("UnsupportedValue", format!("{field}.extensionRef: {text}")));
    if reference.group != api::envoygateway::GROUP || reference.kind != "HTTPRouteFilter" {
        let kind = api::shared::group_kind(&reference.group, &reference.kind);
        return refuse(format!(
            "{kind} is not known as a filter; refer to an HTTPRouteFilter of group {}",
            api::envoygateway::GROUP
        ));
    }
    let namespace = context.route.namespace();
    let name = &reference.name;
    let Some(filter) = context.view.store.get::<HTTPRouteFilter>(namespace, name) else {
        return refuse(format!(
            "HTTPRouteFilter {namespace}/{name} does not exist; create it or correct the reference"
        ));
    };
    let object = format!("HTTPRouteFilter {namespace}/{name}");
    if filter.spec.credential_injection.is_some() || !filter.spec.matches.is_empty() {
        return refuse(format!("{object}: spec.credentialInjection and spec.matches are not supported; remove them"));
    }
    if let Some(rewrite) = &filter.spec.url_rewrite {
        if let Some(host) = &rewrite.hostname {
            let rewritten = match &host.type_ {
                HTTPHostnameModifierType::Header => host.header.as_deref().map(|h| HostRewrite::Header(h.into())),
                HTTPHostnameModifierType::Backend => Some(HostRewrite::Endpoint),
                _ => None,
            };
            let Some(rewritten) = rewritten else {
                return refuse(format!("{object}: spec.urlRewrite.hostname.type {} is not supported", host.type_));
            };
            wanted.host = Some(rewritten);
            wanted.keep_old_host = rewrite.append_x_forwarded_host.unwrap_or(true);
        }
        if let Some(change) = rewrite.path.as_ref().and_then(|p| p.replace_regex_match.as_ref()) {
            let at = format!("{field}.extensionRef: {object}: spec.urlRewrite.path.replaceRegexMatch.pattern");
            let pattern = matches::pattern(&change.pattern, &at)?;
            wanted.path = Some(Path::Regex { pattern, substitution: change.substitution.as_str().into() });
        }
    }
    if let Some(response) = &filter.spec.direct_response {
        let body = response.body.as_ref();
        if body.is_some_and(|b| b.inline.is_none()) {
            return refuse(format!("{object}: spec.directResponse.body.valueRef is not supported; use an inline body"));
        }
        let status = response.status_code.and_then(|s| u16::try_from(s).ok()).unwrap_or(200);
        wanted.respond = Some((status, body.and_then(|b| b.inline.as_deref()).map(Into::into)));
    }
    Ok(())
}

//! Filters of rules and of backends.

use api::gateway::{HTTPPathModifier, HTTPPathModifierType, HTTPRouteFilter, HTTPRouteFilterType};
use ir::{Cors, HeaderMutation, HostRewrite, Mirror, Name, PathMatch, PathRewrite, Redirect, RedirectPath};

use super::{cors, extension, headers, mirror, rule::Context};
use crate::{
    cluster::{Built, Changes},
    condition::Problem,
};

/// What the filters of a rule ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) request: HeaderMutation,
    pub(super) response: HeaderMutation,
    pub(super) redirect: Option<(Redirect, Option<Path>)>,
    pub(super) respond: Option<(u16, Option<Name>)>,
    pub(super) path: Option<Path>,
    pub(super) host: Option<HostRewrite>,
    pub(super) keep_old_host: bool,
    pub(super) mirrors: Vec<Mirror>,
    pub(super) cors: Option<Cors>,
}

/// A change of the path that may depend on what was matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Path {
    Full(Name),
    Prefix(Name),
    Regex { pattern: Name, substitution: Name },
}

/// Reads the filters of a rule. A filter with a problem of its value or references fails the rule; a mirror without
/// endpoints does not.
pub(super) fn of_rule(
    context: &Context<'_, '_>,
    filters: &[HTTPRouteFilter],
    built: &mut Built,
    problems: &mut Vec<Problem>,
) -> Wanted {
    let mut wanted = Wanted::default();
    for (i, filter) in filters.iter().enumerate() {
        let field = format!("spec.rules[{}].filters[{i}]", context.rule);
        if let Err(p) = one(context, filter, i, &field, &mut wanted, built) {
            let p = if p.message.starts_with("spec.") { p } else { p.at(&field) };
            problems.push(p);
        }
    }
    wanted
}

fn one(
    context: &Context<'_, '_>,
    filter: &HTTPRouteFilter,
    index: usize,
    field: &str,
    wanted: &mut Wanted,
    built: &mut Built,
) -> Result<(), Problem> {
    let missing = |name: &str| {
        Err(Problem::value(
            "UnsupportedValue",
            format!("{field}: {name} is missing though the type asks for it; add it"),
        ))
    };
    match &filter.type_ {
        HTTPRouteFilterType::RequestHeaderModifier => {
            let Some(f) = &filter.request_header_modifier else { return missing("requestHeaderModifier") };
            merge(&mut wanted.request, headers::mutation(f, &format!("{field}.requestHeaderModifier"))?);
        }
        HTTPRouteFilterType::ResponseHeaderModifier => {
            let Some(f) = &filter.response_header_modifier else { return missing("responseHeaderModifier") };
            merge(&mut wanted.response, headers::mutation(f, &format!("{field}.responseHeaderModifier"))?);
        }
        HTTPRouteFilterType::RequestMirror => {
            let Some(f) = &filter.request_mirror else { return missing("requestMirror") };
            wanted.mirrors.extend(mirror::mirror(context, f, index, built)?);
        }
        HTTPRouteFilterType::RequestRedirect => {
            let Some(f) = &filter.request_redirect else { return missing("requestRedirect") };
            if let Some(hostname) = &f.hostname {
                plain_hostname(hostname, &format!("{field}.requestRedirect.hostname"))?;
            }
            let redirect = Redirect {
                scheme: f.scheme.as_ref().map(|s| s.as_str().into()),
                host: f.hostname.as_deref().map(Into::into),
                port: f.port.and_then(|p| u16::try_from(p).ok()),
                path: None,
                status: f.status_code.and_then(|s| u16::try_from(s).ok()).unwrap_or(302),
            };
            if !matches!(redirect.status, 301 | 302 | 303 | 307 | 308) {
                let message = format!(
                    "{field}.requestRedirect.statusCode: {} is no redirect; use 301, 302, 303, 307 or 308",
                    redirect.status
                );
                return Err(Problem::value("UnsupportedValue", message));
            }
            let path = f.path.as_ref().map(|p| path(p, &format!("{field}.requestRedirect.path"))).transpose()?;
            wanted.redirect = Some((redirect, path));
        }
        HTTPRouteFilterType::URLRewrite => {
            let Some(f) = &filter.url_rewrite else { return missing("urlRewrite") };
            if let Some(hostname) = &f.hostname {
                plain_hostname(hostname, &format!("{field}.urlRewrite.hostname"))?;
                wanted.host = Some(HostRewrite::Literal(hostname.as_str().into()));
                wanted.keep_old_host = true;
            }
            if let Some(p) = &f.path {
                wanted.path = Some(path(p, &format!("{field}.urlRewrite.path"))?);
            }
        }
        HTTPRouteFilterType::CORS => {
            let Some(f) = &filter.cors else { return missing("cors") };
            wanted.cors = Some(cors::policy(f));
        }
        HTTPRouteFilterType::ExtensionRef => {
            let Some(f) = &filter.extension_ref else { return missing("extensionRef") };
            extension::apply(context, f, field, wanted)?;
        }
        HTTPRouteFilterType::ExternalAuth | HTTPRouteFilterType::Unknown(_) => {
            let message = format!("{field}.type: {} is not supported; remove the filter", filter.type_);
            return Err(Problem::value("UnsupportedValue", message));
        }
    }
    Ok(())
}

fn merge(into: &mut HeaderMutation, more: HeaderMutation) {
    into.add.extend(more.add);
    into.remove.extend(more.remove);
}

fn plain_hostname(name: &str, field: &str) -> Result<(), Problem> {
    if name.contains('*') {
        let message = format!("{field}: {name} is a wildcard; give one hostname");
        return Err(Problem::value("UnsupportedValue", message));
    }
    Ok(())
}

fn path(modifier: &HTTPPathModifier, field: &str) -> Result<Path, Problem> {
    let missing = |name: &str| {
        Err(Problem::value(
            "UnsupportedValue",
            format!("{field}.{name} is missing though the type asks for it; add it"),
        ))
    };
    match &modifier.type_ {
        HTTPPathModifierType::ReplaceFullPath => match &modifier.replace_full_path {
            Some(p) => Ok(Path::Full(p.as_str().into())),
            None => missing("replaceFullPath"),
        },
        HTTPPathModifierType::ReplacePrefixMatch => match &modifier.replace_prefix_match {
            Some(p) => Ok(Path::Prefix(p.as_str().into())),
            None => missing("replacePrefixMatch"),
        },
        HTTPPathModifierType::Unknown(t) => {
            let message = format!("{field}.type: {t} is not known; use ReplaceFullPath or ReplacePrefixMatch");
            Err(Problem::value("UnsupportedValue", message))
        }
    }
}

impl Path {
    /// The rewrite for a route that matches `path`.
    pub(super) fn rewrite(&self, path: &PathMatch) -> PathRewrite {
        match self {
            Self::Full(to) => PathRewrite::Regex { pattern: "^/.*$".into(), substitution: literal(to) },
            Self::Prefix(to) => match without_prefix(path, to) {
                Some(pattern) => PathRewrite::Regex { pattern, substitution: "/".into() },
                None => PathRewrite::Prefix(in_place_of(path, to)),
            },
            Self::Regex { pattern, substitution } => {
                PathRewrite::Regex { pattern: pattern.clone(), substitution: substitution.clone() }
            }
        }
    }

    /// The path of a redirect for a route that matches `path`.
    pub(super) fn redirect(&self, path: &PathMatch) -> RedirectPath {
        match self {
            Self::Full(to) => RedirectPath::Full(to.clone()),
            Self::Prefix(to) => match without_prefix(path, to) {
                Some(pattern) => RedirectPath::Regex { pattern, substitution: "/".into() },
                None => RedirectPath::Prefix(in_place_of(path, to)),
            },
            Self::Regex { pattern, substitution } => {
                RedirectPath::Regex { pattern: pattern.clone(), substitution: substitution.clone() }
            }
        }
    }
}

/// A prefix that is replaced by nothing or `/` takes the slash after it along, or `/foo/bar` would become `//bar`.
fn without_prefix(path: &PathMatch, to: &str) -> Option<Name> {
    if !to.is_empty() && to != "/" {
        return None;
    }
    let prefix = match path {
        PathMatch::SeparatedPrefix(p) => re2::quote(p),
        _ => String::new(),
    };
    Some(format!("^{prefix}\\/*").into())
}

/// What replaces a prefix, such that it ends where the prefix ended: the prefix `/` includes the slash that others leave
/// to the rest, so that `/bar` below `/` becomes `/new/bar` as `/old/bar` below `/old` does.
fn in_place_of(path: &PathMatch, to: &str) -> Name {
    let to = to.trim_end_matches('/');
    match path {
        PathMatch::Prefix(p) if &**p == "/" => format!("{to}/").into(),
        _ => to.into(),
    }
}

/// A text as the substitution of an expression.
fn literal(text: &str) -> Name {
    text.replace('\\', "\\\\").into()
}

/// Reads the filters of a backend.
pub(super) fn of_backend(filters: &[HTTPRouteFilter], field: &str) -> Result<Changes, Problem> {
    let mut changes = Changes { any: !filters.is_empty(), ..Changes::default() };
    for (i, filter) in filters.iter().enumerate() {
        let field = format!("{field}.filters[{i}]");
        let refuse = |text: String| Err(Problem::reference("UnsupportedRefValue", format!("{field}{text}")));
        let as_reference = |p: Problem| Problem::reference("UnsupportedRefValue", p.message);
        match &filter.type_ {
            HTTPRouteFilterType::RequestHeaderModifier => {
                if let Some(f) = &filter.request_header_modifier {
                    let field = format!("{field}.requestHeaderModifier");
                    merge(&mut changes.request, headers::mutation(f, &field).map_err(as_reference)?);
                }
            }
            HTTPRouteFilterType::ResponseHeaderModifier => {
                if let Some(f) = &filter.response_header_modifier {
                    let field = format!("{field}.responseHeaderModifier");
                    merge(&mut changes.response, headers::mutation(f, &field).map_err(as_reference)?);
                }
            }
            HTTPRouteFilterType::URLRewrite => {
                if let Some(f) = &filter.url_rewrite {
                    if f.path.is_some() {
                        return refuse(
                            ".urlRewrite.path: a path cannot be rewritten for one backend; move the filter to the rule"
                                .to_owned(),
                        );
                    }
                    if let Some(hostname) = &f.hostname {
                        plain_hostname(hostname, &format!("{field}.urlRewrite.hostname")).map_err(as_reference)?;
                        changes.host = Some(HostRewrite::Literal(hostname.as_str().into()));
                    }
                }
            }
            other => {
                return refuse(format!(
                    ".type: {other} cannot be a filter of one backend; use RequestHeaderModifier, \
                     ResponseHeaderModifier or URLRewrite with hostname, or move it to the rule"
                ));
            }
        }
    }
    Ok(changes)
}

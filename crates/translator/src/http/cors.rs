//! Cross-origin policies, and the routes that let preflight requests reach them.

use api::gateway::HTTPCORSFilter;
use ir::{Cors, Millis, Name, StringMatch};

use super::{matches::Entry, order::Rank};

pub(super) fn policy(filter: &HTTPCORSFilter) -> Cors {
    let names = |list: &[String]| list.iter().map(|s| Name::from(s.as_str())).collect::<Vec<_>>();
    let methods: Vec<Name> = filter.allow_methods.iter().map(|m| m.as_str().into()).collect();
    let any = methods.iter().any(|m| &**m == "*");
    let seconds = filter.max_age.and_then(|s| u64::try_from(s).ok()).unwrap_or(5);
    Cors {
        allow_origins: filter.allow_origins.iter().map(|o| origin(o)).collect(),
        allow_methods: if any { vec!["*".into()] } else { methods },
        allow_headers: names(&filter.allow_headers),
        expose_headers: names(&filter.expose_headers),
        max_age: Some(Millis(seconds * 1000)),
        allow_credentials: Some(filter.allow_credentials.unwrap_or(false)),
    }
}

/// An origin, in which `*` stands for any text.
fn origin(text: &str) -> StringMatch {
    if text.contains('*') {
        StringMatch::Regex(text.replace('.', "\\.").replace('*', ".*").into())
    } else {
        StringMatch::Exact(text.into())
    }
}

/// A match on a method would keep preflight requests, which are OPTIONS, from the rule: each such match gets a sibling
/// for them.
pub(super) fn with_preflights(entries: Vec<Entry>) -> Vec<Entry> {
    let mut out = Vec::with_capacity(entries.len());
    for entry in entries {
        if entry.matches.method.as_deref().is_some_and(|m| m != "OPTIONS") {
            let mut matches = entry.matches.clone();
            matches.method = Some("OPTIONS".into());
            for header in ["origin", "access-control-request-method"] {
                matches.headers.push((header.into(), StringMatch::Regex(".*".into())));
            }
            let rank = Rank::of(&matches);
            out.push(Entry { label: format!("{}/cors-preflight", entry.label), matches, rank });
        }
        out.push(entry);
    }
    out
}

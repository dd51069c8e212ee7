//! Rules of different routes that match the same requests of the same host.

use std::collections::{BTreeMap, BTreeSet};

use ir::{Name, PathMatch, RouteMatch, StringMatch};
use resources::ObjectKey;

/// What makes two matches the same, whatever the order of their conditions.
type Fingerprint = (Name, PathKey, Option<Name>, BTreeSet<Part>, BTreeSet<Part>);
type PathKey = (u8, Name);
type Part = (String, u8, Name);

/// Finds equal matches.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    holders: BTreeMap<Fingerprint, BTreeSet<ObjectKey>>,
}

impl Overlaps {
    /// Notes that a route has a match on a host of a listener.
    pub(crate) fn note(&mut self, host: &Name, matches: &RouteMatch, route: &ObjectKey) {
        self.holders.entry(fingerprint(host, matches)).or_default().insert(route.clone());
    }

    /// Routes that share a match with others, with those others.
    pub(crate) fn found(&self) -> BTreeMap<ObjectKey, BTreeSet<ObjectKey>> {
        let mut out: BTreeMap<ObjectKey, BTreeSet<ObjectKey>> = BTreeMap::new();
        for routes in self.holders.values().filter(|r| r.len() > 1) {
            for route in routes {
                // A crowd is told by its first few: the text stays readable and the work linear.
                let others = routes.iter().filter(|o| *o != route).take(8).cloned();
                out.entry(route.clone()).or_default().extend(others);
            }
        }
        out
    }
}

fn fingerprint(host: &Name, m: &RouteMatch) -> Fingerprint {
    let path = match &m.path {
        PathMatch::Prefix(p) => (0, p.clone()),
        PathMatch::SeparatedPrefix(p) => (1, p.clone()),
        PathMatch::Exact(p) => (2, p.clone()),
        PathMatch::Regex(p) => (3, p.clone()),
        PathMatch::Connect => (4, Name::default()),
    };
    let value = |m: &StringMatch| match m {
        StringMatch::Exact(v) => (0, v.clone()),
        StringMatch::Regex(v) => (1, v.clone()),
        StringMatch::Prefix(v) => (2, v.clone()),
        StringMatch::Suffix(v) => (3, v.clone()),
        StringMatch::Contains(v) => (4, v.clone()),
    };
    let headers = m.headers.iter().map(|(n, m)| {
        let (kind, text) = value(m);
        (n.to_ascii_lowercase(), kind, text)
    });
    let query = m.query.iter().map(|(n, m)| {
        let (kind, text) = value(m);
        (n.to_string(), kind, text)
    });
    (host.clone(), path, m.method.clone(), headers.collect(), query.collect())
}

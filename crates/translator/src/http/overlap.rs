//! Rules of different routes that match the same requests of the same host.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use ir::{Name, PathMatch, RouteMatch, StringMatch};
use resources::ObjectKey;

/// What makes two matches the same, whatever the order of their conditions.
type Fingerprint = (Name, PathKey, Option<Name>, BTreeSet<Part>, BTreeSet<Part>);
type PathKey = (u8, Name);
type Part = (String, u8, Name);

/// Finds equal matches.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    winners: BTreeMap<Fingerprint, ObjectKey>,
    found: BTreeMap<ObjectKey, Overlap>,
}

/// What a route is told about matches that it shares. A newcomer changes nothing in what older ones were told but for the
/// first time: the winner does not name those that it wins over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// Routes that answer in its place.
    pub(crate) loses_to: BTreeSet<ObjectKey>,
    /// It answers in the place of others.
    pub(crate) wins: bool,
}

impl Overlaps {
    /// Notes that a route has a match on a host of a listener. Of equal matches, that of the oldest route comes first.
    pub(crate) fn note(&mut self, host: &Name, matches: &RouteMatch, route: &ObjectKey) {
        let winner = match self.winners.entry(fingerprint(host, matches)) {
            Entry::Vacant(free) => {
                free.insert(route.clone());
                return;
            }
            Entry::Occupied(taken) => taken.get().clone(),
        };
        if winner != *route {
            self.found.entry(route.clone()).or_default().loses_to.insert(winner.clone());
            self.found.entry(winner).or_default().wins = true;
        }
    }

    /// Routes that share a match with others.
    pub(crate) fn found(self) -> BTreeMap<ObjectKey, Overlap> {
        self.found
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

#[cfg(test)]
mod tests {
    use resources::Kind;

    use super::*;

    #[test]
    fn a_newcomer_is_told_who_answers_and_changes_nothing_for_others() {
        let route = |name: &str| ObjectKey::new(Kind::HttpRoute, "default", name);
        let matches = RouteMatch { path: PathMatch::Prefix("/".into()), method: None, headers: vec![], query: vec![] };
        let told = |names: &[&str]| {
            let mut overlaps = Overlaps::default();
            names.iter().for_each(|n| overlaps.note(&"l/*".into(), &matches, &route(n)));
            overlaps.found()
        };
        assert!(told(&["a"]).is_empty() && told(&["a", "a"]).is_empty());
        let two = told(&["a", "b"]);
        assert_eq!(two[&route("a")], Overlap { loses_to: BTreeSet::new(), wins: true });
        assert_eq!(two[&route("b")], Overlap { loses_to: BTreeSet::from([route("a")]), wins: false });
        let mut three = told(&["a", "b", "c"]);
        assert_eq!(three.remove(&route("c")), Some(two[&route("b")].clone()));
        assert_eq!(three, two);
    }
}

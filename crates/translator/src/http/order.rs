//! Which of the routes of a host is tried first.

use ir::{PathMatch, RouteMatch, StringMatch};

/// Rank of a match: the smaller is tried first. Exact paths, then expressions, then prefixes; the longer path; more
/// headers (the method counts as one), more exact ones among them; more query parameters, more exact ones. What is
/// equal keeps the order of routes (age, namespace, name), rules and matches.
///
/// The Gateway API puts the method before the headers; counting it among them agrees with that wherever two matches
/// differ in nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    path: u8,
    shorter: usize,
    fewer_headers: usize,
    fewer_exact_headers: usize,
    fewer_query: usize,
    fewer_exact_query: usize,
}

impl Rank {
    pub(crate) fn of(m: &RouteMatch) -> Self {
        let (path, length) = match &m.path {
            PathMatch::Exact(p) => (0, p.len()),
            PathMatch::Regex(p) => (1, p.len()),
            PathMatch::SeparatedPrefix(p) | PathMatch::Prefix(p) => (2, p.len()),
            PathMatch::Connect => (3, 0),
        };
        let exact =
            |list: &[(ir::Name, StringMatch)]| list.iter().filter(|(_, m)| matches!(m, StringMatch::Exact(_))).count();
        let method = usize::from(m.method.is_some());
        Self {
            path,
            shorter: usize::MAX - length,
            fewer_headers: usize::MAX - (m.headers.len() + method),
            fewer_exact_headers: usize::MAX - (exact(&m.headers) + method),
            fewer_query: usize::MAX - m.query.len(),
            fewer_exact_query: usize::MAX - exact(&m.query),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn m(path: PathMatch, method: bool, headers: &[bool], query: &[bool]) -> Rank {
        let list = |exact: &[bool]| {
            exact
                .iter()
                .map(|e| ("n".into(), if *e { StringMatch::Exact("v".into()) } else { StringMatch::Regex("v".into()) }))
                .collect()
        };
        Rank::of(&RouteMatch { path, method: method.then(|| "GET".into()), headers: list(headers), query: list(query) })
    }

    #[test]
    fn each_step_of_the_order_decides_before_the_next() {
        let any = || PathMatch::Prefix("/".into());
        let ordered = [
            m(PathMatch::Exact("/a".into()), false, &[], &[]),
            m(PathMatch::Regex("/.*".into()), false, &[true], &[]),
            m(PathMatch::SeparatedPrefix("/abc".into()), false, &[], &[]),
            m(PathMatch::SeparatedPrefix("/ab".into()), true, &[true, true], &[true]),
            m(any(), false, &[false, false], &[]),
            m(any(), true, &[], &[]),
            m(any(), false, &[false], &[true, true]),
            m(any(), false, &[], &[false, false]),
            m(any(), false, &[], &[true]),
            m(any(), false, &[], &[false]),
            m(any(), false, &[], &[]),
        ];
        for pair in ordered.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
    }
}

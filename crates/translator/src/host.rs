//! Hostnames of listeners and routes: which meet, and which is closer.

use std::collections::BTreeSet;

/// Does `general` (a name or `*.suffix`) stand for all that `special` (likewise) stands for? A name covers itself; a
/// wildcard covers names and wildcards that have at least one more label.
pub(crate) fn covers(general: &str, special: &str) -> bool {
    if general == special {
        return true;
    }
    match general.strip_prefix('*') {
        // `*` alone, as in a route table, covers everything.
        Some("") => true,
        Some(suffix) => {
            let special = special.strip_prefix('*').unwrap_or(special);
            special.len() > suffix.len() && special.ends_with(suffix)
        }
        None => false,
    }
}

/// The hosts that a route with `route` hostnames serves on a listener with `listener` hostname, in order. No hostnames
/// on either side means all. `*` stands for all hosts in the result.
pub(crate) fn meet(route: &[String], listener: Option<&str>) -> BTreeSet<String> {
    let listener = listener.filter(|l| !l.is_empty());
    if route.is_empty() {
        return BTreeSet::from([listener.unwrap_or("*").to_owned()]);
    }
    let mut out = BTreeSet::new();
    for host in route {
        match listener {
            None => out.insert(host.clone()),
            Some(l) if covers(l, host) => out.insert(host.clone()),
            Some(l) if covers(host, l) => out.insert(l.to_owned()),
            Some(_) => false,
        };
    }
    out
}

/// How close a listener's hostname is: a name before a wildcard, a longer wildcard before a shorter, nothing last.
pub(crate) fn closeness(listener: Option<&str>) -> (u8, usize) {
    match listener {
        None | Some("" | "*") => (0, 0),
        Some(l) if l.starts_with('*') => (1, l.len()),
        Some(l) => (2, l.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(hosts: &[&str], listener: Option<&str>) -> Vec<String> {
        meet(&hosts.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>(), listener).into_iter().collect()
    }

    #[test]
    fn a_wildcard_needs_at_least_one_label() {
        assert!(covers("*.example.com", "a.example.com"));
        assert!(covers("*.example.com", "a.b.example.com"));
        assert!(covers("*.example.com", "*.b.example.com"));
        assert!(!covers("*.example.com", "example.com"));
        assert!(!covers("*.example.com", "badexample.com"));
        assert!(!covers("*.b.example.com", "*.example.com"));
        assert!(!covers("a.example.com", "*.example.com"));
        assert!(covers("*", "a") && covers("*", "*.a"));
    }

    #[test]
    fn hostnames_meet_as_the_specification_says() {
        assert_eq!(list(&[], None), ["*"]);
        assert_eq!(list(&[], Some("*.a.com")), ["*.a.com"]);
        assert_eq!(list(&["x.com", "a.com"], None), ["a.com", "x.com"]);
        assert_eq!(list(&["x.a.com", "a.com", "y.b.com"], Some("*.a.com")), ["x.a.com"]);
        assert_eq!(list(&["*.com", "z.org"], Some("x.a.com")), ["x.a.com"]);
        assert_eq!(list(&["*.b.a.com"], Some("*.a.com")), ["*.b.a.com"]);
        assert_eq!(list(&["*.com"], Some("*.a.com")), ["*.a.com"]);
        assert!(list(&["a.com"], Some("b.com")).is_empty());
    }

    #[test]
    fn closer_is_exact_then_longer() {
        let mut all = [None, Some("*.a.com"), Some("a.com"), Some("*.b.a.com")];
        all.sort_by_key(|l| std::cmp::Reverse(closeness(*l)));
        assert_eq!(all, [Some("a.com"), Some("*.b.a.com"), Some("*.a.com"), None]);
    }
}

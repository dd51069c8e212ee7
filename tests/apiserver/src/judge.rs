//! What the audit log says about who wrote what and when.

use std::collections::BTreeMap;

use testkit::apiserver::AuditEvent;

/// A mutating request on a ConfigMap or Lease of one namespace.
#[derive(Clone, Debug)]
pub struct Write {
    /// Unix time in microseconds at which it came in.
    pub at: i64,
    /// Who sent it.
    pub user: String,
    /// `leases` or `configmaps`.
    pub resource: String,
    /// Name of the object.
    pub name: String,
    /// It was accepted.
    pub accepted: bool,
    /// Version of the object after it (accepted writes).
    pub version: u64,
    /// Term in the data (ConfigMaps).
    pub term: Option<u64>,
    /// Holder (Leases).
    pub holder: Option<String>,
}

/// Mutating requests of one namespace, in order of arrival.
#[must_use]
pub fn writes(audit: &[AuditEvent], namespace: &str) -> Vec<Write> {
    let mut out: Vec<Write> = audit
        .iter()
        .filter_map(|e| {
            let object = e.object_ref.as_ref()?;
            if object.namespace != namespace || !matches!(object.resource.as_str(), "leases" | "configmaps") {
                return None;
            }
            let accepted = e.response_status.as_ref().is_some_and(|s| (200..300).contains(&s.code));
            let text = |v: Option<&serde_json::Value>, at: &str| {
                v.and_then(|v| v.pointer(at)).and_then(|v| v.as_str()).map(str::to_owned)
            };
            let after = e.response_object.as_ref();
            let name = if object.name.is_empty() {
                text(e.request_object.as_ref(), "/metadata/name").unwrap_or_default()
            } else {
                object.name.clone()
            };
            Some(Write {
                at: e.request_received_timestamp.as_microsecond(),
                user: e.user.username.clone(),
                resource: object.resource.clone(),
                name,
                accepted,
                version: text(after, "/metadata/resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0),
                term: text(e.request_object.as_ref(), "/data/term").and_then(|t| t.parse().ok()),
                holder: text(e.request_object.as_ref(), "/spec/holderIdentity").filter(|h| !h.is_empty()),
            })
        })
        .collect();
    out.sort_by_key(|w| w.at);
    out
}

/// What must hold in every row; empty if it does.
///
/// * per object, accepted writes in the order of their versions never go back to an older term;
/// * a term belongs to one user;
/// * no user sends a write later than `renew_deadline` (plus `grace` for the way) after the renewal that it sent last.
#[must_use]
pub fn violations(writes: &[Write], renew_deadline: i64, grace: i64) -> Vec<String> {
    let mut out = Vec::new();
    let mut by_object: BTreeMap<&str, Vec<&Write>> = BTreeMap::new();
    let mut owner: BTreeMap<u64, &str> = BTreeMap::new();
    for w in writes.iter().filter(|w| w.resource == "configmaps") {
        if let Some(term) = w.term {
            let first = owner.entry(term).or_insert(&w.user);
            if *first != w.user {
                out.push(format!("term {term} was used by {first} and {}", w.user));
            }
        }
        if w.accepted {
            by_object.entry(&w.name).or_default().push(w);
        }
    }
    for (name, mut list) in by_object {
        list.sort_by_key(|w| w.version);
        for pair in list.windows(2) {
            if pair[0].term > pair[1].term {
                out.push(format!(
                    "{name}: term {:?} of {} was written after term {:?}",
                    pair[1].term, pair[1].user, pair[0].term
                ));
            }
        }
    }
    let mut renewed: BTreeMap<&str, i64> = BTreeMap::new();
    for w in writes {
        if w.resource == "leases" {
            if w.accepted && w.holder.is_some() {
                renewed.insert(&w.user, w.at);
            }
        } else if renewed.get(w.user.as_str()).is_none_or(|r| w.at > r + renew_deadline + grace) {
            out.push(format!(
                "{} wrote {} {} µs after its last renewal",
                w.user,
                w.name,
                w.at - renewed.get(w.user.as_str()).copied().unwrap_or(0)
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: i64, user: &str, resource: &str, version: u64, term: Option<u64>) -> Write {
        let holder = (resource == "leases").then(|| user.to_owned());
        Write {
            at,
            user: user.into(),
            resource: resource.into(),
            name: "x".into(),
            accepted: true,
            version,
            term,
            holder,
        }
    }

    #[test]
    fn a_proper_hand_over_is_accepted() {
        let ok = [
            write(0, "a", "leases", 1, None),
            write(1, "a", "configmaps", 2, Some(1)),
            write(20, "b", "leases", 3, None),
            write(21, "b", "configmaps", 4, Some(2)),
        ];
        assert_eq!(violations(&ok, 10, 1), Vec::<String>::new());
    }

    #[test]
    fn each_violation_is_seen() {
        let old_after_new = [
            write(0, "a", "leases", 1, None),
            write(1, "b", "leases", 2, None),
            write(2, "b", "configmaps", 3, Some(2)),
            write(3, "a", "configmaps", 4, Some(1)),
        ];
        assert_eq!(violations(&old_after_new, 10, 1).len(), 1);
        let shared_term = [
            write(0, "a", "leases", 1, None),
            write(0, "b", "leases", 1, None),
            write(1, "a", "configmaps", 2, Some(1)),
            write(2, "b", "configmaps", 3, Some(1)),
        ];
        assert_eq!(violations(&shared_term, 10, 1).len(), 1);
        let late = [write(0, "a", "leases", 1, None), write(12, "a", "configmaps", 2, Some(1))];
        assert_eq!(violations(&late, 10, 1).len(), 1);
        let never = [write(0, "a", "configmaps", 2, Some(1))];
        assert_eq!(violations(&never, 10, 1).len(), 1);
    }
}

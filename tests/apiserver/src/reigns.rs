//! What the audit log says about who wrote what. Pure: lines in, violations out.
//!
//! A *reign* begins where the Lease first names a holder and says when that acquired it; without the latter it is the
//! placeholder of a Lease that was deleted, by which nobody leads. Writes are ordered by the versions that etcd gave out, which no
//! clock and no delay can change.
//!
//! * Per object: no write of an older reign after one of a newer reign. Holds always.
//! * Of all: no write of a replica after another one's reign has begun; no write before any reign of one's own; none later
//!   than the renew deadline after the last renewal. Not judged where the network held bytes back and let them go later:
//!   those were sent in time and come late, which is what the first rule is for.
//! * The term that objects of fleets carry never goes back on an object, and belongs to one holder.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// Label with the term of the writer.
const TERM: &str = "gateway.envoyproxy.io/infra-term";
/// For the way from a replica to the API server, in microseconds.
const GRACE: i64 = 500_000;
/// Not meant: the election itself, Events, reviews.
const APART: [&str; 6] =
    ["leases", "events", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectreviews"];

/// Times in which bytes of a user were held back, in Unix microseconds.
pub type Held = BTreeMap<String, Vec<(i64, i64)>>;

/// A line of the audit log, as far as it matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    verb: String,
    user: User,
    object_ref: Option<Reference>,
    response_status: Option<Answer>,
    response_object: Option<Stored>,
    request_received_timestamp: Timestamp,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    resource: String,
    namespace: String,
    name: String,
    subresource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    holder_identity: Option<String>,
    acquire_time: Option<String>,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Accepted writes of replicas.
    pub writes: usize,
    /// Reigns.
    pub reigns: usize,
    /// Writes that came late because the network had held them back.
    pub held: usize,
    /// What must not be.
    pub violations: Vec<String>,
}

struct Reign<'a> {
    version: u64,
    at: i64,
    user: &'a str,
    holder: &'a str,
}

struct Write<'a> {
    version: Option<u64>,
    at: i64,
    user: &'a str,
    what: String,
    object: String,
    term: Option<u64>,
}

/// Reads a log; a half-written last line is left out.
///
/// # Errors
/// When a line is no event.
pub fn read(text: &str) -> Result<Vec<Line>> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|l| serde_json::from_str(l).with_context(|| l.to_owned())).collect()
}

/// Judges what users of these names wrote, by the Lease of that name; `renew_deadline` in microseconds.
#[must_use]
pub fn judge(lines: &[Line], users: &[String], lease: &str, renew_deadline: i64, held: &Held) -> Verdict {
    let of_users: Vec<&Line> = lines.iter().filter(|l| users.contains(&l.user.username)).collect();
    let reigns = reigns(&of_users, lease);
    let writes: Vec<Write<'_>> = of_users.iter().filter_map(|l| write(l)).collect();
    let mut verdict = Verdict { writes: writes.len(), reigns: reigns.len(), ..Verdict::default() };
    let is_held = |w: &Write<'_>| {
        held.get(w.user).is_some_and(|all| all.iter().any(|(from, to)| (*from..=*to + GRACE * 4).contains(&w.at)))
    };
    per_object(&writes, &reigns, &mut verdict.violations);
    terms(&writes, &reigns, &mut verdict.violations);
    let mut renewals: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for l in of_users.iter().filter(|l| is_lease(l, lease) && holder(l).is_some()) {
        renewals.entry(&l.user.username).or_default().push(l.at());
    }
    renewals.values_mut().for_each(|all| all.sort_unstable());
    for w in &writes {
        let wrong = outside(w, &reigns).or_else(|| {
            let all = renewals.get(w.user)?;
            let last = all[..all.partition_point(|at| *at <= w.at)].last()?;
            let late = w.at - last;
            (late > renew_deadline + GRACE).then(|| format!("{late} µs after its last renewal"))
        });
        match wrong {
            Some(_) if is_held(w) => verdict.held += 1,
            Some(wrong) => verdict.violations.push(format!("{} {}: {wrong}", w.user, w.what)),
            None => {}
        }
    }
    verdict
}

/// Beginnings of reigns, in the order of their versions.
fn reigns<'a>(lines: &[&'a Line], lease: &str) -> Vec<Reign<'a>> {
    let mut all: Vec<Reign<'a>> = lines
        .iter()
        .filter(|l| is_lease(l, lease))
        .filter_map(|l| Some(Reign { version: l.version()?, at: l.at(), user: &l.user.username, holder: holder(l)? }))
        .collect();
    all.sort_by_key(|r| r.version);
    all.dedup_by(|next, last| next.holder == last.holder);
    all
}

/// The reign of a write's user that it belongs to: the last that had begun.
fn reign_of(w: &Write<'_>, reigns: &[Reign<'_>]) -> Option<usize> {
    let begun = |r: &Reign<'_>| w.version.map_or(r.at <= w.at, |v| r.version < v);
    reigns.iter().rposition(|r| r.user == w.user && begun(r))
}

/// Why a write is outside of the reigns of its user.
fn outside(w: &Write<'_>, reigns: &[Reign<'_>]) -> Option<String> {
    let Some(own) = reign_of(w, reigns) else { return Some("it never led before".to_owned()) };
    let next = reigns.get(own + 1)?;
    let after = w.version.map_or(w.at > next.at + GRACE, |v| v > next.version);
    after.then(|| format!("after the reign of {} had begun", next.holder))
}

fn per_object(writes: &[Write<'_>], reigns: &[Reign<'_>], violations: &mut Vec<String>) {
    let mut by_object: BTreeMap<&str, Vec<(u64, usize, &Write<'_>)>> = BTreeMap::new();
    for w in writes {
        if let (Some(version), Some(reign)) = (w.version, reign_of(w, reigns)) {
            by_object.entry(&w.object).or_default().push((version, reign, w));
        }
    }
    for list in by_object.values_mut() {
        list.sort_by_key(|(version, ..)| *version);
        for pair in list.windows(2) {
            if pair[0].1 > pair[1].1 {
                let (new, old) = (&reigns[pair[0].1], &reigns[pair[1].1]);
                violations.push(format!("{}: written by {} after {}", pair[1].2.what, old.holder, new.holder));
            }
        }
    }
}

fn terms(writes: &[Write<'_>], reigns: &[Reign<'_>], violations: &mut Vec<String>) {
    let mut last: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut owners: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let mut ordered: Vec<_> = writes.iter().filter_map(|w| Some((w.version?, w.term?, w))).collect();
    ordered.sort_by_key(|(version, ..)| *version);
    for (version, term, w) in ordered {
        if let Some((_, before)) = last.insert(&w.object, (version, term)).filter(|(_, before)| *before > term) {
            violations.push(format!("{} {}: term {term} after term {before}", w.user, w.what));
        }
        if let Some(reign) = reign_of(w, reigns) {
            owners.entry(term).or_default().insert(reigns[reign].holder);
        }
    }
    for (term, holders) in owners.into_iter().filter(|(_, holders)| holders.len() > 1) {
        violations.push(format!("term {term} was used by {holders:?}"));
    }
}

fn is_lease(l: &Line, lease: &str) -> bool {
    l.accepted() && l.object_ref.as_ref().is_some_and(|o| o.resource == "leases") && l.name() == lease
}

fn holder(l: &Line) -> Option<&str> {
    let spec = l.response_object.as_ref()?.spec.as_ref().filter(|s| s.acquire_time.is_some())?;
    spec.holder_identity.as_deref().filter(|h| !h.is_empty())
}

fn write(l: &Line) -> Option<Write<'_>> {
    let o = l.object_ref.as_ref().filter(|o| l.accepted() && !APART.contains(&o.resource.as_str()))?;
    let part = if o.subresource.is_empty() { String::new() } else { format!("/{}", o.subresource) };
    let object = format!("{} {}/{}", o.resource, o.namespace, l.name());
    let labels = l.response_object.as_ref().and_then(|s| s.metadata.labels.as_ref());
    let what = format!("{} {object}{part}", l.verb);
    let term = labels.and_then(|l| l.get(TERM)?.parse().ok()).filter(|_| l.verb != "delete");
    // The version of what was deleted is not that of the deletion.
    let version = l.version().filter(|_| !l.verb.starts_with("delete"));
    Some(Write { version, at: l.at(), user: &l.user.username, what, object, term })
}

// === impl Line ===

impl Line {
    fn accepted(&self) -> bool {
        self.response_status.as_ref().is_some_and(|s| (200..300).contains(&s.code))
    }

    fn at(&self) -> i64 {
        self.request_received_timestamp.as_microsecond()
    }

    fn version(&self) -> Option<u64> {
        self.response_object.as_ref()?.metadata.resource_version.parse().ok()
    }

    fn name(&self) -> &str {
        let stored = self.response_object.as_ref().map_or("", |s| s.metadata.name.as_str());
        self.object_ref.as_ref().map(|o| o.name.as_str()).filter(|n| !n.is_empty()).unwrap_or(stored)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LEASE: &str = "the-lease";

    fn line(
        at: i64,
        user: &str,
        resource: &str,
        name: &str,
        version: u64,
        more: serde_json::Value,
    ) -> serde_json::Value {
        let mut stored = json!({"metadata": {"name": name, "resourceVersion": version.to_string()}});
        if let Some(holder) = more.get("holder") {
            stored["spec"] = json!({"holderIdentity": holder, "acquireTime": more.get("acquired")});
        }
        if let Some(term) = more.get("term") {
            stored["metadata"]["labels"] = json!({TERM: term});
        }
        json!({"verb": "patch", "user": {"username": user}, "responseStatus": {"code": 200}, "responseObject": stored,
            "objectRef": {"resource": resource, "namespace": "ns", "name": name},
            "requestReceivedTimestamp": Timestamp::from_microsecond(at * 1_000_000).unwrap().to_string()})
    }

    /// Judges lines `(second, user, resource, name, version, more)`.
    fn judged(lines: &[serde_json::Value], held: &Held) -> Verdict {
        let text: String = lines.iter().map(|l| format!("{l}\n")).collect();
        judge(&read(&text).unwrap(), &["a".into(), "b".into()], LEASE, 10_000_000, held)
    }

    fn lead(at: i64, user: &str, holder: &str, version: u64) -> serde_json::Value {
        line(at, user, "leases", LEASE, version, json!({"holder": holder, "acquired": "2026-01-01T00:00:00.000000Z"}))
    }

    fn wrote(at: i64, user: &str, name: &str, version: u64) -> serde_json::Value {
        line(at, user, "httproutes", name, version, json!({}))
    }

    #[test]
    fn a_proper_run_is_accepted() {
        let ok = [
            lead(0, "a", "a_1", 1),
            wrote(1, "a", "r", 2),
            lead(2, "a", "a_1", 3),
            wrote(11, "a", "r", 4),
            lead(20, "b", "b_1", 5),
            wrote(21, "b", "r", 6),
            // Started again: another holder of the same user.
            lead(40, "a", "a_2", 7),
            wrote(41, "a", "r", 8),
            line(41, "admin", "httproutes", "r", 9, json!({})),
        ];
        let verdict = judged(&ok, &Held::new());
        assert_eq!(verdict, Verdict { writes: 4, reigns: 3, ..Verdict::default() });
    }

    #[test]
    fn a_placeholder_is_no_reign() {
        let placeholder = line(2, "b", "leases", LEASE, 2, json!({"holder": "b_1"}));
        let ok = [lead(0, "a", "a_1", 1), placeholder, wrote(3, "a", "r", 3), lead(4, "a", "a_1", 4)];
        assert_eq!(judged(&ok, &Held::new()), Verdict { writes: 1, reigns: 1, ..Verdict::default() });
    }

    #[test]
    fn a_second_writer_is_seen() {
        let doctored = [lead(0, "a", "a_1", 1), lead(9, "b", "b_1", 2), wrote(9, "a", "other", 3)];
        assert_eq!(
            judged(&doctored, &Held::new()).violations,
            ["a patch httproutes ns/other: after the reign of b_1 had begun"]
        );
    }

    #[test]
    fn an_older_reign_after_a_newer_one_is_seen_even_where_bytes_were_held_back() {
        let doctored =
            [lead(0, "a", "a_1", 1), lead(20, "b", "b_1", 2), wrote(20, "b", "r", 3), wrote(21, "a", "r", 4)];
        let held = Held::from([("a".to_owned(), vec![(0, 30_000_000)])]);
        let verdict = judged(&doctored, &held);
        assert_eq!(verdict.violations, ["patch httproutes ns/r: written by a_1 after b_1"]);
        assert_eq!(judged(&doctored, &Held::new()).violations.len(), 2, "and the second writer where they were not");
    }

    #[test]
    fn bytes_that_were_held_back_may_come_late_for_an_object_that_nobody_wrote_since() {
        let late = [
            lead(0, "a", "a_1", 1),
            lead(20, "b", "b_1", 2),
            wrote(30, "a", "r", 3),
            lead(30, "b", "b_1", 4),
            wrote(31, "b", "r", 5),
        ];
        let held = Held::from([("a".to_owned(), vec![(5_000_000, 30_000_000)])]);
        let verdict = judged(&late, &held);
        assert_eq!((verdict.held, verdict.violations.len()), (1, 0));
        assert_eq!(judged(&late, &Held::new()).violations.len(), 1);
    }

    #[test]
    fn a_write_long_after_the_last_renewal_is_seen() {
        let doctored = [lead(0, "a", "a_1", 1), lead(2, "a", "a_1", 2), wrote(13, "a", "r", 3)];
        assert_eq!(
            judged(&doctored, &Held::new()).violations,
            ["a patch httproutes ns/r: 11000000 µs after its last renewal"]
        );
    }

    #[test]
    fn a_write_of_one_that_never_led_is_seen() {
        let doctored = [lead(0, "a", "a_1", 1), wrote(1, "b", "r", 2)];
        assert_eq!(judged(&doctored, &Held::new()).violations, ["b patch httproutes ns/r: it never led before"]);
    }

    #[test]
    fn a_term_that_goes_back_or_has_two_holders_is_seen() {
        let term = |at, user: &str, name: &str, version, term: &str| {
            line(at, user, "deployments", name, version, json!({"term": term}))
        };
        let back =
            [lead(0, "a", "a_1", 1), term(1, "a", "d", 2, "7"), lead(2, "a", "a_1", 3), term(3, "a", "d", 4, "6")];
        assert_eq!(judged(&back, &Held::new()).violations, ["a patch deployments ns/d: term 6 after term 7"]);
        let shared =
            [lead(0, "a", "a_1", 1), term(1, "a", "d", 2, "7"), lead(9, "b", "b_1", 3), term(9, "b", "e", 4, "7")];
        assert_eq!(judged(&shared, &Held::new()).violations, [r#"term 7 was used by {"a_1", "b_1"}"#]);
    }

    #[test]
    fn what_was_refused_and_what_is_apart_counts_as_no_write() {
        let mut refused = wrote(1, "b", "r", 2);
        refused["responseStatus"]["code"] = json!(409);
        let event = line(1, "b", "events", "e", 3, json!({}));
        assert_eq!(judged(&[refused, event], &Held::new()), Verdict::default());
    }
}

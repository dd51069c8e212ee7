//! The API server's audit log as the judge: which replica wrote what, and when.
//!
//! All replicas share a service account; the API server notes the pod that a token is bound to.

use std::{
    collections::BTreeMap,
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

/// Name of the control plane's service account, as the log has it.
const USER: &str = "system:serviceaccount:envoy-gateway-system:envoy-gateway";
/// Calls that write no state: leases are counted apart, Events tell, and reviews ask.
const APART: [&str; 4] = ["leases", "events", "tokenreviews", "subjectaccessreviews"];

/// The file.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
}

/// A place in the log; what comes later is read from there.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// A mutating call of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// When it came in, in microseconds of Unix time.
    pub at: i64,
    /// Pod of the replica.
    pub pod: String,
    /// Plural, such as `httproutes`.
    pub resource: String,
    /// `status` or nothing.
    pub subresource: String,
    /// Namespace and name.
    pub object: String,
    /// It was accepted.
    pub accepted: bool,
    /// Version of the object after it, of an accepted call.
    pub version: u64,
    /// Who holds the lease after it (leases only); empty: nobody.
    pub holder: Option<String>,
}

// === impl Audit ===

impl Audit {
    /// The log that `AUDIT` names.
    ///
    /// # Errors
    /// When the variable is missing.
    pub fn from_env() -> Result<Self> {
        Ok(Self { path: std::env::var_os("AUDIT").context("AUDIT is not set")?.into() })
    }

    /// Its end now.
    ///
    /// # Errors
    /// When there is no log.
    pub fn mark(&self) -> Result<Mark> {
        Ok(Mark(std::fs::metadata(&self.path).with_context(|| self.path.display().to_string())?.len()))
    }

    /// Calls since then, in order of arrival.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn since(&self, mark: Mark) -> Result<Vec<Call>> {
        let mut file = std::fs::File::open(&self.path)?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be half-written.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut calls = Vec::new();
        for line in complete.lines() {
            let event: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            calls.extend(Call::from_event(&event));
        }
        calls.sort_by_key(|c| c.at);
        Ok(calls)
    }
}

// === impl Call ===

impl Call {
    fn from_event(event: &Value) -> Option<Self> {
        if event["user"]["username"] != USER {
            return None;
        }
        let text = |at: &str| event.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        let at: Timestamp = text("/requestReceivedTimestamp").parse().ok()?;
        let pod = &event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
        let name = match text("/objectRef/name") {
            name if name.is_empty() => text("/responseObject/metadata/name"),
            name => name,
        };
        let resource = text("/objectRef/resource");
        let holder = (resource == "leases").then(|| text("/responseObject/spec/holderIdentity"));
        Some(Self {
            at: at.as_microsecond(),
            pod: pod.as_str().unwrap_or_default().to_owned(),
            subresource: text("/objectRef/subresource"),
            object: format!("{}/{name}", text("/objectRef/namespace")),
            accepted: event["responseStatus"]["code"].as_u64().is_some_and(|c| (200..300).contains(&c)),
            version: text("/responseObject/metadata/resourceVersion").parse().unwrap_or(0),
            resource,
            holder,
        })
    }

    /// Writes state, unlike calls for leases, Events and reviews.
    #[must_use]
    pub fn mutates(&self) -> bool {
        !APART.contains(&self.resource.as_str())
    }

    /// An accepted write of a status.
    #[must_use]
    pub fn is_status(&self) -> bool {
        self.accepted && self.subresource == "status" && self.mutates()
    }

    /// An accepted write with which its pod has the lease.
    #[must_use]
    pub fn is_renewal(&self) -> bool {
        self.accepted && self.holder.as_deref().is_some_and(|h| of(h) == self.pod)
    }

    fn what(&self) -> String {
        format!("{} {} {}", self.resource, self.object, self.subresource)
    }
}

/// The pod in the name of a holder.
#[must_use]
pub fn of(holder: &str) -> &str {
    holder.split('_').next().unwrap_or(holder)
}

/// Now, in microseconds of Unix time.
#[must_use]
pub fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// From one instant of the log to another, in seconds.
#[must_use]
pub fn seconds(from: i64, to: i64) -> f64 {
    Duration::from_micros(u64::try_from(to - from).unwrap_or(0)).as_secs_f64()
}

/// Calls that a replica had no right to: mutating, and later than `deadline` after it last had the lease renewed. For calls
/// before the first renewal in `calls`, nothing is known of the replica named `leader`.
#[must_use]
pub fn late(calls: &[Call], leader: &str, deadline: Duration) -> Vec<String> {
    let deadline = i64::try_from(deadline.as_micros()).unwrap_or(i64::MAX);
    let mut renewed: BTreeMap<&str, i64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for call in calls {
        if call.is_renewal() {
            renewed.insert(&call.pod, call.at);
        } else if call.mutates() {
            match renewed.get(call.pod.as_str()) {
                Some(last) if call.at <= last + deadline => {}
                Some(last) => wrong.push(format!(
                    "{} wrote {} {:.2} s after its last renewal",
                    call.pod,
                    call.what(),
                    seconds(*last, call.at)
                )),
                None if call.pod == leader => {}
                None => wrong.push(format!("{} wrote {} and never led", call.pod, call.what())),
            }
        }
    }
    wrong
}

/// Accepted writes of replica `old` that follow one of another replica on the same object, in the order in which they were
/// stored; none are looked at after `old` has the lease again.
#[must_use]
pub fn overtaken(calls: &[Call], old: &str) -> Vec<String> {
    let mut others: BTreeMap<String, u64> = BTreeMap::new();
    let mut wrong = Vec::new();
    let first = calls.iter().find(|c| c.is_renewal() && c.pod != old).map_or(i64::MAX, |c| c.at);
    let again = calls.iter().find(|c| c.is_renewal() && c.pod == old && c.at > first).map_or(i64::MAX, |c| c.at);
    let mut accepted: Vec<&Call> =
        calls.iter().filter(|c| c.accepted && c.mutates() && c.version > 0 && c.at < again).collect();
    accepted.sort_by_key(|c| c.version);
    for call in accepted {
        let key = format!("{} {}", call.resource, call.object);
        if call.pod != old {
            others.insert(key, call.version);
        } else if others.contains_key(&key) {
            wrong.push(format!("{old} wrote {} after its successor", call.what()));
        }
    }
    wrong
}

/// The longest time between two accepted writes of statuses, in seconds, and how many there were.
#[must_use]
pub fn longest_pause(calls: &[Call]) -> (f64, usize) {
    let at: Vec<i64> = calls.iter().filter(|c| c.is_status()).map(|c| c.at).collect();
    let longest = at.windows(2).map(|w| seconds(w[0], w[1])).fold(0.0, f64::max);
    (longest, at.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const S: i64 = 1_000_000;
    const DEADLINE: Duration = Duration::from_secs(10);

    fn renewal(at: i64, pod: &str) -> Call {
        Call {
            resource: "leases".into(),
            subresource: String::new(),
            holder: Some(format!("{pod}_1")),
            ..write(at, pod, 1)
        }
    }

    fn write(at: i64, pod: &str, version: u64) -> Call {
        Call {
            at: at * S,
            pod: pod.into(),
            resource: "httproutes".into(),
            subresource: "status".into(),
            object: "shop/a".into(),
            accepted: true,
            version,
            holder: None,
        }
    }

    #[test]
    fn events_are_read_with_the_pod_of_their_token() {
        let event = json!({"user": {"username": USER, "extra": {"authentication.kubernetes.io/pod-name": ["a"]}},
            "objectRef": {"resource": "leases", "namespace": "s", "name": "l"}, "responseStatus": {"code": 200},
            "responseObject": {"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "a_1"}},
            "requestReceivedTimestamp": "1970-01-01T00:00:01.000002Z"});
        let call = Call::from_event(&event).unwrap();
        assert_eq!((call.at, call.pod.as_str(), call.version), (S + 2, "a", 7));
        assert!(call.is_renewal() && !call.mutates());
        assert_eq!(Call::from_event(&json!({"user": {"username": "system:admin"}})), None);
    }

    #[test]
    fn a_proper_hand_over_has_nothing_wrong() {
        let calls = [write(0, "a", 1), renewal(1, "a"), write(11, "a", 2), renewal(17, "b"), write(18, "b", 3)];
        assert!(late(&calls, "a", DEADLINE).is_empty());
        assert!(overtaken(&calls, "a").is_empty());
        assert_eq!(longest_pause(&calls), (11.0, 3));
    }

    #[test]
    fn a_late_write_is_seen_accepted_or_not() {
        let refused = Call { accepted: false, ..write(12, "a", 0) };
        assert_eq!(late(&[renewal(1, "a"), refused], "a", DEADLINE).len(), 1);
        assert_eq!(
            late(&[renewal(1, "a"), write(2, "b", 1)], "a", DEADLINE),
            ["b wrote httproutes shop/a status and never led"]
        );
        let event = Call { resource: "events".into(), ..write(60, "b", 1) };
        assert!(late(&[renewal(1, "a"), event], "a", DEADLINE).is_empty());
    }

    #[test]
    fn a_write_after_the_successors_is_seen_by_version() {
        let calls = [renewal(1, "a"), renewal(17, "b"), write(18, "b", 5), write(18, "a", 4)];
        assert!(overtaken(&calls, "a").is_empty(), "it was stored before");
        let calls = [renewal(1, "a"), renewal(17, "b"), write(18, "b", 5), write(18, "a", 6)];
        assert_eq!(overtaken(&calls, "a").len(), 1);
        let other = Call { object: "shop/b".into(), ..write(19, "a", 6) };
        assert!(overtaken(&[renewal(17, "b"), write(18, "b", 5), other], "a").is_empty(), "another object");
        let calls = [renewal(17, "b"), write(18, "b", 5), renewal(20, "a"), write(21, "a", 6)];
        assert!(overtaken(&calls, "a").is_empty(), "it leads again");
    }
}

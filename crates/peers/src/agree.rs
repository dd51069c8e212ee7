//! Whether replicas that have seen the same make the same of it. Pure: times come in.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{MOST_PEERS, Report};

/// Views in a report at most, the latest.
pub const MOST_VIEWS: usize = 8;
/// Views of its own that a replica keeps: what a peer tells is up to some seconds old.
const KEPT: usize = 64;
/// Replicas disagree once they have made different things of the same for so long: what a proxy refused takes seconds to get
/// around.
const LASTING: Duration = Duration::from_secs(10);

/// What a replica has seen of the cluster, and what it made of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// Digest of the objects that are translated, by UID and resourceVersion.
    pub seen: String,
    /// Digest of what is served.
    pub digest: String,
}

/// A peer that has seen the same and serves something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Disagreement {
    /// The peer.
    pub replica: String,
    /// What both have seen.
    pub seen: String,
    /// What we serve.
    pub ours: String,
    /// What it serves.
    pub theirs: String,
}

/// Compares views again and again. Times are counted from any fixed instant, which is the same for all calls.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    own: VecDeque<View>,
    /// Since when each peer makes something else of the same, and what that was last.
    differing: BTreeMap<String, (Duration, Disagreement)>,
}

// === impl Agreement ===

impl Agreement {
    /// Nothing was seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what this replica has seen and serves.
    pub fn note(&mut self, view: View) {
        self.own.retain(|v| v.seen != view.seen);
        self.own.push_back(view);
        if self.own.len() > KEPT {
            self.own.pop_front();
        }
    }

    /// What this replica tells, the latest last.
    #[must_use]
    pub fn told(&self) -> Vec<View> {
        self.own.iter().skip(self.own.len().saturating_sub(MOST_VIEWS)).cloned().collect()
    }

    /// Compares with what peers tell. Views that only one of the two has had say nothing; a peer that is not heard any more is
    /// forgotten.
    pub fn compare<'a>(&mut self, now: Duration, peers: impl IntoIterator<Item = &'a Report>) {
        let peers: Vec<&Report> = peers.into_iter().take(MOST_PEERS).collect();
        self.differing.retain(|replica, _| peers.iter().any(|p| p.replica == *replica));
        for peer in peers {
            let common =
                |theirs: &View| Some((self.own.iter().find(|o| o.seen == theirs.seen)?.clone(), theirs.clone()));
            // The latest of those that both have had.
            let Some((ours, theirs)) = peer.views.iter().rev().find_map(common) else { continue };
            if ours.digest == theirs.digest {
                self.differing.remove(&peer.replica);
                continue;
            }
            let (replica, seen) = (peer.replica.clone(), ours.seen);
            let now_differs = Disagreement { replica, seen, ours: ours.digest, theirs: theirs.digest };
            let entry = self.differing.entry(peer.replica.clone()).or_insert_with(|| (now, now_differs.clone()));
            entry.1 = now_differs;
        }
    }

    /// Peers that have made something else of the same for 10 s or longer.
    pub fn disagreements(&self, now: Duration) -> impl Iterator<Item = &Disagreement> {
        self.differing.values().filter(move |(since, _)| now.saturating_sub(*since) >= LASTING).map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(seen: &str, digest: &str) -> View {
        View { seen: seen.into(), digest: digest.into() }
    }

    fn peer(views: &[(&str, &str)]) -> Report {
        let views = views.iter().map(|(seen, digest)| view(seen, digest)).collect();
        Report { replica: "b".into(), views, ..Report::default() }
    }

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn alarms(own: &Agreement, at: u64) -> Vec<String> {
        own.disagreements(S(at)).map(|d| format!("{} {}: {} {}", d.replica, d.seen, d.ours, d.theirs)).collect()
    }

    #[test]
    fn another_result_of_the_same_is_told_after_a_while_and_what_only_one_has_seen_is_not() {
        let mut own = Agreement::new();
        own.note(view("1", "x"));
        for at in 0..=30 {
            own.compare(S(at), [&peer(&[("2", "y")])]);
            assert!(alarms(&own, at).is_empty(), "it has seen something else");
        }
        for at in 31..=40 {
            own.compare(S(at), [&peer(&[("1", "y")])]);
            assert!(alarms(&own, at).is_empty(), "for {} s", at - 31);
        }
        own.compare(S(41), [&peer(&[("1", "y")])]);
        assert_eq!(alarms(&own, 41), ["b 1: x y"]);
        own.compare(S(42), [&peer(&[("1", "x")])]);
        assert!(alarms(&own, 42).is_empty(), "it agrees again");
    }

    #[test]
    fn under_churn_a_peer_that_differs_each_time_is_told_and_one_that_is_late_is_not() {
        let (mut differs, mut late) = (Agreement::new(), Agreement::new());
        for at in 0..=20_u64 {
            let (seen, before) = (at.to_string(), at.saturating_sub(3).to_string());
            differs.note(view(&seen, &format!("x{seen}")));
            late.note(view(&seen, &format!("x{seen}")));
            differs.compare(S(at), [&peer(&[(&before, &format!("y{before}"))])]);
            late.compare(S(at), [&peer(&[(&before, &format!("x{before}"))])]);
        }
        assert_eq!(alarms(&differs, 20), ["b 17: x17 y17"]);
        assert!(alarms(&late, 20).is_empty());
    }

    #[test]
    fn a_later_result_of_the_same_replaces_the_former_and_a_silent_peer_is_forgotten() {
        let mut own = Agreement::new();
        own.note(view("1", "x"));
        own.note(view("1", "y"));
        assert_eq!(own.told(), [view("1", "y")]);
        own.compare(S(0), [&peer(&[("1", "z")])]);
        own.compare(S(5), []);
        own.compare(S(11), [&peer(&[("1", "z")])]);
        assert!(alarms(&own, 11).is_empty(), "it begins anew");
        assert_eq!(alarms(&own, 21), ["b 1: y z"]);
    }

    #[test]
    fn memory_is_bounded() {
        let mut own = Agreement::new();
        (0..1_000).for_each(|i| own.note(view(&i.to_string(), "x")));
        assert_eq!((own.own.len(), own.told().len()), (KEPT, MOST_VIEWS));
        assert_eq!(own.told().last(), Some(&view("999", "x")));
    }
}

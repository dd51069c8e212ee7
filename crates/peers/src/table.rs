//! What is known of the peers. Pure: times come in.

use std::{collections::BTreeMap, time::Duration};

use crate::{MOST_PEERS, Peer, Refusal, Report};

/// A report is believed for so long after it was asked for.
pub const BELIEVED: Duration = Duration::from_secs(4);

/// The last report of each peer. Times are counted from any fixed instant, which is the same for all calls.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Ourselves: a report of our own that comes back is none.
    own: String,
    known: BTreeMap<String, (Duration, Report)>,
}

// === impl Table ===

impl Table {
    /// Nothing is known; `own` is our name in reports.
    #[must_use]
    pub fn new(own: &str) -> Self {
        Self { own: own.to_owned(), known: BTreeMap::new() }
    }

    /// Takes in a report that was asked for at `asked`.
    pub fn take(&mut self, asked: Duration, report: Report) {
        let full = self.known.len() >= MOST_PEERS && !self.known.contains_key(&report.replica);
        if report.replica == self.own || full || self.known.get(&report.replica).is_some_and(|(at, _)| *at > asked) {
            return;
        }
        self.known.insert(report.replica.clone(), (asked, report));
    }

    /// Forgets what is not believed any more.
    pub fn forget(&mut self, now: Duration) {
        self.known.retain(|_, (asked, _)| now.saturating_sub(*asked) <= BELIEVED);
    }

    /// Peers that are believed, with the most that their ages can be by now.
    pub fn peers(&self, now: Duration) -> impl Iterator<Item = Peer> {
        self.believed(now)
            .map(move |(asked, r)| Peer { age: r.age().map(|age| age + now.saturating_sub(asked)), serving: r.serving })
    }

    /// Reports that are believed.
    pub fn reports(&self, now: Duration) -> impl Iterator<Item = &Report> {
        self.believed(now).map(|(_, report)| report)
    }

    /// What proxies refused at peers, each once.
    #[must_use]
    pub fn refusals(&self, now: Duration) -> Vec<Refusal> {
        let mut all: Vec<Refusal> = self.reports(now).flat_map(|r| r.refusals.iter().cloned()).collect();
        all.sort();
        all.dedup();
        all
    }

    fn believed(&self, now: Duration) -> impl Iterator<Item = (Duration, &Report)> {
        let fresh = move |asked: Duration| now.saturating_sub(asked) <= BELIEVED;
        self.known.values().filter(move |(asked, _)| fresh(*asked)).map(|(asked, report)| (*asked, report))
    }
}

//! One stream as a state machine without I/O: requests, changed snapshots and the passing of time go in, responses come out.
//!
//! The order of updates lives here and nowhere else; delta and state-of-the-world streams share it. What the order is and why is told
//! in the crate's documentation; [`plan`] sends, [`answer`] listens to what the client says about it.

mod answer;
mod gate;
mod lane;
#[cfg(test)]
mod model;
mod plan;
mod removal;
mod send;
mod subscribe;
mod suspects;
#[cfg(test)]
mod tests;
mod uses;

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use lane::{Copy, Lane};
pub(crate) use subscribe::{DeltaAsk, SotwAsk};
use uses::Uses;

use crate::{Name, Resource, TypeUrl, snapshot::Snapshot};

/// Unanswered responses of one type, beyond two for each resource, with which a stream is not worth keeping.
const MAX_INFLIGHT: usize = 4_096;
/// Unanswered versions of one resource beyond which newer ones wait.
const MAX_PENDING: usize = 8;
/// The longest resource name that is looked at, in bytes.
const MAX_NAME: usize = 8 * 1024;
/// How many names a stream may ask for, per type.
const MAX_NAMES: usize = 200_000;

/// How the client wants its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Differences only.
    Delta,
    /// Clusters and listeners whole, every time.
    StateOfTheWorld,
}

/// The times that a stream waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    /// For an acknowledgement; then the update goes on.
    pub(crate) ack: Duration,
    /// For a proxy that comes back to ask for all it has.
    pub(crate) settle: Duration,
    /// For connections and requests that go on with what the client has let go.
    pub(crate) drain: Duration,
}

/// A response to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) kind: TypeUrl,
    pub(crate) nonce: u64,
    /// The digest of the type's resources; in state-of-the-world mode marked while the client does not have all of them.
    pub(crate) version: Name,
    pub(crate) resources: Vec<(Name, Resource)>,
    pub(crate) removed: Vec<Name>,
}

/// Something that happened on the stream and that others may want to know.
#[derive(Clone, Debug)]
pub(crate) enum Fact {
    Acked {
        kind: TypeUrl,
        version: Name,
        resources: Vec<(Name, Option<Name>)>,
    },
    Nacked {
        kind: TypeUrl,
        version: Name,
        resources: Vec<(Name, Option<Name>)>,
        detail: String,
    },
    TimedOut {
        kind: TypeUrl,
        suspects: Vec<(Name, Option<Name>)>,
    },
    /// An update went on although what it waited for has not come.
    WentOn,
}

/// Something that a client may have or have lost without knowing so: sent, and refused as part of a response or not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    pub(crate) kind: TypeUrl,
    pub(crate) name: Name,
    /// The version that was sent, `None` for a removal; empty when there were several.
    pub(crate) version: Option<Name>,
}

/// Why a stream has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Abuse {
    /// It asks for more names than any proxy needs.
    #[error("more than {MAX_NAMES} resource names on one stream")]
    Names,
    /// It reads and never answers.
    #[error("thousands of responses without an answer")]
    Unanswered,
}

/// What is shown of one type of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaneView {
    pub(crate) requested: bool,
    pub(crate) wildcard: bool,
    pub(crate) named: usize,
    pub(crate) held: usize,
    pub(crate) inflight: usize,
    pub(crate) waiting: usize,
    pub(crate) sent_version: Option<Name>,
    pub(crate) acked_version: Option<Name>,
    pub(crate) last_nack: Option<Name>,
}

/// The state machine of one stream.
#[derive(Debug)]
pub(crate) struct Session {
    mode: Mode,
    /// The one type of a stream that is not aggregated.
    only: Option<TypeUrl>,
    /// Whether the client is an Envoy, which asks for listeners once its first clusters are warm.
    is_envoy: bool,
    waits: Waits,
    lanes: [Lane; TypeUrl::COUNT],
    uses: Uses,
    /// The revision of the snapshot that `dirty` accounts for.
    seen: Option<u64>,
    nonce: u64,
    started: Option<Instant>,
    /// The newest response that the client answered.
    answered: u64,
    /// When listeners were last asked for or sent: the route tables that they name are asked for soon after.
    listeners_at: Option<Instant>,
    /// When removals were last looked at.
    last_look: Option<Instant>,
    /// Until when the client is to show that it got past the clusters of the first response.
    startup: Option<Instant>,
    /// Whether the client has said that it had something before this stream.
    returning: bool,
    /// Whether the clusters of the first response had to be taken out.
    startup_failed: bool,
    /// What an earlier stream of this proxy left in doubt.
    doubts: Vec<Doubt>,
    responses: VecDeque<Response>,
    facts: VecDeque<Fact>,
}

impl Session {
    pub(crate) fn new(mode: Mode, only: Option<TypeUrl>, waits: Waits) -> Self {
        Self {
            mode,
            only,
            is_envoy: false,
            waits,
            lanes: Default::default(),
            uses: Uses::default(),
            seen: None,
            nonce: 0,
            started: None,
            answered: 0,
            listeners_at: None,
            last_look: None,
            startup: None,
            returning: false,
            startup_failed: false,
            doubts: Vec::new(),
            responses: VecDeque::new(),
            facts: VecDeque::new(),
        }
    }

    /// What is known of the client before its first request is looked at.
    pub(crate) fn introduce(&mut self, is_envoy: bool, doubts: Vec<Doubt>) {
        self.is_envoy = is_envoy;
        self.doubts = doubts;
    }

    /// The snapshot may have changed.
    pub(crate) fn changed(&mut self, snapshot: &Snapshot, now: Instant) {
        self.advance(snapshot, now);
    }

    /// Time has passed; to be called when [`Session::next_timer`] is due (earlier or more often does no harm).
    pub(crate) fn timer(&mut self, snapshot: &Snapshot, now: Instant) {
        self.expire(snapshot, now);
        self.advance(snapshot, now);
    }

    /// The next response to send.
    pub(crate) fn pop_response(&mut self) -> Option<Response> {
        self.responses.pop_front()
    }

    /// The next fact to tell.
    pub(crate) fn pop_fact(&mut self) -> Option<Fact> {
        self.facts.pop_front()
    }

    /// The client drains for so long, not as long as others.
    pub(crate) fn drains_for(&mut self, drain: Duration) {
        self.waits.drain = drain;
    }

    /// Whether nothing is on its way and nothing waits: a good moment to end the stream.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.responses.is_empty()
            && self.lanes.iter().all(|lane| {
                lane.inflight.iter().all(|sent| sent.timed_out) && lane.blocked.is_empty() && lane.probes.is_empty()
            })
    }

    /// What the client may hold without saying so when it comes back.
    pub(crate) fn doubts(&self) -> Vec<Doubt> {
        let of_kind = |kind: TypeUrl| {
            self.lane(kind).entries.iter().filter_map(move |(name, entry)| {
                let refused = entry.doubtful.iter().map(|(_, copy)| Some(copy));
                let open = entry.pending.iter().map(|(_, copy)| copy.as_ref());
                // An earlier stream left it in doubt, and this one has not cleared that up.
                let still = entry.acked.as_ref().filter(|copy| self.mode == Mode::Delta && copy.version().is_empty());
                let versions = refused.chain(open).chain(still.map(Some)).map(|copy| copy.map(Copy::version));
                let versions: BTreeSet<Option<&Name>> = versions.collect();
                // Which of several the client went on to is not known: it may have read and refused the one and not read the next.
                let version = if versions.len() > 1 { Some("".into()) } else { versions.first()?.cloned() };
                Some(Doubt { kind, name: name.clone(), version })
            })
        };
        let open = [TypeUrl::Cluster, TypeUrl::Listener].into_iter().flat_map(of_kind);
        open.chain(self.doubts.iter().cloned()).collect()
    }

    /// What to show of a type.
    pub(crate) fn view(&self, kind: TypeUrl) -> LaneView {
        let lane = self.lane(kind);
        LaneView {
            requested: lane.requested,
            wildcard: lane.wildcard,
            named: lane.named.len(),
            held: lane.entries.len(),
            inflight: lane.inflight.len(),
            waiting: lane.blocked.len(),
            sent_version: lane.sent_version.clone(),
            acked_version: lane.acked_version.clone(),
            last_nack: lane.last_nack.clone(),
        }
    }

    fn lane(&self, kind: TypeUrl) -> &Lane {
        &self.lanes[kind.index()]
    }

    fn lane_mut(&mut self, kind: TypeUrl) -> &mut Lane {
        &mut self.lanes[kind.index()]
    }

    /// Forgets all that is known of a resource on this stream.
    fn forget(&mut self, kind: TypeUrl, name: &Name) {
        let lane = &mut self.lanes[kind.index()];
        if let Some(entry) = lane.entries.remove(name) {
            for copy in entry.copies() {
                self.uses.release(kind, name, copy);
            }
        }
        lane.dirty.remove(name);
        lane.must.remove(name);
        lane.blocked.remove(name);
        lane.leaving.remove(name);
        lane.refused.remove(name);
        lane.verdicts.remove(name);
    }

    /// The client does not want a resource any more. What is on its way to it still counts until it is answered.
    fn let_go(&mut self, kind: TypeUrl, name: &Name) {
        let lane = &mut self.lanes[kind.index()];
        lane.dirty.remove(name);
        lane.must.remove(name);
        lane.blocked.remove(name);
        lane.leaving.remove(name);
        let Some(entry) = lane.entries.get_mut(name) else { return };
        let doubtful = std::mem::take(&mut entry.doubtful).into_iter().map(|(_, copy)| copy);
        let gone: Vec<Copy> = entry.acked.take().into_iter().chain(doubtful).collect();
        lane.pardon(name);
        lane.verdicts.remove(name);
        lane.tidy(name);
        for copy in gone {
            self.uses.release(kind, name, &copy);
        }
    }

    /// Records that the client has this version already.
    fn announce(&mut self, kind: TypeUrl, name: &Name, copy: Copy) {
        let lane = &mut self.lanes[kind.index()];
        self.uses.add(kind, name, &copy);
        let entry = lane.entries.entry(name.clone()).or_default();
        if let Some(old) = entry.acked.replace(copy) {
            self.uses.release(kind, name, &old);
        }
    }
}

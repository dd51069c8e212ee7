//! What one stream holds of one type of resource, and what is on its way.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

use crate::{Name, Resource};

/// A version of a resource that the client has or may have.
#[derive(Clone, Debug)]
pub(super) enum Copy {
    /// One whose content is at hand.
    Known(Resource),
    /// One that the client named when it connected; what it refers to is not known here.
    Version(Name),
}

impl Copy {
    pub(super) fn version(&self) -> &Name {
        match self {
            Self::Known(resource) => resource.version(),
            Self::Version(version) => version,
        }
    }

    pub(super) fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Known(resource) => Some(resource),
            Self::Version(_) => None,
        }
    }
}

/// What the acknowledgement of a cluster says about the version that it names.
#[derive(Clone, Debug, Default)]
pub(super) enum Proof {
    /// It got warm.
    #[default]
    Warm,
    /// Nothing: it came from a starting Envoy, which does not wait until the cluster is warm.
    Cold,
    /// Little: another version had been sent when it came, and may have got warm in its place. With the last one that is known to have
    /// been warm, if any.
    Overtaken(Option<Copy>),
}

/// One resource as the client has it.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// What the client said it has: acknowledged, or named when it connected.
    pub(super) acked: Option<Copy>,
    /// The nonce of that acknowledgement, 0 for what was named at connect.
    pub(super) acked_nonce: u64,
    /// Of a cluster: what that acknowledgement says.
    pub(super) proof: Proof,
    /// Sent and not answered, oldest first; `None` is a removal.
    pub(super) pending: Vec<(u64, Option<Copy>)>,
    /// Sent in a response that was refused as a whole: the client may have kept it.
    pub(super) doubtful: Vec<(u64, Copy)>,
    /// The version that the client refused (empty: the removal); not sent again.
    pub(super) rejected: Option<Name>,
    /// Waiting for it has timed out: nothing waits for it any longer.
    pub(super) given_up: bool,
}

impl Entry {
    /// The version that the client has once it has read everything sent, `None` when that is a removal or nothing.
    pub(super) fn target(&self) -> Option<&Copy> {
        match self.pending.last() {
            Some((_, copy)) => copy.as_ref(),
            None => self.acked.as_ref(),
        }
    }

    /// Whether another version was sent after this response: the client may have that one although it refused the rest of what came
    /// with it.
    pub(super) fn is_overtaken(&self, nonce: u64, version: Option<&Name>) -> bool {
        let sent = self.pending.iter().map(|(of, copy)| (of, copy.as_ref()));
        let mut newer = sent.chain(self.doubtful.iter().map(|(of, copy)| (of, Some(copy))));
        newer.any(|(of, copy)| *of > nonce && copy.map(Copy::version) != version)
    }

    /// Whether the client uses it and will go on doing so until told otherwise.
    pub(super) fn is_serving(&self) -> bool {
        self.acked.is_some() && self.pending.iter().all(|(_, copy)| copy.is_some())
    }

    /// Whether it uses this version, and no other is on its way.
    pub(super) fn has(&self, wanted: &Resource) -> bool {
        self.pending.is_empty() && self.acked.as_ref().is_some_and(|of| of.version() == wanted.version())
    }

    /// Whether the client may have any version of it.
    pub(super) fn may_be_held(&self) -> bool {
        self.acked.is_some() || !self.doubtful.is_empty() || self.pending.iter().any(|(_, copy)| copy.is_some())
    }

    /// Whether nothing is known about it any more.
    pub(super) fn is_vacant(&self) -> bool {
        self.acked.is_none() && self.pending.is_empty() && self.doubtful.is_empty() && self.rejected.is_none()
    }

    /// Every version that the client may be running.
    pub(super) fn copies(&self) -> impl Iterator<Item = &Copy> {
        let sent = self.pending.iter().filter_map(|(_, copy)| copy.as_ref());
        self.acked.iter().chain(sent).chain(self.doubtful.iter().map(|(_, copy)| copy))
    }
}

/// A version that was taken out because the client did not answer.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    pub(super) version: Name,
    pub(super) at: Instant,
    /// How often it was reached.
    pub(super) times: u32,
    /// When that version gets another chance, if it does.
    pub(super) again: Option<Instant>,
}

/// Why a response is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Nothing special.
    Plain,
    /// The first response of its type to a client that had nothing.
    First,
    /// Clusters that have to warm up.
    Risky,
    /// A part of what was refused or timed out, sent alone to find the culprit.
    Probe,
    /// Takes out suspects.
    TakeOut,
}

/// A response that is not answered yet.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) nonce: u64,
    /// Names with the version sent, `None` for a removal.
    pub(super) items: Vec<(Name, Option<Name>)>,
    /// How many of them it was sent for; the others were on their way already and had to be repeated.
    pub(super) own: usize,
    pub(super) class: Class,
    /// The digest of the snapshot's resources of the type when it was sent.
    pub(super) version: Name,
    pub(super) sent_at: Instant,
    /// Until when it is waited for.
    pub(super) deadline: Instant,
    pub(super) timed_out: bool,
}

/// The state of one type on one stream.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Whether the client has asked for this type on this stream.
    pub(super) requested: bool,
    /// Whether it wants all of them.
    pub(super) wildcard: bool,
    /// Those that it wants by name.
    pub(super) named: BTreeSet<Name>,
    /// Whether the client said that it has nothing and nothing was sent.
    pub(super) fresh: bool,
    pub(super) entries: BTreeMap<Name, Entry>,
    /// What may differ from what the client is to have.
    pub(super) dirty: BTreeSet<Name>,
    /// What is to be sent whatever version the client has.
    pub(super) must: BTreeSet<Name>,
    /// What a state-of-the-world client that comes back may have besides what is wanted: its first response keeps it.
    pub(super) recalled: Vec<(Name, Resource)>,
    /// What the last response held, where each holds the whole state.
    pub(super) shown: BTreeMap<Name, Name>,
    /// Since when a change waits for something else.
    pub(super) blocked: BTreeMap<Name, Instant>,
    /// Since when a removal waits for what takes its place.
    pub(super) leaving: BTreeMap<Name, Instant>,
    pub(super) inflight: VecDeque<Sent>,
    /// Parts to be sent one after another, each alone.
    pub(super) probes: VecDeque<BTreeSet<Name>>,
    /// Those with a version that the client refused, or that was taken out.
    pub(super) refused: BTreeSet<Name>,
    /// Of clusters: those that were taken out because of silence.
    pub(super) verdicts: BTreeMap<Name, Verdict>,
    /// The version that the last response carried.
    pub(super) sent_version: Option<Name>,
    /// The digest of the wanted resources when the client last had all of them.
    pub(super) acked_version: Option<Name>,
    pub(super) last_nack: Option<Name>,
}

impl Lane {
    /// Whether the client wants a resource of this name.
    pub(super) fn wants(&self, name: &str) -> bool {
        self.wildcard || self.named.contains(name)
    }

    /// Whether a name waits for its turn in a probe.
    pub(super) fn is_probed(&self, name: &str) -> bool {
        self.probes.iter().any(|names| names.contains(name))
    }

    /// Whether a response of such a class is being waited for.
    pub(super) fn awaits(&self, class: Class) -> bool {
        self.inflight.iter().any(|sent| sent.class == class && !sent.timed_out)
    }

    /// A version (empty: the removal) is not sent again.
    pub(super) fn reject(&mut self, name: &Name, version: Name) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.rejected = Some(version);
            self.refused.insert(name.clone());
        }
    }

    /// Something else than the rejected version is wanted.
    pub(super) fn pardon(&mut self, name: &Name) {
        if self.refused.remove(name)
            && let Some(entry) = self.entries.get_mut(name)
        {
            entry.rejected = None;
        }
    }

    /// Whether the client has, and has said so, all that it is to have, as far as anybody has looked.
    pub(super) fn is_in_sync(&self) -> bool {
        self.dirty.is_empty()
            && self.must.is_empty()
            && self.inflight.is_empty()
            && self.probes.is_empty()
            && self.refused.is_empty()
    }

    /// The entry's place after something of it went away: vacant ones are dropped.
    pub(super) fn tidy(&mut self, name: &str) {
        if self.entries.get(name).is_some_and(Entry::is_vacant) {
            self.entries.remove(name);
        }
    }
}

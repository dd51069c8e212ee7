//! What the client says about what it was sent: acknowledgements, refusals, and silence.
//!
//! A response that is refused as a whole does not tell which of its resources is at fault. Its resources are sent again in halves, each
//! half alone, until the culprit stands alone and is left out until its content changes. Clusters that keep the client from
//! answering are treated alike once they are taken out of the way.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{
    Fact, Mode, Session,
    lane::{Class, Copy, Proof, Sent, Verdict},
};
use crate::{Name, TypeUrl, snapshot::Snapshot};

/// How many resources a refusal may name to be believed.
const MENTIONS: usize = 8;
impl Session {
    /// A request carries the nonce of a response.
    pub(super) fn answer(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        kind: TypeUrl,
        nonce: &str,
        error: Option<String>,
    ) {
        let Ok(nonce) = nonce.parse::<u64>() else { return };
        let mode = self.mode;
        let lane = self.lane_mut(kind);
        let Some(at) = lane.inflight.iter().position(|sent| sent.nonce == nonce) else { return };
        if mode == Mode::StateOfTheWorld {
            // A client may answer only the newest of several responses.
            let earlier: Vec<Sent> = lane.inflight.drain(..at).collect();
            for sent in earlier {
                self.accept(kind, sent, now);
            }
        }
        let lane = self.lane_mut(kind);
        let Some(at) = lane.inflight.iter().position(|sent| sent.nonce == nonce) else { return };
        let Some(sent) = lane.inflight.remove(at) else { return };
        self.answered = self.answered.max(nonce);
        let lane = self.lane_mut(kind);
        // Answers come in order: an earlier one that was given up will not come any more.
        lane.inflight.retain(|earlier| !earlier.timed_out || earlier.nonce > nonce);
        if sent.class == Class::First && kind == TypeUrl::Cluster {
            self.watch_startup(now);
        }
        match error {
            None => self.accept(kind, sent, now),
            Some(detail) => {
                self.refuse(snapshot, now, kind, sent, detail);
            }
        }
    }

    fn accept(&mut self, kind: TypeUrl, sent: Sent, now: Instant) {
        let unproven = self.startup.is_some() && kind == TypeUrl::Cluster && sent.class == Class::First;
        for (name, _) in &sent.items {
            self.settle(kind, name, sent.nonce, now);
            if unproven && let Some(entry) = self.lane_mut(kind).entries.get_mut(name) {
                entry.proof = Proof::Cold;
            }
        }
        self.facts.push_back(Fact::Acked { kind, version: sent.version, resources: sent.items });
    }

    /// The client has what this nonce brought.
    fn settle(&mut self, kind: TypeUrl, name: &Name, nonce: u64, now: Instant) {
        let drain = self.waits.drain;
        let lane = &mut self.lanes[kind.index()];
        let Some(entry) = lane.entries.get_mut(name) else { return };
        let Some(at) = entry.pending.iter().position(|(of, _)| *of == nonce) else { return };
        // Responses are read in their order: what was sent of it before is history, answered or not.
        let mut history: Vec<(u64, Option<Copy>)> = entry.pending.drain(..=at).collect();
        let copy = history.pop().and_then(|(_, copy)| copy);
        let mut gone: Vec<Copy> = history.into_iter().filter_map(|(_, copy)| copy).collect();
        entry.acked_nonce = nonce;
        let overtaken = kind == TypeUrl::Cluster && entry.is_overtaken(nonce, copy.as_ref().map(Copy::version));
        entry.proof = match std::mem::take(&mut entry.proof) {
            _ if !overtaken => Proof::Warm,
            Proof::Warm => Proof::Overtaken(entry.acked.clone()),
            Proof::Cold => Proof::Overtaken(None),
            before @ Proof::Overtaken(_) => before,
        };
        let acquitted = |of: &Verdict| !overtaken && copy.as_ref().is_some_and(|copy| *copy.version() == of.version);
        if lane.verdicts.get(name).is_some_and(acquitted) {
            lane.verdicts.remove(name);
        }
        gone.extend(std::mem::replace(&mut entry.acked, copy));
        let (older, newer): (Vec<_>, Vec<_>) =
            std::mem::take(&mut entry.doubtful).into_iter().partition(|(of, _)| *of < nonce);
        entry.doubtful = newer;
        gone.extend(older.into_iter().map(|(_, copy)| copy));
        let unasked = entry.pending.is_empty();
        // A table that goes as a whole has no listener any more, not even one that drains.
        let drain = if kind == TypeUrl::RouteConfiguration && entry.acked.is_none() { Duration::ZERO } else { drain };
        for copy in gone {
            self.uses.linger(kind, &copy, entry.acked.as_ref(), now, drain);
            self.uses.release(kind, name, &copy);
        }
        let lane = &mut self.lanes[kind.index()];
        if unasked && !lane.wants(name) && !self.uses.is_used(kind, name) && !self.uses.is_lingering(kind, name) {
            // Sent ahead of a subscription that has not come and that nothing calls for any more.
            self.forget(kind, name);
        } else {
            lane.tidy(name);
        }
    }

    fn refuse(&mut self, snapshot: &Snapshot, now: Instant, kind: TypeUrl, sent: Sent, detail: String) {
        let lane = self.lane_mut(kind);
        lane.last_nack = Some(detail.as_str().into());
        let upserts: Vec<(Name, Name)> =
            sent.items.iter().filter_map(|(name, version)| Some((name.clone(), version.clone()?))).collect();
        let alone = upserts.len() == 1;
        let mut open = Vec::new();
        for (name, version) in &sent.items {
            let lane = &mut self.lanes[kind.index()];
            let Some(entry) = lane.entries.get_mut(name) else { continue };
            let Some(at) = entry.pending.iter().position(|(of, _)| *of == sent.nonce) else {
                continue;
            };
            let (_, copy) = entry.pending.remove(at);
            // What was sent again since is judged by the answer to that.
            let again = entry.pending.len() > at;
            if !again {
                open.push(name.clone());
            }
            let (mut gone, mut verdict) = (Vec::new(), None);
            match (copy, version) {
                (Some(copy), Some(version)) if alone => {
                    verdict = (sent.class != Class::TakeOut).then(|| version.clone());
                    // The verdict is about this version, whichever response brought it.
                    let doubtful = std::mem::take(&mut entry.doubtful);
                    for (nonce, of) in doubtful {
                        if of.version() == version {
                            gone.push(of);
                        } else {
                            entry.doubtful.push((nonce, of));
                        }
                    }
                    gone.push(copy);
                }
                (Some(copy), _) => entry.doubtful.push((sent.nonce, copy)),
                (None, _) if upserts.is_empty() => verdict = Some("".into()),
                (None, _) => {}
            }
            for copy in gone {
                self.uses.release(kind, name, &copy);
            }
            let lane = &mut self.lanes[kind.index()];
            if let Some(verdict) = verdict {
                lane.reject(name, verdict);
            }
            lane.dirty.insert(name.clone());
            if !lane.wants(name) && lane.entries.get(name).is_some_and(|of| of.pending.is_empty()) {
                self.forget(kind, name);
            }
        }
        if !alone && !upserts.is_empty() {
            self.search(snapshot, kind, open, &detail);
        } else if alone && kind == TypeUrl::Cluster && sent.class != Class::TakeOut {
            // Envoy may keep a refused cluster as one that warms up and then acknowledge no other.
            let items = open.iter().filter_map(|name| self.former(name)).collect();
            self.take_out(snapshot, now, items);
        }
        let resources = sent.items;
        self.facts.push_back(Fact::Nacked { kind, version: sent.version, resources, detail });
    }

    /// Sends these again in parts, each alone: those first that the refusal seems to name.
    fn search(&mut self, snapshot: &Snapshot, kind: TypeUrl, names: Vec<Name>, detail: &str) {
        let (named, others): (Vec<Name>, Vec<Name>) = names.into_iter().partition(|name| detail.contains(&**name));
        if named.is_empty() || named.len() > MENTIONS || others.is_empty() {
            return self.probe(snapshot, kind, named.into_iter().chain(others).collect());
        }
        let lane = self.lane_mut(kind);
        lane.probes.push_front(others.into_iter().collect());
        for name in named {
            lane.probes.push_front(BTreeSet::from([name]));
        }
    }

    /// Sends these again in two parts, each alone.
    pub(super) fn probe(&mut self, snapshot: &Snapshot, kind: TypeUrl, names: Vec<Name>) {
        let lane = self.lane_mut(kind);
        let wanted = |name: &Name| lane.wants(name) && !lane.is_probed(name) && snapshot.wanted(kind, name).is_some();
        let names: Vec<Name> = names.into_iter().filter(wanted).collect();
        let (first, second) = names.split_at(names.len().div_ceil(2));
        for part in [second, first] {
            if !part.is_empty() {
                lane.probes.push_front(part.iter().cloned().collect());
            }
        }
    }
}

//! What the client says about what it was sent: acknowledgements, refusals, and silence.
//!
//! A response that is refused as a whole does not tell which of its resources is at fault. Its resources are sent again in halves, each
//! half alone, until the culprit stands alone and is left out until its content changes. Clusters that keep the client from
//! answering are treated alike once they are taken out of the way.

use std::time::Instant;

use super::{
    Fact, Mode, Session,
    lane::{Class, Copy, Entry, Sent},
};
use crate::{Name, TypeUrl, snapshot::Snapshot};

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
                self.accept(now, kind, sent);
            }
        }
        let lane = self.lane_mut(kind);
        let Some(at) = lane.inflight.iter().position(|sent| sent.nonce == nonce) else { return };
        let Some(sent) = lane.inflight.remove(at) else { return };
        match error {
            None => self.accept(now, kind, sent),
            Some(detail) => self.refuse(snapshot, kind, sent, detail),
        }
    }

    fn accept(&mut self, now: Instant, kind: TypeUrl, sent: Sent) {
        let lane = &mut self.lanes[kind.index()];
        lane.acked_version = Some(sent.version.clone());
        let first = sent.class == Class::First && kind == TypeUrl::Cluster;
        if first && self.is_envoy && !self.lane(TypeUrl::Listener).requested {
            // Envoy acknowledges its first clusters before they are warm, and asks for listeners when they are.
            let names = sent.items.iter().map(|(name, _)| name);
            let risky: Vec<Name> = names.filter(|name| self.is_risky(name)).cloned().collect();
            self.startup = (!risky.is_empty()).then_some((now + self.waits.ack, risky));
        }
        for (name, _) in &sent.items {
            self.settle(kind, name, sent.nonce);
        }
        self.facts.push_back(Fact::Acked { kind, version: sent.version, resources: sent.items });
    }

    fn is_risky(&self, name: &str) -> bool {
        let entry = self.lane(TypeUrl::Cluster).entries.get(name);
        entry.and_then(Entry::target).and_then(Copy::resource).is_some_and(crate::Resource::warms)
    }

    /// The client has what this nonce brought.
    fn settle(&mut self, kind: TypeUrl, name: &Name, nonce: u64) {
        let lane = &mut self.lanes[kind.index()];
        let Some(entry) = lane.entries.get_mut(name) else { return };
        let Some(at) = entry.pending.iter().position(|(of, _)| *of == nonce) else { return };
        let (_, copy) = entry.pending.remove(at);
        let mut gone: Vec<Copy> = Vec::new();
        if nonce > entry.acked_nonce {
            entry.acked_nonce = nonce;
            gone.extend(std::mem::replace(&mut entry.acked, copy));
            let doubtful = std::mem::take(&mut entry.doubtful);
            let (older, newer) = doubtful.into_iter().partition(|(of, _)| *of < nonce);
            entry.doubtful = newer;
            let older: Vec<(u64, Copy)> = older;
            gone.extend(older.into_iter().map(|(_, copy)| copy));
        } else {
            gone.extend(copy);
        }
        let unasked = entry.pending.is_empty();
        for copy in gone {
            self.uses.release(kind, name, &copy);
        }
        let lane = &mut self.lanes[kind.index()];
        if unasked && !lane.wants(name) {
            // Sent ahead of a subscription that may come yet; it will be answered then.
            self.forget(kind, name);
        } else {
            lane.tidy(name);
        }
    }

    fn refuse(&mut self, snapshot: &Snapshot, kind: TypeUrl, sent: Sent, detail: String) {
        let lane = self.lane_mut(kind);
        lane.last_nack = Some(detail.as_str().into());
        let upserts: Vec<(Name, Name)> =
            sent.items.iter().filter_map(|(name, version)| Some((name.clone(), version.clone()?))).collect();
        let alone = upserts.len() == 1;
        for (name, version) in &sent.items {
            let lane = &mut self.lanes[kind.index()];
            let Some(entry) = lane.entries.get_mut(name) else { continue };
            let Some(at) = entry.pending.iter().position(|(of, _)| *of == sent.nonce) else {
                continue;
            };
            let (_, copy) = entry.pending.remove(at);
            let mut gone = Vec::new();
            match (copy, version) {
                (Some(copy), Some(version)) if alone => {
                    if sent.class != Class::TakeOut {
                        entry.rejected = Some(version.clone());
                    }
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
                (None, _) if upserts.is_empty() => entry.rejected = Some("".into()),
                (None, _) => {}
            }
            for copy in gone {
                self.uses.release(kind, name, &copy);
            }
            let lane = &mut self.lanes[kind.index()];
            lane.dirty.insert(name.clone());
            if !lane.wants(name) && lane.entries.get(name).is_some_and(|of| of.pending.is_empty()) {
                self.forget(kind, name);
            }
        }
        if !alone && !upserts.is_empty() {
            self.probe(snapshot, kind, upserts.iter().map(|(name, _)| name.clone()).collect());
        }
        let resources = sent.items;
        self.facts.push_back(Fact::Nacked { kind, version: sent.version, resources, detail });
    }

    /// Sends these again in two parts, each alone.
    fn probe(&mut self, snapshot: &Snapshot, kind: TypeUrl, names: Vec<Name>) {
        let lane = self.lane_mut(kind);
        let mut names: Vec<Name> =
            names.into_iter().filter(|name| lane.wants(name) && snapshot.wanted(kind, name).is_some()).collect();
        let half = names.split_off(names.len().div_ceil(2));
        for part in [half, names] {
            if !part.is_empty() {
                lane.probes.push_front(part);
            }
        }
    }

    /// Looks for answers that are overdue.
    pub(super) fn expire(&mut self, snapshot: &Snapshot, now: Instant) {
        for kind in TypeUrl::ALL {
            let mut late = Vec::new();
            let lane = self.lane_mut(kind);
            for sent in &mut lane.inflight {
                if !sent.timed_out && now >= sent.deadline {
                    sent.timed_out = true;
                    late.push((sent.items.clone(), sent.class, sent.sent_at));
                }
            }
            for (items, class, sent_at) in late {
                self.overdue(snapshot, now, kind, items, class, sent_at);
            }
        }
        if let Some((_, risky)) = self.startup.take_if(|(due, _)| now >= *due) {
            let items = self.with_versions(&risky);
            self.facts.push_back(Fact::TimedOut { kind: TypeUrl::Cluster, suspects: items });
            self.startup_failed = true;
            self.take_out(snapshot, now, risky);
        }
    }

    fn overdue(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        kind: TypeUrl,
        items: Vec<(Name, Option<Name>)>,
        class: Class,
        sent_at: Instant,
    ) {
        let mut suspects = items;
        if kind == TypeUrl::Cluster {
            let (cold, warm): (Vec<_>, Vec<_>) = suspects
                .into_iter()
                .filter(|(_, version)| version.is_some())
                .partition(|(name, _)| self.unready(snapshot, name));
            suspects = if cold.is_empty() { warm } else { cold };
            for (name, _) in &suspects {
                if let Some(entry) = self.lane_mut(kind).entries.get_mut(name) {
                    entry.given_up = true;
                }
            }
        }
        let names: Vec<Name> = suspects.iter().map(|(name, _)| name.clone()).collect();
        self.facts.push_back(Fact::TimedOut { kind, suspects });
        // An acknowledgement that an earlier response holds back says nothing about this one, and a client that has said nothing since
        // may just be stopped: what it was sent is then as good as any other.
        let earlier = self.lane(kind).inflight.iter().any(|sent| sent.sent_at < sent_at);
        let alive = self.last_request.is_some_and(|at| at > sent_at);
        if kind == TypeUrl::Cluster && class != Class::TakeOut && !earlier && alive {
            self.take_out(snapshot, now, names);
        }
    }

    fn with_versions(&self, names: &[Name]) -> Vec<(Name, Option<Name>)> {
        let entries = &self.lane(TypeUrl::Cluster).entries;
        let version = |name: &Name| entries.get(name).and_then(Entry::target).map(|copy| copy.version().clone());
        names.iter().map(|name| (name.clone(), version(name))).collect()
    }

    /// Takes clusters back that keep the client from becoming warm: new ones are removed, changed ones get their former content.
    /// One that a route uses is left alone.
    fn take_out(&mut self, snapshot: &Snapshot, now: Instant, suspects: Vec<Name>) {
        let kind = TypeUrl::Cluster;
        let mut items = Vec::new();
        for name in suspects {
            let used = self.uses.is_used(kind, &name);
            let Some(entry) = self.lane_mut(kind).entries.get_mut(&name) else { continue };
            let acked = entry.acked.clone().filter(|_| !entry.pending.is_empty());
            match acked {
                Some(Copy::Known(old)) => items.push((name, Some(old))),
                None if !used => items.push((name, None)),
                _ => {}
            }
        }
        if items.is_empty() {
            return;
        }
        let names: Vec<Name> = items.iter().map(|(name, _)| name.clone()).collect();
        if let [name] = names.as_slice() {
            let version = snapshot.get(kind, name).map(|of| of.version().clone());
            if let Some(entry) = self.lane_mut(kind).entries.get_mut(name) {
                entry.rejected = version;
            }
        }
        let single = names.len() == 1;
        self.send(snapshot, now, kind, items, Class::TakeOut);
        if !single {
            self.probe(snapshot, kind, names);
        }
    }
}

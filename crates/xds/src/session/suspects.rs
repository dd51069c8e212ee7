//! Silence: clusters that keep the client from acknowledging anything, and how they are found and taken out.

use std::{collections::BTreeMap, time::Instant};

use super::{
    Fact, Session,
    lane::{Class, Copy, Entry, Proof, Sent, Verdict},
};
use crate::{Name, Resource, TypeUrl, snapshot::Snapshot};

/// After how many times the wait for an acknowledgement a silent client is taken to be alive: longer than the server's keepalive.
const PATIENCE: u32 = 3;

/// How often a cluster that was taken out gets another chance. It may just have been slow, or the whole machine; but whenever one is
/// tried that never gets warm, others wait for it.
const CHANCES: u32 = 3;

impl Session {
    /// Envoy answers its first clusters before they are warm, and asks for listeners when they are.
    pub(super) fn watch_startup(&mut self, now: Instant) {
        if self.is_envoy && self.only.is_none() && !self.lane(TypeUrl::Listener).requested {
            self.startup = Some(now + self.waits.ack);
        }
    }

    /// Looks for answers that are overdue.
    pub(super) fn expire(&mut self, snapshot: &Snapshot, now: Instant) {
        if self.startup.is_some_and(|due| now >= due) {
            self.startup_is_late(snapshot, now);
        }
        let (startup, ack) = (self.startup, self.waits.ack);
        for kind in TypeUrl::ALL {
            loop {
                let late = |sent: &&mut Sent| !sent.timed_out && now >= sent.deadline;
                let Some(sent) = self.lane_mut(kind).inflight.iter_mut().find(late) else { break };
                sent.timed_out = true;
                let (nonce, class) = (sent.nonce, sent.class);
                if let (TypeUrl::Cluster, Some(due)) = (kind, startup) {
                    // The first clusters are not warm yet and come under suspicion before these do.
                    sent.timed_out = false;
                    sent.deadline = due + ack;
                } else if kind == TypeUrl::Cluster && class != Class::TakeOut {
                    self.judge(snapshot, now, nonce);
                } else {
                    let suspects = sent.items.clone();
                    self.facts.push_back(Fact::TimedOut { kind, suspects });
                    if class == Class::TakeOut {
                        self.undo_is_late(snapshot, now, nonce);
                    }
                }
            }
        }
        self.give_chances(now);
    }

    /// Those that were taken out a while ago may come back.
    fn give_chances(&mut self, now: Instant) {
        let lane = self.lane_mut(TypeUrl::Cluster);
        let due = lane.verdicts.iter_mut().filter(|(_, verdict)| verdict.again.is_some_and(|at| now >= at));
        let due = due.map(|(name, verdict)| {
            verdict.again = None;
            (name.clone(), verdict.version.clone())
        });
        for (name, version) in due.collect::<Vec<_>>() {
            if lane.entries.get(&name).is_some_and(|entry| entry.rejected.as_ref() == Some(&version)) {
                lane.pardon(&name);
            }
            lane.dirty.insert(name);
        }
    }

    /// The client does not get past its first clusters.
    fn startup_is_late(&mut self, snapshot: &Snapshot, now: Instant) {
        let since = self.started.unwrap_or(now);
        if !self.is_alive(now, since, 0) {
            self.startup = Some(now + self.waits.ack);
            return;
        }
        self.startup = None;
        if snapshot.count(TypeUrl::Listener) == 0 {
            // There is nothing to ask for.
            return;
        }
        // Nothing is served yet, so nothing is lost when all are taken out and come back in parts.
        let entries = &self.lane(TypeUrl::Cluster).entries;
        let version = |entry: &Entry| entry.target().map(|copy| copy.version().clone());
        let suspects: Vec<_> = entries.iter().map(|(name, entry)| (name.clone(), version(entry))).collect();
        let names: Vec<Name> = entries.keys().cloned().collect();
        self.facts.push_back(Fact::TimedOut { kind: TypeUrl::Cluster, suspects });
        self.startup_failed = true;
        self.take_out(snapshot, now, names.iter().map(|name| (name.clone(), None)).collect());
        self.probe(snapshot, TypeUrl::Cluster, names);
    }

    /// Whether a client that has not answered this response since this moment can be blamed for it: it has answered a later one, or has
    /// been silent for so long that one that is merely stopped would have failed the connection's keepalive.
    fn is_alive(&self, now: Instant, since: Instant, nonce: u64) -> bool {
        self.answered > nonce || now >= since + PATIENCE * self.waits.ack
    }

    /// Clusters are not acknowledged in time. One that does not get warm holds back the acknowledgement of every response, so all that
    /// is not answered is looked at together; those that are known to need time to warm up come under suspicion first.
    fn judge(&mut self, snapshot: &Snapshot, now: Instant, nonce: u64) {
        let kind = TypeUrl::Cluster;
        let lane = self.lane(kind);
        let mut open: BTreeMap<Name, Option<Name>> = BTreeMap::new();
        let mut cold: BTreeMap<Name, Option<Name>> = BTreeMap::new();
        let mut risky: BTreeMap<Name, Option<Name>> = BTreeMap::new();
        let taken_out = lane.inflight.iter().filter(|sent| sent.class == Class::TakeOut);
        let taken_out: Vec<u64> = taken_out.map(|sent| sent.nonce).collect();
        let (mut since, mut first) = (now, u64::MAX);
        let mut late_is_open = false;
        for sent in &lane.inflight {
            for (name, version) in &sent.items[..sent.own] {
                let Some(entry) = lane.entries.get(name) else { continue };
                let Some((last, Some(_))) = entry.pending.last() else { continue };
                if taken_out.contains(last) {
                    continue;
                }
                let copy = entry.pending.iter().find(|(of, _)| *of == sent.nonce);
                let Some((_, Some(Copy::Known(cluster)))) = copy else { continue };
                since = since.min(sent.sent_at);
                first = first.min(sent.nonce);
                late_is_open |= sent.nonce == nonce;
                if cluster.warms() {
                    risky.insert(name.clone(), version.clone());
                } else if !self.is_warm_by_endpoints(name, entry) {
                    cold.insert(name.clone(), version.clone());
                }
                open.insert(name.clone(), version.clone());
            }
        }
        if !late_is_open {
            // What it held has been taken out or replaced meanwhile.
            return;
        }
        // What is in use according to its endpoints is not taken out, whatever its acknowledgement waits for.
        let innocent = risky.is_empty() && cold.is_empty();
        let suspects = [risky, cold, open].into_iter().find(|of| !of.is_empty()).unwrap_or_default();
        let names: Vec<Name> = suspects.keys().cloned().collect();
        self.facts.push_back(Fact::TimedOut { kind, suspects: suspects.into_iter().collect() });
        let lane = self.lane_mut(kind);
        let late = lane.inflight.iter().filter(|sent| sent.nonce == nonce);
        let late: Vec<Name> = late.flat_map(|sent| &sent.items).map(|(name, _)| name.clone()).collect();
        for name in names.iter().chain(&late) {
            if let Some(entry) = lane.entries.get_mut(name) {
                entry.given_up = true;
                // If it is to go, it need not wait any longer.
                lane.dirty.insert(name.clone());
            }
        }
        let again = now + self.waits.ack;
        if !self.is_alive(now, since, first) {
            // It may just be stopped: what it was sent is then as good as any other.
            if let Some(late) = self.lane_mut(kind).inflight.iter_mut().find(|sent| sent.nonce == nonce) {
                late.timed_out = false;
                late.deadline = again;
            }
            return;
        }
        let items: Vec<_> = names.iter().filter_map(|name| self.former(name)).collect();
        if innocent || items.len() < names.len() {
            // One that cannot be taken out would go on holding back the others.
            return;
        }
        // What is not under suspicion gets another chance.
        for sent in &mut self.lane_mut(kind).inflight {
            let innocent = sent.items[..sent.own].iter().any(|(name, _)| !names.contains(name));
            if innocent && (!sent.timed_out || sent.nonce == nonce) {
                sent.timed_out = false;
                sent.deadline = again;
            }
        }
        let names: Vec<Name> = items.iter().map(|(name, _)| name.clone()).collect();
        if let [name] = names.as_slice() {
            let wait = self.waits.ack;
            let lane = self.lane_mut(kind);
            let version = lane.entries.get(name).and_then(Entry::target).map(|copy| copy.version().clone());
            let version = version.unwrap_or_else(|| "".into());
            lane.reject(name, version.clone());
            let before = lane.verdicts.get(name).filter(|verdict| verdict.version == version);
            let times = before.map_or(0, |verdict| verdict.times) + 1;
            let again = (times <= CHANCES).then(|| now + wait * 4_u32.pow(times - 1));
            lane.verdicts.insert(name.clone(), Verdict { version, at: now, times, again });
            self.take_out(snapshot, now, items);
        } else {
            self.take_out(snapshot, now, items);
            self.probe(snapshot, kind, names);
        }
    }

    /// An undo is not acknowledged in time. A version that another one overtook was acknowledged with that one and may itself never have
    /// been warm: if nothing else explains the silence, it is undone in its turn.
    fn undo_is_late(&mut self, snapshot: &Snapshot, now: Instant, nonce: u64) {
        let again = now + self.waits.ack;
        let lane = self.lane(TypeUrl::Cluster);
        let Some(undo) = lane.inflight.iter().find(|sent| sent.nonce == nonce) else { return };
        let stands = |entry: &Entry, of: u64| matches!(entry.pending.last(), Some((last, Some(_))) if *last == of);
        let overtaken = |name: &Name| {
            let entry = lane.entries.get(name)?;
            (stands(entry, nonce) && matches!(entry.proof, Proof::Overtaken(_))).then(|| name.clone())
        };
        let names: Vec<Name> = undo.items[..undo.own].iter().filter_map(|(name, _)| overtaken(name)).collect();
        if names.is_empty() {
            return;
        }
        let cold = |sent: &&Sent| {
            let cold =
                |name: &Name, entry: &Entry| stands(entry, sent.nonce) && !self.is_warm_by_endpoints(name, entry);
            sent.items[..sent.own].iter().any(|(name, _)| lane.entries.get(name).is_some_and(|of| cold(name, of)))
        };
        let earlier = lane.inflight.iter().filter(|sent| sent.nonce < nonce && sent.class != Class::TakeOut);
        let earlier: Vec<bool> = earlier.filter(cold).map(|sent| sent.timed_out).collect();
        let since = undo.sent_at;
        if earlier.contains(&false) || !self.is_alive(now, since, nonce) {
            // Others come under suspicion first, or nobody does.
            if let Some(undo) = self.lane_mut(TypeUrl::Cluster).inflight.iter_mut().find(|sent| sent.nonce == nonce) {
                undo.timed_out = false;
                undo.deadline = again;
            }
            return;
        }
        if !earlier.is_empty() {
            // One that cannot be taken out.
            return;
        }
        let lane = self.lane_mut(TypeUrl::Cluster);
        let mut items = Vec::new();
        for name in names {
            let Some(entry) = lane.entries.get_mut(&name) else { continue };
            let failed = entry.target().map(|copy| copy.version().clone());
            let proven = match std::mem::replace(&mut entry.proof, Proof::Cold) {
                Proof::Overtaken(Some(Copy::Known(proven))) if Some(proven.version()) != failed.as_ref() => {
                    Some(proven)
                }
                _ => None,
            };
            items.push((name, proven));
        }
        // What was said of others since may have been this one's fault.
        for verdict in lane.verdicts.values_mut().filter(|verdict| verdict.at >= since) {
            (verdict.times, verdict.again) = (0, Some(now));
        }
        for sent in lane.inflight.iter_mut().filter(|sent| !sent.timed_out) {
            sent.deadline = again;
        }
        self.take_out(snapshot, now, items);
    }

    /// What to send to undo a cluster: a new one is removed (if a route names it, that route answers nothing anyway), a changed one gets
    /// its former content. `None` when that is not at hand.
    pub(super) fn former(&self, name: &Name) -> Option<(Name, Option<Resource>)> {
        let entry = self.lane(TypeUrl::Cluster).entries.get(name)?;
        match &entry.acked {
            Some(Copy::Known(old)) if !matches!(entry.proof, Proof::Cold) => Some((name.clone(), Some(old.clone()))),
            Some(Copy::Version(_)) => None,
            _ => Some((name.clone(), None)),
        }
    }

    /// Takes clusters back that keep the client from becoming warm.
    pub(super) fn take_out(&mut self, snapshot: &Snapshot, now: Instant, items: Vec<(Name, Option<Resource>)>) {
        let kind = TypeUrl::Cluster;
        if items.is_empty() {
            return;
        }
        let restored: Vec<(Name, Resource)> = items
            .iter()
            .filter_map(|(name, old)| {
                let endpoints = old.as_ref()?.endpoints_name(name)?;
                let eds = TypeUrl::ClusterLoadAssignment;
                let held = || self.lane(eds).entries.get(&endpoints)?.target()?.resource().cloned();
                Some((endpoints.clone(), snapshot.wanted(eds, &endpoints).or_else(held)?))
            })
            .collect();
        self.send(snapshot, now, kind, items, Class::TakeOut);
        if self.lane(TypeUrl::ClusterLoadAssignment).requested && !restored.is_empty() {
            let items = restored.into_iter().map(|(name, of)| (name, Some(of))).collect();
            self.send(snapshot, now, TypeUrl::ClusterLoadAssignment, items, Class::Plain);
        }
    }
}

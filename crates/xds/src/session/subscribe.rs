//! What a client asks for: subscriptions by name and by wildcard, and what it says it has when it connects.

use std::{collections::BTreeSet, time::Instant};

use super::{
    Abuse, Doubt, MAX_INFLIGHT, MAX_NAME, MAX_NAMES, Mode, Session,
    lane::{Copy, Proof},
};
use crate::{Name, TypeUrl, snapshot::Snapshot};

/// A request of a delta stream, read from the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeltaAsk {
    pub(crate) subscribe: Vec<String>,
    pub(crate) unsubscribe: Vec<String>,
    pub(crate) initial: Vec<(String, String)>,
    /// Empty when the request answers nothing.
    pub(crate) nonce: String,
    pub(crate) error: Option<String>,
}

/// A request of a state-of-the-world stream, read from the wire.
#[derive(Clone, Debug, Default)]
pub(crate) struct SotwAsk {
    pub(crate) names: Vec<String>,
    pub(crate) version: String,
    pub(crate) nonce: String,
    pub(crate) error: Option<String>,
}

const WILDCARD: &str = "*";

impl Session {
    /// A request of a delta stream (xDS protocol, "Incremental xDS").
    pub(crate) fn ask_delta(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        kind: TypeUrl,
        mut ask: DeltaAsk,
    ) -> Result<(), Abuse> {
        self.note_request(kind, now);
        if !ask.nonce.is_empty() {
            self.answer(snapshot, now, kind, &ask.nonce, ask.error.take());
        }
        let first = !std::mem::replace(&mut self.lane_mut(kind).requested, true);
        let in_midst = self.is_warming_up(kind);
        // Owed to clusters that were sent on this stream: due as soon as it asks, even for what it says it has.
        let owed = if first { std::mem::take(&mut self.lane_mut(kind).must) } else { BTreeSet::new() };
        if first {
            self.first_delta(snapshot, kind, &ask);
        }
        for name in names(&ask.subscribe) {
            if &*name == WILDCARD {
                let lane = self.lane_mut(kind);
                lane.wildcard = true;
                lane.dirty.extend(snapshot.iter(kind).map(|(name, _)| name.clone()));
                continue;
            }
            let lane = self.lane_mut(kind);
            lane.named.insert(name.clone());
            let said = first
                && !in_midst
                && !owed.contains(&name)
                && lane.entries.get(&name).is_some_and(|entry| entry.acked.is_some());
            if said {
                // It told which version it has: the difference is an update like any other.
                lane.dirty.insert(name);
            } else {
                lane.must.insert(name);
            }
        }
        for name in names(&ask.unsubscribe) {
            self.unsubscribe(snapshot, kind, &name);
        }
        self.check(kind)?;
        self.advance(snapshot, now);
        Ok(())
    }

    fn first_delta(&mut self, snapshot: &Snapshot, kind: TypeUrl, ask: &DeltaAsk) {
        let asks_for_all = ask.subscribe.is_empty() && kind.is_wildcard();
        let lane = self.lane_mut(kind);
        lane.wildcard |= asks_for_all;
        lane.fresh = ask.initial.is_empty();
        if !ask.initial.is_empty() {
            self.comes_back();
        }
        for (name, version) in ask.initial.iter().take(MAX_NAMES) {
            if name.len() > MAX_NAME {
                continue;
            }
            let name = Name::from(name.as_str());
            let copy = match snapshot.wanted(kind, &name) {
                Some(wanted) if **wanted.version() == **version => Copy::Known(wanted),
                _ => Copy::Version(version.as_str().into()),
            };
            self.announce(kind, &name, copy);
            self.lane_mut(kind).dirty.insert(name);
        }
        self.recall_doubts(kind);
        let lane = self.lane_mut(kind);
        if lane.wildcard {
            lane.dirty.extend(snapshot.iter(kind).map(|(name, _)| name.clone()));
        }
    }

    /// The client had something before this stream. It may have let go of other things then, with connections that still need them.
    fn comes_back(&mut self) {
        self.returning = true;
        if let (Some(started), false) = (self.started, self.waits.drain.is_zero()) {
            self.uses.linger_unknown(started + self.waits.drain);
        }
    }

    /// What an earlier stream left in doubt may be there although the client did not say so.
    fn recall_doubts(&mut self, kind: TypeUrl) {
        let doubts = std::mem::take(&mut self.doubts);
        let (mine, rest): (Vec<_>, Vec<_>) = doubts.into_iter().partition(|doubt| doubt.kind == kind);
        self.doubts = rest;
        for Doubt { name, version, .. } in mine {
            let unknown = Copy::Version("".into());
            let lane = &mut self.lanes[kind.index()];
            lane.dirty.insert(name.clone());
            let entry = lane.entries.entry(name.clone()).or_default();
            match &entry.acked {
                None => {
                    self.uses.add(kind, &name, &unknown);
                    entry.doubtful.push((0, unknown));
                }
                // It names a version, but may have gone on to another one.
                Some(said) if version.as_ref() != Some(said.version()) => self.announce(kind, &name, unknown),
                Some(_) => {}
            }
        }
    }

    fn unsubscribe(&mut self, snapshot: &Snapshot, kind: TypeUrl, name: &Name) {
        let lane = self.lane_mut(kind);
        if &**name == WILDCARD {
            if std::mem::take(&mut lane.wildcard) {
                let gone: Vec<Name> = lane.entries.keys().filter(|name| !lane.named.contains(*name)).cloned().collect();
                for name in gone {
                    self.let_go(kind, &name);
                }
            }
            return;
        }
        let was_named = lane.named.remove(name);
        if !lane.wildcard {
            if was_named || lane.entries.contains_key(name) {
                self.let_go(kind, name);
            }
        } else if was_named {
            // Still covered by the wildcard, which the client cannot know: it is told the resource, or that there is none.
            if snapshot.wanted(kind, name).is_some() {
                lane.must.insert(name.clone());
            } else {
                lane.dirty.insert(name.clone());
            }
        }
    }

    /// A request of a state-of-the-world stream (xDS protocol, "State of the World").
    pub(crate) fn ask_sotw(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        kind: TypeUrl,
        ask: SotwAsk,
    ) -> Result<(), Abuse> {
        debug_assert_eq!(self.mode, Mode::StateOfTheWorld);
        self.note_request(kind, now);
        let first = !std::mem::replace(&mut self.lane_mut(kind).requested, true);
        if !first && !ask.nonce.is_empty() {
            self.answer(snapshot, now, kind, &ask.nonce, ask.error);
        }
        let owed = if first { std::mem::take(&mut self.lane_mut(kind).must) } else { BTreeSet::new() };
        let asked: BTreeSet<Name> = names(&ask.names).collect();
        let all = asked.contains(WILDCARD)
            || asked.is_empty()
                && kind.is_wildcard()
                && self.lane(kind).named.is_empty()
                && (first || self.lane(kind).wildcard);
        let asked: BTreeSet<Name> = asked.into_iter().filter(|name| &**name != WILDCARD).collect();
        let lane = self.lane_mut(kind);
        let added: Vec<Name> = asked.difference(&lane.named).cloned().collect();
        let dropped: Vec<Name> = lane.named.difference(&asked).cloned().collect();
        let was_all = std::mem::replace(&mut lane.wildcard, all);
        lane.named = asked;
        if was_all && !all {
            let lane = self.lane(kind);
            let held = lane.entries.keys().filter(|name| !lane.named.contains(*name));
            for name in held.cloned().collect::<Vec<_>>() {
                self.let_go(kind, &name);
            }
        }
        for name in dropped {
            if !all {
                self.let_go(kind, &name);
            }
        }
        if first {
            self.first_sotw(snapshot, kind, &ask.version);
        } else if all && !was_all {
            let all = snapshot.iter(kind).map(|(name, _)| name.clone());
            self.lane_mut(kind).dirty.extend(all);
        }
        for name in added {
            let lane = self.lane_mut(kind);
            let said =
                first && !owed.contains(&name) && lane.entries.get(&name).is_some_and(|entry| entry.acked.is_some());
            if said {
                lane.dirty.insert(name);
            } else {
                lane.must.insert(name);
            }
        }
        self.check(kind)?;
        self.advance(snapshot, now);
        Ok(())
    }

    /// A state-of-the-world client tells one version for all that it has: either it is exactly the wanted state, or anything that this
    /// group has lately had may be there.
    fn first_sotw(&mut self, snapshot: &Snapshot, kind: TypeUrl, version: &str) {
        let lane = self.lane(kind);
        let wanted: Vec<(Name, crate::Resource)> = if lane.wildcard {
            snapshot.iter(kind).map(|(name, of)| (name.clone(), of.clone())).collect()
        } else {
            let of = |name: &Name| snapshot.wanted(kind, name).map(|of| (name.clone(), of));
            lane.named.iter().filter_map(of).collect()
        };
        let fresh = version.is_empty();
        let in_sync = !fresh && !self.is_warming_up(kind) && version == &*self.sotw_version(snapshot, kind);
        self.lane_mut(kind).fresh = fresh;
        if !fresh {
            self.comes_back();
        }
        if in_sync {
            for (name, resource) in wanted {
                self.announce(kind, &name, Copy::Known(resource));
            }
            self.lane_mut(kind).sent_version = Some(version.into());
        } else {
            if !fresh && kind.is_wildcard() {
                // Leaving these out at once could take a cluster from under a route.
                let gone: Vec<_> = snapshot
                    .removed(kind)
                    .filter(|(name, _)| self.lane(kind).wants(name))
                    .map(|(name, of)| (name.clone(), of.clone()))
                    .collect();
                for (name, resource) in gone {
                    if kind == TypeUrl::Cluster
                        && let Some(endpoints) = resource.endpoints_name(&name)
                    {
                        // It may have another version, and this one will need its endpoints.
                        self.lane_mut(TypeUrl::ClusterLoadAssignment).must.insert(endpoints);
                    }
                    let lane = self.lane_mut(kind);
                    lane.dirty.insert(name.clone());
                    lane.recalled.push((name, resource));
                }
            }
            let mut names: Vec<Name> = wanted.into_iter().map(|(name, _)| name).collect();
            if kind == TypeUrl::RouteConfiguration {
                names = self.lane(kind).named.iter().cloned().collect();
            }
            if !fresh && matches!(kind, TypeUrl::Listener | TypeUrl::RouteConfiguration) {
                // It has some version of these, which may use any cluster.
                for name in &names {
                    self.announce(kind, name, Copy::Version("".into()));
                }
            }
            self.lane_mut(kind).dirty.extend(names);
        }
        self.recall_doubts(kind);
        let lane = self.lane_mut(kind);
        if kind.is_wildcard() && lane.entries.values().any(|entry| matches!(entry.acked, Some(Copy::Version(_)))) {
            // A response that holds the whole state cannot leave open what the client has of one: all at once, as to any other that
            // comes back.
            lane.sent_version = None;
        }
    }

    /// Whether a request for endpoints or secrets comes before one for clusters: an Envoy that was cut off while clusters were warming
    /// up asks for clusters when they are warm, and for that it may need again what it has already.
    pub(super) fn is_warming_up(&self, kind: TypeUrl) -> bool {
        let needed = matches!(kind, TypeUrl::ClusterLoadAssignment | TypeUrl::Secret);
        needed && self.only.is_none() && !self.lane(TypeUrl::Cluster).requested
    }

    fn note_request(&mut self, kind: TypeUrl, now: Instant) {
        self.started.get_or_insert(now);
        if kind == TypeUrl::Cluster && !self.lane(kind).requested {
            self.watch_startup(now);
        }
        if kind == TypeUrl::Listener {
            if !self.lane(kind).requested {
                self.listeners_at = Some(now);
            }
            if self.startup.take().is_some() {
                // It got past its clusters: those that are still what they were are warm. Of one that was sent another version since, also in
                // a response that was refused for others, nobody knows which of them got warm.
                for entry in self.lane_mut(TypeUrl::Cluster).entries.values_mut() {
                    if matches!(entry.proof, Proof::Cold) && entry.pending.is_empty() && entry.doubtful.is_empty() {
                        entry.proof = Proof::Warm;
                    }
                }
            }
        }
    }

    fn check(&self, kind: TypeUrl) -> Result<(), Abuse> {
        let lane = self.lane(kind);
        if lane.named.len() > MAX_NAMES {
            return Err(Abuse::Names);
        }
        if lane.inflight.len() > MAX_INFLIGHT + 2 * lane.entries.len() {
            return Err(Abuse::Unanswered);
        }
        Ok(())
    }
}

/// The names that are worth looking at.
fn names(of: &[String]) -> impl Iterator<Item = Name> {
    let usable = |name: &&String| !name.is_empty() && name.len() <= MAX_NAME;
    of.iter().filter(usable).map(|name| Name::from(name.as_str()))
}

//! What to send next: the order of updates.
//!
//! Each step sends what is allowed at this moment and leaves the rest marked as dirty; the next event runs the same steps again, on
//! the newest snapshot. So an update that arrives in the middle of another one is merged with it: there is no plan to throw away.

use std::{collections::BTreeSet, time::Instant};

use super::{
    MAX_PENDING, Mode, Session,
    lane::{Class, Copy, Entry},
};
use crate::{Name, Resource, TypeUrl, snapshot::Snapshot};

/// What to do about a resource that may differ from what the client has.
enum Step {
    /// Nothing, now or until it changes.
    Done,
    /// Nothing now.
    Later,
    /// Send this.
    Send(Resource),
    /// The client is to lose it.
    Remove,
}

impl Session {
    /// Sends whatever may be sent.
    pub(super) fn advance(&mut self, snapshot: &Snapshot, now: Instant) {
        if !snapshot.is_complete() {
            return;
        }
        self.catch_up(snapshot);
        self.send_clusters(snapshot, now);
        self.send_endpoints(snapshot, now);
        self.send_secrets(snapshot, now);
        self.send_listeners(snapshot, now);
        self.send_routes(snapshot, now);
        self.send_removals(snapshot, now);
        if self.mode == Mode::StateOfTheWorld {
            self.send_endpoints(snapshot, now);
        }
        for kind in TypeUrl::ALL {
            let lane = self.lane_mut(kind);
            if lane.requested && lane.is_in_sync() {
                lane.acked_version = Some(snapshot.digest(kind).clone());
            }
        }
    }

    /// When [`Session::timer`] is to be called, if nothing happens before.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        let ack = self.waits.ack;
        let blocked = self.lanes.iter().flat_map(|lane| lane.blocked.values());
        let blocked = blocked.map(|since| *since + ack).min();
        let inflight = self.lanes.iter().flat_map(|lane| &lane.inflight);
        let inflight = inflight.filter(|sent| !sent.timed_out).map(|sent| sent.deadline).min();
        let removals = [self.removals_wait_until(), self.uses.next_expiry()];
        let verdicts = self.lane(TypeUrl::Cluster).verdicts.values().filter_map(|verdict| verdict.again).min();
        [blocked, inflight, self.startup, verdicts].into_iter().chain(removals).flatten().min()
    }

    /// Marks what changed since this stream last looked.
    fn catch_up(&mut self, snapshot: &Snapshot) {
        match self.seen {
            Some(seen) if seen >= snapshot.floor() => {
                for (kind, name) in snapshot.changes_since(seen) {
                    let lane = &mut self.lanes[kind.index()];
                    if lane.requested && (lane.wants(name) || lane.entries.contains_key(name)) {
                        lane.dirty.insert(name.clone());
                    }
                    // A cluster without a load assignment of its own has an empty one, from when it is there.
                    if *kind == TypeUrl::Cluster {
                        self.mark_endpoints(snapshot, name);
                    }
                }
            }
            _ => {
                for kind in TypeUrl::ALL {
                    let lane = self.lane_mut(kind);
                    if lane.requested {
                        let held = lane.entries.keys().cloned();
                        lane.dirty.extend(held.chain(lane.named.iter().cloned()));
                        if lane.wildcard {
                            lane.dirty.extend(snapshot.iter(kind).map(|(name, _)| name.clone()));
                        }
                    }
                }
            }
        }
        self.seen = Some(snapshot.revision());
    }

    fn mark_endpoints(&mut self, snapshot: &Snapshot, cluster: &Name) {
        let resource = snapshot.get(TypeUrl::Cluster, cluster);
        let Some(endpoints) = resource.and_then(|of| of.endpoints_name(cluster)) else { return };
        let lane = self.lane_mut(TypeUrl::ClusterLoadAssignment);
        if lane.requested && lane.wants(&endpoints) {
            lane.dirty.insert(endpoints);
        }
    }

    /// Compares what the client has with what it is to have.
    fn step(&mut self, snapshot: &Snapshot, kind: TypeUrl, name: &Name) -> Step {
        let lane = &mut self.lanes[kind.index()];
        let Some(wanted) = snapshot.wanted(kind, name) else {
            return if lane.entries.contains_key(name) { Step::Remove } else { Step::Done };
        };
        if !lane.wants(name) {
            return Step::Done;
        }
        let probed = lane.is_probed(name);
        let Some(entry) = lane.entries.get_mut(name) else {
            return if probed { Step::Later } else { Step::Send(wanted) };
        };
        if entry.rejected.as_ref().is_some_and(|version| version != wanted.version()) {
            lane.refused.remove(name);
            entry.rejected = None;
        }
        // After a refusal of several at once nobody knows which version the client went on with.
        let certain = !entry.pending.is_empty() || entry.doubtful.is_empty();
        if certain && entry.target().is_some_and(|copy| copy.version() == wanted.version()) {
            if entry.pending.is_empty() && !matches!(&entry.acked, Some(Copy::Known(of)) if *of == wanted) {
                // Now it is known what the client has.
                self.announce(kind, name, Copy::Known(wanted));
            }
            return Step::Done;
        }
        if entry.rejected.as_ref() == Some(wanted.version()) {
            return Step::Done;
        }
        if entry.pending.len() >= MAX_PENDING || probed {
            return Step::Later;
        }
        Step::Send(wanted)
    }

    /// The dirty names of a type that call for sending, each with its resource. What needs nothing is no longer dirty.
    fn due(&mut self, snapshot: &Snapshot, kind: TypeUrl) -> Vec<(Name, Resource)> {
        let dirty: Vec<Name> = self.lane(kind).dirty.iter().cloned().collect();
        let mut due = Vec::new();
        for name in dirty {
            match self.step(snapshot, kind, &name) {
                Step::Done => {
                    let lane = self.lane_mut(kind);
                    lane.dirty.remove(&name);
                    lane.blocked.remove(&name);
                    lane.leaving.remove(&name);
                }
                Step::Send(resource) => {
                    self.lane_mut(kind).leaving.remove(&name);
                    due.push((name, resource));
                }
                Step::Later | Step::Remove => {
                    self.lane_mut(kind).blocked.remove(&name);
                }
            }
        }
        due
    }

    /// Whether every response of this type carries the client's whole state.
    pub(super) fn is_whole(&self, kind: TypeUrl) -> bool {
        self.mode == Mode::StateOfTheWorld && kind.is_wildcard()
    }

    /// Whether parts are being tried in responses that carry the whole state: anything else in them would blur the verdict.
    pub(super) fn is_probing_whole(&self, kind: TypeUrl) -> bool {
        let lane = self.lane(kind);
        self.is_whole(kind) && (!lane.probes.is_empty() || lane.awaits(Class::Probe))
    }

    /// The next part of what was refused, when its turn has come.
    fn next_probe(&mut self, snapshot: &Snapshot, kind: TypeUrl) -> Vec<(Name, Option<Resource>)> {
        let whole = self.is_whole(kind);
        loop {
            let lane = self.lane_mut(kind);
            let busy = lane.awaits(Class::Probe) || lane.awaits(Class::Risky);
            if busy || whole && lane.inflight.iter().any(|sent| !sent.timed_out) {
                return Vec::new();
            }
            let Some(names) = lane.probes.pop_front() else { return Vec::new() };
            let part: Vec<(Name, Option<Resource>)> = names
                .into_iter()
                .filter_map(|name| match self.step(snapshot, kind, &name) {
                    Step::Send(resource) => Some((name, Some(resource))),
                    _ => None,
                })
                .collect();
            if !part.is_empty() {
                return part;
            }
        }
    }

    fn send_clusters(&mut self, snapshot: &Snapshot, now: Instant) {
        let kind = TypeUrl::Cluster;
        if !self.lane(kind).requested {
            return;
        }
        // To a state-of-the-world client, what the first response leaves out is gone.
        let whole = self.lane(kind).fresh || self.mode == Mode::StateOfTheWorld;
        let first = whole && self.lane(kind).sent_version.is_none();
        let must = std::mem::take(&mut self.lane_mut(kind).must);
        let due = self.due(snapshot, kind);
        let mut asked = Vec::new();
        for name in must {
            match snapshot.get(kind, &name) {
                Some(resource) => asked.push((name, Some(resource.clone()))),
                None => self.tell_absent(snapshot, now, kind, name),
            }
        }
        let again: BTreeSet<&Name> = asked.iter().map(|(name, _)| name).collect();
        let due = due.into_iter().filter(|(name, _)| !again.contains(name));
        let due: Vec<_> = due.map(|(name, resource)| (name, Some(resource))).collect();
        if first {
            // All at once: a starting Envoy waits for the clusters of its first response before it opens a listener.
            let recalled = std::mem::take(&mut self.lane_mut(kind).recalled);
            let recalled = recalled.into_iter().map(|(name, resource)| (name, Some(resource)));
            let items: Vec<_> = due.into_iter().chain(asked).chain(recalled).collect();
            // A client that has nothing is told that there is nothing, so that it does not wait.
            let lane = self.lane(kind);
            if !items.is_empty() || lane.wildcard && lane.fresh {
                self.send_with_endpoints(snapshot, now, items, Class::First);
            }
            return;
        }
        if !asked.is_empty() {
            self.send_with_endpoints(snapshot, now, asked, Class::Plain);
        }
        if !self.startup_failed || self.lane(TypeUrl::Listener).requested {
            let part = self.next_probe(snapshot, kind);
            if !part.is_empty() {
                self.send_with_endpoints(snapshot, now, part, Class::Probe);
            }
        }
        if self.is_probing_whole(kind) {
            return;
        }
        let (risky, plain): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(_, resource)| resource.as_ref().is_some_and(Resource::warms));
        if !plain.is_empty() {
            self.send_with_endpoints(snapshot, now, plain, Class::Plain);
        }
        let lane = self.lane(kind);
        let busy = lane.awaits(Class::Risky) || lane.awaits(Class::Probe);
        // A newer version of what is being waited for need not wait.
        let open = |name: &Name| lane.entries.get(name).is_some_and(|entry| !entry.pending.is_empty());
        let risky: Vec<_> = risky.into_iter().filter(|(name, _)| !busy || open(name)).collect();
        if !risky.is_empty() {
            self.send_with_endpoints(snapshot, now, risky, Class::Risky);
        }
    }

    /// Sends clusters, and marks the endpoints of each (which Envoy does not ask for again when a cluster changed) and the secrets that
    /// the client does not have yet.
    fn send_with_endpoints(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        items: Vec<(Name, Option<Resource>)>,
        class: Class,
    ) {
        for (name, resource) in &items {
            let Some(resource) = resource else { continue };
            if let Some(endpoints) = resource.endpoints_name(name) {
                // Also for a client that has not asked for endpoints on this stream yet: it may say then that it has them, and still
                // need them for the changed cluster.
                self.lane_mut(TypeUrl::ClusterLoadAssignment).must.insert(endpoints);
            }
            self.push_missing(TypeUrl::Secret, resource.secrets());
        }
        self.send(snapshot, now, TypeUrl::Cluster, items, class);
    }

    fn push_missing(&mut self, kind: TypeUrl, names: &[Name]) {
        let lane = self.lane_mut(kind);
        if lane.requested {
            let missing = names.iter().filter(|name| !lane.entries.contains_key(*name)).cloned();
            let missing: Vec<Name> = missing.collect();
            lane.must.extend(missing);
        }
    }

    /// A client that asked for something that does not exist: clusters and listeners are told absent; for the others silence is
    /// better, as Envoy would take the news as the end of its waiting and then wait without a time limit.
    fn tell_absent(&mut self, snapshot: &Snapshot, now: Instant, kind: TypeUrl, name: Name) {
        if kind.is_wildcard() && self.mode == Mode::Delta && !self.lane(kind).entries.contains_key(&name) {
            self.send(snapshot, now, kind, vec![(name, None)], Class::Plain);
        } else {
            self.lane_mut(kind).dirty.insert(name);
        }
    }

    /// Endpoints never wait for anything: those of a cluster that is on its way follow it in the same breath.
    fn send_endpoints(&mut self, snapshot: &Snapshot, now: Instant) {
        let items = self.must_and_due(snapshot, TypeUrl::ClusterLoadAssignment);
        if !items.is_empty() {
            self.send(snapshot, now, TypeUrl::ClusterLoadAssignment, items, Class::Plain);
        }
        self.send_probe(snapshot, now, TypeUrl::ClusterLoadAssignment);
    }

    /// Secrets do not wait either; each has a response of its own, so that a bad one takes no other with it.
    fn send_secrets(&mut self, snapshot: &Snapshot, now: Instant) {
        for item in self.must_and_due(snapshot, TypeUrl::Secret) {
            self.send(snapshot, now, TypeUrl::Secret, vec![item], Class::Plain);
        }
    }

    fn must_and_due(&mut self, snapshot: &Snapshot, kind: TypeUrl) -> Vec<(Name, Option<Resource>)> {
        if !self.lane(kind).requested {
            return Vec::new();
        }
        let must = std::mem::take(&mut self.lane_mut(kind).must);
        for name in &must {
            self.lane_mut(kind).dirty.remove(name);
        }
        let due = self.due(snapshot, kind);
        // A cluster that is to go may still be warming up, and while it does the client acknowledges no cluster.
        let lane = self.lane(kind);
        let stand_in = |name: &Name| {
            let last = || snapshot.last(kind, name).cloned();
            let needed = kind == TypeUrl::ClusterLoadAssignment && lane.wants(name);
            needed.then(|| last().unwrap_or_else(|| Resource::empty_assignment(name)))
        };
        must.into_iter()
            .filter_map(|name| {
                let resource = snapshot.wanted(kind, &name).or_else(|| stand_in(&name))?;
                Some((name, resource))
            })
            .chain(due)
            .map(|(name, resource)| (name, Some(resource)))
            .collect()
    }

    fn send_probe(&mut self, snapshot: &Snapshot, now: Instant, kind: TypeUrl) {
        let part = self.next_probe(snapshot, kind);
        if !part.is_empty() {
            self.send(snapshot, now, kind, part, Class::Probe);
        }
    }

    fn send_listeners(&mut self, snapshot: &Snapshot, now: Instant) {
        let kind = TypeUrl::Listener;
        if !self.lane(kind).requested {
            return;
        }
        let must = std::mem::take(&mut self.lane_mut(kind).must);
        self.lane_mut(kind).dirty.extend(must.iter().cloned());
        let mut items = Vec::new();
        for (name, resource) in self.due(snapshot, kind) {
            let lacking = self.lacking_for_listener(snapshot, &resource);
            let early = self.is_early(now, kind);
            if !self.waits(now, kind, &name, early, lacking) {
                items.push((name, Some(resource)));
            }
        }
        for name in must {
            match snapshot.get(kind, &name) {
                // Asked for again, though it has it.
                Some(resource) if !self.lane(kind).dirty.contains(&name) => {
                    items.push((name, Some(resource.clone())));
                }
                Some(_) => {}
                None => self.tell_absent(snapshot, now, kind, name),
            }
        }
        self.send_probe(snapshot, now, kind);
        if self.is_probing_whole(kind) {
            return;
        }
        let whole = self.is_whole(kind);
        let own = items.len();
        let lane = self.lane_mut(kind);
        if whole && !lane.fresh && lane.sent_version.is_none() {
            // What the first response leaves out, a client that comes back loses: all or nothing.
            if !lane.blocked.is_empty() {
                return;
            }
            let recalled = std::mem::take(&mut lane.recalled);
            items.extend(recalled.into_iter().map(|(name, resource)| (name, Some(resource))));
        }
        let first = lane.fresh && lane.sent_version.is_none();
        let empty = first && lane.wildcard && lane.blocked.is_empty() && items.is_empty();
        if !items.is_empty() || empty {
            for (at, (_, resource)) in items.iter().enumerate() {
                let Some(resource) = resource else { continue };
                // One that is kept for a while did not wait for the clusters of its tables: if it has not got them, it asks.
                if at < own {
                    self.push_missing(TypeUrl::RouteConfiguration, resource.routes());
                }
                self.push_missing(TypeUrl::Secret, resource.secrets());
            }
            let class = if first { Class::First } else { Class::Plain };
            self.send(snapshot, now, kind, items, class);
            self.listeners_at = Some(now);
            self.send_secrets(snapshot, now);
        }
    }

    fn send_routes(&mut self, snapshot: &Snapshot, now: Instant) {
        let kind = TypeUrl::RouteConfiguration;
        if !self.lane(kind).requested {
            return;
        }
        let must = std::mem::take(&mut self.lane_mut(kind).must);
        for name in must {
            self.lane_mut(kind).dirty.remove(&name);
            // One table per response: a refusal names neither the table nor the route.
            if let Some(wanted) = snapshot.get(kind, &name) {
                let mut resource = wanted.clone();
                // Sent ahead of its subscription and changed since: the change takes its turn like any other.
                if let Some(Copy::Known(sent)) = self.lane(kind).entries.get(&name).and_then(Entry::target)
                    && sent.version() != wanted.version()
                    && (self.is_early(now, kind) || !self.lacking(snapshot, wanted.clusters()).is_empty())
                {
                    resource = sent.clone();
                }
                self.send_needed(snapshot, now, resource.clusters().unwrap_or_default());
                self.send(snapshot, now, kind, vec![(name, Some(resource))], Class::Plain);
            }
        }
        let due = self.due(snapshot, kind);
        if due.is_empty() {
            return;
        }
        // A table must not run ahead of a listener that needs it and waits: the listener may bring the filters that protect the routes.
        let mut behind: BTreeSet<Name> = BTreeSet::new();
        let mut all_behind = false;
        for name in self.lane(TypeUrl::Listener).blocked.keys() {
            if let Some(listener) = snapshot.get(TypeUrl::Listener, name) {
                all_behind |= listener.clusters().is_none();
                behind.extend(listener.routes().iter().cloned());
            }
        }
        for (name, resource) in due {
            let lacking = self.lacking(snapshot, resource.clusters());
            let early = self.is_early(now, kind) || all_behind || behind.contains(&name);
            if !self.waits(now, kind, &name, early, lacking) {
                self.send(snapshot, now, kind, vec![(name, Some(resource))], Class::Plain);
            }
        }
    }

    /// Clusters that wait for their turn although an answer that cannot wait needs them: they go ahead of it.
    fn send_needed(&mut self, snapshot: &Snapshot, now: Instant, clusters: &[Name]) {
        let kind = TypeUrl::Cluster;
        let mut items = Vec::new();
        for name in clusters {
            let lane = self.lane(kind);
            let absent = lane.entries.get(name).is_none_or(|entry| entry.target().is_none());
            let kept_back = lane.is_probed(name) || lane.refused.contains(name);
            if lane.requested
                && lane.wants(name)
                && absent
                && !kept_back
                && let Some(resource) = snapshot.get(kind, name)
            {
                items.push((name.clone(), Some(resource.clone())));
            }
        }
        if !items.is_empty() {
            self.send_with_endpoints(snapshot, now, items, Class::Risky);
            self.send_endpoints(snapshot, now);
            self.send_secrets(snapshot, now);
        }
    }
}

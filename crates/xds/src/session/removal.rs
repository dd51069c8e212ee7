//! What the client is to lose, and when it may: never before it said that it stopped using it.

use std::time::Instant;

use super::{
    Mode, Session,
    lane::{Class, Entry},
};
use crate::{Name, TypeUrl, snapshot::Snapshot};

impl Session {
    /// Sends the removals that are allowed: clusters that nothing on the client can refer to any more, then listeners once all that is
    /// new stands, then what is asked for by name.
    pub(super) fn send_removals(&mut self, snapshot: &Snapshot, now: Instant) {
        loop {
            self.recall_freed(snapshot, now);
            self.remove_clusters(snapshot, now);
            self.remove_listeners(snapshot, now);
            for kind in [TypeUrl::RouteConfiguration, TypeUrl::ClusterLoadAssignment, TypeUrl::Secret] {
                self.remove_named(snapshot, now, kind);
            }
            if !self.uses.has_freed() {
                return;
            }
        }
    }

    /// Until when removals wait only for time to pass, if any do.
    pub(super) fn removals_wait_until(&self) -> Option<Instant> {
        let lane = self.lane(TypeUrl::Cluster);
        let waits = lane.dirty.iter().any(|name| lane.entries.get(name).is_some_and(Entry::may_be_held));
        // Once it is past, what is still waiting waits for an acknowledgement and no timer helps.
        let ahead = |until: &Instant| waits && self.last_look.is_none_or(|at| at < *until);
        let times = [self.settled_at(), self.uses.unknown_until()];
        times.into_iter().flatten().filter(ahead).min()
    }

    fn settled_at(&self) -> Option<Instant> {
        self.started.max(self.listeners_at).map(|at| at + self.waits.settle)
    }

    /// Looks again at what nothing refers to any more.
    fn recall_freed(&mut self, snapshot: &Snapshot, now: Instant) {
        for (kind, name) in self.uses.take_freed(now) {
            let lane = self.lane_mut(kind);
            let Some(entry) = lane.entries.get(&name) else { continue };
            if !lane.wants(&name) && entry.pending.is_empty() {
                // Sent ahead of a subscription that never came.
                self.forget(kind, &name);
            } else if snapshot.wanted(kind, &name).is_none() {
                lane.dirty.insert(name);
            }
        }
    }

    /// Of these, those that nothing refers to; the others are looked at again when that has become so.
    fn unused(&mut self, kind: TypeUrl, names: Vec<Name>) -> Vec<Name> {
        let may_go = |name: &Name| {
            let hinders = self.lane(kind).entries.get(name).is_some_and(|of| of.given_up && !of.pending.is_empty());
            !self.uses.is_used(kind, name) && (hinders || !self.uses.is_lingering(kind, name))
        };
        let (unused, used): (Vec<Name>, Vec<Name>) = names.into_iter().partition(may_go);
        let lane = self.lane_mut(kind);
        for name in used {
            lane.dirty.remove(&name);
        }
        unused
    }

    /// The names of a type that the client has or may have and is to lose.
    fn due_removals(&mut self, snapshot: &Snapshot, kind: TypeUrl) -> Vec<Name> {
        let lane = self.lane_mut(kind);
        let candidates: Vec<Name> =
            lane.dirty.iter().filter(|name| snapshot.wanted(kind, name).is_none()).cloned().collect();
        let mut names = Vec::new();
        for name in candidates {
            let stale =
                lane.entries.get(&name).and_then(|entry| entry.rejected.as_deref()).is_some_and(|of| !of.is_empty());
            if stale {
                lane.pardon(&name);
            }
            let removing = |entry: &Entry| matches!(entry.pending.last(), Some((_, None)));
            match lane.entries.get_mut(&name) {
                Some(entry) if removing(entry) => {
                    lane.dirty.remove(&name);
                }
                Some(entry) if entry.rejected.as_deref() == Some("") => {
                    lane.dirty.remove(&name);
                }
                Some(entry) if entry.may_be_held() => names.push(name),
                Some(_) => {
                    lane.entries.remove(&name);
                    lane.verdicts.remove(&name);
                    lane.dirty.remove(&name);
                }
                None => {
                    lane.dirty.remove(&name);
                }
            }
        }
        names
    }

    fn remove_clusters(&mut self, snapshot: &Snapshot, now: Instant) {
        let kind = TypeUrl::Cluster;
        self.last_look = Some(now);
        let names = self.due_removals(snapshot, kind);
        let mut names = self.unused(kind, names);
        if names.is_empty() || self.is_probing_whole(kind) || !self.users_are_known(snapshot, now) {
            return;
        }
        if self.uses.unknown_until().is_some_and(|until| now < until) {
            // Something may go on with what nobody here knows of. What keeps the client from acknowledging anything goes all the same.
            let entries = &self.lane(kind).entries;
            names.retain(|name| entries.get(name).is_some_and(|of| of.given_up && !of.pending.is_empty()));
        }
        let items: Vec<_> = names.into_iter().map(|name| (name, None)).collect();
        if !items.is_empty() {
            self.send(snapshot, now, kind, items, Class::Plain);
        }
    }

    /// Whether everything on the client that may use a cluster is known.
    fn users_are_known(&self, snapshot: &Snapshot, now: Instant) -> bool {
        if self.only.is_some() {
            return true;
        }
        // Versions whose content is not at hand may use anything, unless they are the wanted ones (whose clusters are wanted too).
        let opaque = self.uses.unknown().any(|(kind, name)| {
            let wanted = snapshot.get(*kind, name);
            let entry = self.lane(*kind).entries.get(name);
            entry.is_some_and(|entry| {
                entry.copies().any(|copy| {
                    let clusters = copy.resource().and_then(|of| of.clusters());
                    clusters.is_none() && wanted.is_none_or(|of| of.version() != copy.version())
                })
            })
        });
        if opaque {
            return false;
        }
        // A proxy that comes back names its listeners and then its route tables shortly after its clusters.
        let asked = self.lane(TypeUrl::Listener).requested;
        let tables = &self.lane(TypeUrl::RouteConfiguration).entries;
        let told = self
            .uses
            .used(TypeUrl::RouteConfiguration)
            .all(|name| tables.contains_key(name) || snapshot.get(TypeUrl::RouteConfiguration, name).is_none());
        asked && told || self.settled_at().is_some_and(|at| now >= at)
    }

    fn remove_listeners(&mut self, snapshot: &Snapshot, now: Instant) {
        let kind = TypeUrl::Listener;
        let names = self.due_removals(snapshot, kind);
        if names.is_empty() || self.is_probing_whole(kind) {
            return;
        }
        // What takes a listener's place must stand first.
        let building = [TypeUrl::Cluster, kind, TypeUrl::RouteConfiguration].into_iter().any(|of| {
            let lane = self.lane(of);
            !lane.blocked.is_empty()
                || lane
                    .inflight
                    .iter()
                    .any(|sent| !sent.timed_out && sent.items.iter().any(|(_, version)| version.is_some()))
        });
        let ack = self.waits.ack;
        let lane = self.lane_mut(kind);
        let mut items = Vec::new();
        for name in names {
            let since = *lane.leaving.entry(name.clone()).or_insert(now);
            if !building || now.saturating_duration_since(since) >= ack {
                items.push((name, None));
            }
        }
        for (name, _) in &items {
            lane.leaving.remove(name);
        }
        if !items.is_empty() {
            self.send(snapshot, now, kind, items, Class::Plain);
        }
    }

    /// Envoy ignores the removal of endpoints, route tables and secrets and lets go of them by itself; other clients are told.
    fn remove_named(&mut self, snapshot: &Snapshot, now: Instant, kind: TypeUrl) {
        let names = self.due_removals(snapshot, kind);
        let names = self.unused(kind, names);
        let clusters = &self.lane(TypeUrl::Cluster).entries;
        // The endpoints of a cluster whose content is not at hand usually bear its name.
        let opaque = |entry: &Entry| entry.copies().any(|copy| copy.resource().is_none());
        let of_cluster = |name: &Name| kind == TypeUrl::ClusterLoadAssignment && clusters.get(name).is_some_and(opaque);
        let unused: Vec<Name> = names.into_iter().filter(|name| !of_cluster(name)).collect();
        if unused.is_empty() {
            return;
        }
        if self.mode == Mode::StateOfTheWorld {
            // There is no way to say so.
            for name in unused {
                self.forget(kind, &name);
            }
            return;
        }
        let items = unused.into_iter().map(|name| (name, None)).collect();
        self.send(snapshot, now, kind, items, Class::Plain);
    }
}

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
        self.remove_clusters(snapshot, now);
        self.remove_listeners(snapshot, now);
        for kind in [TypeUrl::RouteConfiguration, TypeUrl::ClusterLoadAssignment, TypeUrl::Secret] {
            self.remove_named(snapshot, now, kind);
        }
    }

    /// Until when removals wait only for a proxy to say what it has, if any do.
    pub(super) fn removals_wait_until(&self) -> Option<Instant> {
        let lane = self.lane(TypeUrl::Cluster);
        let waits = lane
            .dirty
            .iter()
            .any(|name| lane.entries.get(name).is_some_and(|of| of.may_be_held() && of.pending.is_empty()));
        let until = self.settled_at()?;
        // Once it is past, what is still waiting waits for an acknowledgement and no timer helps.
        (waits && self.last_look.is_none_or(|at| at < until)).then_some(until)
    }

    fn settled_at(&self) -> Option<Instant> {
        self.started.max(self.listeners_at).map(|at| at + self.waits.settle)
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
        if names.is_empty() || self.is_probing_whole(kind) || !self.users_are_known(snapshot, now) {
            return;
        }
        let unused = names.into_iter().filter(|name| !self.uses.is_used(kind, name));
        let items: Vec<_> = unused.map(|name| (name, None)).collect();
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
        let clusters = &self.lane(TypeUrl::Cluster).entries;
        let unused = |name: &Name| {
            // The endpoints of a cluster whose content is not at hand usually bear its name.
            let opaque = |entry: &Entry| entry.copies().any(|copy| copy.resource().is_none());
            let of_cluster = kind == TypeUrl::ClusterLoadAssignment && clusters.get(name).is_some_and(opaque);
            !of_cluster && !self.uses.is_used(kind, name)
        };
        let unused: Vec<Name> = names.into_iter().filter(unused).collect();
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

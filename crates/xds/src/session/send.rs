//! Makes responses and remembers them.

use std::{collections::BTreeSet, time::Instant};

use super::{
    Mode, Response, Session,
    lane::{Class, Copy, Entry, Lane, Sent},
};
use crate::{
    Name, Resource, TypeUrl,
    snapshot::{Snapshot, digest_of},
};

impl Session {
    /// Sends one response.
    pub(super) fn send(
        &mut self,
        snapshot: &Snapshot,
        now: Instant,
        kind: TypeUrl,
        mut items: Vec<(Name, Option<Resource>)>,
        class: Class,
    ) {
        let whole = self.is_whole(kind);
        let own = items.len();
        if whole {
            // Everything not acknowledged yet is in this response too, and answered with it.
            let sent: BTreeSet<Name> = items.iter().map(|(name, _)| name.clone()).collect();
            let open = self.lane(kind).entries.iter().filter(|(name, _)| !sent.contains(*name));
            let open = open.filter_map(|(name, entry)| Some((name.clone(), entry.pending.last()?.1.clone())));
            items.extend(open.map(|(name, copy)| (name, copy.and_then(|copy| copy.resource().cloned()))));
        }
        self.nonce += 1;
        let nonce = self.nonce;
        let lane = &mut self.lanes[kind.index()];
        let quiet = lane.inflight.is_empty();
        for (name, resource) in &items {
            let entry = lane.entries.entry(name.clone()).or_default();
            let copy = resource.clone().map(Copy::Known);
            if let Some(copy) = &copy {
                self.uses.add(kind, name, copy);
                entry.given_up = false;
            }
            entry.pending.push((nonce, copy));
            lane.must.remove(name);
            lane.blocked.remove(name);
            let wanted = snapshot.wanted(kind, name);
            let stand_in = kind == TypeUrl::ClusterLoadAssignment && wanted.is_none();
            if stand_in || wanted.as_ref().map(Resource::version) == resource.as_ref().map(Resource::version) {
                lane.dirty.remove(name);
            } else {
                // Not what it is to have in the end.
                lane.dirty.insert(name.clone());
            }
        }
        let version = match self.mode {
            Mode::Delta => snapshot.digest(kind).clone(),
            Mode::StateOfTheWorld if quiet || kind.is_wildcard() => {
                let whole = self.sotw_version(snapshot, kind);
                if self.is_in_sync(snapshot, kind) { whole } else { partial(&whole, nonce) }
            }
            Mode::StateOfTheWorld => partial(snapshot.digest(kind), nonce),
        };
        let lane = &mut self.lanes[kind.index()];
        lane.sent_version = Some(version.clone());
        lane.inflight.push_back(Sent {
            nonce,
            items: items.iter().map(|(name, of)| (name.clone(), of.as_ref().map(|of| of.version().clone()))).collect(),
            own,
            class,
            version: version.clone(),
            sent_at: now,
            deadline: now + self.waits.ack,
            timed_out: false,
        });
        let (mut resources, mut removed) = (Vec::new(), Vec::new());
        if whole {
            resources = effective(&self.lanes[kind.index()]);
            self.note_shown(kind, &resources);
        } else {
            for (name, resource) in items {
                match resource {
                    Some(resource) => resources.push((name, resource)),
                    None => removed.push(name),
                }
            }
        }
        self.responses.push_back(Response { kind, nonce, version, resources, removed });
    }

    /// Marks the endpoints of every cluster that is not what the last whole response said it was: its neighbours' fate may have taken it
    /// away or back.
    fn note_shown(&mut self, kind: TypeUrl, resources: &[(Name, Resource)]) {
        let shown = resources.iter().map(|(name, of)| (name.clone(), of.version().clone())).collect();
        let before = std::mem::replace(&mut self.lane_mut(kind).shown, shown);
        if kind == TypeUrl::Cluster {
            let changed = resources.iter().filter(|(name, of)| before.get(name) != Some(of.version()));
            let endpoints: Vec<Name> = changed.filter_map(|(name, of)| of.endpoints_name(name)).collect();
            self.lane_mut(TypeUrl::ClusterLoadAssignment).must.extend(endpoints);
        }
    }

    /// The version of all that a state-of-the-world client is to have of a type.
    pub(super) fn sotw_version(&self, snapshot: &Snapshot, kind: TypeUrl) -> Name {
        let lane = self.lane(kind);
        if lane.wildcard {
            return snapshot.digest(kind).clone();
        }
        let wanted: Vec<(&Name, Resource)> =
            lane.named.iter().filter_map(|name| snapshot.wanted(kind, name).map(|of| (name, of))).collect();
        digest_of(wanted.iter().map(|(name, of)| (&***name, &**of.version())))
    }

    /// Whether the client has, once it has read everything sent, exactly what it is to have.
    fn is_in_sync(&self, snapshot: &Snapshot, kind: TypeUrl) -> bool {
        let lane = self.lane(kind);
        let has = |name: &Name, wanted: &Resource| {
            let copy = lane.entries.get(name).and_then(Entry::target);
            copy.is_some_and(|copy| copy.version() == wanted.version())
        };
        if lane.wildcard {
            let held = lane.entries.values().filter(|entry| entry.target().is_some()).count();
            held == snapshot.count(kind) && snapshot.iter(kind).all(|(name, of)| has(name, of))
        } else {
            let missing = |name: &&Name| snapshot.wanted(kind, name).is_some_and(|wanted| !has(name, &wanted));
            !lane.named.iter().any(|name| missing(&name))
        }
    }
}

fn partial(version: &str, nonce: u64) -> Name {
    format!("{version}~{nonce}").into()
}

/// Everything that a state-of-the-world client is to keep, as of what was sent last.
fn effective(lane: &Lane) -> Vec<(Name, Resource)> {
    let target = |entry: &Entry| entry.target().and_then(Copy::resource).cloned();
    let entries = lane.entries.iter();
    entries.filter_map(|(name, entry)| Some((name.clone(), target(entry)?))).collect()
}

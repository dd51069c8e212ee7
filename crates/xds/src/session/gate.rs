//! What a change waits for.

use std::{collections::BTreeSet, time::Instant};

use super::{
    Fact, Session,
    lane::{Copy, Entry},
};
use crate::{Name, Resource, TypeUrl, snapshot::Snapshot};

impl Session {
    /// Whether a client that had something before has not asked for clusters yet: one that comes back in the middle of warming up asks
    /// for them when they are warm (and one that never asks is not waited for for ever).
    pub(super) fn is_early(&self, now: Instant, kind: TypeUrl) -> bool {
        let answered = self.lane(kind).sent_version.is_some();
        let young = self.started.is_some_and(|at| now < at + self.waits.ack);
        young && (self.returning || answered) && !self.lane(TypeUrl::Cluster).requested
    }

    pub(super) fn is_held(&self, kind: TypeUrl, name: &str) -> bool {
        self.lane(kind).entries.get(name).is_some_and(|entry| entry.acked.is_some())
    }

    /// Which of these clusters (all, when nobody knows) the client does not have ready.
    pub(super) fn lacking(&self, snapshot: &Snapshot, clusters: Option<&[Name]>) -> Vec<Name> {
        let lane = self.lane(TypeUrl::Cluster);
        if !lane.requested {
            return Vec::new();
        }
        match clusters {
            Some(names) => names.iter().filter(|name| self.unready(snapshot, name)).cloned().collect(),
            None => {
                let sent = lane.inflight.iter().flat_map(|sent| &sent.items).map(|(name, _)| name);
                let names: BTreeSet<&Name> = lane.dirty.iter().chain(sent).collect();
                names.into_iter().filter(|name| self.unready(snapshot, name)).cloned().collect()
            }
        }
    }

    /// Whether a wanted cluster cannot take requests on this client yet.
    pub(super) fn unready(&self, snapshot: &Snapshot, name: &str) -> bool {
        let lane = self.lane(TypeUrl::Cluster);
        let Some(wanted) = snapshot.get(TypeUrl::Cluster, name).filter(|_| lane.wants(name)) else { return false };
        let Some(entry) = lane.entries.get(name) else { return true };
        // One that nothing uses is what it was when the last route to it went. When it comes back in another form, requests would go where
        // the former one led; that it is warm does not make it the right one.
        let right = self.uses.is_used(TypeUrl::Cluster, name) || entry.has(wanted);
        let serving = entry.is_serving() && right;
        !(serving || entry.given_up || self.is_warm_by_endpoints(name, entry))
    }

    /// A plain cluster whose endpoints were acknowledged after it was sent is in use, even while the acknowledgement of the cluster
    /// itself is held back by another one that is still warming up.
    pub(super) fn is_warm_by_endpoints(&self, name: &str, entry: &Entry) -> bool {
        let Some((nonce, Some(Copy::Known(cluster)))) = entry.pending.last() else { return false };
        if cluster.warms() {
            return false;
        }
        let Some(endpoints) = cluster.endpoints_name(&Name::from(name)) else { return false };
        let lane = self.lane(TypeUrl::ClusterLoadAssignment);
        lane.named.contains(&endpoints) && lane.entries.get(&endpoints).is_some_and(|of| of.acked_nonce > *nonce)
    }

    /// Whether a change has to wait, for clusters that it lacks or because it is early. It waits for a limited time; then it goes on.
    pub(super) fn waits(&mut self, now: Instant, kind: TypeUrl, name: &Name, early: bool, lacking: Vec<Name>) -> bool {
        if self.only.is_some() {
            return false;
        }
        let ack = self.waits.ack;
        let lane = self.lane_mut(kind);
        if lacking.is_empty() && !early {
            lane.blocked.remove(name);
            return false;
        }
        let since = *lane.blocked.entry(name.clone()).or_insert(now);
        if now.saturating_duration_since(since) < ack {
            return true;
        }
        lane.blocked.remove(name);
        let clusters = self.lane_mut(TypeUrl::Cluster);
        for name in lacking {
            if let Some(entry) = clusters.entries.get_mut(&name) {
                entry.given_up = true;
            }
        }
        self.facts.push_back(Fact::WentOn);
        false
    }

    /// The clusters that a listener and its new route tables need and the client does not have ready.
    pub(super) fn lacking_for_listener(&self, snapshot: &Snapshot, listener: &Resource) -> Vec<Name> {
        let mut lacking = self.lacking(snapshot, listener.clusters());
        for name in listener.routes() {
            // A table that the client has is judged when it changes itself.
            if !self.is_held(TypeUrl::RouteConfiguration, name)
                && let Some(table) = snapshot.get(TypeUrl::RouteConfiguration, name)
            {
                lacking.extend(self.lacking(snapshot, table.clusters()));
            }
        }
        lacking
    }
}

//! Which resources are referred to by something that the client may be running.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::lane::Copy;
use crate::{Name, Resource, TypeUrl};

/// Counts references from every version of a listener, route table or cluster that the client holds, may hold, or is being sent.
#[derive(Debug, Default)]
pub(super) struct Uses {
    counts: [BTreeMap<Name, usize>; TypeUrl::COUNT],
    /// Listeners and route tables of which some version's references are not known, with the number of such versions.
    unknown: BTreeMap<(TypeUrl, Name), usize>,
    /// Until when connections that still have a former listener, and requests that still follow a former table, may need a name.
    lingering: BTreeMap<(TypeUrl, Name), Instant>,
    /// The same in the order of time.
    expiries: BTreeSet<(Instant, TypeUrl, Name)>,
    /// Until when they may need anything: what they refer to is not known.
    lingering_unknown: Option<Instant>,
    /// What nothing refers to any more since [`Uses::take_freed`] was last asked.
    freed: BTreeSet<(TypeUrl, Name)>,
}

impl Uses {
    /// The client may run this version from now on.
    pub(super) fn add(&mut self, kind: TypeUrl, name: &Name, copy: &Copy) {
        each(kind, name, copy, |of, name| {
            *self.counts[of.index()].entry(name.clone()).or_default() += 1;
        });
        if is_opaque(kind, copy) {
            *self.unknown.entry((kind, name.clone())).or_default() += 1;
        }
    }

    /// The client does not run it any more.
    pub(super) fn release(&mut self, kind: TypeUrl, name: &Name, copy: &Copy) {
        each(kind, name, copy, |of, name| {
            let counts = &mut self.counts[of.index()];
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
                    self.freed.insert((of, name.clone()));
                }
            }
        });
        let key = (kind, name.clone());
        if is_opaque(kind, copy)
            && let Some(count) = self.unknown.get_mut(&key)
        {
            *count -= 1;
            if *count == 0 {
                self.unknown.remove(&key);
            }
        }
    }

    /// The client has let a version go for another one (or for none), but what goes on with it may need what it refers to for a while.
    pub(super) fn linger(&mut self, kind: TypeUrl, former: &Copy, now: Option<&Copy>, at: Instant, drain: Duration) {
        if drain.is_zero() || !matches!(kind, TypeUrl::Listener | TypeUrl::RouteConfiguration) {
            return;
        }
        let until = at + drain;
        if is_opaque(kind, former) {
            self.linger_unknown(until);
        }
        // What it still refers to begins to linger when it stops doing so.
        for ((of, names), (_, kept)) in references(Some(former)).into_iter().zip(references(now)) {
            let kept: BTreeSet<&Name> = kept.iter().collect();
            for name in names.iter().filter(|name| !kept.contains(name)) {
                if let Some(before) = self.lingering.insert((of, name.clone()), until) {
                    self.expiries.remove(&(before, of, name.clone()));
                }
                self.expiries.insert((until, of, name.clone()));
            }
        }
    }

    /// Something that the client has may need anything until then.
    pub(super) fn linger_unknown(&mut self, until: Instant) {
        self.lingering_unknown = self.lingering_unknown.max(Some(until));
    }

    /// Until when the client may need anything.
    pub(super) fn unknown_until(&self) -> Option<Instant> {
        self.lingering_unknown
    }

    /// When the next name stops being needed.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|(at, ..)| *at)
    }

    /// What nothing refers to any more, since this was last asked.
    pub(super) fn take_freed(&mut self, now: Instant) -> BTreeSet<(TypeUrl, Name)> {
        while self.expiries.first().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, kind, name)) = self.expiries.pop_first() else { break };
            self.lingering.remove(&(kind, name.clone()));
            self.freed.insert((kind, name));
        }
        std::mem::take(&mut self.freed)
    }

    /// How many names linger.
    #[cfg(test)]
    pub(super) fn lingering(&self) -> usize {
        assert_eq!(self.lingering.len(), self.expiries.len());
        self.lingering.len()
    }

    /// Whether anything has been freed since.
    pub(super) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Whether something that the client may run refers to it.
    pub(super) fn is_used(&self, kind: TypeUrl, name: &str) -> bool {
        self.counts[kind.index()].contains_key(name)
    }

    /// Whether something that it ran a short while ago referred to it.
    pub(super) fn is_lingering(&self, kind: TypeUrl, name: &Name) -> bool {
        self.lingering.contains_key(&(kind, name.clone()))
    }

    /// The names of a type that something refers to.
    pub(super) fn used(&self, kind: TypeUrl) -> impl Iterator<Item = &Name> {
        self.counts[kind.index()].keys()
    }

    /// The listeners and route tables that may refer to anything.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &(TypeUrl, Name)> {
        self.unknown.keys()
    }
}

/// What a version of a resource refers to; a table may name a cluster many times.
fn references(of: Option<&Copy>) -> [(TypeUrl, &[Name]); 3] {
    let resource = of.and_then(Copy::resource);
    [
        (TypeUrl::Cluster, resource.and_then(Resource::clusters).unwrap_or_default()),
        (TypeUrl::RouteConfiguration, resource.map(Resource::routes).unwrap_or_default()),
        (TypeUrl::Secret, resource.map(Resource::secrets).unwrap_or_default()),
    ]
}

/// The same, each once, with the endpoints of a cluster.
fn each(kind: TypeUrl, name: &Name, copy: &Copy, mut apply: impl FnMut(TypeUrl, &Name)) {
    for (of, names) in references(Some(copy)) {
        for name in names.iter().collect::<BTreeSet<_>>() {
            apply(of, name);
        }
    }
    if kind == TypeUrl::Cluster
        && let Some(endpoints) = copy.resource().and_then(|of| of.endpoints_name(name))
    {
        apply(TypeUrl::ClusterLoadAssignment, &endpoints);
    }
}

fn is_opaque(kind: TypeUrl, copy: &Copy) -> bool {
    matches!(kind, TypeUrl::Listener | TypeUrl::RouteConfiguration)
        && copy.resource().is_none_or(|resource| resource.clusters().is_none())
}

//! Which resources are referred to by something that the client may be running.

use std::collections::{BTreeMap, BTreeSet};

use super::lane::Copy;
use crate::{Name, TypeUrl};

/// Counts references from every version of a listener, route table or cluster that the client holds, may hold, or is being sent.
#[derive(Debug, Default)]
pub(super) struct Uses {
    counts: [BTreeMap<Name, usize>; TypeUrl::COUNT],
    /// Listeners and route tables of which some version's references are not known, with the number of such versions.
    unknown: BTreeMap<(TypeUrl, Name), usize>,
}

impl Uses {
    /// The client may run this version from now on.
    pub(super) fn add(&mut self, kind: TypeUrl, name: &Name, copy: &Copy) {
        self.each(kind, name, copy, |counts, name| {
            *counts.entry(name.clone()).or_default() += 1;
        });
        if is_opaque(kind, copy) {
            *self.unknown.entry((kind, name.clone())).or_default() += 1;
        }
    }

    /// The client does not run it any more.
    pub(super) fn release(&mut self, kind: TypeUrl, name: &Name, copy: &Copy) {
        self.each(kind, name, copy, |counts, name| {
            if let Some(count) = counts.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(name);
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

    /// Whether something that the client may run refers to it.
    pub(super) fn is_used(&self, kind: TypeUrl, name: &str) -> bool {
        self.counts[kind.index()].contains_key(name)
    }

    /// The names of a type that something refers to.
    pub(super) fn used(&self, kind: TypeUrl) -> impl Iterator<Item = &Name> {
        self.counts[kind.index()].keys()
    }

    /// The listeners and route tables that may refer to anything.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &(TypeUrl, Name)> {
        self.unknown.keys()
    }

    fn each(
        &mut self,
        kind: TypeUrl,
        name: &Name,
        copy: &Copy,
        mut apply: impl FnMut(&mut BTreeMap<Name, usize>, &Name),
    ) {
        let Some(resource) = copy.resource() else { return };
        let mut every = |of: TypeUrl, names: &[Name]| {
            // A table may name a cluster many times: one reference each.
            let names: BTreeSet<&Name> = names.iter().collect();
            for name in names {
                apply(&mut self.counts[of.index()], name);
            }
        };
        every(TypeUrl::Cluster, resource.clusters().unwrap_or_default());
        every(TypeUrl::RouteConfiguration, resource.routes());
        every(TypeUrl::Secret, resource.secrets());
        if kind == TypeUrl::Cluster
            && let Some(endpoints) = resource.endpoints_name(name)
        {
            every(TypeUrl::ClusterLoadAssignment, &[endpoints]);
        }
    }
}

fn is_opaque(kind: TypeUrl, copy: &Copy) -> bool {
    matches!(kind, TypeUrl::Listener | TypeUrl::RouteConfiguration)
        && copy.resource().is_none_or(|resource| resource.clusters().is_none())
}

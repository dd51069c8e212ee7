//! Statuses of policies, by the parents that they have an effect on.

use std::collections::BTreeMap;

use ir::{Condition, ConditionStatus, Name, ParentRef, ParentStatus, Status};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    attach::Target,
    topology::{Topology, name, namespace},
};

/// Ancestors in the status of a policy at most.
const MAX_ANCESTORS: usize = 16;

/// Collects the conditions of one policy.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    found: BTreeMap<ParentRef, Vec<Condition>>,
    generation: Option<i64>,
}

/// The ancestors that a target stands for: itself, or the parents of a route.
pub(crate) fn ancestors(topology: &Topology<'_>, target: &Target<'_>) -> Vec<ParentRef> {
    match *target {
        Target::Rule { route, .. } | Target::Route { route } => {
            let parents = &topology.routes[route].parents;
            let mut out: Vec<ParentRef> =
                parents.iter().map(|p| parent(topology, p.gateway, p.set, p.section)).collect();
            out.sort();
            out.dedup();
            out
        }
        Target::Listener { gateway, set, listener } => vec![parent(topology, gateway, set, Some(listener))],
        Target::Set { gateway, set } => vec![parent(topology, gateway, Some(set), None)],
        Target::Gateway { gateway } => vec![parent(topology, gateway, None, None)],
    }
}

/// A listener as an ancestor.
pub(crate) fn listener(topology: &Topology<'_>, gateway: usize, listener: usize) -> ParentRef {
    let own = topology.gateways[gateway].listeners[listener];
    parent(topology, gateway, own.set, Some(own.name))
}

fn parent(topology: &Topology<'_>, gateway: usize, set: Option<usize>, section: Option<&str>) -> ParentRef {
    let gateway = &topology.gateways[gateway];
    let (kind, meta) = match set {
        None => ("Gateway", gateway.meta),
        Some(set) => ("ListenerSet", gateway.sets[set]),
    };
    ParentRef {
        group: Some(api::gateway::GROUP.into()),
        kind: Some(kind.into()),
        namespace: Some(namespace(meta).into()),
        name: name(meta).into(),
        section_name: section.map(Into::into),
        port: None,
    }
}

// === impl Ancestors ===

impl Ancestors {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self { found: BTreeMap::new(), generation: meta.generation }
    }

    /// Sets a condition, in place of one of its type.
    pub(crate) fn set(
        &mut self,
        ancestor: &ParentRef,
        kind: &'static str,
        holds: bool,
        reason: &'static str,
        message: impl Into<String>,
    ) {
        let status = if holds { ConditionStatus::True } else { ConditionStatus::False };
        let condition =
            Condition { kind, status, reason, message: message.into(), observed_generation: self.generation };
        let all = self.found.entry(ancestor.clone()).or_default();
        match all.iter_mut().find(|c| c.kind == kind) {
            Some(old) => *old = condition,
            None => all.push(condition),
        }
    }

    /// Accepts the policy there unless something else was said.
    pub(crate) fn accept(&mut self, ancestor: &ParentRef) {
        let told = self.found.get(ancestor).is_some_and(|all| all.iter().any(|c| c.kind == "Accepted"));
        if !told {
            self.set(ancestor, "Accepted", true, "Accepted", "The policy is accepted");
        }
    }

    /// The status; none when nothing of ours is concerned.
    pub(crate) fn status(self, controller: &Name) -> Option<Status> {
        let cut = self.found.len().saturating_sub(MAX_ANCESTORS);
        let generation = self.generation;
        let mut ancestors: Vec<ParentStatus> = self
            .found
            .into_iter()
            .take(MAX_ANCESTORS)
            .map(|(parent, conditions)| ParentStatus { parent, controller_name: controller.clone(), conditions })
            .collect();
        if let (true, Some(last)) = (cut > 0, ancestors.last_mut()) {
            last.conditions.push(Condition {
                kind: "Aggregated",
                status: ConditionStatus::True,
                reason: "Aggregated",
                message: format!("{cut} more parents are left out: a status holds {MAX_ANCESTORS}"),
                observed_generation: generation,
            });
        }
        (!ancestors.is_empty()).then_some(Status::Policy { ancestors })
    }
}

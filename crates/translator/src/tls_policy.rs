//! Statuses of BackendTLSPolicies, by the parents of the routes that lead to their targets.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::gateway::BackendTLSPolicy;
use ir::{Condition, ParentRef, ParentStatus, Status};
use resources::{Kind, ObjectKey};

use crate::{condition::Conditions, http::TlsTarget, upstream_tls, view::View};

/// Ancestors in the status of a policy at most.
const MAX_ANCESTORS: usize = 16;

/// Collects what routes tell about policies.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    found: BTreeMap<(String, String), BTreeMap<ParentRef, Option<String>>>,
}

impl Ancestors {
    /// A route of a parent leads to these objects.
    pub(crate) fn note(&mut self, view: &View<'_>, parent: &ParentRef, targets: &BTreeSet<TlsTarget>) {
        for target in targets {
            let policies = view.tls_policies(&target.namespace, &target.kind, &target.name);
            if policies.is_empty() {
                continue;
            }
            let names = upstream_tls::port_names(view, &target.kind, &target.namespace, &target.name, target.port);
            let mut holders: BTreeMap<Option<&str>, &BackendTLSPolicy> = BTreeMap::new();
            for policy in policies {
                for reference in &policy.spec.target_refs {
                    if reference.kind != target.kind || reference.name != target.name {
                        continue;
                    }
                    let section = reference.section_name.as_deref().filter(|s| !s.is_empty());
                    if section.is_some_and(|s| !names.iter().any(|n| n == s)) {
                        continue;
                    }
                    let holder = *holders.entry(section).or_insert(policy);
                    let conflict = (!std::ptr::eq(holder, *policy)).then(|| {
                        let older = key(holder);
                        format!(
                            "BackendTLSPolicy {}/{} is older and has the same target; change one of them",
                            older.0, older.1
                        )
                    });
                    let entry = self.found.entry(key(policy)).or_default().entry(parent.clone());
                    let state = entry.or_insert_with(|| conflict.clone());
                    // A policy that holds for one port is accepted even if it loses another.
                    if conflict.is_none() {
                        *state = None;
                    }
                }
            }
        }
    }

    /// Adds the statuses.
    pub(crate) fn statuses(&self, view: &View<'_>, out: &mut BTreeMap<ObjectKey, Arc<Status>>) {
        for ((namespace, name), parents) in &self.found {
            let Some(policy) = view.store.get::<BackendTLSPolicy>(namespace, name) else { continue };
            let make = Conditions::of(&policy.metadata);
            let verdict = upstream_tls::ca_of_policy(view, policy);
            let mut ancestors: Vec<ParentStatus> = parents
                .iter()
                .map(|(parent, conflict)| ParentStatus {
                    parent: parent.clone(),
                    controller_name: view.config.controller_name.clone(),
                    conditions: conditions(make, conflict.as_deref(), &verdict),
                })
                .collect();
            if ancestors.len() > MAX_ANCESTORS {
                let message =
                    format!("{} parents are left out: a status holds {MAX_ANCESTORS}", ancestors.len() - MAX_ANCESTORS);
                ancestors.truncate(MAX_ANCESTORS);
                if let Some(last) = ancestors.last_mut() {
                    last.conditions.push(make.yes("Aggregated", "Aggregated", message));
                }
            }
            out.insert(ObjectKey::new(Kind::BackendTlsPolicy, namespace, name), Arc::new(Status::Policy { ancestors }));
        }
    }
}

fn key(policy: &BackendTLSPolicy) -> (String, String) {
    let meta = &policy.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn conditions(
    make: Conditions,
    conflict: Option<&str>,
    verdict: &Result<ir::Secret, (&'static str, String)>,
) -> Vec<Condition> {
    match (conflict, verdict) {
        (Some(message), _) => vec![make.no("Accepted", "Conflicted", message)],
        (None, Ok(_)) => vec![
            make.yes("ResolvedRefs", "ResolvedRefs", "All references are resolved"),
            make.yes("Accepted", "Accepted", "The policy is accepted"),
        ],
        (None, Err((reason, message))) => vec![
            make.no("ResolvedRefs", reason, message.clone()),
            make.no("Accepted", "NoValidCACertificate", message.clone()),
        ],
    }
}

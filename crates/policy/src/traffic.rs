//! BackendTrafficPolicies: which holds at which place, what it says there, and what is told about it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use api::envoygateway::{BackendTrafficPolicy, BackendTrafficPolicySpec, MergeType, RoutingType};
use ir::{Name, PolicyRef, Status};
use resources::{Kind, ObjectKey, Precedence, Store, merge};
use serde_json::Value;

use crate::{
    attach::{Attachable, Attachments, Outcome, Target},
    cluster::{self, Upstream},
    read::Wrong,
    route::{self, RouteSettings},
    status::{self, Ancestors},
    topology::{Place, Topology, name, namespace},
};

const KIND: &str = "BackendTrafficPolicy";
/// Lists whose items are told apart by their type, so that a strategic merge merges them.
const BY_TYPE: [&str; 3] = ["compression", "compressor", "httpUpgrade"];

/// What holds at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effective {
    /// The policy, the closer one where two are merged.
    pub policy: PolicyRef,
    /// What it says; nothing where it makes no sense: requests are answered 500 then.
    pub settings: Option<Settings>,
    wrong: Vec<String>,
    warnings: Vec<String>,
}

/// What a policy says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// About clusters.
    pub upstream: Upstream,
    /// About routes.
    pub route: RouteSettings,
    /// Endpoints are Services (true) or pods (false).
    pub service_routing: Option<bool>,
}

/// All BackendTrafficPolicies, attached.
#[derive(Debug)]
pub struct BackendTraffic<'a> {
    policies: Vec<&'a BackendTrafficPolicy>,
    attachments: Attachments<'a>,
    /// What policies say alone, and merged with another.
    said: BTreeMap<(usize, Option<usize>), Arc<Effective>>,
}

// === impl BackendTraffic ===

impl<'a> BackendTraffic<'a> {
    /// Attaches all policies of the store, and reads what they say.
    #[must_use]
    pub fn new(store: &'a Store, topology: &Topology<'a>) -> Self {
        let mut policies: Vec<&BackendTrafficPolicy> = store.all::<BackendTrafficPolicy>().map(|p| &**p).collect();
        policies.sort_by_cached_key(|p| Precedence::from(&p.metadata));
        let attachable: Vec<Attachable<'a>> =
            policies.iter().map(|p| Attachable { meta: &p.metadata, targets: &p.spec.targets }).collect();
        let attachments = Attachments::new(KIND, &attachable, topology, store);
        let mut out = Self { policies, attachments, said: BTreeMap::new() };
        out.read(store, topology);
        out
    }

    /// What holds at a place.
    #[must_use]
    pub fn at(&self, topology: &Topology<'a>, place: Place) -> Option<&Arc<Effective>> {
        self.said.get(&self.chosen(topology, place)?)
    }

    /// The policy at a place, and the one that it is merged with.
    fn chosen(&self, topology: &Topology<'a>, place: Place) -> Option<(usize, Option<usize>)> {
        let of_listener = || self.attachments.of_listener(topology, place.gateway, place.listener);
        match self.attachments.of_route(topology, place) {
            Some(own) => Some((own, self.parent(own, of_listener()))),
            None => of_listener().map(|p| (p, None)),
        }
    }

    /// The policy that `own` is merged with, given the one of the listener.
    fn parent(&self, own: usize, of_listener: Option<usize>) -> Option<usize> {
        let merges = self.policies[own].spec.merge_type.as_ref().is_some_and(|m| *m != MergeType::Replace);
        of_listener.filter(|p| merges && *p != own)
    }

    fn read(&mut self, store: &Store, topology: &Topology<'a>) {
        let mut wanted: BTreeSet<(usize, Option<usize>)> = BTreeSet::new();
        for (i, target, outcome) in self.attachments.attempts() {
            if *outcome != Outcome::Holds {
                continue;
            }
            wanted.insert((*i, None));
            if let Target::Rule { route, .. } | Target::Route { route } = *target {
                for parent in &topology.routes[route].parents {
                    for listener in &parent.listeners {
                        let of_listener = self.attachments.of_listener(topology, parent.gateway, *listener);
                        wanted.insert((*i, self.parent(*i, of_listener)));
                    }
                }
            }
        }
        for (own, parent) in wanted {
            let said = say(self.policies[own], parent.map(|p| self.policies[p]), store);
            self.said.insert((own, parent), Arc::new(said));
        }
    }

    /// Statuses of those policies that have to do with Gateways and routes of ours.
    pub fn statuses(&self, topology: &Topology<'a>, controller: &Name) -> BTreeMap<ObjectKey, Arc<Status>> {
        let mut all: Vec<Ancestors> = self.policies.iter().map(|p| Ancestors::of(&p.metadata)).collect();
        for (i, target, outcome) in self.attachments.attempts() {
            self.tell(topology, *i, target, outcome, &mut all[*i]);
        }
        let mut out = BTreeMap::new();
        for (policy, ancestors) in self.policies.iter().zip(all) {
            if let Some(status) = ancestors.status(controller) {
                let key =
                    ObjectKey::new(Kind::BackendTrafficPolicy, namespace(&policy.metadata), name(&policy.metadata));
                out.insert(key, Arc::new(status));
            }
        }
        out
    }

    /// Tells how one attempt to attach ended.
    fn tell(&self, topology: &Topology<'a>, i: usize, target: &Target<'a>, outcome: &Outcome, out: &mut Ancestors) {
        let ancestors = status::ancestors(topology, target);
        match outcome {
            Outcome::Taken(holder) => {
                let message = format!(
                    "{} is older and holds for the same target; change spec.targetRefs of one of the two",
                    self.named(*holder)
                );
                ancestors.iter().for_each(|a| out.set(a, "Accepted", false, "Conflicted", message.clone()));
                return;
            }
            Outcome::NoSection(section) => {
                let message =
                    format!("spec.targetRefs: the target has no section named {section}; correct sectionName");
                ancestors.iter().for_each(|a| out.set(a, "Accepted", false, "TargetNotFound", message.clone()));
                return;
            }
            Outcome::Holds => {}
        }
        let merged = self.tell_merges(topology, i, target, out);
        let alone = self.said.get(&(i, None));
        let merges =
            self.policies[i].spec.merge_type.is_some() && matches!(target, Target::Rule { .. } | Target::Route { .. });
        for ancestor in &ancestors {
            let wrong = alone.filter(|a| !(a.wrong.is_empty() || merges && merged));
            if let Some(said) = wrong {
                out.set(ancestor, "Accepted", false, "Invalid", said.wrong.join("\n"));
            }
            out.accept(ancestor);
            let mut warnings = alone.map(|a| a.warnings.clone()).unwrap_or_default();
            let deprecated = self.policies[i].spec.targets.target_ref.is_some();
            if deprecated {
                warnings.insert(0, "spec.targetRef is deprecated; use spec.targetRefs".to_owned());
            }
            if !warnings.is_empty() {
                let reason = if deprecated { "DeprecatedField" } else { "Warnings" };
                out.set(ancestor, "Warning", true, reason, warnings.join("\n"));
            }
        }
        for (kind, message) in self.overridden(topology, i, target) {
            ancestors.iter().for_each(|a| out.set(a, kind, true, kind, message.clone()));
        }
    }

    /// Tells what a policy of a route is merged with, by listener; whether there was anything.
    fn tell_merges(&self, topology: &Topology<'a>, i: usize, target: &Target<'a>, out: &mut Ancestors) -> bool {
        let (Target::Rule { route, .. } | Target::Route { route }) = *target else { return false };
        let mut any = false;
        for parent in &topology.routes[route].parents {
            for listener in &parent.listeners {
                let of_listener = self.attachments.of_listener(topology, parent.gateway, *listener);
                let Some(other) = self.parent(i, of_listener) else { continue };
                any = true;
                let ancestor = status::listener(topology, parent.gateway, *listener);
                match self.said.get(&(i, Some(other))).filter(|s| !s.wrong.is_empty()) {
                    Some(said) => out.set(&ancestor, "Accepted", false, "Invalid", said.wrong.join("\n")),
                    None => {
                        let message = format!("The policy is merged with {}", self.named(other));
                        out.set(&ancestor, "Merged", true, "Merged", message);
                    }
                }
            }
        }
        any
    }

    /// Where closer policies take the place of this one, or are merged with it.
    fn overridden(&self, topology: &Topology<'a>, i: usize, target: &Target<'a>) -> Vec<(&'static str, String)> {
        if let Target::Route { route } = *target {
            let rules: Vec<&str> = self.attachments.rules(route).collect();
            if rules.is_empty() {
                return Vec::new();
            }
            let message = format!("Policies of their own hold for these rules of the route: {}", rules.join(", "));
            return vec![("Overridden", message)];
        }
        let Some(scope) = scope(topology, target) else { return Vec::new() };
        let (mut closer, mut merged): (BTreeSet<String>, BTreeSet<String>) = Default::default();
        for (gateway, listener) in &scope {
            if self.attachments.of_listener(topology, *gateway, *listener) != Some(i) {
                let ancestor = status::listener(topology, *gateway, *listener);
                closer.insert(format!("listener {}", ancestor.section_name.as_deref().unwrap_or_default()));
            }
        }
        for (own, of_route, outcome) in self.attachments.attempts() {
            let (Target::Rule { route, .. } | Target::Route { route }, Outcome::Holds) = (of_route, outcome) else {
                continue;
            };
            let r = &topology.routes[*route];
            let label = || format!("{} {}/{}", r.kind, namespace(r.meta), name(r.meta));
            let places = r.parents.iter().flat_map(|p| p.listeners.iter().map(|l| (p.gateway, *l)));
            let inside: Vec<_> = places.filter(|p| scope.contains(p)).collect();
            if inside.is_empty() {
                continue;
            }
            let with_this = |(gateway, listener): &(usize, usize)| {
                let of_listener = self.attachments.of_listener(topology, *gateway, *listener);
                self.parent(*own, of_listener) == Some(i)
                    && self.said.get(&(*own, Some(i))).is_some_and(|s| s.wrong.is_empty())
            };
            // A listener with a policy of its own has been told of already.
            if inside.iter().any(with_this) {
                merged.insert(label());
            } else {
                closer.insert(label());
            }
        }
        let mut out = Vec::new();
        if !merged.is_empty() {
            out.push(("Merged", format!("Policies of their own are merged with this one for: {}", few(merged))));
        }
        if !closer.is_empty() {
            out.push(("Overridden", format!("Policies of their own hold instead of this one for: {}", few(closer))));
        }
        out
    }

    fn named(&self, i: usize) -> String {
        let meta = &self.policies[i].metadata;
        format!("{KIND} {}/{}", namespace(meta), name(meta))
    }
}

/// The first few of many: the text stays readable, and one more at the end does not change it.
fn few(all: BTreeSet<String>) -> String {
    const FEW: usize = 8;
    let more = all.len() > FEW;
    let mut text = all.into_iter().take(FEW).collect::<Vec<_>>().join(", ");
    if more {
        text.push_str(", and others");
    }
    text
}

/// Listeners that a target comprises.
fn scope(topology: &Topology<'_>, target: &Target<'_>) -> Option<BTreeSet<(usize, usize)>> {
    let of = |gateway: usize, f: &dyn Fn(Option<usize>, &str) -> bool| {
        let all = topology.gateways[gateway].listeners.iter().enumerate();
        Some(all.filter(|(_, l)| f(l.set, l.name)).map(|(i, _)| (gateway, i)).collect())
    };
    match *target {
        Target::Gateway { gateway } => of(gateway, &|_, _| true),
        Target::Set { gateway, set } => of(gateway, &|s, _| s == Some(set)),
        Target::Listener { gateway, set, listener } => of(gateway, &|s, name| s == set && name == listener),
        Target::Rule { .. } | Target::Route { .. } => None,
    }
}

/// What a policy says, merged with that of a parent where there is one.
fn say(own: &BackendTrafficPolicy, parent: Option<&BackendTrafficPolicy>, store: &Store) -> Effective {
    let meta = &own.metadata;
    let mut wrong = Wrong::default();
    let spec = match parent {
        None => own.spec.clone(),
        Some(parent) => merged(own, parent).unwrap_or_else(|e| {
            wrong.add(format!("spec.mergeType: the policies cannot be merged: {e}; change one of them"));
            own.spec.clone()
        }),
    };
    let key = ObjectKey::new(Kind::BackendTrafficPolicy, namespace(meta), name(meta));
    if let Some(words) = store.exclusion(&key) {
        wrong.add(format!(
            "{key}: spec: Envoy refuses what this policy asks for ({words}); requests are answered 500 until it is changed"
        ));
    }
    let bodies = match parent {
        Some(parent) if own.spec.response_override.is_empty() => namespace(&parent.metadata),
        _ => namespace(meta),
    };
    let context = route::Context { namespace: namespace(meta), name: name(meta), bodies, store };
    let mut upstream = cluster::upstream(&spec.cluster, &mut wrong);
    upstream.settings.use_client_protocol = spec.use_client_protocol == Some(true);
    upstream.settings.admission = spec.admission_control.as_ref().map(|a| route::admission(a, &mut wrong));
    let settings = Settings {
        upstream,
        route: route::settings(&spec, &context, &mut wrong),
        service_routing: spec.routing_type.as_ref().map(|r| *r == RoutingType::Service),
    };
    let mut warnings = Vec::new();
    if spec.telemetry.as_ref().is_some_and(|t| t.tracing.is_some()) {
        warnings.push("spec.telemetry.tracing is not supported and has no effect".to_owned());
    }
    if spec.cluster.connection.as_ref().is_some_and(|c| c.socket_buffer_limit.is_some()) {
        warnings
            .push("spec.connection.socketBufferLimit is not supported towards backends and has no effect".to_owned());
    }
    let wrong = wrong.into_messages();
    Effective {
        policy: PolicyRef { kind: KIND, namespace: namespace(meta).into(), name: name(meta).into() },
        settings: wrong.is_empty().then_some(settings),
        wrong,
        warnings,
    }
}

/// The parent's spec with that of the route merged into it.
fn merged(
    own: &BackendTrafficPolicy,
    parent: &BackendTrafficPolicy,
) -> Result<BackendTrafficPolicySpec, serde_json::Error> {
    let mut target = serde_json::to_value(&parent.spec)?;
    let mut patch = serde_json::to_value(&own.spec)?;
    if own.spec.merge_type == Some(MergeType::JSONMerge) {
        merge::json(&mut target, &patch);
    } else {
        for list in BY_TYPE {
            if let (Some(Value::Array(have)), Some(Value::Array(items))) = (target.get(list), patch.get_mut(list)) {
                let rest: Vec<_> =
                    have.iter().filter(|h| items.iter().all(|i| i["type"] != h["type"])).cloned().collect();
                items.extend(rest);
            }
        }
        merge::strategic(&mut target, &patch);
    }
    // What each is attached to is its own affair.
    for field in ["targetRef", "targetRefs", "targetSelectors", "mergeType"] {
        target.as_object_mut().map(|fields| fields.remove(field));
    }
    serde_json::from_value(target)
}

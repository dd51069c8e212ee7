//! From target references to what they name: who holds where, who is too late, who names nothing.

use std::collections::{BTreeMap, BTreeSet};

use api::{
    envoygateway::{PolicyTargetReferences, TargetNamespaceFrom, TargetSelector},
    gateway::{GROUP, LocalPolicyTargetReferenceWithSectionName, ReferenceGrant},
};
use k8s_openapi::{
    api::core::v1::Namespace,
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use resources::Store;

use crate::{
    selector,
    topology::{Gateway, Place, Topology, name, namespace},
};

/// Something that a policy can hold for, from the closest to the widest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target<'a> {
    /// A rule of a route, by its name.
    Rule {
        /// Position of the route.
        route: usize,
        /// Name of the rule.
        rule: &'a str,
    },
    /// A route.
    Route {
        /// Position of the route.
        route: usize,
    },
    /// A listener of a Gateway or of one of its ListenerSets, by its name.
    Listener {
        /// Position of the Gateway.
        gateway: usize,
        /// Position of the ListenerSet, if it is one of a set.
        set: Option<usize>,
        /// Name of the listener.
        listener: &'a str,
    },
    /// All listeners of a ListenerSet.
    Set {
        /// Position of the Gateway.
        gateway: usize,
        /// Position of the ListenerSet.
        set: usize,
    },
    /// All listeners of a Gateway.
    Gateway {
        /// Position of the Gateway.
        gateway: usize,
    },
}

/// How an attempt to attach ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The policy holds.
    Holds,
    /// Another policy, the older one, holds there: its position.
    Taken(usize),
    /// The object has no such section.
    NoSection(String),
}

/// A policy of any kind, as far as attaching goes.
#[derive(Clone, Copy, Debug)]
pub struct Attachable<'a> {
    /// Metadata.
    pub meta: &'a ObjectMeta,
    /// What it names.
    pub targets: &'a PolicyTargetReferences,
}

/// Which policy holds where. Policies are named by their positions in the list that was attached.
#[derive(Clone, Debug, Default)]
pub struct Attachments<'a> {
    holders: BTreeMap<Target<'a>, usize>,
    /// Attempts in the order in which they are told: of rules first, of Gateways last.
    attempts: Vec<(usize, Target<'a>, Outcome)>,
}

// === impl Target ===

impl Target<'_> {
    fn level(&self) -> u8 {
        match self {
            Self::Rule { .. } => 0,
            Self::Route { .. } => 1,
            Self::Listener { .. } => 2,
            Self::Set { .. } => 3,
            Self::Gateway { .. } => 4,
        }
    }
}

// === impl Attachments ===

impl<'a> Attachments<'a> {
    /// Attaches policies of one kind, which come in the order of their precedence: where two want the same, the first has it.
    #[must_use]
    pub fn new(kind: &str, policies: &[Attachable<'a>], topology: &Topology<'a>, store: &Store) -> Self {
        let index = Index::new(topology);
        let mut wanted: Vec<(usize, Target<'a>, bool)> = Vec::new();
        for (i, policy) in policies.iter().enumerate() {
            let mut seen = BTreeSet::new();
            for (target, exists) in targets(kind, policy, topology, &index, store) {
                if seen.insert(target) {
                    wanted.push((i, target, exists));
                }
            }
        }
        wanted.sort_by_key(|(i, target, _)| (target.level(), *i));
        let mut out = Self::default();
        for (i, target, exists) in wanted {
            let outcome = if exists {
                match out.holders.get(&target) {
                    Some(holder) => Outcome::Taken(*holder),
                    None => {
                        out.holders.insert(target, i);
                        Outcome::Holds
                    }
                }
            } else {
                Outcome::NoSection(section_name(&target).to_owned())
            };
            out.attempts.push((i, target, outcome));
        }
        out
    }

    /// The policy that holds for the route at a place by naming the route or its rule.
    #[must_use]
    pub fn of_route(&self, topology: &Topology<'a>, place: Place) -> Option<usize> {
        let rule = topology.routes[place.route].rules.get(place.rule).copied().flatten();
        let of_rule = rule.and_then(|rule| self.holders.get(&Target::Rule { route: place.route, rule }));
        of_rule.or_else(|| self.holders.get(&Target::Route { route: place.route })).copied()
    }

    /// The policy that holds for a listener by naming it, its set or its Gateway.
    #[must_use]
    pub fn of_listener(&self, topology: &Topology<'a>, gateway: usize, listener: usize) -> Option<usize> {
        let own = topology.gateways[gateway].listeners[listener];
        let of_listener = self.holders.get(&Target::Listener { gateway, set: own.set, listener: own.name });
        let of_set = || own.set.and_then(|set| self.holders.get(&Target::Set { gateway, set }));
        of_listener.or_else(of_set).or_else(|| self.holders.get(&Target::Gateway { gateway })).copied()
    }

    /// Attempts, in the order in which they are told.
    #[must_use]
    pub fn attempts(&self) -> &[(usize, Target<'a>, Outcome)] {
        &self.attempts
    }

    /// What a target is held by.
    #[must_use]
    pub fn holder(&self, target: &Target<'a>) -> Option<usize> {
        self.holders.get(target).copied()
    }

    /// Names of the rules of a route that policies hold for by naming them.
    pub fn rules(&self, route: usize) -> impl Iterator<Item = &'a str> {
        self.holders.range(Target::Rule { route, rule: "" }..).map_while(move |(t, _)| match t {
            Target::Rule { route: r, rule } if *r == route => Some(*rule),
            _ => None,
        })
    }
}

/// Positions by kind, namespace and name; of a ListenerSet, those of its Gateway and of itself.
struct Index<'a>(BTreeMap<(&'a str, &'a str, &'a str), (usize, usize)>);

impl<'a> Index<'a> {
    fn new(topology: &Topology<'a>) -> Self {
        let mut index = BTreeMap::new();
        for (i, gateway) in topology.gateways.iter().enumerate() {
            index.insert(("Gateway", namespace(gateway.meta), name(gateway.meta)), (i, 0));
            for (j, set) in gateway.sets.iter().enumerate() {
                index.insert(("ListenerSet", namespace(set), name(set)), (i, j));
            }
        }
        for (i, route) in topology.routes.iter().enumerate() {
            index.insert((route.kind, namespace(route.meta), name(route.meta)), (i, 0));
        }
        Self(index)
    }
}

fn section_name<'a>(target: &Target<'a>) -> &'a str {
    match target {
        Target::Rule { rule, .. } => rule,
        Target::Listener { listener, .. } => listener,
        _ => "",
    }
}

/// What a policy names, and whether a section that it names is there. Objects that are not ours are left out: another
/// controller may know them.
fn targets<'a>(
    kind: &str,
    policy: &Attachable<'a>,
    topology: &Topology<'a>,
    index: &Index<'a>,
    store: &Store,
) -> Vec<(Target<'a>, bool)> {
    let own = namespace(policy.meta);
    let mut out = Vec::new();
    for reference in policy.targets.target_ref.iter().chain(&policy.targets.target_refs) {
        if reference.group == GROUP {
            named(reference, own, topology, index, &mut out);
        }
    }
    for selector in &policy.targets.target_selectors {
        if selector.group.as_deref().unwrap_or(GROUP) == GROUP {
            selected(kind, selector, own, topology, store, &mut out);
        }
    }
    out
}

fn named<'a>(
    reference: &'a LocalPolicyTargetReferenceWithSectionName,
    own: &'a str,
    topology: &Topology<'a>,
    index: &Index<'a>,
    out: &mut Vec<(Target<'a>, bool)>,
) {
    let found = |kind| index.0.get(&(kind, own, reference.name.as_str())).copied();
    let section = reference.section_name.as_deref().filter(|s| !s.is_empty());
    match reference.kind.as_str() {
        "Gateway" => {
            let Some((gateway, _)) = found("Gateway") else { return };
            out.push(match section {
                None => (Target::Gateway { gateway }, true),
                Some(listener) => {
                    let target = Target::Listener { gateway, set: None, listener };
                    (target, has_listener(&topology.gateways[gateway], None, listener))
                }
            });
        }
        "ListenerSet" => {
            let Some((gateway, set)) = found("ListenerSet") else { return };
            out.push(match section {
                None => (Target::Set { gateway, set }, true),
                Some(listener) => {
                    let target = Target::Listener { gateway, set: Some(set), listener };
                    (target, has_listener(&topology.gateways[gateway], Some(set), listener))
                }
            });
        }
        kind => {
            let Some((route, _)) = found(kind) else { return };
            out.push(match section {
                None => (Target::Route { route }, true),
                Some(rule) => (Target::Rule { route, rule }, topology.routes[route].rules.contains(&Some(rule))),
            });
        }
    }
}

fn has_listener(gateway: &Gateway<'_>, set: Option<usize>, listener: &str) -> bool {
    gateway.listeners.iter().any(|l| l.set == set && l.name == listener)
}

fn selected<'a>(
    kind: &str,
    selector: &TargetSelector,
    own: &str,
    topology: &Topology<'a>,
    store: &Store,
    out: &mut Vec<(Target<'a>, bool)>,
) {
    let labels = LabelSelector {
        match_labels: Some(selector.match_labels.clone()),
        match_expressions: Some(selector.match_expressions.clone()),
    };
    let wanted = |target_kind: &str, meta: &ObjectMeta| {
        target_kind == selector.kind
            && selector::matches(&labels, meta.labels.as_ref())
            && (namespace(meta) == own
                || in_namespaces(selector, namespace(meta), store) && granted(kind, own, target_kind, meta, store))
    };
    for (gateway, g) in topology.gateways.iter().enumerate() {
        if wanted("Gateway", g.meta) {
            out.push((Target::Gateway { gateway }, true));
        }
        for (set, meta) in g.sets.iter().enumerate() {
            if wanted("ListenerSet", meta) {
                out.push((Target::Set { gateway, set }, true));
            }
        }
    }
    for (route, r) in topology.routes.iter().enumerate() {
        if wanted(r.kind, r.meta) {
            out.push((Target::Route { route }, true));
        }
    }
}

fn in_namespaces(selector: &TargetSelector, of: &str, store: &Store) -> bool {
    let Some(namespaces) = &selector.namespaces else { return false };
    match namespaces.from {
        Some(TargetNamespaceFrom::All) => true,
        Some(TargetNamespaceFrom::Selector) => namespaces.selector.as_ref().is_some_and(|s| {
            selector::matches(s, store.get::<Namespace>("", of).and_then(|n| n.metadata.labels.as_ref()))
        }),
        _ => false,
    }
}

/// A ReferenceGrant beside the target lets policies of that kind from that namespace reach it.
fn granted(kind: &str, from: &str, target_kind: &str, target: &ObjectMeta, store: &Store) -> bool {
    store.in_namespace::<ReferenceGrant>(namespace(target)).any(|grant| {
        let lets = grant
            .spec
            .from
            .iter()
            .any(|f| f.group == api::envoygateway::GROUP && f.kind == kind && f.namespace == from);
        lets && grant.spec.to.iter().any(|t| {
            t.group == GROUP
                && t.kind == target_kind
                && t.name.as_deref().is_none_or(|n| n.is_empty() || n == name(target))
        })
    })
}

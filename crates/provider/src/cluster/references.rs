//! Who refers to whom: what makes an object relevant. A Gateway counts by its class, a route by its parents, a policy by
//! its targets, a Service, a Secret or a namespace by who uses it.
//!
//! References are found by the names of their fields, which Gateway API and `gateway.envoyproxy.io` use alike wherever
//! they stand; so a policy of which only a part is translated, or a field that comes with a later release, is covered.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use resources::{Kind, ObjectKey};
use serde_json::Value;

/// Fields that refer to a Service unless they name another kind.
const TO_SERVICES: &[&str] = &["backendRef", "backendRefs"];
/// Fields that refer to a Secret unless they name another kind.
const TO_SECRETS: &[&str] = &[
    "caCertificateRef",
    "caCertificateRefs",
    "certificateRef",
    "certificateRefs",
    "clientCertificateRef",
    "clientIDRef",
    "clientSecret",
    "credentialRefs",
    "pullSecretRef",
    // `crl.refs` of ClientTrafficPolicy.
    "refs",
    // `basicAuth.users` of SecurityPolicy.
    "users",
    "valueRef",
];

/// Objects of the kinds that are relevant only when something refers to them, which `value` (an object's `spec`) refers
/// to. A reference without a namespace means `namespace`.
#[must_use]
pub fn references(namespace: &str, value: &Value) -> BTreeSet<ObjectKey> {
    let mut out = BTreeSet::new();
    walk(namespace, value, &mut out);
    out
}

fn walk(namespace: &str, value: &Value, out: &mut BTreeSet<ObjectKey>) {
    match value {
        Value::Array(items) => items.iter().for_each(|i| walk(namespace, i, out)),
        Value::Object(fields) => {
            // Kinds that are referred to by group and kind, whatever the field is called.
            let named = named(namespace, value).filter(|k| matches!(k.kind, Kind::EnvoyProxy | Kind::HttpRouteFilter));
            out.extend(named.filter(|k| !k.namespace.is_empty()));
            for (name, field) in fields {
                let default = if TO_SERVICES.contains(&name.as_str()) {
                    Some("Service")
                } else if TO_SECRETS.contains(&name.as_str()) {
                    Some("Secret")
                } else {
                    None
                };
                if let Some(default) = default {
                    match field {
                        Value::Array(items) => out.extend(items.iter().filter_map(|i| target(namespace, default, i))),
                        one => out.extend(target(namespace, default, one)),
                    }
                }
                walk(namespace, field, out);
            }
        }
        _ => {}
    }
}

fn target(namespace: &str, default: &str, reference: &Value) -> Option<ObjectKey> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).filter(|t| !t.is_empty());
    let name = text("name")?;
    let group = text("group").unwrap_or_default();
    let kind = match (group, text("kind").unwrap_or(default)) {
        ("", "Service") => Kind::Service,
        ("", "Secret") => Kind::Secret,
        ("", "ConfigMap") => Kind::ConfigMap,
        ("multicluster.x-k8s.io", "ServiceImport") => Kind::ServiceImport,
        _ => return None,
    };
    let namespace = text("namespace").unwrap_or(namespace);
    (!namespace.is_empty()).then(|| ObjectKey::new(kind, namespace, name))
}

/// What an object hangs on, and what hangs on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    /// It counts whatever others say.
    pub(super) root: bool,
    /// It counts if one of these does: the class of a Gateway, the parents of a route, the targets of a policy.
    pub(super) parents: BTreeSet<ObjectKey>,
    /// These count if it does: what it refers to, and its namespace.
    pub(super) refers: BTreeSet<ObjectKey>,
}

/// Links of an object that matters without anyone referring to it, by its `spec`.
pub(super) fn links(key: &ObjectKey, spec: &Value) -> Links {
    let namespace = &*key.namespace;
    let mut links = Links { refers: references(namespace, spec), ..Links::default() };
    if !namespace.is_empty() {
        links.refers.insert(ObjectKey::new(Kind::Namespace, "", namespace));
    }
    let list = |field: &str| spec.get(field).and_then(Value::as_array).into_iter().flatten();
    match key.kind {
        Kind::Gateway => {
            let class = spec.get("gatewayClassName").and_then(Value::as_str).unwrap_or_default();
            links.parents.insert(ObjectKey::new(Kind::GatewayClass, "", class));
        }
        Kind::ListenerSet => links.parents.extend(spec.get("parentRef").and_then(|p| parent(namespace, p))),
        Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute => {
            links.parents.extend(list("parentRefs").filter_map(|p| parent(namespace, p)));
        }
        Kind::BackendTlsPolicy
        | Kind::ClientTrafficPolicy
        | Kind::BackendTrafficPolicy
        | Kind::SecurityPolicy
        | Kind::EnvoyExtensionPolicy
        | Kind::EnvoyPatchPolicy => {
            let targets = spec.get("targetRef").into_iter().chain(list("targetRefs"));
            links.parents.extend(targets.filter_map(|t| named(namespace, t)));
            // Which objects labels choose changes with those objects: the policy always counts. So does one that patches,
            // as it has a status even if its target is of no kind of ours.
            links.root = list("targetSelectors").next().is_some() || key.kind == Kind::EnvoyPatchPolicy;
        }
        // Each Backend has a status; a grant may matter to any reference.
        Kind::Backend | Kind::ReferenceGrant => links.root = true,
        _ => {}
    }
    links
}

/// A reference to a parent, by default a Gateway in the same namespace.
fn parent(namespace: &str, reference: &Value) -> Option<ObjectKey> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).filter(|t| !t.is_empty());
    let group = reference.get("group").and_then(Value::as_str).unwrap_or(api::gateway::GROUP);
    let kind = text("kind").unwrap_or("Gateway");
    let mut parents = [Kind::Gateway, Kind::ListenerSet].into_iter();
    let kind = parents.find(|k| k.group() == group && k.as_str() == kind)?;
    Some(ObjectKey::new(kind, text("namespace").unwrap_or(namespace), text("name")?))
}

/// A reference that says group, kind and name.
fn named(namespace: &str, reference: &Value) -> Option<ObjectKey> {
    let text = |field: &str| reference.get(field).and_then(Value::as_str).unwrap_or_default();
    let kind = Kind::ALL.iter().find(|k| k.group() == text("group") && k.as_str() == text("kind"))?;
    let namespace = match text("namespace") {
        _ if !kind.is_namespaced() => "",
        "" => namespace,
        other => other,
    };
    Some(ObjectKey::new(*kind, namespace, text("name")))
}

/// Namespaces that count.
#[derive(Debug)]
pub(super) struct Chosen {
    /// That of the control plane, which always counts.
    pub(super) own: Arc<str>,
    /// Those that the selector chooses.
    pub(super) names: BTreeSet<Arc<str>>,
}

/// Who refers to whom, and which objects count by it: roots, what hangs on something that counts, and what something that
/// counts refers to. References are those of the last seen version of each object, and those of the version that the engine
/// has: what it still uses stays.
///
/// Links go from kind to kind in one direction only (class, Gateway, route, policy, backend, Secret), so counting finds
/// what is out of reach.
#[derive(Debug, Default)]
pub(super) struct References {
    /// All namespaces count if none.
    pub(super) chosen: Option<Chosen>,
    roots: BTreeSet<ObjectKey>,
    parents: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    children: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// What the last seen version of an object refers to.
    seen: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// What the version that the engine has refers to.
    told: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Number of references from versions that count.
    counts: BTreeMap<ObjectKey, usize>,
    live: BTreeSet<ObjectKey>,
}

// === impl References ===

impl References {
    /// The object counts.
    pub(super) fn any(&self, key: &ObjectKey) -> bool {
        self.live.contains(key)
    }

    /// What the last seen version of the object refers to.
    pub(super) fn of(&self, owner: &ObjectKey) -> impl Iterator<Item = &ObjectKey> {
        self.seen.get(owner).into_iter().flatten()
    }

    /// Objects of that namespace may count.
    pub(super) fn in_scope(&self, key: &ObjectKey) -> bool {
        let chosen =
            |c: &Chosen| key.namespace.is_empty() || key.namespace == c.own || c.names.contains(&key.namespace);
        self.chosen.as_ref().is_none_or(chosen)
    }

    /// Another version of an object was seen; adds to `turned` what counts from now on, or does not any more.
    pub(super) fn see(&mut self, owner: &ObjectKey, links: Links, turned: &mut BTreeSet<ObjectKey>) {
        let Links { root, parents, refers } = links;
        if root {
            self.roots.insert(owner.clone());
        } else {
            self.roots.remove(owner);
        }
        for parent in replace(&mut self.parents, owner, &parents) {
            if let Some(children) = self.children.get_mut(&parent) {
                children.remove(owner);
                if children.is_empty() {
                    self.children.remove(&parent);
                }
            }
        }
        for parent in parents {
            self.children.entry(parent).or_default().insert(owner.clone());
        }
        let old = replace(&mut self.seen, owner, &refers);
        if self.live.contains(owner) {
            self.recount(&old, &refers, turned);
        }
        self.recheck(owner.clone(), turned);
    }

    /// The engine now has the version that was last seen.
    pub(super) fn settle(&mut self, owner: &ObjectKey, turned: &mut BTreeSet<ObjectKey>) {
        let seen = self.seen.get(owner).cloned().unwrap_or_default();
        self.tell(owner, &seen, turned);
    }

    /// The engine now has a version that refers to these.
    pub(super) fn tell(&mut self, owner: &ObjectKey, refers: &BTreeSet<ObjectKey>, turned: &mut BTreeSet<ObjectKey>) {
        let old = replace(&mut self.told, owner, refers);
        self.recount(&old, refers, turned);
    }

    /// A namespace counts from now on, or does not any more.
    pub(super) fn choose(&mut self, namespace: &Arc<str>, counts: bool, turned: &mut BTreeSet<ObjectKey>) {
        let Some(chosen) = &mut self.chosen else { return };
        let changed = if counts { chosen.names.insert(namespace.clone()) } else { chosen.names.remove(namespace) };
        if changed {
            let known = self.roots.iter().chain(self.parents.keys()).chain(self.counts.keys());
            let inside: BTreeSet<ObjectKey> = known.filter(|k| k.namespace == *namespace).cloned().collect();
            for key in inside {
                self.recheck(key, turned);
            }
        }
    }

    fn recount(&mut self, old: &BTreeSet<ObjectKey>, new: &BTreeSet<ObjectKey>, turned: &mut BTreeSet<ObjectKey>) {
        for target in new.difference(old) {
            if self.count(target, true) {
                self.recheck(target.clone(), turned);
            }
        }
        for target in old.difference(new) {
            if self.count(target, false) {
                self.recheck(target.clone(), turned);
            }
        }
    }

    /// One reference more or less; tells whether it is the first, or was the last.
    fn count(&mut self, target: &ObjectKey, more: bool) -> bool {
        if more {
            let count = self.counts.entry(target.clone()).or_default();
            *count += 1;
            return *count == 1;
        }
        let Some(count) = self.counts.get_mut(target) else { return false };
        *count -= 1;
        let last = *count == 0;
        if last {
            self.counts.remove(target);
        }
        last
    }

    fn recheck(&mut self, key: ObjectKey, turned: &mut BTreeSet<ObjectKey>) {
        let mut open = vec![key];
        while let Some(key) = open.pop() {
            let reached = self.roots.contains(&key)
                || self.counts.contains_key(&key)
                || self.parents.get(&key).is_some_and(|p| p.iter().any(|p| self.live.contains(p)));
            let now = reached && self.in_scope(&key);
            if now == self.live.contains(&key) {
                continue;
            }
            if now {
                self.live.insert(key.clone());
            } else {
                self.live.remove(&key);
            }
            open.extend(self.children.get(&key).into_iter().flatten().cloned());
            for target in self.seen.get(&key).cloned().unwrap_or_default() {
                if self.count(&target, now) {
                    open.push(target);
                }
            }
            turned.insert(key);
        }
    }
}

/// Puts a set into the place of what was there, which is returned; an empty one takes no place.
fn replace(
    map: &mut BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    owner: &ObjectKey,
    new: &BTreeSet<ObjectKey>,
) -> BTreeSet<ObjectKey> {
    let old = if new.is_empty() { map.remove(owner) } else { map.insert(owner.clone(), new.clone()) };
    old.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(value: &Value) -> Vec<String> {
        references("ns", value).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn fields_say_what_they_refer_to() {
        assert_eq!(
            found(&json!({"rules": [{
                "backendRefs": [{"name": "a", "port": 80}, {"name": "b", "namespace": "other"},
                    {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "root"},
                    {"group": "multicluster.x-k8s.io", "kind": "ServiceImport", "name": "far"}],
                "filters": [{"requestMirror": {"backendRef": {"name": "m"}}}],
            }]})),
            ["Service ns/a", "Service ns/m", "Service other/b", "ServiceImport ns/far"]
        );
        assert_eq!(
            found(&json!({
                "listeners": [{"tls": {"certificateRefs": [{"name": "cert"}]}}],
                "tls": {"frontend": {"default": {"validation": {"caCertificateRefs": [{"kind": "ConfigMap", "group": "", "name": "ca"}]}}}},
                "oidc": {"clientSecret": {"name": "oidc"}, "provider": {"backendRefs": [{"name": "idp"}]}},
                "jwt": {"providers": [{"localJWKS": {"type": "ValueRef", "valueRef": {"kind": "ConfigMap", "group": "", "name": "jwks"}}}]},
                "basicAuth": {"users": {"name": "users"}},
                "tlsSettings": {"crl": {"refs": [{"name": "crl"}]}},
            })),
            [
                "Service ns/idp",
                "Secret ns/cert",
                "Secret ns/crl",
                "Secret ns/oidc",
                "Secret ns/users",
                "ConfigMap ns/ca",
                "ConfigMap ns/jwks"
            ]
        );
        assert!(found(&json!({"users": 3, "refs": ["x"], "parentRefs": [{"name": "gw"}]})).is_empty());
    }

    #[test]
    fn what_the_engine_uses_stays_relevant_until_it_is_told() {
        let mut refs = References::default();
        let owner = ObjectKey::new(Kind::Gateway, "ns", "gw");
        let [a, b] = ["a", "b"].map(|n| ObjectKey::new(Kind::Secret, "ns", n));
        let root = |refers: &[&ObjectKey]| Links {
            root: true,
            refers: refers.iter().map(|k| (*k).clone()).collect(),
            ..Links::default()
        };
        let mut turned = BTreeSet::new();
        refs.see(&owner, root(&[&a]), &mut turned);
        refs.settle(&owner, &mut turned);
        assert_eq!(std::mem::take(&mut turned), [owner.clone(), a.clone()].into());
        refs.see(&owner, root(&[&b]), &mut turned);
        assert_eq!(std::mem::take(&mut turned), [b.clone()].into(), "the old one is still in use");
        assert!(refs.any(&a) && refs.any(&b));
        refs.settle(&owner, &mut turned);
        assert_eq!(std::mem::take(&mut turned), [a.clone()].into());
        assert!(!refs.any(&a));
        refs.see(&owner, Links::default(), &mut turned);
        refs.settle(&owner, &mut turned);
        assert!(!refs.any(&b));
        let empty = refs.roots.is_empty() && refs.counts.is_empty() && refs.seen.is_empty() && refs.told.is_empty();
        assert!(empty && refs.live.is_empty(), "nothing is left behind");
    }

    /// Class, Gateway, route, policy, Service, Secret: each counts by the one before, in any order of coming and going.
    #[test]
    fn what_hangs_on_what_counts_counts() {
        let key = |kind, name: &str| ObjectKey::new(kind, if kind == Kind::GatewayClass { "" } else { "ns" }, name);
        let class = key(Kind::GatewayClass, "c");
        let gateway = json!({"gatewayClassName": "c", "infrastructure": {"parametersRef":
            {"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": "p"}}});
        let route = json!({"parentRefs": [{"name": "gw"}], "rules": [{"backendRefs": [{"name": "web"}], "filters": [
            {"extensionRef": {"group": "gateway.envoyproxy.io", "kind": "HTTPRouteFilter", "name": "f"}}]}]});
        let policy = json!({"targetRefs": [{"group": "", "kind": "Service", "name": "web"}],
            "validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}});
        let objects = [
            (class.clone(), Links { root: true, ..Links::default() }),
            (key(Kind::Gateway, "gw"), links(&key(Kind::Gateway, "gw"), &gateway)),
            (key(Kind::HttpRoute, "r"), links(&key(Kind::HttpRoute, "r"), &route)),
            (key(Kind::BackendTlsPolicy, "t"), links(&key(Kind::BackendTlsPolicy, "t"), &policy)),
        ];
        let all: BTreeSet<ObjectKey> = objects
            .iter()
            .map(|(k, _)| k.clone())
            .chain([
                key(Kind::EnvoyProxy, "p"),
                key(Kind::HttpRouteFilter, "f"),
                key(Kind::Service, "web"),
                key(Kind::ConfigMap, "ca"),
                ObjectKey::new(Kind::Namespace, "", "ns"),
            ])
            .collect();
        for first in 0..objects.len() {
            let mut refs = References::default();
            let mut turned = BTreeSet::new();
            for i in 0..objects.len() {
                let (owner, links) = &objects[(first + i) % objects.len()];
                refs.see(owner, links.clone(), &mut turned);
            }
            assert_eq!((&refs.live, &std::mem::take(&mut turned)), (&all, &all), "beginning with {first}");
            // Without the class nothing counts, and with it again everything.
            refs.see(&class, Links::default(), &mut turned);
            assert_eq!((refs.live.len(), &std::mem::take(&mut turned)), (0, &all));
            refs.see(&class, objects[0].1.clone(), &mut turned);
            assert_eq!(refs.live, all);
            // Without the route neither what only it uses.
            refs.see(&objects[2].0, Links::default(), &mut turned);
            let left: Vec<String> = refs.live.iter().map(ToString::to_string).collect();
            assert_eq!(left, ["GatewayClass c", "Gateway ns/gw", "EnvoyProxy ns/p", "Namespace ns"]);
            for i in 0..objects.len() {
                refs.see(&objects[(first + i) % objects.len()].0, Links::default(), &mut turned);
            }
            assert!(
                refs.live.is_empty() && refs.counts.is_empty() && refs.children.is_empty(),
                "nothing is left behind"
            );
        }
    }

    #[test]
    fn parents_have_defaults_and_targets_may_be_chosen_by_label() {
        let route = ObjectKey::new(Kind::HttpRoute, "ns", "r");
        let found = links(
            &route,
            &json!({"parentRefs": [{"name": "a"}, {"name": "b", "namespace": "other"},
            {"kind": "ListenerSet", "name": "l"}, {"group": "", "kind": "Service", "name": "mesh"}, {"kind": "Unknown", "name": "x"}]}),
        );
        let names: Vec<String> = found.parents.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["Gateway ns/a", "Gateway other/b", "ListenerSet ns/l"]);
        let policy = ObjectKey::new(Kind::SecurityPolicy, "ns", "p");
        assert!(links(&policy, &json!({"targetSelectors": [{"kind": "HTTPRoute", "matchLabels": {"a": "b"}}]})).root);
        let unknown = json!({"targetRefs": [{"group": "x", "kind": "Y", "name": "z"}]});
        assert!(!links(&policy, &unknown).root);
        assert!(links(&ObjectKey::new(Kind::EnvoyPatchPolicy, "ns", "p"), &unknown).root);
    }
}

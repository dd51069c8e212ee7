//! Who refers to whom: what makes an object of a kind that everybody has (a Service, a Secret) relevant.
//!
//! References are found by the names of their fields, which Gateway API and `gateway.envoyproxy.io` use alike wherever
//! they stand; so a policy of which only a part is translated, or a field that comes with a later release, is covered.

use std::collections::{BTreeMap, BTreeSet};

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

/// Which version of an object a reference stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// The version that the engine has.
    Told,
    /// The version that was last seen.
    Seen,
}

/// Counts references, of the told and of the last seen version of each object: what the engine still uses stays relevant.
#[derive(Debug, Default)]
pub(super) struct References {
    of: BTreeMap<(ObjectKey, Side), BTreeSet<ObjectKey>>,
    counts: BTreeMap<ObjectKey, usize>,
}

impl References {
    /// Something refers to the object.
    pub(super) fn any(&self, target: &ObjectKey) -> bool {
        self.counts.contains_key(target)
    }

    /// What that version of the object refers to.
    pub(super) fn of(&self, owner: &ObjectKey, side: Side) -> impl Iterator<Item = &ObjectKey> {
        self.of.get(&(owner.clone(), side)).into_iter().flatten()
    }

    /// Replaces what a version refers to; adds those that became relevant, or cease to be, to `turned`.
    pub(super) fn set(
        &mut self,
        owner: &ObjectKey,
        side: Side,
        targets: BTreeSet<ObjectKey>,
        turned: &mut BTreeSet<ObjectKey>,
    ) {
        let at = (owner.clone(), side);
        let old = if targets.is_empty() { self.of.remove(&at) } else { self.of.insert(at.clone(), targets) };
        let new = self.of.get(&at);
        let old = old.unwrap_or_default();
        for added in new.into_iter().flatten().filter(|t| !old.contains(*t)) {
            let count = self.counts.entry(added.clone()).or_default();
            *count += 1;
            if *count == 1 {
                turned.insert(added.clone());
            }
        }
        for removed in old.iter().filter(|t| !new.is_some_and(|n| n.contains(*t))) {
            let Some(count) = self.counts.get_mut(removed) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(removed);
                turned.insert(removed.clone());
            }
        }
    }

    /// The engine now has the version that was last seen.
    pub(super) fn settle(&mut self, owner: &ObjectKey, turned: &mut BTreeSet<ObjectKey>) {
        let seen = self.of.get(&(owner.clone(), Side::Seen)).cloned().unwrap_or_default();
        self.set(owner, Side::Told, seen, turned);
    }
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
        let mut turned = BTreeSet::new();
        refs.set(&owner, Side::Seen, [a.clone()].into(), &mut turned);
        refs.settle(&owner, &mut turned);
        assert_eq!(std::mem::take(&mut turned), [a.clone()].into());
        refs.set(&owner, Side::Seen, [b.clone()].into(), &mut turned);
        assert_eq!(std::mem::take(&mut turned), [b.clone()].into(), "the old one is still in use");
        assert!(refs.any(&a) && refs.any(&b));
        refs.settle(&owner, &mut turned);
        assert_eq!(std::mem::take(&mut turned), [a.clone()].into());
        assert!(!refs.any(&a));
        refs.set(&owner, Side::Seen, BTreeSet::new(), &mut turned);
        refs.settle(&owner, &mut turned);
        assert!(!refs.any(&b) && refs.counts.is_empty() && refs.of.is_empty(), "nothing is left behind");
    }
}

//! Statuses in the JSON form in which Kubernetes keeps them.
//!
//! Times are not part of a wanted status, so `lastTransitionTime` is not written here: the writer sets it when it finds
//! a difference, offline commands leave it out.

use ir::{AncestorStatus, Condition, ListenerStatus, ParentRef, ParentStatus, Status};
use resources::{Kind, ObjectKey};
use serde_json::{Map, Value, json};

/// The object that a status belongs to, with nothing but its identity and that status: one document of the offline
/// output, and the body of a status patch.
#[must_use]
pub fn object(key: &ObjectKey, status: &Status) -> Value {
    let mut metadata = Map::new();
    metadata.insert("name".into(), key.name.as_ref().into());
    if !key.namespace.is_empty() {
        metadata.insert("namespace".into(), key.namespace.as_ref().into());
    }
    json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.as_str(),
        "metadata": metadata,
        "status": render(status, key),
    })
}

/// The value of `status`.
#[must_use]
pub fn render(status: &Status, key: &ObjectKey) -> Value {
    match status {
        Status::GatewayClass { conditions: c } | Status::Plain { conditions: c } => {
            json!({ "conditions": conditions(c) })
        }
        Status::Gateway { conditions: c, listeners: l, attached_listener_sets } => {
            let mut out = Map::new();
            if !c.is_empty() {
                out.insert("conditions".into(), conditions(c));
            }
            if !l.is_empty() {
                let set = key.kind == Kind::ListenerSet;
                out.insert("listeners".into(), l.iter().map(|l| listener(l, set)).collect());
            }
            if let Some(n) = attached_listener_sets {
                out.insert("attachedListenerSets".into(), (*n).into());
            }
            Value::Object(out)
        }
        Status::Route { parents } => {
            json!({ "parents": parents.iter().map(|p| parent("parentRef", p)).collect::<Vec<_>>() })
        }
        Status::Policy { ancestors } => {
            json!({ "ancestors": ancestors.iter().map(|p| parent("ancestorRef", p)).collect::<Vec<_>>() })
        }
        Status::EnvoyProxy { ancestors } => {
            let entry = |a: &AncestorStatus| json!({ "ancestorRef": reference(&a.ancestor_ref), "conditions": conditions(&a.conditions) });
            json!({ "ancestors": ancestors.iter().map(entry).collect::<Vec<_>>() })
        }
    }
}

fn conditions(all: &[Condition]) -> Value {
    all.iter()
        .map(|c| {
            let mut out = Map::new();
            out.insert("type".into(), c.kind.into());
            out.insert("status".into(), c.status.as_str().into());
            out.insert("reason".into(), c.reason.into());
            out.insert("message".into(), c.message.as_str().into());
            if let Some(g) = c.observed_generation {
                out.insert("observedGeneration".into(), g.into());
            }
            Value::Object(out)
        })
        .collect()
}

fn listener(l: &ListenerStatus, set: bool) -> Value {
    let kinds = l.supported_kinds.iter().map(|(g, k)| json!({ "group": &**g, "kind": &**k }));
    let mut out = Map::new();
    out.insert("name".into(), l.name.as_ref().into());
    out.insert("attachedRoutes".into(), l.attached_routes.into());
    out.insert("conditions".into(), conditions(&l.conditions));
    out.insert("supportedKinds".into(), kinds.collect());
    if let (true, Some(port)) = (set, l.port) {
        out.insert("port".into(), port.into());
    }
    Value::Object(out)
}

fn parent(field: &str, p: &ParentStatus) -> Value {
    let mut out = Map::new();
    out.insert(field.into(), reference(&p.parent));
    out.insert("controllerName".into(), p.controller_name.as_ref().into());
    out.insert("conditions".into(), conditions(&p.conditions));
    Value::Object(out)
}

fn reference(r: &ParentRef) -> Value {
    let mut out = Map::new();
    let texts = [
        ("group", r.group.as_deref()),
        ("kind", r.kind.as_deref()),
        ("namespace", r.namespace.as_deref()),
        ("name", Some(&*r.name)),
        ("sectionName", r.section_name.as_deref()),
    ];
    for (field, text) in texts {
        if let Some(text) = text {
            out.insert(field.into(), text.into());
        }
    }
    if let Some(port) = r.port {
        out.insert("port".into(), port.into());
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    use ir::ConditionStatus;

    use super::*;

    fn accepted() -> Condition {
        Condition {
            kind: "Accepted",
            status: ConditionStatus::True,
            reason: "Accepted",
            message: "fine".into(),
            observed_generation: Some(3),
        }
    }

    #[test]
    fn a_route_status_has_the_form_of_the_api() {
        let parent = ParentRef {
            group: Some("gateway.networking.k8s.io".into()),
            kind: Some("Gateway".into()),
            namespace: None,
            name: "gw".into(),
            section_name: Some("http".into()),
            port: Some(80),
        };
        let entry = ParentStatus { parent, controller_name: "c/x".into(), conditions: vec![accepted()] };
        let key = ObjectKey::new(Kind::HttpRoute, "ns", "r");
        assert_eq!(
            object(&key, &Status::Route { parents: vec![entry] }),
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "HTTPRoute",
                "metadata": {"name": "r", "namespace": "ns"},
                "status": {"parents": [{
                    "parentRef": {
                        "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "gw", "sectionName": "http",
                        "port": 80,
                    },
                    "controllerName": "c/x",
                    "conditions": [{
                        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "fine",
                        "observedGeneration": 3,
                    }],
                }]},
            })
        );
    }

    #[test]
    fn what_is_empty_is_left_out() {
        let key = ObjectKey::new(Kind::Gateway, "ns", "gw");
        let status = Status::Gateway { conditions: vec![], listeners: vec![], attached_listener_sets: None };
        assert_eq!(render(&status, &key), json!({}));
        let key = ObjectKey::new(Kind::GatewayClass, "", "c");
        let status = Status::GatewayClass { conditions: vec![accepted()] };
        assert_eq!(object(&key, &status)["metadata"], json!({"name": "c"}));
    }
}

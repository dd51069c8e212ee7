//! Wanted statuses. They serialize to the `status` of the Kubernetes object. Times are not part of them: the writer adds `lastTransitionTime` when it finds a change.

use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::Name;

/// Status of one object, as far as this controller owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// GatewayClass.
    GatewayClass {
        /// Conditions by type.
        conditions: Vec<Condition>,
    },
    /// Gateway or ListenerSet.
    Gateway {
        /// Conditions of the object.
        conditions: Vec<Condition>,
        /// Listeners in the order of the spec.
        listeners: Vec<ListenerStatus>,
        /// ListenerSets attached (Gateway only).
        attached_listener_sets: Option<i32>,
    },
    /// Any route.
    Route {
        /// One entry per parentRef of ours.
        parents: Vec<ParentStatus>,
    },
    /// A policy.
    Policy {
        /// One entry per ancestor.
        ancestors: Vec<ParentStatus>,
    },
    /// An EnvoyProxy. Its entries have no `controllerName`: they are all of the controller whose classes and Gateways name it.
    EnvoyProxy {
        /// One entry per GatewayClass and Gateway that names it.
        ancestors: Vec<AncestorStatus>,
    },
    /// Objects with plain conditions, such as Backend.
    Plain {
        /// Conditions by type.
        conditions: Vec<Condition>,
    },
}

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type, such as `Accepted`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// Reason, such as `NoMatchingParent`.
    pub reason: &'static str,
    /// For people: object, field, cause and remedy.
    pub message: String,
    /// Generation that it was concluded from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Truth of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ConditionStatus {
    /// Holds.
    True,
    /// Does not hold.
    False,
    /// Not known.
    Unknown,
}

/// Status of one listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: Name,
    /// Route kinds that can attach: (group, kind).
    #[serde(serialize_with = "kinds")]
    pub supported_kinds: Vec<(Name, Name)>,
    /// Routes that are attached.
    pub attached_routes: i32,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Port (reported in ListenerSet entries).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// Status towards one parent or ancestor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStatus {
    /// The reference, as the object wrote it (defaults filled in).
    pub parent: ParentRef,
    /// Controller that writes the entry.
    pub controller_name: Name,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// Status towards one ancestor of whatever controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AncestorStatus {
    /// The GatewayClass or Gateway.
    pub ancestor_ref: ParentRef,
    /// Conditions.
    pub conditions: Vec<Condition>,
}

/// A reference to a parent or ancestor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// API group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Name>,
    /// Kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Name>,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Name>,
    /// Name.
    pub name: Name,
    /// Listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Name>,
    /// Port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

// === impl ConditionStatus ===

impl ConditionStatus {
    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

// === impl Status ===

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            Self::GatewayClass { conditions } | Self::Plain { conditions } => {
                map.serialize_entry("conditions", conditions)?;
            }
            Self::Gateway { conditions, listeners, attached_listener_sets } => {
                if !conditions.is_empty() {
                    map.serialize_entry("conditions", conditions)?;
                }
                if !listeners.is_empty() {
                    map.serialize_entry("listeners", listeners)?;
                }
                if let Some(n) = attached_listener_sets {
                    map.serialize_entry("attachedListenerSets", n)?;
                }
            }
            Self::Route { parents } => map.serialize_entry("parents", &references("parentRef", parents))?,
            Self::Policy { ancestors } => map.serialize_entry("ancestors", &references("ancestorRef", ancestors))?,
            Self::EnvoyProxy { ancestors } => map.serialize_entry("ancestors", ancestors)?,
        }
        map.end()
    }
}

/// Entries of a route or policy, which call the reference differently.
struct Reference<'a> {
    field: &'static str,
    status: &'a ParentStatus,
}

fn references<'a>(field: &'static str, all: &'a [ParentStatus]) -> Vec<Reference<'a>> {
    all.iter().map(|status| Reference { field, status }).collect()
}

impl Serialize for Reference<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry(self.field, &self.status.parent)?;
        map.serialize_entry("controllerName", &self.status.controller_name)?;
        map.serialize_entry("conditions", &self.status.conditions)?;
        map.end()
    }
}

fn kinds<S: Serializer>(kinds: &[(Name, Name)], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Kind<'a> {
        group: &'a str,
        kind: &'a str,
    }
    serializer.collect_seq(kinds.iter().map(|(group, kind)| Kind { group, kind }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn accepted() -> Condition {
        Condition {
            kind: "Accepted",
            status: ConditionStatus::True,
            reason: "Accepted",
            message: "m".to_owned(),
            observed_generation: Some(3),
        }
    }

    #[test]
    fn a_status_has_the_fields_of_kubernetes() {
        let condition = json!({"type": "Accepted", "status": "True", "reason": "Accepted", "message": "m", "observedGeneration": 3});
        let parent = ParentRef {
            group: Some("g".into()),
            kind: None,
            namespace: None,
            name: "n".into(),
            section_name: Some("s".into()),
            port: None,
        };
        let entry = ParentStatus { parent, controller_name: "c".into(), conditions: vec![accepted()] };
        let route = Status::Route { parents: vec![entry.clone()] };
        let reference = json!({"group": "g", "name": "n", "sectionName": "s"});
        assert_eq!(
            serde_json::to_value(route).unwrap(),
            json!({"parents": [{"parentRef": reference, "controllerName": "c", "conditions": [condition]}]})
        );
        let policy = serde_json::to_value(Status::Policy { ancestors: vec![entry] }).unwrap();
        assert_eq!(policy["ancestors"][0]["ancestorRef"], reference);
        let listener = ListenerStatus {
            name: "l".into(),
            supported_kinds: vec![("g".into(), "HTTPRoute".into())],
            attached_routes: 1,
            conditions: vec![],
            port: None,
        };
        let gateway =
            Status::Gateway { conditions: vec![], listeners: vec![listener], attached_listener_sets: Some(0) };
        assert_eq!(
            serde_json::to_value(gateway).unwrap(),
            json!({
                "listeners": [{
                    "name": "l", "attachedRoutes": 1, "conditions": [],
                    "supportedKinds": [{"group": "g", "kind": "HTTPRoute"}]
                }],
                "attachedListenerSets": 0
            })
        );
    }
}

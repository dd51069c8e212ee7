//! Wanted statuses. Times are not part of them: the writer adds `lastTransitionTime` when it finds a change.

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
    /// Objects with plain conditions, such as Backend.
    Plain {
        /// Conditions by type.
        conditions: Vec<Condition>,
    },
}

/// A condition without its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Type, such as `Accepted`.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: ConditionStatus,
    /// Reason, such as `NoMatchingParent`.
    pub reason: &'static str,
    /// For people: object, field, cause and remedy.
    pub message: String,
    /// Generation that it was concluded from.
    pub observed_generation: Option<i64>,
}

/// Truth of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// Holds.
    True,
    /// Does not hold.
    False,
    /// Not known.
    Unknown,
}

/// Status of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    /// Name of the listener.
    pub name: Name,
    /// Route kinds that can attach: (group, kind).
    pub supported_kinds: Vec<(Name, Name)>,
    /// Routes that are attached.
    pub attached_routes: i32,
    /// Conditions.
    pub conditions: Vec<Condition>,
    /// Port (reported in ListenerSet entries).
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

/// A reference to a parent or ancestor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParentRef {
    /// API group.
    pub group: Option<Name>,
    /// Kind.
    pub kind: Option<Name>,
    /// Namespace.
    pub namespace: Option<Name>,
    /// Name.
    pub name: Name,
    /// Listener.
    pub section_name: Option<Name>,
    /// Port.
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

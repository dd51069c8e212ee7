//! Kubernetes objects as trees, and what tells them apart.

use std::{fmt, sync::Arc};

use serde_json::Value;

/// Kinds of objects that a fleet is made of, in the order in which they are written: what pods need comes before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the wire forms say it
pub enum ObjectKind {
    ServiceAccount,
    ConfigMap,
    Deployment,
    DaemonSet,
    Service,
    HorizontalPodAutoscaler,
    PodDisruptionBudget,
}

/// Identity of an object of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Kind.
    pub kind: ObjectKind,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// An object that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Identity.
    pub at: ObjectRef,
    /// All of it, `apiVersion`, `kind` and `metadata` included.
    pub tree: Value,
}

/// An object as the API server has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// Its uid: another one means another object of the same name.
    pub uid: Arc<str>,
    /// Its version.
    pub resource_version: Arc<str>,
    /// It is being deleted.
    pub deleting: bool,
    /// All of it.
    pub tree: Arc<Value>,
}

// === impl ObjectKind ===

impl ObjectKind {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::ServiceAccount,
        Self::ConfigMap,
        Self::Deployment,
        Self::DaemonSet,
        Self::Service,
        Self::HorizontalPodAutoscaler,
        Self::PodDisruptionBudget,
    ];

    /// `kind`, `apiVersion` and plural.
    #[must_use]
    pub fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::ServiceAccount => ("ServiceAccount", "v1", "serviceaccounts"),
            Self::ConfigMap => ("ConfigMap", "v1", "configmaps"),
            Self::Deployment => ("Deployment", "apps/v1", "deployments"),
            Self::DaemonSet => ("DaemonSet", "apps/v1", "daemonsets"),
            Self::Service => ("Service", "v1", "services"),
            Self::HorizontalPodAutoscaler => ("HorizontalPodAutoscaler", "autoscaling/v2", "horizontalpodautoscalers"),
            Self::PodDisruptionBudget => ("PodDisruptionBudget", "policy/v1", "poddisruptionbudgets"),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.names().0, self.namespace, self.name)
    }
}

// === impl Live ===

impl Live {
    /// From what the API server says; `None` where that is no object.
    #[must_use]
    pub fn from_tree(tree: Value) -> Option<Self> {
        let meta = tree.get("metadata")?;
        Some(Self {
            uid: meta["uid"].as_str()?.into(),
            resource_version: meta["resourceVersion"].as_str()?.into(),
            deleting: meta.get("deletionTimestamp").is_some(),
            tree: Arc::new(tree),
        })
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&str> {
        self.tree["metadata"]["labels"].get(name)?.as_str()
    }
}

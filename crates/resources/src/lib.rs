//! What the cluster says, as values: keys, objects, changes, and a store that holds the latest of each.
//!
//! Contract: no clock, no I/O, no kube client. A [`Store`] iterates in the order of its keys, so what is computed from
//! it does not depend on the order of arrival. [`Precedence`] is the one tie-break of Gateway API.
//!
//! Limits: objects are taken as decoded; whether an API server would have accepted them is the business of `admission`.

mod kinds;
pub mod merge;
mod observed;
mod precedence;
pub mod quantity;
mod store;

use std::{fmt, sync::Arc};

pub use kinds::{DecodeError, Kind, Kinded, Object};
pub use observed::{Observed, Seen};
pub use precedence::Precedence;
pub use store::Store;

/// Identity of an object: kind, namespace (empty if cluster-scoped) and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Kind.
    pub kind: Kind,
    /// Namespace; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// One event of a source.
#[derive(Clone, Debug)]
pub enum Change {
    /// The object is there, in this version.
    Upsert(ObjectKey, Object),
    /// The object is gone. Only said from a complete view: an error is never read as absence.
    Remove(ObjectKey),
    /// All that was there at the start has been told.
    Synced,
    /// Envoy refused what the object asks for, in these words: it is left out until it changes.
    Exclude(ObjectKey, Arc<str>),
    /// The object is not left out any more.
    Readmit(ObjectKey),
}

// === impl ObjectKey ===

impl ObjectKey {
    /// Builds a key.
    #[must_use]
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

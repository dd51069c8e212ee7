//! What was last seen of objects that are written: the seam between the watch cache and the writers.

use std::sync::Arc;

use crate::{Kind, Object, ObjectKey};

/// An object as the API server last told it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `apiVersion` under which it is watched; writes go there too.
    pub api_version: Arc<str>,
    /// Plural of the kind, as in request paths (`httproutes`).
    pub plural: Arc<str>,
    /// Its uid: another one means another object of the same name.
    pub uid: Arc<str>,
    /// Its version: a write that names it is refused when the object has changed since.
    pub resource_version: Arc<str>,
    /// Its status as JSON text, if it has one.
    pub status: Option<Arc<str>>,
    /// Finalizers.
    pub finalizers: Arc<[String]>,
    /// It is being deleted.
    pub deleting: bool,
    /// The object without its status; `None` while no version of it could be decoded.
    pub object: Option<Object>,
}

/// Reads what was last seen. A fake of it is a map.
pub trait Observed: Send + Sync + 'static {
    /// The object as last seen; `None` if it is not there.
    fn observed(&self, key: &ObjectKey) -> Option<Seen>;

    /// All objects of a kind that are there, by namespace and name.
    fn keys(&self, kind: Kind) -> Vec<ObjectKey>;
}

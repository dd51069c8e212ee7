//! What the gateway should do, as values: one value per xDS resource, one per proxy fleet, one per status.
//!
//! Contract: values only. No clock, no protobuf, no `HashMap`: two equal inputs give equal values, and values that are
//! equal are encoded to the same bytes. Names of xDS resources are Envoy Gateway's, decided by the translator.
//!
//! Limits: this crate says what is wanted, not how Envoy spells it (crate `envoy`) and not how it was concluded
//! (crate `translator`).

mod cluster;
mod feature;
mod infra;
mod listener;
mod route;
mod settings;
mod status;
mod translation;

use std::sync::Arc;

pub use cluster::*;
pub use feature::*;
pub use infra::*;
pub use listener::*;
pub use route::*;
pub use settings::*;
pub use status::*;
pub use translation::*;

/// A name that is shared rather than copied.
pub type Name = Arc<str>;

/// The object that an xDS resource comes from; becomes the `envoy-gateway` filter metadata that access logs,
/// patches and extension servers read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Kind of the object, such as `HTTPRoute`.
    pub kind: &'static str,
    /// Namespace of the object.
    pub namespace: Name,
    /// Name of the object.
    pub name: Name,
    /// Listener, rule or port inside the object.
    pub section: Option<Name>,
    /// Annotations under `gateway.envoyproxy.io/`, that prefix cut off, in order of their keys.
    pub annotations: Vec<(Name, Name)>,
}

/// A span of time in milliseconds, the unit of Gateway API durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

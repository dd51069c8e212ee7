//! Writes statuses: compare with what is there, then write what differs.
//!
//! Contract
//!
//! * Nothing is written that is there already. `lastTransitionTime` moves only when the status of its condition does.
//! * Of routes and policies only entries with our `controllerName` are touched; others stay, and where they are. A policy
//!   gets no more entries than the API allows (16), theirs before ours. Entries of an EnvoyProxy name no controller: they are
//!   all those of the controller whose classes or Gateways name it.
//! * Every write is a JSON merge patch of the status subresource (RFC 7386) that names uid and version of what it was
//!   compared with: a late one is refused. On a conflict the object is read and compared again. An object that is gone
//!   needs nothing.
//! * Every request runs within a [`election::Permit`]; [`StatusWriter`] and [`Finalizers`] stand behind
//!   [`reconcile::Gated`], which coalesces by object.
//! * Conditions are concluded elsewhere. Added here are only the facts of a Gateway's fleet ([`Facts`]), that a Gateway
//!   without a fault is accepted, and the supported features of a class.
//! * Control planes that have the same controller name are found out by what they claim ([`Claims`]), and told as a condition
//!   of its classes. What others undo again and again is written ever more seldom, at most once a minute ([`Contested`]).
//!
//! Limits: a Gateway of which no facts were ever told keeps the addresses and `Programmed` that its status has.
//!
//! Source: Gateway API v1.6 (statuses of routes and policies, GEP-713), the Kubernetes API conventions for conditions.

mod claims;
mod client;
mod complete;
mod contested;
mod facts;
mod features;
mod figures;
mod finalizer;
mod latest;
mod merge;
mod render;
mod rivals;
#[cfg(test)]
mod tests;
mod writer;

pub use claims::{CLAIM, Claims};
pub use client::{KubeStatusClient, Part, StatusClient, StatusError};
pub use contested::Contested;
pub use facts::{Address, Facts, FleetFacts};
pub use features::{BESIDE_GATEWAYS, SUPPORTED_FEATURES};
pub use figures::{Counters, Figures, KindFigures, SECONDS};
pub use finalizer::{Finalizers, GATEWAYS_EXIST, classes_in_use};
pub use render::{object, render};
pub use writer::StatusWriter;

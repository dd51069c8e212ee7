//! Fleets as Kubernetes objects: ServiceAccount, ConfigMap, Deployment or DaemonSet, Service, HorizontalPodAutoscaler and
//! PodDisruptionBudget.
//!
//! # Contract
//!
//! * [`render`] is pure: the same fleet gives the same objects on every replica, in every term and after every start. Names,
//!   labels, ports, probes and the rest are those of Envoy Gateway, so that what it made is taken over.
//! * [`Writer`] stands behind the leader's gate. It compares with what there is ([`Fleets`]) and writes only what differs, by
//!   server-side apply with the field manager `envoy-gateway`, each apply with uid and version, a creation by POST, a deletion
//!   with preconditions. The term is stamped on the object's metadata, never on pods; what a newer term wrote is not touched.
//! * What a newer version of the control plane wrote is left alone by an older one that leads; what is withheld is told.
//! * Restarting, upgrading or taking over from Envoy Gateway replaces no pod: a bootstrap in other words and images that
//!   nobody asked for stay as they are until something else of the pods changes.
//! * An object of that name which is not of the fleet is not touched. That, and every refusal of the server, is tried again
//!   for ever by the gate and told meanwhile ([`Troubles`], [`Facts`]).
//! * Nothing is deleted but from a complete view: fleets that nobody wants, and objects of a fleet that it no longer has. What
//!   takes another's place is there before the other goes.
//! * [`tell`] says how fleets are, from watches; the writer asks nothing for it.
//!
//! # Limits
//!
//! A patch that makes the server store something else than was applied is applied again when the fleet is looked at.
//!
//! Source: the Kubernetes API reference; Kubernetes' documentation of server-side apply.

mod client;
mod compare;
mod facts;
mod names;
mod object;
mod observed;
mod options;
mod render;
mod tell;
#[cfg(test)]
pub(crate) mod tests;
#[cfg(test)]
mod versions;
mod writer;

pub use client::{ClientError, FIELD_MANAGER, InfraClient, KubeInfraClient};
pub use facts::{Facts, Trouble, facts};
pub use names::{FleetKey, SELECTOR};
pub use object::{Live, Object, ObjectKind, ObjectRef};
pub use observed::{Fleets, Watches};
pub use options::{ENVOY_IMAGE, Options};
pub use render::{RenderError, render, service_account};
pub use tell::tell;
pub use writer::{InfraError, Troubles, Writer};

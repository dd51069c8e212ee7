//! Runs the proxies: as local Envoy processes ([`local`]), or as Kubernetes objects ([`kubernetes`]).
//!
//! # Contract
//!
//! Nothing is decided here: which proxies there are and what their bootstrap says comes in as wanted values, through the
//! leader's gate (`reconcile`). This crate makes it so, keeps it so, and tells how it is.
//!
//! See [`local`] for what "keeps it so" means for processes, [`kubernetes`] for objects, and [`shutdown`] for how a pod ends.

pub mod kubernetes;
pub mod local;
pub mod shutdown;

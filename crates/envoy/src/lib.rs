//! IR to Envoy protobuf: resources, bootstrap, canonical JSON.
//!
//! * [`Encoder`] makes an [`Encoded`] resource of each value of the IR: type URL, name, bytes, a version that is a digest
//!   of the bytes, and [`Hints`] for the order in which a proxy has to be told.
//! * [`Editions`] gives endpoints a name of their own for each content of their cluster, which is how they go over the wire.
//! * [`json`] turns encoded resources, with all that is nested in `Any`, to JSON and back.
//! * [`bootstrap`] is the configuration that a proxy starts with.
//!
//! Contract: pure functions; equal values have equal bytes, in every process. A value that Envoy would refuse is an
//! [`EncodeError`] that names the resource, so that one bad resource never takes the good ones of a response with it.
//!
//! Limits: knows nothing of the xDS protocol (crate `xds`) nor of Kubernetes objects. Fields are those that the oldest
//! supported Envoy knows. Sources: Envoy's v3 API; names and defaults are those of Envoy Gateway, on which patches,
//! dashboards and access logs of its users rely.

mod access_log;
mod admission;
pub mod bootstrap;
mod cluster;
mod editions;
mod encode;
mod endpoints;
mod feature;
mod http;
pub mod json;
mod listener;
mod local_rate_limit;
mod pb;
mod per_route;
mod response_override;
mod route;
mod settings;
mod tls;
mod validate;
mod wire;

pub use editions::{Assignment, Editions};
pub use encode::{Encoded, Encoder, Hints, encode, type_url};
pub use validate::{EncodeError, Invalid};
pub use wire::{encode as encode_message, encode_any};

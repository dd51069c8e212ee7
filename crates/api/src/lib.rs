//! Types of Gateway API and of `gateway.envoyproxy.io/v1alpha1`, and of the `EnvoyGateway` config file.
//!
//! The crate is a vocabulary: plain values which decode from and encode to the JSON that an API server stores, and the
//! OpenAPI schema that goes with them. It holds no behaviour beyond reading single fields (durations, label selectors).
//! The kinds of Gateway API live in the crate `gateway-api`, which this one re-exports as [`gateway`] and [`shared`].
//!
//! * Every kind is declared once with kube's `CustomResource` derive. Its schema carries the same field paths, types,
//!   enumerations, bounds, patterns, defaults and CEL rules as the published definition; the test `envoygateway_schema`
//!   compares them where reference definitions are at hand. Use [`shared::definition`] rather than `K::crd()` to get it.
//! * Decoding is lenient: unknown fields are ignored and enumerations are open (see [`open_enum!`]), so that one object
//!   from a newer release never breaks the list it came in. What an API server would refuse is the business of the
//!   `admission` crate.
//! * A field that the schema gives a default to is still an `Option` here: the default is in the schema and is filled in
//!   where objects enter, not where they are decoded.
//! * Absent and empty lists or maps are the same value (an empty `Vec` or `BTreeMap`), as in the Go types.
//!
//! Source: Gateway API v1.6.1 (experimental channel), Envoy Gateway's `v1alpha1` API, Kubernetes' rules for structural
//! schemas.

pub mod config;
pub mod envoygateway;

pub use gateway_api::{self as gateway, open_enum, shared};

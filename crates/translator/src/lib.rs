//! Changes in, translation out: what the objects of the cluster mean for proxies, fleets and statuses.
//!
//! Contract: pure, infallible and deterministic. There is no clock, no I/O, no `await` and no role in scope; bad input
//! becomes a condition of the object that holds it and harms no other. The same objects and settings give the same
//! values on every replica, in whatever order the objects came: conflicts are settled by [`resources::Precedence`].
//!
//! * [`Engine`] holds the state and tells differences; [`translate`] works from scratch, for offline commands and as the
//!   oracle of the engine.
//! * The unit functions (a Gateway with its listeners, the attachment of a route, a rule with its clusters, a virtual
//!   host, a listener, a status) read the objects through one view and nothing else, so that they can be memoised by
//!   what they read.
//! * Names of xDS resources are Envoy Gateway's: patches, dashboards and logs refer to them.
//!
//! Limits: GatewayClass, Gateway, ListenerSet, the five kinds of routes, ReferenceGrant, BackendTLSPolicy, Backend,
//! BackendTrafficPolicy (crate `policy`), HTTPRouteFilter (rewrites and direct responses), Services with EndpointSlices,
//! ServiceImports. Of EnvoyProxy only what shapes addresses and ports. Other policies are not read.
//!
//! Source: Gateway API v1.6 (behaviour, precedence, conditions and reasons), Envoy's v3 API, RE2's syntax.

mod access_log;
mod assemble;
mod attach;
mod backend;
mod certificate;
mod class;
mod cluster;
mod condition;
mod config;
mod engine;
mod fleet;
mod gateways;
mod host;
mod http;
mod l4;
mod listeners;
mod local;
mod merged;
mod route;
mod route_status;
mod sinks;
mod tls_policy;
mod traffic;
mod upstream_tls;
mod view;

pub use config::{Config, ExtensionApis, Infrastructure};
pub use engine::{Engine, translate};

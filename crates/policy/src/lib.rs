//! Which policy holds for which part of a route, and what it says.
//!
//! * [`Topology`] is what policies can be attached to; [`Attachments`] settles who holds where, for any kind of policy: a
//!   rule of a route before the route before the listener before its ListenerSet before the Gateway, the oldest policy
//!   first.
//! * [`proxies`] tells what is wrong with EnvoyProxies, and their statuses.
//! * [`BackendTraffic`] reads BackendTrafficPolicies, merges them with those of parents, and tells their statuses.
//!
//! Contract: pure and infallible, like the translation that uses it. A policy that makes no sense says so in its status,
//! with field, cause and remedy, and closes the routes that it holds for (500) rather than leave them without what it was
//! to protect; it harms no others.
//!
//! Limits: of BackendTrafficPolicy, global rate limits and dynamic modules are refused; tracing and the size of sockets'
//! buffers have no effect, which is told as a warning. Other kinds of policies are not read yet.
//!
//! Source: Gateway API's policy attachment (GEP-713), the published API of Envoy Gateway, Envoy's v3 API.

mod attach;
mod cluster;
pub mod proxies;
mod rate_limit;
mod read;
mod response;
mod route;
pub mod selector;
mod status;
mod topology;
mod traffic;

pub use attach::{Attachable, Attachments, Outcome, Target};
pub use cluster::{LOAD_REPORTS, Upstream};
pub use route::{RouteSettings, stat_prefix};
pub use topology::{Gateway, Listener, Parent, Place, Route, Topology};
pub use traffic::{BackendTraffic, Effective, Settings};

//! HTTPRoute and GRPCRoute: rules to routes, clusters and endpoints of a fleet.

mod cors;
mod extension;
mod features;
mod filters;
mod grpc;
mod headers;
mod matches;
mod mirror;
mod order;
mod overlap;
mod rule;
mod table;

pub(crate) use features::filters;
pub(crate) use overlap::{Overlap, Overlaps};
pub(crate) use rule::{RouteUnit, translate};
pub(crate) use table::{Tables, TlsTarget, shield};

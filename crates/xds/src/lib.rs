//! ADS server over opaque resources, with the order of updates that Envoy needs.

mod cache;
mod connections;
mod feedback;
mod kind;
mod metrics;
mod resource;
mod server;
mod service;
mod session;
mod snapshot;
mod stream;
mod wire;

pub use cache::Cache;
pub use connections::{Connection, Connections, TypeState};
pub use feedback::{Feedback, FeedbackReceiver, Proxy, SentResource};
pub use kind::TypeUrl;
pub use metrics::{Metrics, MetricsSnapshot, TypeMetrics};
pub use resource::{Hints, Name, NodeGroup, Resource};
pub use server::{Config, Server, TlsConfig};

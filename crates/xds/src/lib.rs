//! ADS server over opaque resources, with the order of updates that Envoy needs.
//!
//! # What it is for
//!
//! A [`Cache`] holds the wanted resources of every [`NodeGroup`]; a [`Server`] brings them to the proxies of that group over delta and
//! state-of-the-world xDS (version 3 of the transport protocol, aggregated or one type per stream). Resources are bytes: the version
//! of a [`Resource`] is the digest of its content, so that a proxy which comes back, or moves to another replica, is told only what is
//! different.
//!
//! # Contract: the order of an update
//!
//! Envoy applies what it is sent at once and holds nothing back. Each stream of aggregated discovery therefore brings a change in this
//! order (measured with Envoy 1.40):
//!
//! 1. New and changed clusters, and right behind them the endpoints of each (Envoy does not ask again for the endpoints of a changed
//!    cluster; one that has none gets an empty assignment) and the secrets that the proxy lacks.
//! 2. Their acknowledgement, which Envoy sends when they are warm. Only what needs a cluster waits for it. Clusters that have to warm
//!    up ([`Hints::Cluster`]`::warms`) travel in responses of their own, one after another, as one that does not get warm holds back
//!    every acknowledgement; plain ones pass them, and are taken as ready when their endpoints were acknowledged.
//! 3. Listeners, once the clusters that they and their new route tables name are ready; then tables and secrets that the proxy lacks.
//! 4. Changed route tables, each in a response of its own, once every cluster that they name is ready and no listener that uses them
//!    waits.
//! 5. Removals: a cluster when no version of a listener or route table that the proxy may be running names it, nor did for
//!    [`Config::drain_time`]; a listener when all that is new has been acknowledged. Connections of a listener that was removed or
//!    changed go on with its table until they have drained, and a request looks for its cluster only after the filters that it waits
//!    in. For the same reason nothing is taken from a proxy that has come back before that time is over. Nothing else waits for it.
//!
//! Subscriptions are answered at once. Endpoints and secrets never wait. An update that arrives in the middle of another one is merged
//! with it. A wait ends after [`Config::ack_timeout`]; the update then goes on, and counters and [`Feedback`] tell.
//!
//! A refused response is sent again in halves until the culprit stands alone; it is left out until its content changes and keeps
//! nothing else back. Clusters that do not get warm are found the same way and taken out; as they may have been slow, they
//! get another chance three times, later and later. A group that has had no complete update is
//! met with silence, because an empty answer would delete what a running proxy has.
//!
//! # Contract: who is admitted
//!
//! Whoever the TLS configuration admits, unless [`Server::with_admission`] has each stream decided about ([`Admit`]).
//!
//! # Limits
//!
//! * The order is as good as the hints. Without hints everything waits for everything, which is right but slow.
//! * State-of-the-world streams have the same order, at the cost of whole lists of clusters and listeners. When such a client comes back
//!   after a change, only what this process has removed lately is kept for it until its routes have moved.
//! * Streams of a single type cannot be ordered against each other and are not.
//! * A proxy that is cut off while a cluster never gets warm does not ask for clusters again until it is restarted.
//! * Types other than the five of [`TypeUrl`] are not carried.
//!
//! Source: the xDS transport protocol in Envoy's documentation ("xDS REST and gRPC protocol"), and measurements.

mod admit;
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

pub use admit::{Admit, Applicant, Denied};
pub use cache::Cache;
pub use connections::{Connection, Connections, TypeState};
pub use feedback::{Feedback, FeedbackReceiver, Proxy, SentResource};
pub use kind::TypeUrl;
pub use metrics::{Metrics, MetricsSnapshot, TypeMetrics};
pub use resource::{Hints, Name, NodeGroup, Resource};
pub use server::{Config, Server, TlsConfig};

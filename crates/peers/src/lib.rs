//! What replicas of the control plane tell each other, and what follows: a replica that is out of touch with the API server
//! hands its proxies over while another one is fresher.
//!
//! # What for
//!
//! All replicas serve. One whose way to the API server is cut goes on with what it knows, which is right while nobody
//! knows better, and wrong as soon as somebody does: its proxies would miss every change. An idle watch looks like a
//! dead one, so freshness is *proved*, by asking the API server again and again ([`probe`]).
//!
//! # Contract
//!
//! * A [`Report`] is small and bounded ([`LARGEST`]), and read whole or not at all. It says how long ago its sender was in
//!   touch (an age by the sender's own monotonic clock: no two clocks are compared), whether it takes proxies, which
//!   snapshot it serves, and what proxies refused. It carries no configuration.
//! * The receiver adds the time since it *asked*, so that the age it reckons with is never too small.
//! * [`Decider`]: a replica begins to hand over when it is out of touch for longer than [`Rule::out_of_touch`] and another
//!   one that takes proxies is in touch. It ends when it has been in touch for [`Rule::steady`], or at once when nobody
//!   is fresher any more. Two beginnings are at least [`Rule::steady`] apart. Of replicas that run, never all hand over.
//! * [`Agreement`]: replicas that have seen the same versions of the same objects serve the same; one that makes something else
//!   of it is told.
//! * Replicas speak over mutual TLS, and only to a holder of the control plane's own certificate: proxies have one of the
//!   same CA and are turned away ([`serve`], [`ask`]).
//!
//! # Limits
//!
//! At most [`MOST_PEERS`] peers are asked. A replica that dies is believed for [`BELIEVED`]. Time in which the whole machine is
//! suspended is not counted until the next probe.
//!
//! Source: the idea that the asker pays for the way is Cristian's (probabilistic clock synchronisation, 1989).

mod agree;
mod decide;
mod exchange;
mod freshness;
mod report;
mod serve;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use agree::{Agreement, Disagreement, MOST_VIEWS, View};
pub use decide::{Decider, Peer, Rule};
pub use exchange::{AskError, Options, Peers, ask};
pub use freshness::{Freshness, probe};
pub use report::{InvalidReport, LARGEST, MOST_REFUSALS, Refusal, Report};
pub use serve::serve;
pub use table::{BELIEVED, Table};

/// Peers that are asked at most.
pub const MOST_PEERS: usize = 16;
/// How often the API server and the peers are asked.
pub const EVERY: Duration = Duration::from_secs(1);
/// How long an answer is waited for.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// Protocol that TLS negotiates; another version of the report has another name.
pub const ALPN: &str = "eg-peers/1";
/// Port on which replicas tell.
pub const PORT: u16 = 18_003;

//! Latest wanted value per key, and the leader-gated loop that writes it.
//!
//! Everybody computes what is wanted and publishes it into a [`Wanted`] table; only the leader's [`Gated`] loop writes, through
//! a [`Sync`] that a writer crate supplies. This is the one place where role and work meet.
//!
//! # Contract
//!
//! * Only the latest value of a key is kept. Publishing never waits; a table does not grow with the number of events.
//! * Every write runs under a [`Permit`](election::Permit) taken at that write. When the leadership ends, writes stop.
//! * At the beginning of each leadership every key is due once: the writer compares and writes only the differences. What is
//!   owned on the other side and not wanted is wanted gone, once [`Wanted::complete`] was called.
//! * A key that fails is tried again for ever, with capped and jittered back-off, and holds up no other key. A new value is
//!   tried at once.
//! * Never two writes of one key at a time; different keys as [`Gated::with_concurrency`] allows.
//! * On stop the writes under way are waited for and none is begun.
//!
//! # Limits
//!
//! * A table serves one gate. It knows nothing of Kubernetes and of what the keys mean.
//! * A write is cut short only by the end of the leadership: time-outs of single requests are the writer's own
//!   (`election::kubernetes::PermitLayer` has one).
//!
//! # Source
//!
//! The level-triggered work queue of Kubernetes controllers (client-go `util/workqueue`: one entry per key, back-off per key),
//! without the queue.

mod backoff;
mod gate;
#[cfg(test)]
mod tests;
mod wanted;

pub use backoff::Backoff;
pub use gate::{Gated, Sync};
pub use wanted::{KeyState, Wanted};

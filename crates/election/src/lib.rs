//! Lease-based leadership, published as a role that knows when it ends.
//!
//! Several replicas of a program elect one of them to write to a cluster; all of them go on with everything else. A replica
//! that loses the lease is demoted, not ended.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use election::{Elector, Identity, Timings, kubernetes::KubernetesLease};
//!
//! let lease = KubernetesLease::new(kube::Config::infer().await?, "system", "my-controller")?;
//! let (elector, mut role) = Elector::new(lease, Identity::unique("my-pod")?, Timings::default())?;
//! let elector = elector.spawn_thread()?;
//! let leadership = role.elected(None).await;
//! leadership.permit()?.run(async { /* one write */ Ok::<_, std::io::Error>(()) }).await?;
//! elector.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Contract
//!
//! * **One at a time.** At any instant at most one process holds a valid [`Permit`], as long as clocks run at rates within
//!   10 % of the right one. No two clocks are compared: a leadership ends by its holder's own clock, `renewDeadline` after the
//!   last successful renewal was sent; a challenger waits, by its own clock, as long as the record and its own configuration
//!   ask, from when it saw the record last change.
//! * **Over is over.** A [`Leadership`] that has ended is never revived. Coming back means a higher [`Term`].
//! * **Somebody leads** at the latest `leaseDuration + 2 × retryPeriod` after the API server is back, on the candidates' own
//!   clocks.
//! * **The election is never left** by itself. API errors of all kinds are tried again for ever, unless a [`Policy`] says
//!   otherwise.
//! * **Release comes last.** The lease is released only when every write of the leadership has been answered; else it is left
//!   to expire.
//!
//! # Limits
//!
//! * The lease is not a fence. A request that has left cannot be called back: it may be done after the leadership has ended.
//!   So a write carries the version of what it was compared with, and its term. A *creation* carries no version: one that is
//!   delayed for longer than `leaseDuration - renewDeadline` can bring back an object that a later leader has deleted; that
//!   leader's next listing finds it.
//! * A missing Lease is not led at once, but after the lease's duration: its former holder may not know yet that it is gone.
//!   This includes the very first start; a Lease that is created beforehand with an empty holder avoids the wait.
//!   Where replicas are configured with different lease durations, a replica that has never seen the lease before it is
//!   deleted cannot know that its holder asked for longer than its own configuration does.
//! * client-go's own elector follows no such rule for a deleted Lease: beside one (during a migration) do not delete it.
//! * A machine whose clock stops with it (a virtual machine that is frozen, not suspended) does not see time pass.
//!
//! # Source
//!
//! The record is `coordination.k8s.io/v1` Lease as client-go's `tools/leaderelection` reads and writes it. Suspended time:
//! `clock_gettime(2)`, `CLOCK_BOOTTIME`.

mod clock;
mod contender;
mod elector;
#[cfg(test)]
mod fake;
mod jitter;
#[cfg(feature = "kube")]
pub mod kubernetes;
mod ledger;
mod mutant;
mod outcome;
mod record;
mod role;
mod stats;
#[cfg(test)]
mod tests;
mod thread;
mod timings;

pub use clock::{Clock, ManualClock, Moment, WallTime};
pub use elector::{Elector, Stopper, longest_stop};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use outcome::{OnLostLease, Outcome, Policy, Reason, Transition};
pub use record::{Identity, LeaseStore, MissingIdentity, Record, StoreError};
pub use role::{Leadership, NotLeader, Permit, Role, RoleWatch, Term, WriteError, current_term};
pub use stats::{LATENCY_BUCKETS, Snapshot};
pub use thread::{ElectorDied, ElectorThread};
pub use timings::{CLOCK_RATE_MARGIN, InvalidTimings, Preset, Timings, TimingsConfig};

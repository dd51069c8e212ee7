//! Lease-based leadership, published as a role that knows when it ends.
mod clock;
mod contender;
mod elector;
mod jitter;
#[cfg(feature = "kube")]
pub mod kubernetes;
mod ledger;
mod mutant;
mod outcome;
mod record;
mod role;
mod stats;
mod thread;
mod timings;

pub use clock::{Clock, ManualClock, Moment, WallTime};
#[cfg(feature = "mutants")]
pub use mutant::Mutant;
pub use elector::{Elector, Stopper, longest_stop};
pub use outcome::{OnLostLease, Outcome, Policy, Reason, Transition};
pub use record::{Identity, LeaseStore, MissingIdentity, Record, StoreError};
pub use role::{Leadership, NotLeader, Permit, Role, RoleWatch, Term, WriteError, current_term};
pub use stats::{LATENCY_BUCKETS, Snapshot};
pub use thread::{ElectorDied, ElectorThread};
pub use timings::{CLOCK_RATE_MARGIN, InvalidTimings, Preset, Timings, TimingsConfig};

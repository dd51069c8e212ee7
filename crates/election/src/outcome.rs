//! How an election ends, and what is told on the way.

use crate::role::Term;
use std::{fmt, sync::Arc, time::Duration};

/// What to do when a leadership is lost (`onLostLease`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLostLease {
    /// Go on as follower and try again. The default: a process that goes on serves its clients.
    #[default]
    Demote,
    /// End the election with [`Outcome::Lost`], on which the process is to exit with code 3.
    Exit,
}

/// What an elector does when things do not get better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// On a lost leadership.
    pub on_lost_lease: OnLostLease,
    /// End the election with [`Outcome::Unreachable`] when the API server has not answered for this long while this process
    /// does not lead. `None`: try for ever.
    pub max_recovery: Option<Duration>,
}

/// Why an election ended. An elector ends only when asked to, or as its [`Policy`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Stopped as follower; there was nothing to release.
    Stopped,
    /// Stopped as leader, and the lease was released: the next leader is there within a second.
    Released {
        /// Term of the leadership that was given back.
        term: Term,
    },
    /// Stopped as leader, but the lease is left to expire.
    LeftToExpire {
        /// Term of the leadership.
        term: Term,
        /// Why it was not released.
        why: Arc<str>,
    },
    /// The leadership was lost and the policy is [`OnLostLease::Exit`].
    Lost {
        /// Term of the leadership that was lost.
        term: Term,
        /// Why.
        reason: Reason,
    },
    /// The API server has not answered for `max_recovery`.
    Unreachable {
        /// How long there has been no answer.
        since: Duration,
        /// The last error.
        last_error: Arc<str>,
    },
}

/// This process began or stopped leading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Identity of this process.
    pub identity: Arc<str>,
    /// Whether it leads from now on.
    pub leads: bool,
    /// Term of the leadership that began or ended.
    pub term: Term,
    /// Why.
    pub reason: Reason,
}

/// Why a leadership began or ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The lease was free: released by its holder.
    Vacant,
    /// The record had not changed for the lease's duration.
    HolderSilent {
        /// The former holder.
        holder: Option<Arc<str>>,
    },
    /// There had been no lease, and nobody took it for the lease's duration.
    Missing,
    /// The lease was already held by this process, which no longer led.
    OwnLease,
    /// The lease had been deleted; this process, which led, put it back with a new term.
    Deleted,
    /// The end was reached without a successful renewal.
    Expired {
        /// The last error, if there was one.
        last_error: Option<Arc<str>>,
    },
    /// Another process holds the lease.
    TakenBy {
        /// The holder.
        holder: Option<Arc<str>>,
    },
    /// An object carries a term that is not older than this leadership's; a newer one is needed.
    Outranked {
        /// The term that was seen.
        seen: Term,
    },
    /// The process stops.
    Stopping,
}

// === impl Outcome ===

impl Outcome {
    /// Exit code of the process: 3 for a lost lease, 4 for an API server out of reach, else 0.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Stopped | Self::Released { .. } | Self::LeftToExpire { .. } => 0,
            Self::Lost { .. } => 3,
            Self::Unreachable { .. } => 4,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped as follower"),
            Self::Released { term } => write!(f, "released the lease (term {})", term.0),
            Self::LeftToExpire { term, why } => write!(f, "left the lease to expire (term {}): {why}", term.0),
            Self::Lost { term, reason } => {
                write!(f, "leader election lost (term {}): {reason}; onLostLease is Exit", term.0)
            }
            Self::Unreachable { since, last_error } => {
                write!(f, "no answer from the API server for {since:.1?}, so maxRecoveryDuration is over: {last_error}")
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |holder: &Option<Arc<str>>| holder.clone().unwrap_or_else(|| "nobody".into());
        match self {
            Self::Vacant => f.write_str("the lease was free"),
            Self::HolderSilent { holder } => write!(f, "the lease was not renewed in time by {}", name(holder)),
            Self::Missing => f.write_str("there was no lease"),
            Self::OwnLease => f.write_str("the lease was still held by this process"),
            Self::Deleted => f.write_str("the lease had been deleted"),
            Self::Expired { last_error: None } => f.write_str("the lease was not renewed before its end"),
            Self::Expired { last_error: Some(e) } => write!(f, "the lease was not renewed before its end: {e}"),
            Self::TakenBy { holder } => write!(f, "the lease is held by {}", name(holder)),
            Self::Outranked { seen } => write!(f, "an object carries term {}", seen.0),
            Self::Stopping => f.write_str("the process stops"),
        }
    }
}

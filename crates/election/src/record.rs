//! The lease record as a value, and the seam to where it is kept.

use crate::{clock::WallTime, outcome::Transition, role::Term};
use std::{fmt, future::Future, sync::Arc, time::Duration};

/// What a lease says. The fields are those of `coordination.k8s.io/v1` `LeaseSpec`, as client-go reads and writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `holderIdentity`; `None` also for an empty one: the lease is free.
    pub holder: Option<Arc<str>>,
    /// `leaseTransitions`: the term of the holder's leadership.
    pub term: Term,
    /// `leaseDurationSeconds`: how long the holder asks others to wait.
    pub duration: Duration,
    /// `acquireTime`: when the holder's leadership began. A held record without one is a placeholder: it keeps the place of
    /// a Lease that was missing, and nobody leads by it.
    pub acquired: Option<WallTime>,
    /// `renewTime`: tells one attempt of the holder from another. Never compared with a clock.
    pub renewed: Option<WallTime>,
}

/// Who a process is in the election: `<name>_<uuid>`, another one at every start, so that a restarted process does not take
/// itself for the holder of its predecessor's lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(Arc<str>);

/// An identity cannot be made of an empty name; there is no default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election needs an identity: the pod's name is empty (is POD_NAME set?)")]
pub struct MissingIdentity;

/// Why a call to the lease store failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The stored record is no longer the one that was to be replaced.
    #[error("the lease has been changed or deleted by another")]
    Conflict,
    /// No answer, or one that says "later": connection errors, time-outs, 429, 5xx. The call may have had its effect.
    #[error("no answer from the API server: {0}")]
    Unavailable(Arc<str>),
    /// An answer that says no: not authorised, forbidden, no such namespace, invalid. The call had no effect.
    #[error("refused by the API server: {0}")]
    Refused(Arc<str>),
}

/// Where the lease is kept: all that an elector needs of the outside.
///
/// Both calls must be linearisable, and `store` atomic: it replaces exactly the version given, or creates if none is given
/// and none is there, and reports [`StoreError::Conflict`] otherwise.
pub trait LeaseStore: Send + Sync + 'static {
    /// Names one stored state of the lease.
    type Version: Clone + fmt::Debug + Send + Sync + 'static;

    /// The record as it is now; `None` if there is no lease.
    fn load(&self) -> impl Future<Output = Result<Option<(Record, Self::Version)>, StoreError>> + Send;

    /// Replaces the state `over`, or creates the lease if `over` is `None`.
    fn store(
        &self,
        record: Record,
        over: Option<Self::Version>,
    ) -> impl Future<Output = Result<Self::Version, StoreError>> + Send;

    /// Resolves when the lease seems to be free (released or deleted) since the last call. A hint: it may be missed, or come for
    /// nothing. Polled only while following, and may be dropped and called again. By default it never comes.
    fn vacated(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Tells of a transition, as a Kubernetes Event for example. Must not block. By default nothing is told.
    fn announce(&self, transition: &Transition) {
        let _ = transition;
    }

    /// Waits a short while for what was announced to be delivered, before the process ends.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

// === impl Record ===

impl Record {
    /// Whether it keeps the place of a missing lease while nobody leads.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.holder.is_some() && self.acquired.is_none()
    }
}

// === impl Identity ===

impl Identity {
    /// `<name>_<random uuid>`; the name is usually the pod's.
    ///
    /// # Errors
    /// [`MissingIdentity`] if the name is empty.
    pub fn unique(name: &str) -> Result<Self, MissingIdentity> {
        Self::with_suffix(name, &uuid::Uuid::new_v4().to_string())
    }

    /// `<name>_<suffix>`, for tests. The suffix must differ for each start of a process.
    ///
    /// # Errors
    /// [`MissingIdentity`] if the name is empty.
    pub fn with_suffix(name: &str, suffix: &str) -> Result<Self, MissingIdentity> {
        if name.trim().is_empty() {
            return Err(MissingIdentity);
        }
        Ok(Self(format!("{name}_{suffix}").into()))
    }

    /// The identity as it stands in the record.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

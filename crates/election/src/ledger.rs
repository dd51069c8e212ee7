//! Which writes of a leadership are under way, and when one last went without an answer.

use crate::clock::{Clock, Moment};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Book of one leadership's writes.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    in_flight: AtomicU64,
    unanswered: AtomicU64,
    /// Nanoseconds of the last moment at which a write was given up without an answer; zero: never.
    given_up: AtomicU64,
    settled: Notify,
}

/// One write under way. Dropped without [`answered`](Self::answered) it counts as unanswered: it may still happen.
#[derive(Debug)]
pub(crate) struct Flight<'l> {
    ledger: &'l Ledger,
    clock: &'l Clock,
    answered: bool,
}

impl Ledger {
    pub(crate) fn begin<'l>(&'l self, clock: &'l Clock) -> Flight<'l> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        Flight { ledger: self, clock, answered: false }
    }

    /// Writes under way.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Writes that were given up without an answer.
    pub(crate) fn unanswered(&self) -> u64 {
        self.unanswered.load(Ordering::SeqCst)
    }

    /// When a write was last given up without an answer.
    pub(crate) fn last_given_up(&self) -> Option<Moment> {
        Some(self.given_up.load(Ordering::SeqCst)).filter(|n| *n > 0).map(Moment::from_nanos)
    }

    /// Resolves when no write is under way.
    pub(crate) async fn settled(&self) {
        loop {
            let settled = self.settled.notified();
            if self.in_flight() == 0 {
                return;
            }
            settled.await;
        }
    }
}

impl Flight<'_> {
    /// The other side answered: what it will have done is done.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.ledger.unanswered.fetch_add(1, Ordering::SeqCst);
            self.ledger.given_up.fetch_max(self.clock.now().as_nanos().max(1), Ordering::SeqCst);
        }
        if self.ledger.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ledger.settled.notify_waiters();
        }
    }
}

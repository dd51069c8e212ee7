//! An elector on a thread and a runtime of its own: nothing else that the process does can delay it.

use crate::{
    elector::{Elector, Stopper},
    outcome::Outcome,
    record::LeaseStore,
};
use std::{io, thread::JoinHandle};
use tokio::sync::oneshot;

/// A running elector thread.
#[derive(Debug)]
pub struct ElectorThread {
    stopper: Stopper,
    outcome: oneshot::Receiver<Outcome>,
    known: Option<Result<Outcome, ElectorDied>>,
    thread: Option<JoinHandle<()>>,
}

/// The elector's thread ended without an outcome: it panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the elector's thread died")]
pub struct ElectorDied;

// === impl ElectorThread ===

impl<S: LeaseStore> Elector<S> {
    /// Runs on a new thread with its own single-threaded runtime.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be made.
    pub fn spawn_thread(self) -> io::Result<ElectorThread> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stopper = self.stopper();
        let (tx, outcome) = oneshot::channel();
        let thread = std::thread::Builder::new().name("elector".to_owned()).spawn(move || {
            let outcome = runtime.block_on(self.run());
            // Connections in their last moments do not hold up the outcome.
            runtime.shutdown_background();
            let _ = tx.send(outcome); // nobody waits for it any more: nothing to tell
        })?;
        Ok(ElectorThread { stopper, outcome, known: None, thread: Some(thread) })
    }
}

impl ElectorThread {
    /// The handle that stops the elector.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Waits until the election ends by itself or by a [`Stopper`]. To be watched: an elector that is gone leads no more.
    ///
    /// # Errors
    /// [`ElectorDied`] if the thread panicked.
    pub async fn ended(&mut self) -> Result<Outcome, ElectorDied> {
        if let Some(known) = &self.known {
            return known.clone();
        }
        let outcome = (&mut self.outcome).await.map_err(|_| ElectorDied);
        self.known = Some(outcome.clone());
        if let Some(thread) = self.thread.take() {
            // It has sent its outcome or is unwinding: the join is immediate.
            let _ = thread.join();
        }
        outcome
    }

    /// Stops the elector and waits until the lease is released or left to expire.
    ///
    /// # Errors
    /// [`ElectorDied`] if the thread panicked.
    pub async fn stop(mut self) -> Result<Outcome, ElectorDied> {
        self.stopper.stop();
        self.ended().await
    }
}

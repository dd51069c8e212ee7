//! Writes the state now and then.

use std::{fs::File, future::Future, io, sync::Arc};

use aws_lc_rs::digest::{SHA256, digest};
use tokio::{
    task::spawn_blocking,
    time::{Instant, interval_at, sleep_until},
};
use tracing::{debug, warn};

use super::{INTERVAL, LastGood, Options, QUIET, RETRY, content, file, seal};

/// Why a state was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The file system says no.
    #[error("the folder cannot be written: {0}")]
    Io(#[from] io::Error),
    /// Another process keeps its state there.
    #[error("another process keeps its state in this folder")]
    Taken,
    /// An object has no JSON form.
    #[error("the state cannot be told as JSON: {0}")]
    Content(#[from] serde_json::Error),
    /// No key, or no randomness.
    #[error("the state cannot be sealed: the control plane's certificate has no private key")]
    NoKey(#[from] seal::CannotSeal),
    /// The thread that did it panicked.
    #[error("saving ended unexpectedly")]
    Panicked,
}

/// Writes what a [`Remembering`](super::Remembering) noted.
#[derive(Debug)]
pub struct Saver {
    options: Options,
    state: LastGood,
    lock: Option<Arc<File>>,
    /// Digest of the secret with which the file was sealed.
    sealed_with: Option<Vec<u8>>,
}

// === impl Saver ===

impl Saver {
    pub(super) fn new(options: Options, state: LastGood) -> Self {
        Self { options, state, lock: None, sealed_with: None }
    }

    /// Saves after changes until `stop`, and what is not saved then.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        let mut look = interval_at(Instant::now() + RETRY, RETRY);
        let mut earliest = Instant::now();
        loop {
            let shared = self.state.0.clone();
            tokio::select! {
                () = &mut stop => break,
                () = shared.changed.notified() => {}
                _ = look.tick() => self.look_at_key(),
            }
            if !self.is_due() {
                continue;
            }
            tokio::select! {
                () = &mut stop => break,
                () = sleep_until(earliest.max(Instant::now() + QUIET)) => {}
            }
            let from = Instant::now();
            let saved = self.save().await;
            earliest = from + if saved { INTERVAL } else { RETRY };
        }
        if self.is_due() {
            self.save().await;
        }
    }

    fn is_due(&self) -> bool {
        let table = self.state.table();
        table.live && table.dirty
    }

    /// A renewed certificate has another key: the file has to be sealed again, or it is lost at the next start.
    fn look_at_key(&mut self) {
        let Some(before) = &self.sealed_with else { return };
        if digest(&SHA256, &(self.options.secret)()).as_ref() != before {
            self.state.table().dirty = true;
        }
    }

    /// Saves; tells whether that worked. What failed is due again.
    async fn save(&mut self) -> bool {
        let objects = {
            let mut table = self.state.table();
            table.dirty = false;
            table.objects.clone()
        };
        let (options, lock) = (self.options.clone(), self.lock.clone());
        let now = (self.options.clock)();
        let work = move || {
            let lock = match lock {
                Some(lock) => lock,
                None => Arc::new(file::take(&options.folder)?.ok_or(SaveError::Taken)?),
            };
            let secret = (options.secret)();
            let sealed = seal::seal(&secret, content::encode(&options.controller, now, &objects)?)?;
            file::replace(&options.folder, &sealed)?;
            Ok((lock, sealed.len(), digest(&SHA256, &secret).as_ref().to_vec(), objects.len()))
        };
        let result: Result<_, SaveError> = spawn_blocking(work).await.unwrap_or(Err(SaveError::Panicked));
        let mut figures = self.state.figures_mut();
        match result {
            Ok((lock, bytes, sealed_with, objects)) => {
                self.lock = Some(lock);
                self.sealed_with = Some(sealed_with);
                figures.saves += 1;
                figures.bytes = bytes as u64;
                figures.saved = Some(now);
                figures.last_error = None;
                debug!(objects, bytes, "the state is saved");
                true
            }
            Err(error) => {
                let text = error.to_string();
                figures.save_errors += 1;
                if figures.last_error.as_ref() != Some(&text) {
                    let folder = self.options.folder.display();
                    warn!(%folder, %error, "the state is not saved; a restart while the API server is away would find an older one");
                    figures.last_error = Some(text);
                }
                drop(figures);
                self.state.table().dirty = true;
                false
            }
        }
    }
}

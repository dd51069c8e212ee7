//! The last good state on disk, for a control plane that starts while the API server is away.
//!
//! [`Remembering`] stands between a source and the engine. It notes what it hands on; the [`Saver`] beside it writes that
//! to a folder now and then. When the source has nothing to tell because the API server is away, `Remembering` tells
//! what was saved last, and swaps to the live state, as one batch, when that is there.
//!
//! Contract
//!
//! * Only a state that was synced is saved; a state that was itself read from disk is not written back.
//! * The file is replaced whole (temporary file, fsync, rename; mode 0600) and sealed with a key that is not in the
//!   folder: without it the file tells nothing, names of objects included. See `docs/adr`.
//! * A file that is torn, changed by one bit, of another version, program or controller, or sealed with another key is
//!   refused with the reason ([`Refused`]); nothing of it is used.
//! * Saves are coalesced and off the engine's path: the first [`QUIET`] after a change, never two within [`INTERVAL`].
//! * What was told is said by [`LastGood::origin`]: writers must not start before it was [`Origin::Live`] *and* the engine
//!   has taken that in ([`LastGood::stale_batches`] says how many `Synced` came before the live one).
//!
//! Limits: one process for each folder (an advisory lock sees to it); what proxies refused is not saved, it is found out
//! again.

mod content;
mod file;
mod relay;
mod save;
mod seal;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use resources::{Object, ObjectKey};
use tokio::sync::{Notify, watch};

pub use self::{
    content::Saved,
    file::{FILE, keep, load, recall},
    relay::Remembering,
    save::{SaveError, Saver},
    seal::Refused,
};
use crate::{Source, cluster::ClusterHandle};

/// Quiet time before the first change is saved: what belongs together is saved together.
pub const QUIET: Duration = Duration::from_secs(1);
/// Least time between the beginnings of two saves.
pub const INTERVAL: Duration = Duration::from_secs(5);
/// Time after a failed save before the next try; how often it is seen whether the key is another one.
pub const RETRY: Duration = Duration::from_secs(30);
/// A source that shows signs of life but is not complete is waited for no longer than this.
pub const LONGEST: Duration = Duration::from_secs(60);

/// What the file is sealed with: asked for each time, as it may be renewed while the process runs.
pub type Secret = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// Where and how the state is kept.
#[derive(Clone)]
pub struct Options {
    /// Folder of the file; made (mode 0700) if it is not there.
    pub folder: PathBuf,
    /// Time without a sign of life of the source after which the saved state is told.
    pub after: Duration,
    /// Name of the controller: a state that another one saved is refused.
    pub controller: Arc<str>,
    /// What the key is derived from; must not be empty.
    pub secret: Secret,
    /// Time of day, for people.
    pub clock: fn() -> Timestamp,
}

/// Where what the engine was told comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nothing was told yet.
    Nothing,
    /// The saved state.
    Stale {
        /// When it was saved: it is at least that old.
        since: Timestamp,
    },
    /// The source.
    Live,
}

/// Figures of saving and loading. Counters only rise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Saves that worked.
    pub saves: u64,
    /// Saves that failed.
    pub save_errors: u64,
    /// Why the last save failed; none when it worked.
    pub last_error: Option<String>,
    /// Time of the last save that worked.
    pub saved: Option<Timestamp>,
    /// Bytes of the file written last.
    pub bytes: u64,
    /// Why the file that was there at the start was refused, if so.
    pub refused: Option<String>,
}

/// Looks at the state that is kept. Cloning shares.
#[derive(Clone, Debug)]
pub struct LastGood(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    changed: Notify,
    origin: watch::Sender<Origin>,
    stale_batches: AtomicU64,
    figures: Mutex<Figures>,
}

/// What the source told last, once it was complete.
#[derive(Debug, Default)]
struct Table {
    live: bool,
    dirty: bool,
    objects: BTreeMap<ObjectKey, Object>,
}

/// Puts the memory between a source and the engine. `handle` tells whether the API server shows signs of life.
#[must_use]
pub fn remember<S: Source>(source: S, handle: ClusterHandle, options: Options) -> (Remembering<S>, Saver, LastGood) {
    remember_any(source, move || signs(&handle.figures()), options)
}

/// As [`remember`], for any source; `signs` is a number that is another one when the source has got further.
#[must_use]
pub fn remember_any<S: Source>(
    source: S,
    signs: impl Fn() -> u64 + Send + Sync + 'static,
    options: Options,
) -> (Remembering<S>, Saver, LastGood) {
    let shared = LastGood(Arc::new(Shared {
        table: Mutex::default(),
        changed: Notify::new(),
        origin: watch::Sender::new(Origin::Nothing),
        stale_batches: AtomicU64::new(0),
        figures: Mutex::default(),
    }));
    let remembering = Remembering::new(source, Box::new(signs), options.clone(), shared.clone());
    (remembering, Saver::new(options, shared.clone()), shared)
}

/// Whatever the API server answered.
fn signs(figures: &crate::cluster::Figures) -> u64 {
    let kinds = figures.kinds.values().map(|k| k.lists + k.events + k.fetched).sum::<u64>();
    kinds + (figures.kinds.len() + figures.absent.len()) as u64
}

// === impl LastGood ===

impl LastGood {
    /// Where what the engine was told comes from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        *self.0.origin.borrow()
    }

    /// Number of `Synced` that were told before the live one: 0 or 1. It is decided before either is told.
    #[must_use]
    pub fn stale_batches(&self) -> u64 {
        self.0.stale_batches.load(Ordering::Acquire)
    }

    /// Figures now.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.figures_mut().clone()
    }

    fn figures_mut(&self) -> MutexGuard<'_, Figures> {
        self.0.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("folder", &self.folder)
            .field("after", &self.after)
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}

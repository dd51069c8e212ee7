//! Files that are watched.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admission::Admission;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use resources::Change;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tracing::{info, warn};

use crate::{Files, Problem, Source};

/// Quiet time after an event before the files are read: an editor's burst of events is one change.
const SETTLE: Duration = Duration::from_millis(30);
/// Longest wait under steady events.
const SETTLE_MAX: Duration = Duration::from_millis(300);
/// Second look at a file that was emptied or is half-written.
const SECOND_LOOK: Duration = Duration::from_millis(500);
/// Look without any event: for file systems that tell none.
const RESCAN: Duration = Duration::from_secs(10);

/// What is wrong with the files now; empty when all is well.
pub type Problems = watch::Receiver<Arc<Vec<Problem>>>;

/// Watches files and folders.
#[derive(Debug)]
pub struct FileSource {
    files: Files,
    problems: watch::Sender<Arc<Vec<Problem>>>,
}

// === impl FileSource ===

impl FileSource {
    /// Watches the paths; the second value tells what is wrong with them.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>, admission: Arc<Admission>) -> (Self, Problems) {
        let (problems, receiver) = watch::channel(Arc::default());
        (Self { files: Files::new(paths, admission), problems }, receiver)
    }

    /// Looks at the files off the async threads; `None` if that look panicked, which ends the source.
    async fn look(mut files: Files) -> Option<(Files, crate::Scan)> {
        tokio::task::spawn_blocking(move || {
            let scan = files.scan();
            (files, scan)
        })
        .await
        .ok()
    }
}

impl Source for FileSource {
    async fn run(self, out: mpsc::Sender<Vec<Change>>) {
        let Self { mut files, problems } = self;
        let (events_tx, mut events) = mpsc::channel::<()>(1);
        let watcher = watch_paths(files.paths(), events_tx);
        let mut synced = false;
        loop {
            let Some((back, mut scan)) = Self::look(files).await else {
                warn!("reading the resource files ended unexpectedly");
                return;
            };
            files = back;
            report(&problems, scan.problems);
            if !synced {
                scan.changes.push(Change::Synced);
                synced = true;
            }
            if !scan.changes.is_empty() && out.send(scan.changes).await.is_err() {
                return;
            }
            let pause = if scan.unsettled { SECOND_LOOK } else { RESCAN };
            tokio::select! {
                () = out.closed() => return,
                () = sleep(pause) => {}
                event = events.recv() => {
                    if event.is_none() {
                        // No watcher: only the regular look is left.
                        sleep(RESCAN.min(Duration::from_secs(1))).await;
                    } else {
                        settle(&mut events).await;
                    }
                }
            }
            // Kept to the end of the loop: dropping it ends the events.
            let _ = &watcher;
        }
    }
}

/// Waits until no event came for a moment.
async fn settle(events: &mut mpsc::Receiver<()>) {
    let latest = Instant::now() + SETTLE_MAX;
    loop {
        let quiet = (Instant::now() + SETTLE).min(latest);
        tokio::select! {
            () = sleep_until(quiet) => return,
            event = events.recv() => if event.is_none() { return },
        }
    }
}

fn report(sender: &watch::Sender<Arc<Vec<Problem>>>, now: Vec<Problem>) {
    let before = sender.borrow().clone();
    for p in now.iter().filter(|p| !before.contains(p)) {
        warn!(file = %p.file.display(), line = p.line, object = p.object.as_deref().unwrap_or(""), field = p.field.as_deref().unwrap_or(""), "{p}");
    }
    if !before.is_empty() && now.is_empty() {
        info!("all resource files are good again");
    }
    if *before != now {
        sender.send_replace(Arc::new(now));
    }
}

fn watch_paths(paths: &[PathBuf], events: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Reading a file is no change; a full channel already holds a wake-up.
        if !matches!(event, Ok(e) if e.kind.is_access()) {
            let _ = events.try_send(());
        }
    });
    let mut watcher = match watcher {
        Ok(w) => w,
        Err(e) => {
            warn!(error = %e, "files cannot be watched; they are looked at every {} s", RESCAN.as_secs());
            return None;
        }
    };
    for path in paths {
        // A file is watched through its folder: editors replace files rather than write them.
        let (target, mode) = if path.is_dir() {
            (path.as_path(), RecursiveMode::Recursive)
        } else {
            (path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")), RecursiveMode::NonRecursive)
        };
        if let Err(e) = watcher.watch(target, mode) {
            warn!(path = %path.display(), error = %e, "cannot be watched; it is looked at every {} s", RESCAN.as_secs());
        }
    }
    Some(watcher)
}

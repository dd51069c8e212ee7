//! Hot reload: the file is watched; each change that can be used is handed out, any other is reported.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use api::config::EnvoyGateway;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::SettingsError;
use crate::{Loaded, parse};

/// Editors and kubelet write in several steps: a change counts when nothing more has come for so long.
const QUIET: Duration = Duration::from_millis(100);
/// The file is looked at this often in any case, as some file systems report no changes.
const RESCAN: Duration = Duration::from_secs(10);

/// A change of the file.
#[derive(Debug)]
pub enum Reload {
    /// It can be used and differs from what was in use.
    Changed(Box<Loaded>),
    /// It cannot be used; what was in use stays so.
    Refused(SettingsError),
}

/// A watched file. Watching ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    env: Vec<(String, String)>,
    current: EnvoyGateway,
    /// What was last looked at: the text, or that there was none.
    seen: Option<Result<String, std::io::ErrorKind>>,
    watcher: RecommendedWatcher,
    watched: BTreeSet<PathBuf>,
    events: mpsc::Receiver<()>,
}

/// Watches `path`, which gave `current` together with the variables `env`. A change between that reading and this call
/// is not lost.
///
/// # Errors
/// [`SettingsError::Watch`] when the system refuses to watch.
pub fn watch(
    path: &Path,
    env: impl IntoIterator<Item = (String, String)>,
    current: EnvoyGateway,
) -> Result<Watch, SettingsError> {
    let (signal, events) = mpsc::channel(1);
    let failed = |source| SettingsError::Watch { file: path.to_owned(), source };
    let handler = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| event.kind.is_access()) {
            return;
        }
        // Full means that a look is due already.
        let _ = signal.try_send(());
    };
    let watcher = notify::recommended_watcher(handler).map_err(failed)?;
    let env = env.into_iter().collect();
    let mut watch =
        Watch { path: path.to_owned(), env, current, seen: None, watcher, watched: BTreeSet::new(), events };
    watch.follow().map_err(failed)?;
    Ok(watch)
}

impl Watch {
    /// The next change. Changes that leave the configuration as it is (comments, order) are passed over; so is the same
    /// mistake seen again. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Reload {
        loop {
            if self.seen.is_some() {
                // A closed channel cannot be: the watcher, which holds its other end, is ours.
                let _ = timeout(RESCAN, self.events.recv()).await;
                while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {}
            }
            if let Some(reload) = self.look() {
                return reload;
            }
        }
    }

    /// The next change that can be used; others are logged and passed over.
    pub async fn changed(&mut self) -> Loaded {
        loop {
            match self.next().await {
                Reload::Changed(loaded) => return *loaded,
                Reload::Refused(error) => {
                    tracing::error!(%error, "the changed configuration is refused; the one in use stays");
                }
            }
        }
    }

    fn look(&mut self) -> Option<Reload> {
        if let Err(error) = self.follow() {
            tracing::warn!(%error, path = %self.path.display(), "changes are seen only every few seconds");
        }
        let read = std::fs::read_to_string(&self.path);
        let seen = read.as_ref().map(String::clone).map_err(std::io::Error::kind);
        if self.seen.as_ref() == Some(&seen) {
            return None;
        }
        self.seen = Some(seen);
        let parsed = match read {
            Ok(text) => parse(&text, &self.path.display().to_string(), self.env.iter().cloned()),
            Err(source) => Err(SettingsError::Read { file: self.path.clone(), source }),
        };
        match parsed {
            Err(error) => Some(Reload::Refused(error)),
            Ok(loaded) if loaded.config == self.current => None,
            Ok(loaded) => {
                self.current = loaded.config.clone();
                Some(Reload::Changed(Box::new(loaded)))
            }
        }
    }

    /// Watches the folder of the file and, through links, that of the real one: a ConfigMap's file is a link into a
    /// folder that is replaced as a whole.
    fn follow(&mut self) -> Result<(), notify::Error> {
        let real = std::fs::canonicalize(&self.path).ok();
        let folders: BTreeSet<PathBuf> = [Some(self.path.as_path()), real.as_deref()]
            .into_iter()
            .flatten()
            .filter_map(Path::parent)
            .map(|folder| if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder.to_owned() })
            .collect();
        for gone in self.watched.difference(&folders) {
            // It fails when the folder is gone, and then nothing is left to do.
            let _ = self.watcher.unwatch(gone);
        }
        self.watched.retain(|folder| folders.contains(folder));
        for new in folders {
            if !self.watched.contains(&new) {
                self.watcher.watch(&new, RecursiveMode::NonRecursive)?;
                self.watched.insert(new);
            }
        }
        Ok(())
    }
}

//! The writer behind the gate, and the task that keeps one supervisor for each wanted proxy.

use crate::local::directories::{self, Files, Lock};
use crate::local::process::Spawner;
use crate::local::proxy::{Options, Proxy};
use crate::local::status::Status;
use crate::local::supervisor::Supervisor;
use election::{Permit, WriteError};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

type Table = BTreeMap<String, Arc<Proxy>>;

/// Takes wanted proxies from the gate. See the [module](crate::local).
#[derive(Debug)]
pub struct Local {
    table: watch::Sender<Table>,
    statuses: watch::Receiver<BTreeMap<String, Status>>,
}

/// Runs the wanted proxies. See the [module](crate::local).
#[derive(Debug)]
pub struct Runner {
    table: watch::Receiver<Table>,
    statuses: watch::Sender<BTreeMap<String, Status>>,
    options: Arc<Options>,
    spawner: Spawner,
    _lock: Lock,
}

/// The [`Runner`] has ended: nobody runs proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the task that runs the proxies has ended")]
pub struct RunnerGone;

/// A writer for the gate and the task behind it. Must be called within a Tokio runtime.
///
/// # Errors
/// When the directories of `options` cannot be made or are in use by another process.
pub fn new(mut options: Options) -> io::Result<(Local, Runner)> {
    // Envoy gets these in its arguments and must find them from anywhere.
    options.runtime_dir = std::path::absolute(&options.runtime_dir)?;
    options.state_dir = std::path::absolute(&options.state_dir)?;
    let lock = directories::lock(&options.runtime_dir)?;
    let (table, wanted) = watch::channel(Table::new());
    let (report, statuses) = watch::channel(BTreeMap::new());
    let runner =
        Runner { table: wanted, statuses: report, options: Arc::new(options), spawner: Spawner::new()?, _lock: lock };
    Ok((Local { table, statuses }, runner))
}

// === impl Local ===

impl Local {
    /// How all proxies are, as it changes.
    #[must_use]
    pub fn statuses(&self) -> watch::Receiver<BTreeMap<String, Status>> {
        self.statuses.clone()
    }
}

impl reconcile::Sync for Local {
    type Key = String;
    type Value = Proxy;
    type Error = RunnerGone;

    /// Hands over the latest wanted value. Processes are this host's alone, so nothing is compared with what others
    /// wrote, and starting, replacing and draining go on after this has returned.
    async fn sync(&self, permit: Permit<'_>, key: &String, want: Option<&Proxy>) -> Result<(), WriteError<RunnerGone>> {
        permit
            .run(async {
                if self.table.is_closed() {
                    return Err(RunnerGone);
                }
                self.table.send_if_modified(|table| match want {
                    Some(proxy) if table.get(key).is_some_and(|old| **old == *proxy) => false,
                    Some(proxy) => {
                        table.insert(key.clone(), Arc::new(proxy.clone()));
                        true
                    }
                    None => table.remove(key).is_some(),
                });
                Ok(())
            })
            .await
    }
}

// === impl Runner ===

impl Runner {
    /// Runs what is wanted until `stop` resolves; then every proxy is drained, and this returns when the last process
    /// is gone. Dropping it kills them all at once.
    ///
    /// # Panics
    /// When a supervisor has panicked: proxies that nobody supervises are not left running.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = std::pin::pin!(stop);
        let mut tasks: JoinSet<String> = JoinSet::new();
        let mut live: BTreeMap<String, watch::Sender<Option<Arc<Proxy>>>> = BTreeMap::new();
        let mut open = true;
        loop {
            let table = self.table.borrow_and_update().clone();
            self.align(&table, &mut live, &mut tasks);
            tokio::select! {
                () = &mut stop => break,
                changed = self.table.changed(), if open => open = changed.is_ok(),
                Some(ended) = tasks.join_next() => {
                    live.remove(&ended_key(ended));
                }
            }
        }
        for wanted in live.values() {
            wanted.send_replace(None);
        }
        while let Some(ended) = tasks.join_next().await {
            ended_key(ended);
        }
    }

    /// Gives every supervisor its latest wanted value, and a supervisor to every key that has none.
    fn align(
        &self,
        table: &Table,
        live: &mut BTreeMap<String, watch::Sender<Option<Arc<Proxy>>>>,
        tasks: &mut JoinSet<String>,
    ) {
        for (key, proxy) in table {
            if let Some(wanted) = live.get(key) {
                wanted.send_if_modified(|old| {
                    let changed = old.as_ref() != Some(proxy);
                    *old = Some(Arc::clone(proxy));
                    changed
                });
                continue;
            }
            let files = match Files::new(&self.options, key) {
                Ok(files) => files,
                Err(error) => {
                    // Tried again at the next change; told until then.
                    tracing::error!(proxy = key, %error, "cannot run this proxy");
                    let status = Status { problem: Some(error.to_string()), ..Status::default() };
                    self.statuses.send_modify(|all| drop(all.insert(key.clone(), status)));
                    continue;
                }
            };
            let (sender, wanted) = watch::channel(Some(Arc::clone(proxy)));
            let supervisor = Supervisor::new(
                key.clone(),
                wanted,
                Arc::clone(&self.options),
                self.spawner.clone(),
                files,
                self.statuses.clone(),
            );
            live.insert(key.clone(), sender);
            let key = key.clone();
            tasks.spawn(async move {
                supervisor.run().await;
                key
            });
        }
        for (key, wanted) in live.iter().filter(|(key, _)| !table.contains_key(*key)) {
            tracing::debug!(proxy = key, "no longer wanted");
            wanted.send_if_modified(|old| old.take().is_some());
        }
    }
}

fn ended_key(ended: Result<String, JoinError>) -> String {
    match ended {
        Ok(key) => key,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(error) => panic!("a proxy's supervisor was cancelled: {error}"),
        },
    }
}

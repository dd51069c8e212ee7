//! What the tests of local proxies share.

#![allow(dead_code, reason = "each test program uses its part")]

use infra::local::{self, Launcher, Options, Proxy, Status};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// No wait in a test may take longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The proxy of tests that have one.
pub(crate) const KEY: &str = "default/web";

/// Waits for `what`, but not for ever.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// Local proxies behind a gate that always leads.
pub(crate) struct Fixture {
    pub(crate) wanted: reconcile::Wanted<String, Proxy>,
    pub(crate) statuses: watch::Receiver<BTreeMap<String, Status>>,
    pub(crate) options: Options,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<&'static str>,
}

/// Options with directories below `dir`, processes tied to the test, and short delays.
pub(crate) fn options(dir: &Path, envoy: &Path) -> Options {
    let mut options = Options::new(envoy, dir.join("state"), dir.join("run"));
    options.launcher = Launcher::Bound(env!("CARGO_BIN_EXE_infra-launcher").into());
    options.backoff.first = Duration::from_millis(20);
    options.backoff.cap = Duration::from_millis(200);
    options
}

impl Fixture {
    pub(crate) fn new(options: Options) -> Self {
        let (local, runner) = local::new(options.clone()).unwrap();
        let wanted = reconcile::Wanted::new();
        let statuses = local.statuses();
        let roles = election::RoleWatch::always_leader();
        let gate = reconcile::Gated::new(local, wanted.clone(), roles, reconcile::Backoff::default());
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            gate.run(std::future::pending()).await;
            "gate"
        });
        tasks.spawn(async move {
            runner.run(async { drop(stopped.await) }).await;
            "runner"
        });
        Self { wanted, statuses, options, stop: Some(stop), tasks }
    }

    pub(crate) fn want(&self, key: &str, proxy: Proxy) {
        self.wanted.publish([(key.to_owned(), Some(proxy))]);
    }

    pub(crate) fn want_gone(&self, key: &str) {
        self.wanted.publish([(key.to_owned(), None)]);
    }

    /// Waits until the status of `key` is as `wish` wants it.
    pub(crate) async fn until(&mut self, key: &str, what: &str, wish: impl Fn(&Status) -> bool) -> Status {
        let mut statuses = self.statuses.clone();
        let found = statuses.wait_for(|all| all.get(key).is_some_and(&wish));
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(all) => all.unwrap()[key].clone(),
            Err(_) => panic!("waited too long for {what}: {:#?}", self.statuses.borrow()),
        }
    }

    /// Waits until `key` is gone.
    pub(crate) async fn gone(&mut self, key: &str) {
        within("the proxy to be gone", self.statuses.wait_for(|all| !all.contains_key(key))).await.unwrap();
    }

    /// Tells the runner to stop.
    pub(crate) fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the runner's end.
    pub(crate) async fn stopped(&mut self) {
        let ended = within("the runner to end", self.tasks.join_next()).await.unwrap().unwrap();
        assert_eq!(ended, "runner");
    }

    pub(crate) async fn stop(&mut self) {
        self.begin_stop();
        self.stopped().await;
    }
}

/// Whether a process is there (and not only waiting to be collected).
pub(crate) fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X'])))
}

pub(crate) fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}

//! One Envoy process of a proxy: what is known of it, when it is ready, how it leaves.

use crate::local::admin::AdminAddress;
use crate::local::directories::ProcessFiles;
use crate::local::process::{Exit, Process};
use crate::local::proxy::Proxy;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Between looks at a process that is starting, or at the connections of one that drains: other processes tell nothing
/// by themselves.
const LOOK: Duration = Duration::from_millis(25);

/// One Envoy process.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) process: Process,
    pub(super) proxy: Arc<Proxy>,
    pub(super) files: ProcessFiles,
    /// The file that holds the base id; hot restarts share it.
    pub(super) base_id: PathBuf,
    pub(super) epoch: u32,
    pub(super) log_from: u64,
    pub(super) started: Instant,
    pub(super) admin: Option<AdminAddress>,
    pub(super) ready: Option<Instant>,
    /// For one that leaves: when it is ended.
    pub(super) leave_by: Instant,
}

pub(super) async fn ended(generation: &mut Option<Generation>) -> Exit {
    match generation {
        Some(generation) => generation.process.wait().await,
        None => std::future::pending().await,
    }
}

/// Waits until the process that writes its admin address to `path` is ready.
pub(super) async fn ready(path: Option<PathBuf>) -> AdminAddress {
    let Some(path) = path else { return std::future::pending().await };
    loop {
        if let Some(admin) = AdminAddress::read(&path)
            && admin.ready().await
        {
            return admin;
        }
        tokio::time::sleep(LOOK).await;
    }
}

pub(super) fn read_base_id(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Goes on draining a process that was being drained when its proxy was wanted again.
pub(super) async fn drain_old(old: &mut Option<Generation>, key: &str) {
    if let Some(old) = old.as_mut() {
        drain(old, Duration::ZERO, key).await;
    }
}

/// Asks clients to leave and waits until they have, but `least`, and until `leave_by` at the latest, or the process is
/// gone. Does nothing for a process without an admin interface.
pub(super) async fn drain(leaving: &mut Generation, least: Duration, key: &str) {
    // One that was not yet seen to be ready may answer requests all the same.
    let unseen = || leaving.ready.is_none().then(|| AdminAddress::read(&leaving.files.admin_address)).flatten();
    let Some(admin) = leaving.admin.clone().or_else(unseen) else { return };
    let drain = leaving.proxy.drain;
    let deadline = leaving.leave_by;
    let began = Instant::now();
    let asked = async {
        admin.fail_health_checks().await?;
        admin.drain_listeners().await
    };
    if let Err(error) = asked.await {
        tracing::warn!(proxy = key, %error, "proxy cannot be drained");
        return;
    }
    let left = async {
        let mut last = None;
        loop {
            match admin.connections().await {
                Ok(open) if open <= drain.exit_at_connections && began.elapsed() >= least => return,
                Ok(open) => {
                    if last != Some(open) {
                        tracing::debug!(proxy = key, open, "draining");
                        last = Some(open);
                    }
                }
                Err(error) => tracing::debug!(proxy = key, %error, "connections not known"),
            }
            tokio::time::sleep(LOOK * 4).await;
        }
    };
    tokio::select! {
        () = left => {}
        exit = leaving.process.wait() => tracing::debug!(proxy = key, %exit, "ended while draining"),
        () = tokio::time::sleep_until(deadline) => {
            tracing::warn!(proxy = key, after = ?drain.timeout, "connections are still open, ending the proxy all the same");
        }
    }
}

//! What is wanted: a proxy, and how proxies are run here.

use crate::local::{Backoff, Launcher};
use bytes::Bytes;
use std::path::PathBuf;
use std::time::Duration;

/// A wanted proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The bootstrap as YAML or JSON. Its admin port may be 0: see [`Status::admin`](crate::local::Status::admin).
    pub bootstrap: Bytes,
    /// `--service-cluster`: the node group for xDS. Default: what the bootstrap says.
    pub service_cluster: Option<String>,
    /// `--service-node`: the node id for xDS. Default: what the bootstrap says.
    pub service_node: Option<String>,
    /// `--log-level`. Default `warn`.
    pub log_level: String,
    /// `--component-log-level`, such as `upstream:debug`. Default: none.
    pub component_log_level: Option<String>,
    /// `--concurrency`: worker threads. Default: one for each CPU of this process's set.
    pub concurrency: Option<u32>,
    /// More arguments, after ours.
    pub extra_args: Vec<String>,
    /// How it leaves.
    pub drain: Drain,
}

impl Proxy {
    /// A proxy with this bootstrap and the defaults.
    #[must_use]
    pub fn new(bootstrap: impl Into<Bytes>) -> Self {
        Self {
            bootstrap: bootstrap.into(),
            service_cluster: None,
            service_node: None,
            log_level: "warn".to_owned(),
            component_log_level: None,
            concurrency: None,
            extra_args: Vec::new(),
            drain: Drain::default(),
        }
    }

    /// Whether a process started for `self` also serves `other`: they differ at most in how it leaves.
    pub(super) fn same_process(&self, other: &Self) -> bool {
        // The drain time is also an argument of the process.
        self.drain.timeout == other.drain.timeout && Self { drain: other.drain, ..self.clone() } == *other
    }

    /// The arguments that do not depend on the place in a series of hot restarts.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--log-level".to_owned(), self.log_level.clone()];
        let mut option = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                arguments.extend([name.to_owned(), value.clone()]);
            }
        };
        option("--component-log-level", &self.component_log_level);
        option("--service-cluster", &self.service_cluster);
        option("--service-node", &self.service_node);
        match self.concurrency {
            Some(workers) => arguments.extend(["--concurrency".to_owned(), workers.to_string()]),
            None => arguments.push("--cpuset-threads".to_owned()),
        }
        let drain = self.drain.timeout.as_secs().max(1);
        arguments.extend([
            "--drain-strategy".to_owned(),
            "immediate".to_owned(),
            "--drain-time-s".to_owned(),
            drain.to_string(),
            "--parent-shutdown-time-s".to_owned(),
            (drain + PARENT_EXTRA.as_secs()).to_string(),
        ]);
        arguments.extend(self.extra_args.iter().cloned());
        arguments
    }
}

/// A replaced process lives this much longer than its drain time.
pub(super) const PARENT_EXTRA: Duration = Duration::from_secs(1);

/// How a proxy leaves, when it is stopped or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The longest time that open connections are given, in whole seconds. Default 60 s.
    pub timeout: Duration,
    /// The shortest time between failing health checks and the end, for load balancers to notice. Default 0.
    pub min: Duration,
    /// Draining is over when no more than this many connections are open. Default 0.
    pub exit_at_connections: u64,
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), min: Duration::ZERO, exit_at_connections: 0 }
    }
}

/// How proxies are run on this host.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Envoy executable.
    pub envoy: PathBuf,
    /// Where logs go: `<state_dir>/<proxy>/{envoy,access}.log`.
    pub state_dir: PathBuf,
    /// Where bootstraps and other files of running processes go. Used by one process at a time: it is locked.
    pub runtime_dir: PathBuf,
    /// How processes are started. Default: tied to this one, through this executable.
    pub launcher: Launcher,
    /// Delays between restarts.
    pub backoff: Backoff,
    /// Size in bytes at which a log file is moved aside. Default 64 MiB.
    pub log_limit: u64,
    /// Time between SIGTERM and SIGKILL. Default 5 s.
    pub kill_after: Duration,
    /// How long a replacement may take to become ready before it is given up and tried again. The running proxy serves
    /// meanwhile. Default 60 s.
    pub replace_timeout: Duration,
}

impl Options {
    /// Options with the defaults.
    #[must_use]
    pub fn new(envoy: impl Into<PathBuf>, state_dir: impl Into<PathBuf>, runtime_dir: impl Into<PathBuf>) -> Self {
        Self {
            envoy: envoy.into(),
            state_dir: state_dir.into(),
            runtime_dir: runtime_dir.into(),
            launcher: Launcher::this_executable(),
            backoff: Backoff::default(),
            log_limit: 64 * 1024 * 1024,
            kill_after: Duration::from_secs(5),
            replace_timeout: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_envoys() {
        let mut proxy = Proxy::new("{}");
        proxy.service_cluster = Some("default/web".to_owned());
        proxy.service_node = Some("node-1".to_owned());
        proxy.concurrency = Some(2);
        proxy.extra_args = vec!["--stats-tag".to_owned(), "a:b".to_owned()];
        assert_eq!(
            proxy.arguments().join(" "),
            "--log-level warn --service-cluster default/web --service-node node-1 --concurrency 2 \
             --drain-strategy immediate --drain-time-s 60 --parent-shutdown-time-s 61 --stats-tag a:b"
        );
        assert!(Proxy::new("{}").arguments().contains(&"--cpuset-threads".to_owned()));
    }

    #[test]
    fn only_what_a_process_was_started_with_needs_another_process() {
        let one = Proxy::new("{}");
        let mut leaves = one.clone();
        leaves.drain.min = Duration::from_secs(1);
        leaves.drain.exit_at_connections = 9;
        assert!(one.same_process(&leaves));
        let changes: [fn(&mut Proxy); 4] = [
            |p| p.bootstrap = "{ }".into(),
            |p| p.log_level = "info".to_owned(),
            |p| p.extra_args.push("x".to_owned()),
            |p| p.drain.timeout = Duration::from_secs(1),
        ];
        for change in changes {
            let mut other = one.clone();
            change(&mut other);
            assert!(!one.same_process(&other));
        }
    }
}

//! Child processes: started on a thread that lives as long as they may, ended with patience, then by force.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt;
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Starts processes. The kernel ties "die with your parent" to the parent's *thread*, so one thread does nothing but
/// start them and lives until the last clone of this value is gone: then all children that are left are killed.
#[derive(Clone, Debug)]
pub(super) struct Spawner {
    orders: mpsc::Sender<Order>,
}

struct Order {
    command: Command,
    answer: oneshot::Sender<io::Result<tokio::process::Child>>,
}

impl Spawner {
    /// Starts the thread. Must be called within a Tokio runtime, which watches the children.
    pub(super) fn new() -> io::Result<Self> {
        let (orders, inbox) = mpsc::channel::<Order>();
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            for Order { command, answer } in inbox {
                let _context = runtime.enter();
                let child = tokio::process::Command::from(command).kill_on_drop(true).spawn();
                // Nobody waits for it any more: dropping it kills it.
                drop(answer.send(child));
            }
        })?;
        Ok(Self { orders })
    }

    /// Starts `command`.
    pub(super) async fn spawn(&self, command: Command) -> io::Result<Process> {
        let (answer, started) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts processes has ended");
        self.orders.send(Order { command, answer }).map_err(|_| gone())?;
        let child = started.await.map_err(|_| gone())??;
        let pid = child.id().ok_or_else(gone)?;
        Ok(Process { child, pid })
    }
}

/// A running child. Killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    child: tokio::process::Child,
    pid: u32,
}

impl Process {
    /// Process id, also after its end.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits for the end; may be cancelled and called again.
    pub(super) async fn wait(&mut self) -> Exit {
        Exit(self.child.wait().await.map_err(|e| e.to_string()))
    }

    /// Asks it to end (SIGTERM), waits for at most `patience`, then kills it.
    pub(super) async fn terminate(&mut self, patience: Duration) -> Exit {
        // `id` is there only while the child has not been waited for: no other process can have taken the number.
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok())
            && let Err(error) = kill(Pid::from_raw(pid), Signal::SIGTERM)
        {
            tracing::debug!(pid, %error, "SIGTERM not delivered");
        }
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                tracing::warn!(pid = self.pid, ?patience, "process does not end, killing it");
                self.kill().await
            }
        }
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub(super) async fn kill(&mut self) -> Exit {
        if let Err(error) = self.child.start_kill() {
            tracing::debug!(pid = self.pid, %error, "SIGKILL not delivered");
        }
        self.wait().await
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Exit(Result<ExitStatus, String>);

impl Exit {
    /// Whether it ended with status 0.
    pub(super) fn success(&self) -> bool {
        self.0.as_ref().is_ok_and(ExitStatus::success)
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use std::os::unix::process::ExitStatusExt;
        match &self.0 {
            Err(why) => write!(f, "ended, but how is unknown: {why}"),
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => write!(f, "exit status {code}"),
                (None, Some(signal)) => match Signal::try_from(signal) {
                    Ok(name) => write!(f, "killed by {name}"),
                    Err(_) => write!(f, "killed by signal {signal}"),
                },
                (None, None) => write!(f, "{status}"),
            },
        }
    }
}

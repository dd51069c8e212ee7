//! Processes of the test: ours and client-go's.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, Command},
    sync::watch,
    task::JoinSet,
    time::timeout,
};

/// One change of role, as the process told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Unix time in microseconds.
    pub at: i64,
    /// `leading`, `following`, `wrote-due` or `ended`.
    pub event: String,
    /// Term or words.
    pub detail: Value,
}

/// A running process; it ends with the test.
#[derive(Debug)]
pub struct Replica {
    /// Name, also that of its user.
    pub name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    told: Arc<Mutex<Vec<Told>>>,
    changed: watch::Receiver<usize>,
    _reader: JoinSet<()>,
}

/// A binary beside this test.
///
/// # Errors
/// When it is not built.
pub fn beside(name: &str) -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    exe.ancestors()
        .map(|d| d.join(name))
        .find(|p| p.is_file())
        .with_context(|| format!("{name} is not built: run `cargo build --workspace` first"))
}

// === impl Replica ===

impl Replica {
    /// Starts one of our replicas.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(name: &str, kubeconfig: &Path, namespace: &str, more: &[&str], log: &Path) -> Result<Self> {
        let mut command = Command::new(beside("replica")?);
        command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", namespace, "--name", name]).args(more);
        Self::spawn(name, command, log)
    }

    /// Starts a candidate that elects with client-go.
    ///
    /// # Errors
    /// When it does not start.
    pub fn client_go(bin: &Path, name: &str, kubeconfig: &Path, namespace: &str, log: &Path) -> Result<Self> {
        let mut command = Command::new(bin);
        command.arg("-kubeconfig").arg(kubeconfig).args(["-namespace", namespace, "-name", "lease", "-identity", name]);
        Self::spawn(name, command, log)
    }

    fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true).spawn()?;
        let out = child.stdout.take().context("stdout")?;
        let stdin = child.stdin.take();
        let told = Arc::new(Mutex::new(Vec::new()));
        let (tx, changed) = watch::channel(0);
        let mut reader = JoinSet::new();
        let list = told.clone();
        reader.spawn(async move {
            let mut lines = BufReader::new(out).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Some(one) = parse(&line) else { continue };
                let mut list = list.lock().unwrap_or_else(PoisonError::into_inner);
                list.push(one);
                tx.send_replace(list.len());
            }
        });
        Ok(Self { name: name.to_owned(), child, stdin, told, changed, _reader: reader })
    }

    /// All that it told so far.
    #[must_use]
    pub fn told(&self) -> Vec<Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It says that it leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.told()
            .iter()
            .rev()
            .find(|t| t.event == "leading" || t.event == "following")
            .is_some_and(|t| t.event == "leading")
    }

    /// Waits until it told what `wanted` accepts.
    ///
    /// # Errors
    /// When it did not within `limit`.
    pub async fn until(&mut self, limit: Duration, wanted: impl Fn(&[Told]) -> bool) -> Result<()> {
        let told = self.told.clone();
        let done = self.changed.wait_for(|_| wanted(&told.lock().unwrap_or_else(PoisonError::into_inner)));
        let done = timeout(limit, done).await.is_ok_and(|r| r.is_ok());
        ensure!(done, "{} did not do it within {limit:?}: {:?}", self.name, self.told());
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().context("the process has ended")?;
        Ok(kill(Pid::from_raw(i32::try_from(pid)?), signal)?)
    }

    /// Writes a line to its standard input.
    ///
    /// # Errors
    /// When it is closed.
    pub async fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("closed")?;
        stdin.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(stdin.flush().await?)
    }

    /// It runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end; returns the exit code.
    ///
    /// # Errors
    /// When it does not end within `limit`.
    pub async fn ended(&mut self, limit: Duration) -> Result<Option<i32>> {
        Ok(timeout(limit, self.child.wait()).await.with_context(|| format!("{} still runs", self.name))??.code())
    }
}

/// Our JSON lines, and client-go's `leading MICROS`.
fn parse(line: &str) -> Option<Told> {
    if let Ok(v) = serde_json::from_str::<Value>(line) {
        return Some(Told {
            at: v["at"].as_i64()?,
            event: v["event"].as_str()?.to_owned(),
            detail: v["detail"].clone(),
        });
    }
    let (event, at) = line.split_once(' ')?;
    Some(Told { at: at.parse().ok()?, event: event.to_owned(), detail: Value::Null })
}

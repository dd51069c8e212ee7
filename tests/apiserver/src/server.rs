//! The real `envoy-gateway server` against an API server.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::OnceLock,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// A control plane as a process; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    scratch: TempDir,
    child: Child,
    args: Vec<String>,
    namespace: String,
    addresses: OnceLock<Value>,
}

/// Memory of a process in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Now.
    pub now: u64,
    /// At most so far.
    pub peak: u64,
}

/// A binary of this workspace, built with the same profile as this test; `BIN_DIR` names another folder.
///
/// # Errors
/// When it is not there.
pub fn workspace_bin(name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("BIN_DIR") {
        return Ok(PathBuf::from(dir).join(name));
    }
    let exe = std::env::current_exe()?;
    let dir = exe.ancestors().find(|d| d.join(name).is_file());
    Ok(dir.with_context(|| format!("{name} is not built: run `cargo build -p {name}` first"))?.join(name))
}

const ADDRESSES: &str = "addresses.json";

/// Starts the program, which ends with this process however that ends.
fn spawn(scratch: &Path, args: &[String], namespace: &str) -> Result<Child> {
    let at = |name: &str| scratch.join(name);
    let log = std::fs::OpenOptions::new().create(true).append(true).open(at("log"))?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(workspace_bin("envoy-gateway")?).arg("server");
    for port in ["--xds-port", "--admin-port", "--metrics-port", "--health-port"] {
        if !args.iter().any(|a| a.starts_with(&format!("{port}="))) {
            command.args([port, "0"]);
        }
    }
    command
        .arg("--config-path")
        .arg(at("config.yaml"))
        .arg("--kubeconfig")
        .arg(at("kubeconfig"))
        .arg("--home")
        .arg(at("home"))
        .arg("--addresses-file")
        .arg(at(ADDRESSES))
        .args(args)
        .env("ENVOY_GATEWAY_NAMESPACE", namespace)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("envoy-gateway does not start")
}

// === impl Server ===

impl Server {
    /// Starts it with a kubeconfig and waits until it is ready.
    ///
    /// # Errors
    /// When it is not ready within 60 s; the end of its log is part of the error.
    pub async fn start(kubeconfig: &str, config: &str) -> Result<Self> {
        Self::start_with(kubeconfig, config, &[]).await
    }

    /// As [`Server::start`], with more arguments.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn start_with(kubeconfig: &str, config: &str, args: &[String]) -> Result<Self> {
        let mut server = Self::launch(kubeconfig, config, args)?;
        server.becomes_ready().await?;
        Ok(server)
    }

    /// Starts it and waits for nothing. `args` come before the ports that are otherwise free ones.
    ///
    /// # Errors
    /// When there is no such program.
    pub fn launch(kubeconfig: &str, config: &str, args: &[String]) -> Result<Self> {
        Self::launch_in("envoy-gateway-system", kubeconfig, config, args)
    }

    /// As [`Server::launch`], as a control plane of that namespace.
    ///
    /// # Errors
    /// As [`Server::launch`].
    pub fn launch_in(namespace: &str, kubeconfig: &str, config: &str, args: &[String]) -> Result<Self> {
        let scratch = TempDir::new()?;
        std::fs::write(scratch.path().join("config.yaml"), config)?;
        std::fs::write(scratch.path().join("kubeconfig"), kubeconfig)?;
        let child = spawn(scratch.path(), args, namespace)?;
        let (args, namespace) = (args.to_owned(), namespace.to_owned());
        Ok(Self { scratch, child, args, namespace, addresses: OnceLock::new() })
    }

    /// Kills it (SIGKILL) and starts it again, with what it left on disk and another kubeconfig.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub async fn kill_and_start(mut self, kubeconfig: &str) -> Result<Self> {
        self.kill().await?;
        std::fs::write(self.scratch.path().join("kubeconfig"), kubeconfig)?;
        self.launch_again()?;
        self.becomes_ready().await?;
        Ok(self)
    }

    /// Kills it (SIGKILL).
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await?;
        Ok(())
    }

    /// Starts the one that was killed again, with what it left on disk; waits for nothing.
    ///
    /// # Errors
    /// When it does not start.
    pub fn launch_again(&mut self) -> Result<()> {
        match std::fs::remove_file(self.scratch.path().join(ADDRESSES)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        self.addresses = OnceLock::new();
        self.child = spawn(self.scratch.path(), &self.args, &self.namespace)?;
        Ok(())
    }

    /// Waits until it is ready.
    ///
    /// # Errors
    /// When it is not within 60 s, or ends.
    pub async fn becomes_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.is_ready().await {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended with {status}: {}", self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("not ready within 60 s: {}", self.log_tail());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// It is ready.
    pub async fn is_ready(&self) -> bool {
        self.get("health", "/readyz").await.is_some_and(|(status, _)| status == 200)
    }

    /// It runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id().context("it has ended")?)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    }

    /// Where it listens, once it has told.
    fn addresses(&self) -> Option<&Value> {
        if self.addresses.get().is_none() {
            let text = std::fs::read_to_string(self.scratch.path().join(ADDRESSES)).ok()?;
            let _ = self.addresses.set(serde_json::from_str(&text).ok()?);
        }
        self.addresses.get()
    }

    /// GET of one of its servers: `health`, `metrics` or `admin`. One that does not answer within 5 s does not answer.
    pub async fn get(&self, server: &str, path: &str) -> Option<(u16, String)> {
        timeout(Duration::from_secs(5), self.get_patiently(server, path)).await.ok()?
    }

    async fn get_patiently(&self, server: &str, path: &str) -> Option<(u16, String)> {
        let address = self.addresses()?.get(server)?.as_str()?.replace("0.0.0.0", "127.0.0.1");
        let mut stream = TcpStream::connect(address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// The value of a metric without labels; 0 where it is not there.
    pub async fn metric(&self, name: &str) -> f64 {
        let Some((_, text)) = self.get("metrics", "/metrics").await else { return 0.0 };
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|v| v.trim().parse().ok()).unwrap_or_default()
    }

    /// Its memory.
    ///
    /// # Errors
    /// When it has ended.
    pub fn memory(&self) -> Result<Memory> {
        let pid = self.child.id().context("it has ended")?;
        let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name));
            line.and_then(|l| l.trim().split(' ').next()?.parse().ok()).context("no such field")
        };
        Ok(Memory { now: field("VmRSS:")?, peak: field("VmHWM:")? })
    }

    /// Seconds of CPU time that it has used so far.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu(&self) -> Result<f64> {
        let pid = self.child.id().context("it has ended")?;
        let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))?;
        // The name of the program may contain anything but ends with the last bracket.
        let (_, fields) = text.rsplit_once(") ").context("fields")?;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u32>).sum::<Result<u32, _>>()?;
        // The kernel tells in units of 10 ms whatever its own tick is.
        Ok(f64::from(ticks) / 100.0)
    }

    /// A page of the admin server.
    ///
    /// # Errors
    /// When it is no JSON.
    pub async fn admin(&self, path: &str) -> Result<Value> {
        let (_, text) = self.get("admin", path).await.context("the admin server does not answer")?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Where it listens for proxies.
    ///
    /// # Errors
    /// When it has not told.
    pub fn xds_port(&self) -> Result<u16> {
        let address = self.addresses().and_then(|a| a["xds"].as_str()).context("an address")?;
        Ok(address.rsplit(':').next().context("a port")?.parse()?)
    }

    /// Folder of the certificates that proxies need.
    #[must_use]
    pub fn certificates(&self) -> PathBuf {
        self.scratch.path().join("home/config/certs/envoy")
    }

    /// Folder of its own certificate, which other replicas share.
    #[must_use]
    pub fn own_certificates(&self) -> PathBuf {
        self.scratch.path().join("home/config/certs/envoy-gateway")
    }

    /// A scratch folder that lives as long as it does.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Sends SIGTERM and waits for the end.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn terminate(mut self) -> Result<ExitStatus> {
        self.end().await
    }

    /// As [`Server::terminate`], of one that may be started again.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn end(&mut self) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        match timeout(Duration::from_secs(30), self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => bail!("it does not end: {}", self.log_tail()),
        }
    }

    /// Its log so far, of all its lives.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = self.log();
        let lines: Vec<_> = text.lines().rev().take(25).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

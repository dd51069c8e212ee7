//! One standalone gateway in a scratch folder.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};

/// A running gateway; it and its proxies end when this is dropped.
#[derive(Debug)]
pub struct Gateway {
    scratch: TempDir,
    child: Child,
    addresses: Value,
    logs: Option<PathBuf>,
}

/// The Envoy binary from `ENVOY_BIN`, or `None` (said on the terminal) where it is not set.
#[must_use]
pub fn envoy_bin() -> Option<PathBuf> {
    match std::env::var_os("ENVOY_BIN") {
        Some(path) => Some(path.into()),
        None => {
            println!("skipped: ENVOY_BIN is not set (tests/tools/envoy.sh prints the path)");
            None
        }
    }
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
    let dir = exe
        .ancestors()
        .find(|d| d.join(name).is_file())
        .with_context(|| format!("{name} is not built: run `cargo build --workspace` first"))?;
    Ok(dir.join(name))
}

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway on these resources: file name and content.
    ///
    /// # Errors
    /// When it does not start or has not translated within 60 s; the end of its log is part of the error.
    pub async fn start(envoy: &Path, resources: &[(&str, &str)]) -> Result<Self> {
        let scratch = TempDir::new()?;
        let dir = scratch.path().join("resources");
        std::fs::create_dir(&dir)?;
        for (name, text) in resources {
            std::fs::write(dir.join(name), text)?;
        }
        let addresses = scratch.path().join("addresses.json");
        let log = std::fs::File::create(scratch.path().join("gateway.log"))?;
        let child = Command::new(workspace_bin("envoy-gateway")?)
            .arg("standalone")
            .arg("--resources")
            .arg(&dir)
            .arg("--envoy-path")
            .arg(envoy)
            .arg("--home")
            .arg(scratch.path().join("home"))
            .args(["--xds-port", "0", "--admin-port", "0", "--metrics-port", "0", "--health-port", "0"])
            .arg("--addresses-file")
            .arg(&addresses)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("envoy-gateway does not start")?;
        let logs = std::env::var_os("TEST_LOGS").map(PathBuf::from);
        let mut gateway = Self { scratch, child, addresses: Value::Null, logs };
        let deadline = Instant::now() + Duration::from_secs(60);
        while gateway.addresses.is_null() {
            if let Ok(text) = std::fs::read_to_string(&addresses) {
                gateway.addresses = serde_json::from_str(&text)?;
                break;
            }
            gateway.check(deadline)?;
            sleep(Duration::from_millis(20)).await;
        }
        while gateway.get("health", "/readyz").await.map_or(0, |(s, _)| s) != 200 {
            gateway.check(deadline)?;
            sleep(Duration::from_millis(20)).await;
        }
        Ok(gateway)
    }

    /// Writes a resource file whole, as an editor that replaces files does.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let tmp = self.scratch.path().join("write.tmp");
        std::fs::write(&tmp, text)?;
        Ok(std::fs::rename(tmp, self.resources().join(name))?)
    }

    /// Removes a resource file.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, name: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.resources().join(name))?)
    }

    /// Folder of the resource files.
    #[must_use]
    pub fn resources(&self) -> PathBuf {
        self.scratch.path().join("resources")
    }

    /// Scratch folder: logs, home, resources.
    #[must_use]
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Process id of the control plane.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Address of one of the servers: `xds`, `admin`, `metrics` or `health`.
    #[must_use]
    pub fn address(&self, server: &str) -> Option<&str> {
        self.addresses.get(server).and_then(Value::as_str)
    }

    /// GET of one of the servers.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn get(&self, server: &str, path: &str) -> Result<(u16, String)> {
        let address = self.address(server).with_context(|| format!("no address of {server}"))?;
        let port: u16 = address.rsplit(':').next().context("port")?.parse()?;
        let answer = crate::client::Request::get(format!("http://127.0.0.1:{port}{path}")).send().await?;
        Ok((answer.status, String::from_utf8_lossy(&answer.body).into_owned()))
    }

    /// JSON of the admin server.
    ///
    /// # Errors
    /// When there is no answer or it is no JSON.
    pub async fn admin(&self, path: &str) -> Result<Value> {
        let (status, text) = self.get("admin", path).await?;
        serde_json::from_str(&text).with_context(|| format!("{path} answered {status}: {text}"))
    }

    /// Processes of Envoy that the control plane runs now, by Gateway (`NAMESPACE/NAME`).
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn envoys(&self) -> Result<BTreeMap<String, u32>> {
        let proxies = self.admin("/api/proxies").await?;
        let local = proxies["local"].as_object().context("local proxies")?;
        let pid = |status: &Value| status["pid"].as_u64().and_then(|p| u32::try_from(p).ok());
        Ok(local.iter().filter_map(|(name, s)| Some((name.clone(), pid(s)?))).collect())
    }

    /// Processes of this machine that have the scratch folder on their command line.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        let scratch = self.scratch.path().display().to_string();
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|e| e.file_name().to_string_lossy().parse::<u32>().ok());
        let ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&scratch)
        };
        pids.filter(ours).collect()
    }

    /// The log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path().join("gateway.log")).unwrap_or_default()
    }

    /// Ends the control plane with SIGTERM and waits for it; returns how long that took.
    ///
    /// # Errors
    /// When it does not end within 30 s.
    pub async fn stop(&mut self) -> Result<Duration> {
        let from = Instant::now();
        if let Some(pid) = self.child.id() {
            Command::new("kill").arg(pid.to_string()).status().await?;
        }
        tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await.context("still there after 30 s")??;
        Ok(from.elapsed())
    }

    fn check(&mut self, deadline: Instant) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("envoy-gateway ended with {status}:\n{}", self.log());
        }
        if Instant::now() > deadline {
            bail!("envoy-gateway was not ready within 60 s:\n{}", self.log());
        }
        Ok(())
    }
}

impl Drop for Gateway {
    /// A failing test leaves its logs where the output says.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let to = self.logs.clone().unwrap_or_else(std::env::temp_dir).join(format!("e2e-{}", std::process::id()));
        let copied = std::process::Command::new("cp").arg("-r").arg(self.scratch.path()).arg(&to).status();
        println!("logs of the gateway and its proxies: {} ({copied:?})", to.display());
    }
}

//! Commands as users type them, and steps that say how long they took.

#![allow(clippy::print_stdout, reason = "the suite reports to the terminal")]

use std::{
    fs::{File, OpenOptions},
    future::Future,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    time::{Instant, timeout},
};

/// Longest time that a command may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs kubectl, helm and egctl; what they said is kept in a log.
#[derive(Debug)]
pub struct Commands {
    kubectl: PathBuf,
    helm: PathBuf,
    egctl: PathBuf,
    logs: PathBuf,
}

/// Counts steps.
#[derive(Debug, Default)]
pub struct Steps {
    passed: u32,
    failed: u32,
}

// === impl Commands ===

impl Commands {
    /// With the programs that `KUBECTL`, `HELM` and `EGCTL` name; logs go to the folder `CLUSTER_LOGS`.
    ///
    /// # Errors
    /// When a variable is missing or the folder cannot be made.
    pub fn from_env() -> Result<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from).with_context(|| format!("{name} is not set"));
        let commands =
            Self { kubectl: path("KUBECTL")?, helm: path("HELM")?, egctl: path("EGCTL")?, logs: path("CLUSTER_LOGS")? };
        std::fs::create_dir_all(&commands.logs)?;
        Ok(commands)
    }

    /// Runs kubectl; hands back what it wrote to standard output.
    ///
    /// # Errors
    /// When it fails or takes longer than four minutes.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.run(&self.kubectl, args, None).await
    }

    /// `kubectl apply -f -` with these objects.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub async fn apply(&self, manifest: &str) -> Result<String> {
        self.run(&self.kubectl, &["apply", "-f", "-"], Some(manifest)).await
    }

    /// Runs helm.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        self.run(&self.helm, args, None).await
    }

    /// Runs egctl.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub async fn egctl(&self, args: &[&str]) -> Result<String> {
        self.run(&self.egctl, args, None).await
    }

    /// Writes what the cluster looks like to the logs.
    pub async fn keep_objects(&self) {
        let gateway = "gatewayclasses,gateways,httproutes,envoyproxies";
        let views: [(&str, &[&str]); 5] = [
            ("events", &["get", "events", "-A", "--sort-by=.lastTimestamp"]),
            ("overview", &["get", "all,leases", "-A", "-o", "wide"]),
            ("pods", &["describe", "pods", "-A"]),
            ("deployments", &["get", "deployments", "-A", "-o", "yaml", "--show-managed-fields"]),
            ("gateway-api", &["get", gateway, "-A", "-o", "yaml"]),
        ];
        for (name, args) in views {
            let text = self.kubectl(args).await.unwrap_or_else(|e| format!("{e:#}"));
            let _ = std::fs::write(self.logs.join(name).with_extension("txt"), text);
        }
    }

    async fn run(&self, program: &Path, args: &[&str], input: Option<&str>) -> Result<String> {
        let line = format!("{} {}", program.file_name().unwrap_or_default().display(), args.join(" "));
        let mut child = Command::new(program)
            .args(args)
            .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| line.clone())?;
        if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
            stdin.write_all(input.as_bytes()).await?;
        }
        let output = timeout(PATIENCE, child.wait_with_output()).await.with_context(|| format!("{line}: no end"))??;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        writeln!(self.log()?, "$ {line}\n{}{out}{err}", input.unwrap_or_default())?;
        if !output.status.success() {
            bail!("{line}: {}", err.trim());
        }
        Ok(out.into_owned())
    }

    fn log(&self) -> Result<File> {
        Ok(OpenOptions::new().create(true).append(true).open(self.logs.join("commands.log"))?)
    }
}

// === impl Steps ===

impl Steps {
    /// Runs a step and prints its time, and what it has to say.
    ///
    /// # Errors
    /// As the step.
    pub async fn step(&mut self, name: &str, step: impl Future<Output = Result<String>>) -> Result<()> {
        let from = Instant::now();
        let outcome = step.await;
        let seconds = from.elapsed().as_secs_f64();
        match outcome {
            Ok(words) => {
                self.passed += 1;
                println!("cluster: {name:<28} {seconds:8.3} s  {words}");
                Ok(())
            }
            Err(e) => {
                self.failed += 1;
                println!("cluster: {name:<28} {seconds:8.3} s  FAILED: {e:#}");
                Err(e)
            }
        }
    }

    /// Prints the last line; true when no step failed.
    #[must_use]
    pub fn end(&self) -> bool {
        println!("cluster: {} steps passed, {} failed", self.passed, self.failed);
        self.failed == 0
    }
}

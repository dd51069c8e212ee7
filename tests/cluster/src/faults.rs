//! Faults of the network of one pod, by nftables in the pod's own network namespace: nobody else is touched, and they go with
//! the pod.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// Address of the API server for pods: the Service `kubernetes`.
const API_SERVER: &str = "ip daddr 10.96.0.1 tcp dport 443";
const FROM_API_SERVER: &str = "ip saddr 10.96.0.1 tcp sport 443";
/// Port of the control plane's Service that proxies connect to.
const XDS_PORT: &str = "tcp dport 18000";
/// A segment with data: larger than an acknowledgement with all its options.
const DATA: &str = "tcp flags & (syn | rst) == 0x0 meta length > 100";

/// How a pod loses what it talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Connections are reset and new ones refused.
    Cut,
    /// Connections are made and stay, data gets lost in both directions.
    Stalled,
    /// Every packet gets lost.
    BlackHoled,
}

/// A fault that lasts until [`Fault::heal`], or until this is dropped.
#[derive(Debug)]
pub struct Fault {
    /// A process in the pod.
    pid: i32,
}

// === impl How ===

impl How {
    fn rules(self) -> String {
        let (out, back) = match self {
            Self::Cut => (format!("{API_SERVER} reject with tcp reset"), String::new()),
            Self::Stalled => (format!("{API_SERVER} {DATA} drop"), format!("{FROM_API_SERVER} {DATA} drop")),
            Self::BlackHoled => (format!("{API_SERVER} drop"), format!("{FROM_API_SERVER} drop")),
        };
        table(&out, &back)
    }
}

fn table(out: &str, back: &str) -> String {
    format!(
        "table inet fault {{
  chain out {{ type filter hook output priority -50; policy accept; {out}; }}
  chain back {{ type filter hook input priority -50; policy accept; {back}; }}
}}
"
    )
}

// === impl Fault ===

impl Fault {
    /// Takes the API server from the pod of this process.
    ///
    /// # Errors
    /// When nftables refuses.
    pub fn api_server(pid: i32, how: How) -> Result<Self> {
        Self::set(pid, &how.rules())
    }

    /// Refuses what the pod of this process, a proxy, sends to the control plane.
    ///
    /// # Errors
    /// When nftables refuses.
    pub fn control_plane(pid: i32) -> Result<Self> {
        Self::set(pid, &table(&format!("{XDS_PORT} reject with tcp reset"), ""))
    }

    fn set(pid: i32, rules: &str) -> Result<Self> {
        let fault = Self { pid };
        nft(pid, rules)?;
        Ok(fault)
    }

    /// Ends it.
    ///
    /// # Errors
    /// When nftables refuses.
    pub fn heal(self) -> Result<()> {
        let pid = self.pid;
        std::mem::forget(self);
        nft(pid, "delete table inet fault\n")
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // The pod may be gone, and the fault with it.
        let _ = nft(self.pid, "delete table inet fault\n");
    }
}

fn nft(pid: i32, rules: &str) -> Result<()> {
    let mut child = Command::new("nsenter")
        .args(["--target", &pid.to_string(), "--net", "--", "nft", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("nsenter")?;
    child.stdin.take().context("a pipe")?.write_all(rules.as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "nft: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_api_server_is_lost() {
        // A reset of ours comes back through `back`, so that nothing is dropped there.
        for (how, rules) in [(How::Cut, 1), (How::Stalled, 2), (How::BlackHoled, 2)] {
            assert_eq!(how.rules().matches("10.96.0.1 tcp").count(), rules, "{}", how.rules());
        }
        assert!(How::Stalled.rules().contains("meta length > 100"));
    }
}

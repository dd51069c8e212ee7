//! What pods say when they are asked directly, their loopback included.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::{process::Command, time::timeout};

use crate::processes;

/// Longest wait for an answer; the kubelet waits 1 s, but this machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);
/// The admin servers of the gateway and of Envoy are on the pod's loopback.
const ADMIN: u16 = 19000;

/// A running pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Address.
    pub ip: IpAddr,
    /// How often its containers were started again.
    pub restarts: i32,
    /// Since when it is ready, as the kubelet says; none while it is not.
    pub ready_since: Option<String>,
}

/// The name and version of each resource that an Envoy has.
pub type Held = BTreeSet<(String, String)>;

// === impl Pod ===

impl Pod {
    /// A process of the pod that lives as long as its network does.
    ///
    /// # Errors
    /// When the pod is gone.
    pub fn network(&self) -> Result<i32> {
        processes::one(&self.uid, "pause")
    }

    /// Status and body of `/healthz` or `/readyz` of a replica.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn health(&self, path: &str) -> Result<(u16, Value)> {
        let url = format!("http://{}:8081{path}", self.ip);
        let ask = async {
            let out = Command::new("curl")
                .args(["-s", "--max-time", "5", "-w", "\n%{http_code}", &url])
                .kill_on_drop(true)
                .output()
                .await?;
            let text = String::from_utf8(out.stdout)?;
            let (body, code) = text.rsplit_once('\n').context("no answer")?;
            anyhow::Ok((code.parse()?, serde_json::from_str(body).unwrap_or_default()))
        };
        let (code, body) = timeout(PATIENCE, ask).await.context("no answer")??;
        ensure!(code != 0, "no answer");
        Ok((code, body))
    }

    /// An answer of the admin server, as JSON.
    ///
    /// # Errors
    /// When there is none.
    pub async fn admin(&self, path: &str) -> Result<Value> {
        let (pid, url) = (self.network()?.to_string(), format!("http://127.0.0.1:{ADMIN}{path}"));
        let out = Command::new("nsenter")
            .args(["--target", &pid, "--net", "--", "curl", "-sf", "--max-time", "10", &url])
            .kill_on_drop(true)
            .output()
            .await?;
        ensure!(out.status.success(), "{} does not answer {path}", self.name);
        Ok(serde_json::from_slice(&out.stdout)?)
    }

    /// Names of the proxies that have a stream to this replica.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn proxies(&self) -> Result<BTreeSet<String>> {
        let answer = self.admin("/api/proxies").await?;
        let streams = answer["streams"].as_array().cloned().unwrap_or_default();
        Ok(streams.iter().filter_map(|s| s["node"].as_str()).map(str::to_owned).collect())
    }

    /// What this Envoy was given by the control plane.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn held(&self) -> Result<Held> {
        Ok(held(&self.admin("/config_dump?include_eds").await?))
    }
}

/// The dynamic resources of a dump of Envoy's configuration.
fn held(dump: &Value) -> Held {
    /// Lists of a dump, and where the name of an entry is.
    const LISTS: [(&str, &str); 5] = [
        ("dynamic_listeners", "/name"),
        ("dynamic_active_clusters", "/cluster/name"),
        ("dynamic_route_configs", "/route_config/name"),
        ("dynamic_endpoint_configs", "/endpoint_config/cluster_name"),
        ("dynamic_active_secrets", "/name"),
    ];
    let mut held = Held::new();
    for part in dump["configs"].as_array().map(Vec::as_slice).unwrap_or_default() {
        for (list, name) in LISTS {
            for entry in part[list].as_array().map(Vec::as_slice).unwrap_or_default() {
                let text = |at: &str| entry.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
                let version = match text("/version_info") {
                    version if version.is_empty() => text("/active_state/version_info"),
                    version => version,
                };
                held.insert((format!("{list} {}", text(name)), version));
            }
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_versions_are_held() {
        let dump = json!({"configs": [
            {"dynamic_listeners": [{"name": "l", "active_state": {"version_info": "1"}}]},
            {"static_clusters": [{"cluster": {"name": "s"}}],
             "dynamic_active_clusters": [{"version_info": "2", "cluster": {"name": "c"}}]}]});
        let expected = [("dynamic_active_clusters c".into(), "2".into()), ("dynamic_listeners l".into(), "1".into())];
        assert_eq!(held(&dump), expected.into());
    }
}

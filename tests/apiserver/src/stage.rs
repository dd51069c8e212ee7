//! One lease with its replicas, each behind proxies of its own.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, RoleBinding},
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use testkit::{
    apiserver::ApiServer,
    proxy::{HttpProxy, TcpProxy},
};
use tokio::time::{Instant, sleep};

use crate::{
    judge::{self, Write},
    replica::Replica,
};

/// A namespace with a lease and replicas.
#[derive(Debug)]
pub struct Stage {
    /// Name of the row, also of the namespace.
    pub name: String,
    /// Replicas with their proxies.
    pub replicas: Vec<Seat>,
    scratch: PathBuf,
}

/// A replica and what stands between it and the API server.
#[derive(Debug)]
pub struct Seat {
    /// The process.
    pub replica: Replica,
    /// Its network.
    pub network: TcpProxy,
    /// What may answer in place of the server.
    pub http: HttpProxy,
}

/// Unix time in microseconds.
#[must_use]
pub fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

/// Names of the users of a row.
#[must_use]
pub fn users(row: &str, replicas: usize) -> Vec<String> {
    (0..replicas).map(|i| format!("{row}-{i}")).collect()
}

/// What replicas may do, once for all rows.
///
/// # Errors
/// When the API server refuses.
pub async fn roles(admin: Client) -> Result<()> {
    let api: Api<ClusterRole> = Api::all(admin);
    for (name, group, resource) in [
        ("leases", "coordination.k8s.io", "leases"),
        ("configmaps", "", "configmaps"),
        ("events", "events.k8s.io", "events"),
    ] {
        let role = serde_json::from_value(json!({"metadata": {"name": name},
            "rules": [{"apiGroups": [group, ""], "resources": [resource], "verbs": ["get", "list", "watch", "create", "update", "patch"]}]}))?;
        api.create(&PostParams::default(), &role).await?;
    }
    Ok(())
}

// === impl Stage ===

impl Stage {
    /// Makes the namespace and starts the replicas with these flags.
    ///
    /// # Errors
    /// When the API server refuses or a process does not start.
    pub async fn set(server: &ApiServer, row: &str, replicas: usize, flags: &[&str]) -> Result<Self> {
        let admin = server.admin()?;
        let namespace = serde_json::from_value(json!({"metadata": {"name": row}}))?;
        Api::<Namespace>::all(admin.clone()).create(&PostParams::default(), &namespace).await?;
        let scratch = std::env::var_os("TEST_LOGS").map_or_else(std::env::temp_dir, PathBuf::from).join("leadership");
        std::fs::create_dir_all(&scratch)?;
        let mut stage = Self { name: row.to_owned(), replicas: Vec::new(), scratch };
        for role in ["leases", "configmaps", "events"] {
            stage.bind(&admin, role).await?;
        }
        for user in users(row, replicas) {
            let http = HttpProxy::start(server.port(), server.ca_pem()).await?;
            let network = TcpProxy::start(http.port()).await?;
            let kubeconfig = stage.kubeconfig(server, &user, &format!("http://127.0.0.1:{}", network.port()))?;
            let replica = Replica::start(&user, &kubeconfig, row, flags, &stage.log(&user))?;
            stage.replicas.push(Seat { replica, network, http });
        }
        Ok(stage)
    }

    /// A kubeconfig file for a user.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, server: &ApiServer, user: &str, url: &str) -> Result<PathBuf> {
        let path = self.scratch.join(format!("{user}.kubeconfig"));
        std::fs::write(&path, server.kubeconfig(user, url))?;
        Ok(path)
    }

    /// The log file of a process.
    #[must_use]
    pub fn log(&self, user: &str) -> PathBuf {
        self.scratch.join(format!("{user}.log"))
    }

    /// Lets the replicas do what a role says.
    ///
    /// # Errors
    /// When the API server refuses.
    pub async fn bind(&self, admin: &Client, role: &str) -> Result<()> {
        let subjects: Vec<_> = (0..8)
            .map(|i| json!({"kind": "User", "name": format!("{}-{i}", self.name), "apiGroup": "rbac.authorization.k8s.io"}))
            .collect();
        let binding = serde_json::from_value(json!({"metadata": {"name": role}, "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io"}}))?;
        Api::<RoleBinding>::namespaced(admin.clone(), &self.name).create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    /// Index of the replica that leads, once exactly one says so.
    ///
    /// # Errors
    /// When there is none within `limit`, or two at once.
    pub async fn leader(&self, limit: Duration) -> Result<usize> {
        self.leader_but(None, limit).await
    }

    /// As [`Stage::leader`], for another than `not`.
    ///
    /// # Errors
    /// When there is none within `limit`.
    pub async fn leader_but(&self, not: Option<usize>, limit: Duration) -> Result<usize> {
        let deadline = Instant::now() + limit;
        loop {
            let leaders: Vec<usize> =
                (0..self.replicas.len()).filter(|i| Some(*i) != not && self.replicas[*i].replica.leads()).collect();
            if let [one] = leaders[..] {
                return Ok(one);
            }
            if Instant::now() > deadline {
                let told: Vec<_> = self.replicas.iter().map(|s| s.replica.told()).collect();
                bail!("{}: no single leader within {limit:?}, but {leaders:?}: {told:?}", self.name);
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// When replica `i` last began to lead, Unix microseconds.
    ///
    /// # Errors
    /// When it never did.
    pub fn began(&self, i: usize) -> Result<i64> {
        let told = self.replicas[i].replica.told();
        Ok(told.iter().rev().find(|t| t.event == "leading").context("it never led")?.at)
    }

    /// Waits until the audit log holds an accepted write of a ConfigMap by replica `i` after `since`.
    ///
    /// # Errors
    /// When there is none within `limit`.
    pub async fn wrote(&self, server: &ApiServer, i: usize, since: i64, limit: Duration) -> Result<()> {
        let user = &self.replicas[i].replica.name;
        let deadline = Instant::now() + limit;
        while !self
            .writes(server)?
            .iter()
            .any(|w| w.user == *user && w.resource == "configmaps" && w.accepted && w.at > since)
        {
            if Instant::now() > deadline {
                bail!("{user} wrote nothing within {limit:?}");
            }
            sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Mutating requests of this row.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub fn writes(&self, server: &ApiServer) -> Result<Vec<Write>> {
        Ok(judge::writes(&server.audit()?, &self.name))
    }

    /// All processes run, and nothing that the judge forbids happened.
    ///
    /// # Errors
    /// What happened.
    pub fn verdict(&mut self, server: &ApiServer, renew_deadline: Duration, gone: &[usize]) -> Result<usize> {
        for (i, seat) in self.replicas.iter_mut().enumerate() {
            if !gone.contains(&i) && !seat.replica.is_alive() {
                bail!("{} does not run any more", seat.replica.name);
            }
        }
        let writes = self.writes(server)?;
        let micros = i64::try_from(renew_deadline.as_micros())?;
        let wrong = judge::violations(&writes, micros, 500_000);
        if !wrong.is_empty() {
            bail!("{}: {wrong:?}", self.name);
        }
        Ok(writes.iter().filter(|w| w.accepted && w.resource == "configmaps").count())
    }
}

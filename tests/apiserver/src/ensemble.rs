//! Several real control planes of one cluster: each a user of its own, behind proxies of its own, with fixed ports, so that
//! it can be ended and started again; proxies reach them through what stands for their Service.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::{
    apiserver::stable_port,
    proxy::{Answers, HttpProxy, Network, TcpProxy},
};

use crate::{
    balance::{Balancer, Place},
    server::Server,
    world::{World, until},
};

/// Namespace of the control plane.
pub const SYSTEM: &str = "envoy-gateway-system";
/// The Lease.
pub const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";

/// A replica and what stands between it and the API server.
#[derive(Debug)]
pub struct Seat {
    /// Its user, whose name the audit log has.
    pub user: String,
    /// The process.
    pub server: Server,
    /// Its network.
    pub network: TcpProxy,
    /// What may answer in place of the API server.
    pub http: HttpProxy,
    /// Where proxies find it.
    pub place: Place,
}

/// Replicas of one cluster.
#[derive(Debug)]
pub struct Ensemble {
    /// The replicas.
    pub seats: Vec<Seat>,
    /// What stands for their Service.
    pub service: Balancer,
    _kept: TempDir,
}

/// Names of the users of so many replicas.
#[must_use]
pub fn users(replicas: usize) -> Vec<String> {
    (0..replicas).map(|i| format!("replica-{i}")).collect()
}

/// Makes the Lease, held by nobody: the first to come leads at once.
///
/// # Errors
/// When the server refuses.
pub async fn free_lease(world: &World) -> Result<()> {
    let lease = json!({"metadata": {"name": LEASE}, "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}});
    let leases: Api<Lease> = Api::namespaced(world.client(), SYSTEM);
    leases.create(&PostParams::default(), &serde_json::from_value(lease)?).await?;
    Ok(())
}

// === impl Ensemble ===

impl Ensemble {
    /// Starts one replica for each user and waits until all are ready.
    ///
    /// # Errors
    /// When one is not.
    pub async fn start(world: &World, users: &[String]) -> Result<Self> {
        let kept = TempDir::new()?;
        let mut places = Vec::new();
        let mut peers = Vec::new();
        for _ in users {
            places.push(Place { health: stable_port()?, xds: stable_port()? });
            peers.push(stable_port()?);
        }
        let mut seats: Vec<Seat> = Vec::new();
        for (i, user) in users.iter().enumerate() {
            let http = HttpProxy::start(world.server.port(), world.server.ca_pem()).await?;
            let network = TcpProxy::start(http.port()).await?;
            let kubeconfig = world.server.kubeconfig(user, &format!("http://127.0.0.1:{}", network.port()));
            let mut args = vec![
                format!("--peer-port={}", peers[i]),
                format!("--xds-port={}", places[i].xds),
                format!("--health-port={}", places[i].health),
            ];
            args.extend(peers.iter().map(|p| format!("--peer=127.0.0.1:{p}")));
            if let Some(first) = seats.first() {
                args.push(format!("--certs-dir={}", first.server.own_certificates().display()));
            }
            let config = format!(
                "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nextensionApis: {{ enableBackend: true }}\n\
                 provider:\n  type: Kubernetes\n  kubernetes:\n    lastGoodState: {{ folder: {}, after: 2s }}\n",
                kept.path().join(user).display()
            );
            let server = Server::start_with(&kubeconfig, &config, &args).await?;
            seats.push(Seat { user: user.clone(), server, network, http, place: places[i] });
        }
        let service = Balancer::start(places).await?;
        Ok(Self { seats, service, _kept: kept })
    }

    /// Folder of the certificates that proxies need.
    #[must_use]
    pub fn certificates(&self) -> PathBuf {
        self.seats[0].server.certificates()
    }

    /// Everything that stands in the way of a replica ends.
    pub fn open(&self, i: usize) {
        self.seats[i].network.set(Network::Open);
        self.seats[i].http.set(Answers::Pass);
    }

    /// Index of the one replica that says that it leads.
    ///
    /// # Errors
    /// When there is none, or more than one, for `limit`.
    pub async fn leader(&self, limit: Duration) -> Result<usize> {
        let mut found = Vec::new();
        until(limit, "exactly one replica leads", async || {
            found = self.leaders(&[]).await;
            Ok(found.len() == 1)
        })
        .await
        .with_context(|| self.log_tails())?;
        found.first().copied().context("one")
    }

    /// Indices of the replicas that say that they lead; `but` are not asked.
    pub async fn leaders(&self, but: &[usize]) -> Vec<usize> {
        let mut all = Vec::new();
        for (i, seat) in self.seats.iter().enumerate() {
            if !but.contains(&i) && seat.state().await.is_some_and(|s| s["leadership"]["role"] == "leader") {
                all.push(i);
            }
        }
        all
    }

    /// Waits until all replicas have heard all others, serve the same and have nothing to write; returns the digest.
    ///
    /// # Errors
    /// When that is not so within `limit`.
    pub async fn at_rest(&self, limit: Duration) -> Result<String> {
        let mut digest = String::new();
        until(limit, "all replicas serve the same, and nothing is to be written", async || {
            let mut digests = Vec::new();
            let mut pending = 0;
            for seat in &self.seats {
                let Ok(info) = seat.server.admin("/api/server_info").await else { return Ok(false) };
                if info["state"]["origin"] != "live" || info["ready"] != true {
                    return Ok(false);
                }
                digests.push(info["snapshotDigest"].as_str().unwrap_or_default().to_owned());
                if info["leadership"]["role"] == "leader" {
                    pending += info["statusesPending"].as_u64().unwrap_or(1);
                }
            }
            let leaders = self.leaders(&[]).await.len();
            digest = digests.first().cloned().unwrap_or_default();
            Ok(leaders == 1 && pending == 0 && !digest.is_empty() && digests.iter().all(|d| *d == digest))
        })
        .await
        .with_context(|| self.log_tails())?;
        Ok(digest)
    }

    /// All processes run.
    ///
    /// # Errors
    /// The log of the first that does not.
    pub fn alive(&mut self) -> Result<()> {
        for seat in &mut self.seats {
            ensure!(seat.server.is_alive(), "{} has ended: {}", seat.user, seat.server.log_tail());
        }
        Ok(())
    }

    /// The ends of all logs.
    #[must_use]
    pub fn log_tails(&self) -> String {
        self.seats.iter().map(|s| format!("--- {}\n{}\n", s.user, s.server.log_tail())).collect()
    }
}

// === impl Seat ===

impl Seat {
    /// What its probe says, ready or not.
    pub async fn state(&self) -> Option<Value> {
        let (_, text) = self.server.get("health", "/readyz").await?;
        serde_json::from_str(&text).ok()
    }
}

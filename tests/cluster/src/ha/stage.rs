//! The gateway with three replicas in the test cluster, and what every event needs.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    audit::{self, Audit, Call, Mark},
    faults::Fault,
    inside::Pod,
    load::{Load, Target},
    observe::{OWNER, Observer, has},
    run::Commands,
};

/// Namespace of the control plane and of its proxies.
pub const SYSTEM: &str = "envoy-gateway-system";
/// Name of its Lease.
pub const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";
/// Namespace of the objects in `manifests/`.
pub const SHOP: &str = "shop";
/// Longest wait for what must happen some time.
pub const BOUND: Duration = Duration::from_secs(120);
/// A leader writes no more so long after its last renewal.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// The control plane's program.
pub const PROGRAM: &str = "envoy-gateway";

const REPLICAS: usize = 3;
/// Between two requests of a lane of the load.
const PERIOD: Duration = Duration::from_millis(50);
/// Between two changes that make a status due.
const PRESSURE: Duration = Duration::from_millis(250);
/// Port of the listener 80 in a proxy's pod.
const PROXY_PORT: u16 = 10080;

/// Everything that an event needs.
#[derive(Debug)]
pub struct Stage {
    /// kubectl and helm.
    pub run: Commands,
    /// A look at objects.
    pub see: Observer,
    /// What replicas wrote.
    pub audit: Audit,
    chart: String,
}

/// What goes on during an event: requests, of which none may fail, and changes, each of which makes a status due.
#[derive(Debug)]
pub struct Traffic {
    load: Load,
    pressure: JoinSet<Result<()>>,
}

/// Asks pods for their health until it is stopped.
#[derive(Debug)]
pub struct Watch {
    bad: Arc<Mutex<Vec<String>>>,
    tasks: JoinSet<()>,
}

// === impl Stage ===

impl Stage {
    /// From the environment: that of `cluster-suite`, and `AUDIT`.
    ///
    /// # Errors
    /// When something is missing.
    pub async fn from_env() -> Result<Self> {
        let chart = std::env::var("CHART").context("CHART is not set")?;
        Ok(Self { run: Commands::from_env()?, see: Observer::from_env().await?, audit: Audit::from_env()?, chart })
    }

    /// Installs the chart with three replicas, backends and a Gateway with three proxies.
    ///
    /// # Errors
    /// When something does not come up.
    pub async fn install(&self) -> Result<()> {
        let images = "global.images.envoyGateway.image=eg.test/envoy-gateway:1,\
                      global.images.envoyProxy.image=eg.test/envoy:1,deployment.replicas=3";
        // Without a brake on writes, thousands of them are under way at once; the kubelet looks often, so that less is waited.
        let hasty = "config.envoyGateway.provider.kubernetes.client.rateLimit.qps=1000,\
                     config.envoyGateway.provider.kubernetes.client.rateLimit.burst=2000,\
                     deployment.envoyGateway.readinessProbe.periodSeconds=1";
        let to = [
            "--namespace",
            SYSTEM,
            "--create-namespace",
            "--set",
            images,
            "--set",
            hasty,
            "--wait",
            "--timeout",
            "180s",
        ];
        self.run.helm(&[&["install", "eg", &self.chart][..], &to].concat()).await?;
        self.run.apply(include_str!("../../manifests/backend.yaml")).await?;
        self.run.apply(include_str!("../../manifests/ha.yaml")).await?;
        self.run.apply(&route("pressure", "pressure.example.test")).await?;
        self.run.kubectl(&["-n", SHOP, "rollout", "status", "deployment/backend", "--timeout=120s"]).await?;
        let programmed = |g: &Value| has(&g["status"]["conditions"], "Programmed", "True");
        self.see.until("Gateway", SHOP, "front", BOUND, programmed).await?;
        until("three proxies run", async || Ok(self.envoys().await?.len() == REPLICAS)).await?;
        Ok(())
    }

    /// Removes everything.
    ///
    /// # Errors
    /// When something stays.
    pub async fn uninstall(&self) -> Result<()> {
        self.run.kubectl(&["-n", SHOP, "delete", "gateways,httproutes", "--all", "--timeout=120s"]).await?;
        let owned = format!("{OWNER}=front");
        let gone = ["-n", SYSTEM, "wait", "--for=delete", "deployments,services,pods", "-l", &owned, "--timeout=120s"];
        self.run.kubectl(&gone).await?;
        self.run.kubectl(&["delete", "gatewayclass", "eg", "--timeout=60s"]).await?;
        self.run.helm(&["uninstall", "eg", "--namespace", SYSTEM, "--wait", "--timeout", "120s"]).await?;
        self.run.kubectl(&["delete", "namespace", SHOP, "--timeout=120s"]).await?;
        Ok(())
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> Client {
        self.see.client()
    }

    /// Objects of Gateway API in the shop.
    #[must_use]
    pub fn objects(&self, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", kind);
        Api::namespaced_with(self.client(), SHOP, &ApiResource::from_gvk(&gvk))
    }

    /// Pods of the system's namespace.
    #[must_use]
    pub fn pods(&self) -> Api<PodObject> {
        Api::namespaced(self.client(), SYSTEM)
    }

    /// The replicas that run, by name.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn replicas(&self) -> Result<BTreeMap<String, Pod>> {
        self.running("control-plane=envoy-gateway").await
    }

    /// The Gateway's proxies that run, by name.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn envoys(&self) -> Result<BTreeMap<String, Pod>> {
        self.running(&format!("{OWNER}=front")).await
    }

    async fn running(&self, label: &str) -> Result<BTreeMap<String, Pod>> {
        let pods = self.pods().list(&ListParams::default().labels(label)).await?;
        Ok(pods.iter().filter_map(pod).map(|p| (p.name.clone(), p)).collect())
    }

    /// A pod again, as it is now.
    ///
    /// # Errors
    /// When it is gone.
    pub async fn again(&self, old: &Pod) -> Result<Pod> {
        let now = self.pods().get(&old.name).await?;
        pod(&now).filter(|p| p.uid == old.uid).with_context(|| format!("{} is gone", old.name))
    }

    /// The replica that leads.
    ///
    /// # Errors
    /// When none does.
    pub async fn leader(&self) -> Result<Pod> {
        let holder = self.see.holder(SYSTEM, LEASE).await?.context("nobody leads")?;
        self.replicas().await?.remove(audit::of(&holder)).with_context(|| format!("{holder} leads and does not run"))
    }

    /// Waits until three replicas are ready, one of them leads, all see the same, and every proxy has a stream to one.
    ///
    /// # Errors
    /// When it is not so in time.
    pub async fn settled(&self) -> Result<()> {
        let rollout = ["-n", SYSTEM, "rollout", "status", "deployment/envoy-gateway", "--timeout=120s"];
        self.run.kubectl(&rollout).await?;
        until("the replicas are at rest", async || {
            let replicas = self.replicas().await?;
            let Ok(leader) = self.leader().await else { return Ok(false) };
            let (mut proxies, mut digests) = (std::collections::BTreeSet::new(), Vec::new());
            for replica in replicas.values() {
                let Ok((200, ready)) = replica.health("/readyz").await else { return Ok(false) };
                let leads = ready["leadership"]["role"] == "leader";
                let holder = ready["leadership"]["holder"].as_str().unwrap_or_default();
                if leads != (replica.name == leader.name) || audit::of(holder) != leader.name {
                    return Ok(false);
                }
                let Ok(streams) = replica.proxies().await else { return Ok(false) };
                proxies.extend(streams);
                digests.push(replica.admin("/api/server_info").await?["snapshotDigest"].clone());
            }
            let envoys = self.envoys().await?;
            digests.dedup();
            let connected = envoys.keys().all(|e| proxies.contains(e));
            Ok(replicas.len() == REPLICAS && envoys.len() == REPLICAS && connected && digests.len() == 1)
        })
        .await
    }

    /// A proxy that has its stream from this replica; one is moved there if none has.
    ///
    /// # Errors
    /// When none gets there.
    pub async fn envoy_of(&self, replica: &Pod) -> Result<Pod> {
        let envoys = self.envoys().await?;
        for round in 0..40 {
            let streams = replica.proxies().await?;
            if let Some(envoy) = streams.iter().find_map(|n| envoys.get(n)) {
                return Ok(envoy.clone());
            }
            // Its connection is reset; the Service chooses the replica of the next one.
            let envoy = envoys.values().nth(round % REPLICAS).context("no proxies")?;
            let fault = Fault::control_plane(envoy.network()?)?;
            let anywhere = async || {
                for replica in self.replicas().await?.values() {
                    if replica.proxies().await?.contains(&envoy.name) {
                        return Ok(true);
                    }
                }
                anyhow::Ok(false)
            };
            until("a stream ended", async || Ok(!anywhere().await?)).await?;
            fault.heal()?;
            until("the proxy connected again", async || anywhere().await).await?;
        }
        bail!("no proxy connects to {}", replica.name)
    }

    /// Where this proxy listens.
    #[must_use]
    pub fn through(&self, envoy: &Pod, host: &str) -> Target {
        Target { address: SocketAddr::new(envoy.ip, PROXY_PORT), host: host.into(), path: "/".into() }
    }

    /// Begins requests through the load balancer and changes of a route.
    ///
    /// # Errors
    /// When the Gateway has no address.
    pub async fn traffic(&self) -> Result<Traffic> {
        let load = self.requests().await?;
        let routes = self.objects("HTTPRoute");
        let mut pressure = JoinSet::new();
        pressure.spawn(async move {
            for n in 0_u64.. {
                let patch = json!({"spec": {"hostnames": [format!("p{n}.example.test")]}});
                routes.patch("pressure", &PatchParams::default(), &Patch::Merge(&patch)).await?;
                sleep(PRESSURE).await;
            }
            Ok(())
        });
        Ok(Traffic { load, pressure })
    }

    /// Begins requests through the load balancer.
    ///
    /// # Errors
    /// When the Gateway has no address.
    pub async fn requests(&self) -> Result<Load> {
        let gateway = self.objects("Gateway").get("front").await?;
        let address = gateway.data["status"]["addresses"][0]["value"].as_str().context("no address")?;
        let address = SocketAddr::new(address.parse()?, 80);
        let target = Target { address, host: "shop.example.test".into(), path: "/".into() };
        Ok(Load::start(&target, PERIOD))
    }

    /// Calls since `mark`, once one of them is as `is` says; that one, too.
    ///
    /// # Errors
    /// When none comes in time.
    pub async fn call(&self, mark: Mark, what: &str, is: impl Fn(&Call) -> bool) -> Result<Call> {
        let from = Instant::now();
        loop {
            if let Some(call) = self.audit.since(mark)?.into_iter().find(&is) {
                return Ok(call);
            }
            ensure!(from.elapsed() < BOUND, "the audit log does not tell of {what}");
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A running pod that is not about to end.
fn pod(object: &PodObject) -> Option<Pod> {
    let status = object.status.as_ref()?;
    if object.metadata.deletion_timestamp.is_some() || status.phase.as_deref() != Some("Running") {
        return None;
    }
    let restarts = status.container_statuses.iter().flatten().map(|c| c.restart_count).sum();
    let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready" && c.status == "True");
    let ready_since = ready.and_then(|c| Some(c.last_transition_time.as_ref()?.0.to_string()));
    Some(Pod {
        name: object.name_any(),
        uid: object.uid()?,
        ip: status.pod_ip.as_ref()?.parse().ok()?,
        restarts,
        ready_since,
    })
}

// === impl Traffic ===

impl Traffic {
    /// Ends it.
    ///
    /// # Errors
    /// When a change was refused.
    pub async fn stop(mut self) -> Result<(u64, Option<String>)> {
        if let Some(ended) = self.pressure.try_join_next() {
            ended??;
        }
        self.pressure.shutdown().await;
        let tally = self.load.stop().await;
        Ok((tally.sent, tally.complaint()))
    }
}

// === impl Watch ===

impl Watch {
    /// Begins to ask `path`, four times a second; every answer but 200 is noted.
    #[must_use]
    pub fn start<'a>(pods: impl IntoIterator<Item = &'a Pod>, path: &'static str) -> Self {
        let bad = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for pod in pods.into_iter().cloned() {
            let bad = Arc::clone(&bad);
            let from = Instant::now();
            tasks.spawn(async move {
                loop {
                    let wrong = match pod.health(path).await {
                        Ok((200, _)) => None,
                        Ok((code, body)) => Some(format!("{code} {body}")),
                        Err(e) => Some(format!("{e:#}")),
                    };
                    if let Some(wrong) = wrong {
                        let at = from.elapsed().as_secs_f64();
                        let line = format!("{}{path} after {at:.1} s: {wrong}", pod.name);
                        bad.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                    }
                    sleep(Duration::from_millis(250)).await;
                }
            });
        }
        Self { bad, tasks }
    }

    /// Ends it; what was not 200.
    pub async fn stop(mut self) -> Vec<String> {
        self.tasks.shutdown().await;
        self.bad.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Waits until something holds.
///
/// # Errors
/// When it does not within [`BOUND`], or cannot be told.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let from = Instant::now();
    while !holds().await? {
        ensure!(from.elapsed() < BOUND, "not within {} s: {what}", BOUND.as_secs());
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Asks until the answer is 200.
///
/// # Errors
/// When it is not within [`BOUND`].
pub async fn answers(target: &Target) -> Result<()> {
    let from = Instant::now();
    loop {
        let answer = target.get().await;
        if answer.as_ref().is_ok_and(|a| a.status == 200) {
            return Ok(());
        }
        ensure!(from.elapsed() < BOUND, "{} at {} answers not 200 but {answer:?}", target.host, target.address);
        sleep(Duration::from_millis(20)).await;
    }
}

/// A route of the shop to its backend.
#[must_use]
pub fn route(name: &str, host: &str) -> String {
    routed(name, host, "front").to_string()
}

/// A route of the shop that hangs on this Gateway.
#[must_use]
pub fn routed(name: &str, host: &str, gateway: &str) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {"parentRefs": [{"name": gateway}], "hostnames": [host],
            "rules": [{"backendRefs": [{"name": "backend", "port": 80}]}]}})
}

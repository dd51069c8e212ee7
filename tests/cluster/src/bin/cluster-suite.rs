//! Drives the gateway in the test cluster as its users do, and judges what they would notice.
//!
//! `cluster-suite` with the cluster up and `KUBECONFIG`, `KUBECTL`, `HELM`, `EGCTL`, `CHART`, `CLUSTER_LOGS` set (see
//! `tests/tools/cluster-suite.sh`). Each step prints its time; the last line is `cluster: N steps passed, M failed`.
//! Two of the steps plant a fault and pass only if the judge of the step before notices it.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use cluster::{
    load::{Load, Target},
    observe::{Observer, has},
    processes,
    run::{Commands, Steps},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

const SYSTEM: &str = "envoy-gateway-system";
const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";
/// Namespace of the objects in `manifests/`.
const SHOP: &str = "shop";
/// Longest wait for anything that must happen.
const BOUND: Duration = Duration::from_secs(60);
/// Longest time from the end of a leader that was asked to go to the first status of its successor. A leader that was
/// killed keeps its lease for 15 s, so that no wait for that fits in here.
const HAND_OVER: Duration = Duration::from_secs(8);
/// Between two requests of a lane of the load.
const PERIOD: Duration = Duration::from_millis(20);

/// Why the replicas of the control plane are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// `kubectl rollout restart`.
    Restart,
    /// `helm upgrade` to an image of another name, which is also that of the shutdown manager beside each proxy.
    Upgrade,
    /// As `Restart`, with a fault: proxies are rolled out and backends go away meanwhile.
    Planted,
}

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its pod is deleted: SIGTERM.
    Asked,
    /// SIGKILL.
    Killed,
}

#[derive(Debug)]
struct Suite {
    run: Commands,
    see: Observer,
    chart: String,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let mut steps = Steps::default();
    let outcome = match Suite::from_env().await {
        Ok(suite) => {
            let outcome = suite.all(&mut steps).await;
            suite.run.keep_objects().await;
            outcome
        }
        Err(e) => Err(e),
    };
    if let Err(e) = &outcome {
        eprintln!("{e:#}");
    }
    if steps.end() && outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

// === impl Suite ===

impl Suite {
    async fn from_env() -> Result<Self> {
        let chart = std::env::var("CHART").context("CHART is not set")?;
        Ok(Self { run: Commands::from_env()?, see: Observer::from_env().await?, chart })
    }

    async fn all(&self, steps: &mut Steps) -> Result<()> {
        steps.step("chart installed", self.install()).await?;
        steps.step("backends", self.backends()).await?;
        steps.step("Gateway programmed", self.gateway()).await?;
        steps.step("answer from outside", self.answer()).await?;
        steps.step("egctl", self.egctl()).await?;
        steps.step("new and removed route", self.routes()).await?;
        steps.step("control plane restarted", self.replaced(Cause::Restart)).await?;
        steps.step("control plane upgraded", self.replaced(Cause::Upgrade)).await?;
        steps.step("planted: proxies restarted", self.planted_rollout()).await?;
        steps.step("leader handed over", self.hand_over()).await?;
        steps.step("planted: leader killed", self.planted_kill()).await?;
        steps.step("Gateway deleted", self.delete()).await?;
        steps.step("Gateway's own namespace", self.own_namespace()).await?;
        steps.step("chart removed", self.uninstall()).await
    }

    async fn install(&self) -> Result<String> {
        let images = "global.images.envoyGateway.image=eg.test/envoy-gateway:1,\
                      global.images.envoyProxy.image=eg.test/envoy:1";
        let to = ["--namespace", SYSTEM, "--create-namespace", "--set", images, "--wait", "--timeout", "180s"];
        self.run.helm(&[&["install", "eg", &self.chart][..], &to].concat()).await?;
        let ready = self
            .run
            .kubectl(&["-n", SYSTEM, "get", "deployment", "envoy-gateway", "-o", "jsonpath={.status.readyReplicas}"])
            .await?;
        Ok(format!("{ready} replicas are ready"))
    }

    async fn backends(&self) -> Result<String> {
        self.run.apply(include_str!("../../manifests/backend.yaml")).await?;
        self.run.kubectl(&["-n", SHOP, "rollout", "status", "deployment/backend", "--timeout=60s"]).await?;
        Ok(String::new())
    }

    async fn gateway(&self) -> Result<String> {
        self.run.apply(include_str!("../../manifests/gateway.yaml")).await?;
        let wait = ["wait", "--for=condition=Accepted", "gatewayclass/eg", "--timeout=60s"];
        self.run.kubectl(&wait).await?;
        Ok(format!("address {}", self.address("front").await?))
    }

    /// Address of a Gateway, once it is programmed.
    async fn address(&self, gateway: &str) -> Result<SocketAddr> {
        let programmed = |g: &Value| has(&g["status"]["conditions"], "Programmed", "True");
        let (gateway, _) = self.see.until("Gateway", SHOP, gateway, BOUND, programmed).await?;
        let address = gateway["status"]["addresses"][0]["value"].as_str().context("no address")?;
        Ok(SocketAddr::new(address.parse()?, 80))
    }

    async fn target(&self, host: &str) -> Result<Target> {
        Ok(Target { address: self.address("front").await?, host: host.into(), path: "/".into() })
    }

    /// From this machine, which is no part of the cluster, through the load balancer's address; that it went through the
    /// Gateway's own Envoy pod is in that pod's access log.
    async fn answer(&self) -> Result<String> {
        let mut target = self.target("shop.example.test").await?;
        target.path = "/from-outside".into();
        let waited = answers(&target, 200).await?;
        let answer = target.get().await?;
        let pod = answer.body["pod"].as_str().unwrap_or_default();
        ensure!(pod.starts_with("backend-") && answer.body["namespace"] == SHOP, "not from our backend: {answer:?}");
        let log =
            ["-n", SYSTEM, "logs", "-l", "gateway.envoyproxy.io/owning-gateway-name=front", "-c", "envoy", "--tail=-1"];
        let from = Instant::now();
        // Envoy writes its access log by the second.
        while !self.run.kubectl(&log).await?.contains("/from-outside") {
            ensure!(from.elapsed() < BOUND, "the request is in no Envoy pod's access log");
            sleep(Duration::from_millis(200)).await;
        }
        Ok(format!("first 200 after {:.2} s, by {pod}", waited.as_secs_f64()))
    }

    /// The operator's look at all this, from outside.
    async fn egctl(&self) -> Result<String> {
        let label = "gateway.envoyproxy.io/owning-gateway-name=front";
        let looks: [(&[&str], &[&str]); 4] = [
            (&["status", "gateway", "-n", SHOP], &["front", "Programmed"]),
            (&["config", "envoy-proxy", "route", "-l", label], &["shop.example.test"]),
            (&["config", "envoy-gateway", "-o", "yaml"], &["front", "shop.example.test"]),
            (&["version", "--remote"], &[env!("CARGO_PKG_VERSION")]),
        ];
        for (args, parts) in looks {
            let text = self.run.egctl(args).await?;
            for part in parts {
                ensure!(text.contains(part), "egctl {} does not say {part}: {text}", args.join(" "));
            }
        }
        Ok("status, config of proxies and of the control plane, version".into())
    }

    async fn routes(&self) -> Result<String> {
        let target = self.target("added.example.test").await?;
        ensure!(target.get().await?.status == 404, "a host that nobody declared is answered");
        self.run.apply(&route("added", "added.example.test")).await?;
        let seen = answers(&target, 200).await?;
        self.run.kubectl(&["-n", SHOP, "delete", "httproute", "added"]).await?;
        let gone = answers(&target, 404).await?;
        Ok(format!("200 after {:.2} s, 404 after {:.2} s", seen.as_secs_f64(), gone.as_secs_f64()))
    }

    async fn replaced(&self, cause: Cause) -> Result<String> {
        let (complaints, sent) = self.replace(cause).await?;
        ensure!(complaints.is_empty(), "{}", complaints.join("; "));
        Ok(format!("no rollout of proxies, {sent} requests, 0 failed"))
    }

    async fn planted_rollout(&self) -> Result<String> {
        let (complaints, _) = self.replace(Cause::Planted).await?;
        for part in ["generation", "was replaced", "requests failed"] {
            ensure!(complaints.iter().any(|c| c.contains(part)), "not noticed: {part}; only: {complaints:?}");
        }
        Ok(format!("noticed: {}", complaints.join("; ")))
    }

    /// Replaces the control plane under load; what a user would complain of, and the number of requests.
    async fn replace(&self, cause: Cause) -> Result<(Vec<String>, u64)> {
        let before = self.see.fleet("front").await?;
        ensure!(!before.deployments.is_empty() && !before.pods.is_empty(), "the Gateway has no proxies: {before:?}");
        let load = Load::start(&self.target("shop.example.test").await?, PERIOD);
        if cause == Cause::Upgrade {
            let image = "global.images.envoyGateway.image=eg.test/envoy-gateway:2";
            let how = ["--namespace", SYSTEM, "--reuse-values", "--set", image, "--wait", "--timeout", "180s"];
            self.run.helm(&[&["upgrade", "eg", &self.chart][..], &how].concat()).await?;
        } else {
            self.run.kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/envoy-gateway"]).await?;
        }
        if cause == Cause::Planted {
            self.disturb(&before.deployments.keys().cloned().collect::<Vec<_>>()).await?;
        }
        self.run.kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/envoy-gateway", "--timeout=120s"]).await?;
        // The new leader has been through all Gateways when it has made the fleet of one more, and the proxies are served
        // by the new replicas when they know a new route.
        self.run.apply(&second_gateway()).await?;
        self.address("second").await?;
        self.run.apply(&route("after", "after.example.test")).await?;
        answers(&self.target("after.example.test").await?, 200).await?;
        self.run.kubectl(&["-n", SHOP, "delete", "httproute/after", "gateway/second"]).await?;
        let tally = load.stop().await;
        let mut complaints = before.changes(&self.see.fleet("front").await?);
        complaints.extend(tally.complaint());
        Ok((complaints, tally.sent))
    }

    async fn disturb(&self, deployments: &[String]) -> Result<()> {
        self.run.kubectl(&["-n", SHOP, "scale", "deployment/backend", "--replicas=0"]).await?;
        for name in deployments {
            let name = format!("deployment/{name}");
            self.run.kubectl(&["-n", SYSTEM, "rollout", "restart", &name]).await?;
            self.run.kubectl(&["-n", SYSTEM, "rollout", "status", &name, "--timeout=120s"]).await?;
        }
        self.run.kubectl(&["-n", SHOP, "scale", "deployment/backend", "--replicas=2"]).await?;
        self.run.kubectl(&["-n", SHOP, "rollout", "status", "deployment/backend", "--timeout=60s"]).await?;
        answers(&self.target("shop.example.test").await?, 200).await?;
        Ok(())
    }

    async fn hand_over(&self) -> Result<String> {
        let load = Load::start(&self.target("shop.example.test").await?, PERIOD);
        let (taken, written) = self.next_leader("handed", End::Asked).await?;
        let tally = load.stop().await;
        if let Some(complaint) = tally.complaint() {
            bail!("{complaint}");
        }
        ensure!(written <= HAND_OVER, "the first status came after {written:?}");
        let (taken, written) = (taken.as_secs_f64(), written.as_secs_f64());
        let sent = tally.sent;
        Ok(format!("next holder after {taken:.2} s, its first status after {written:.2} s, {sent} requests, 0 failed"))
    }

    async fn planted_kill(&self) -> Result<String> {
        let (_, written) = self.next_leader("killed", End::Killed).await?;
        ensure!(written > HAND_OVER, "a killed leader's lease was taken over after {written:?}, before it ran out");
        Ok(format!("noticed: first status only after {:.2} s", written.as_secs_f64()))
    }

    /// Ends the leader; time until another replica has the lease, and until a route that was made at once has a status.
    async fn next_leader(&self, name: &str, end: End) -> Result<(Duration, Duration)> {
        self.run.kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/envoy-gateway", "--timeout=120s"]).await?;
        let old = self.see.holder(SYSTEM, LEASE).await?.context("nobody leads")?;
        let pod = old.split('_').next().unwrap_or(&old);
        let uid = self.run.kubectl(&["-n", SYSTEM, "get", "pod", pod, "-o", "jsonpath={.metadata.uid}"]).await?;
        let from = Instant::now();
        match end {
            End::Asked => {
                self.run.kubectl(&["-n", SYSTEM, "delete", "pod", pod, "--wait=false"]).await?;
            }
            End::Killed => processes::kill(&uid, "envoy-gateway")?,
        }
        self.run.apply(&route(name, &format!("{name}.example.test"))).await?;
        let taken = async {
            self.see.next_holder(SYSTEM, LEASE, &old, BOUND).await?;
            anyhow::Ok(from.elapsed())
        };
        let written = async {
            let accepted = |r: &Value| has(&r["status"]["parents"][0]["conditions"], "Accepted", "True");
            self.see.until("HTTPRoute", SHOP, name, BOUND, accepted).await?;
            anyhow::Ok(from.elapsed())
        };
        tokio::try_join!(taken, written)
    }

    async fn delete(&self) -> Result<String> {
        self.run.kubectl(&["-n", SHOP, "delete", "gateway", "front", "--timeout=60s"]).await?;
        let label = "gateway.envoyproxy.io/owning-gateway-name=front";
        let kinds = "deployments,services,configmaps,serviceaccounts,pods";
        self.run.kubectl(&["-n", SYSTEM, "wait", "--for=delete", kinds, "-l", label, "--timeout=90s"]).await?;
        let left = self.run.kubectl(&["-n", SYSTEM, "get", kinds, "-l", label, "-o", "name"]).await?;
        ensure!(left.trim().is_empty(), "left: {left}");
        Ok("nothing of its fleet is left".into())
    }

    /// Proxies in the namespace of their Gateway, which show the tokens of their service accounts instead of a certificate.
    async fn own_namespace(&self) -> Result<String> {
        let mode = "config.envoyGateway.provider.kubernetes.deploy.type=GatewayNamespace";
        let how = ["--namespace", SYSTEM, "--reuse-values", "--set", mode, "--wait", "--timeout", "120s"];
        self.run.helm(&[&["upgrade", "eg", &self.chart][..], &how].concat()).await?;
        self.run.kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/envoy-gateway"]).await?;
        self.run.kubectl(&["-n", SYSTEM, "rollout", "status", "deployment/envoy-gateway", "--timeout=120s"]).await?;
        let from = Instant::now();
        self.run.apply(include_str!("../../manifests/gateway.yaml")).await?;
        let target = self.target("shop.example.test").await?;
        answers(&target, 200).await?;
        let answered = from.elapsed();
        // No certificate of the control plane is in there: the proxy was told by its token.
        let label = "gateway.networking.k8s.io/gateway-name=front";
        let mounts = r"jsonpath={.items[*].spec.volumes[*].name} {.items[*].spec.serviceAccountName}";
        let pods = self.run.kubectl(&["-n", SHOP, "get", "pods", "-l", label, "-o", mounts]).await?;
        ensure!(pods.contains("sa-token") && pods.ends_with("front"), "not as a service account: {pods}");
        let secrets = self.run.kubectl(&["-n", SHOP, "get", "secrets", "-o", "name"]).await?;
        ensure!(secrets.trim().is_empty(), "Secrets in the Gateway's namespace: {secrets}");
        // A stranger: another account of that namespace, in the same pod otherwise.
        let denied = self.strangers_are_denied(label).await?;
        self.run.kubectl(&["-n", SHOP, "delete", "gateway", "front", "--timeout=60s"]).await?;
        self.run.kubectl(&["-n", SHOP, "wait", "--for=delete", "deployments", "-l", label, "--timeout=60s"]).await?;
        Ok(format!("200 after {:.2} s, {denied}", answered.as_secs_f64()))
    }

    /// A copy of the proxy's pod under another account is told nothing, and so never gets ready.
    async fn strangers_are_denied(&self, label: &str) -> Result<String> {
        let pods = self.run.kubectl(&["-n", SHOP, "get", "pods", "-l", label, "-o", "json"]).await?;
        let pods: Value = serde_json::from_str(&pods)?;
        let mut spec = pods["items"][0]["spec"].clone();
        spec["serviceAccountName"] = "default".into();
        spec["serviceAccount"] = "default".into();
        spec["terminationGracePeriodSeconds"] = 0.into();
        let metadata = serde_json::json!({"name": "stranger", "namespace": SHOP});
        let pod = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
        self.run.apply(&pod.to_string()).await?;
        let logs = ["-n", SYSTEM, "logs", "-l", "control-plane=envoy-gateway", "--tail=-1"];
        let from = Instant::now();
        let line = loop {
            let text = self.run.kubectl(&logs).await?;
            if let Some(line) = text.lines().find(|l| l.contains("stranger") && l.contains("a stream was not opened")) {
                break line.to_owned();
            }
            ensure!(from.elapsed() < BOUND, "a pod of another account was not denied the configuration");
            sleep(Duration::from_millis(200)).await;
        };
        ensure!(line.contains("system:serviceaccount:shop:default"), "denied for another reason: {line}");
        self.run.kubectl(&["-n", SHOP, "delete", "pod", "stranger", "--wait=false"]).await?;
        Ok("a stranger was denied".into())
    }

    async fn uninstall(&self) -> Result<String> {
        self.run.helm(&["uninstall", "eg", "--namespace", SYSTEM, "--wait", "--timeout", "120s"]).await?;
        Ok(String::new())
    }
}

/// Asks until the answer has this status; how long that took.
async fn answers(target: &Target, status: u16) -> Result<Duration> {
    let from = Instant::now();
    loop {
        let answer = target.get().await;
        if answer.as_ref().is_ok_and(|a| a.status == status) {
            return Ok(from.elapsed());
        }
        ensure!(from.elapsed() < BOUND, "{} answers not {status} but {answer:?}", target.host);
        sleep(Duration::from_millis(20)).await;
    }
}

fn route(name: &str, host: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: {SHOP}}}
spec:
  parentRefs: [{{name: front}}]
  hostnames: [{host}]
  rules: [{{backendRefs: [{{name: backend, port: 80}}]}}]
"
    )
}

fn second_gateway() -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {{name: second, namespace: {SHOP}}}
spec:
  gatewayClassName: eg
  listeners: [{{name: http, port: 80, protocol: HTTP}}]
"
    )
}

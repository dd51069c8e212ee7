//! The topology injector behind a real API server: proxies learn the zone of their node when they are bound to it.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    server::workspace_bin,
    world::{World, until},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use certs::{Identity, Spec, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::apiserver::kube_bin;
use tokio::process::Command;

const SYSTEM: &str = "envoy-gateway-system";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxies_learn_their_zone() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = World::start(bin.clone(), &["gateway"], &[]).await?;
    world.namespace(SYSTEM, json!({})).await?;
    let scratch = TempDir::new()?;
    let at = |name: &str| scratch.path().join(name);
    std::fs::write(at("kubeconfig"), world.server.kubeconfig("gateway", &world.server.url()))?;
    std::fs::write(at("admin"), world.server.kubeconfig("admin", &world.server.url()))?;
    // The Secret as it is mounted; the test calls by address.
    let mut spec = Spec::new(SYSTEM, "cluster.local");
    spec.extra_server_names = vec!["127.0.0.1".to_owned()];
    let store = Store::new(at("certs"));
    let set = store.ensure(&spec, certs::now(), false)?.set;
    let mut server = Command::new(workspace_bin("envoy-gateway")?);
    for port in ["xds", "admin", "metrics", "health", "webhook"] {
        server.args([&format!("--{port}-port"), "0"]);
    }
    let log = std::fs::File::create(at("log"))?;
    // Flags of the command come after it.
    let flags: Vec<_> = server.as_std().get_args().map(ToOwned::to_owned).collect();
    let mut server = Command::new(workspace_bin("envoy-gateway")?);
    let server =
        server.arg("server").args(flags).arg("--kubeconfig").arg(at("kubeconfig")).arg("--home").arg(at("home"));
    let server = server.arg("--certs-dir").arg(store.dir(Identity::EnvoyGateway));
    let server = server.arg("--addresses-file").arg(at("addresses"));
    let _server = server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true).spawn()?;
    let port = async || -> Option<u64> {
        let text = std::fs::read_to_string(at("addresses")).ok()?;
        let addresses: Value = serde_json::from_str(&text).ok()?;
        addresses["webhook"].as_str()?.rsplit(':').next()?.parse().ok()
    };
    until(Duration::from_secs(30), "it listens", async || Ok(port().await.is_some())).await?;

    let ca = BASE64_STANDARD.encode(&set.get(Identity::EnvoyGateway).ca);
    let url = format!("https://127.0.0.1:{}/inject-pod-topology", port().await.context("no port")?);
    let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "topology"}, "webhooks": [{"name": "topology.webhook.gateway.envoyproxy.io",
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "clientConfig": {"url": url, "caBundle": ca},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"]}]}]});
    let apply = |object: Value| {
        let (bin, admin) = (bin.clone(), at("admin"));
        async move {
            let file = tempfile::NamedTempFile::new()?;
            std::fs::write(file.path(), object.to_string())?;
            let mut kubectl = Command::new(bin.join("kubectl"));
            let out = kubectl.env("KUBECONFIG", admin).args(["apply", "-f"]).arg(file.path()).output().await?;
            ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            Ok(())
        }
    };
    apply(configuration).await?;
    for (name, labels) in [
        ("near", json!({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "x"})),
        ("plain", json!({})),
    ] {
        world
            .create(&[json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})])
            .await?;
    }
    let owned = json!({"gateway.envoyproxy.io/owning-gateway-name": "gw"});
    let merged = json!({"gateway.envoyproxy.io/owning-gatewayclass": "eg"});
    let rows = [
        ("owned", &owned, "near", Some("z1")),
        ("merged", &merged, "near", Some("z1")),
        ("other", &json!({"app": "x"}), "near", None),
        ("no-zone", &owned, "plain", None),
        ("no-node", &owned, "ghost", None),
    ];
    let bound = async |name: &str, labels: &Value, node: &str| -> Result<Value> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SYSTEM,
            "labels": labels, "annotations": {"kept": "yes"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        world.create(std::slice::from_ref(&pod)).await?;
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": SYSTEM},
            "target": {"kind": "Node", "name": node}});
        let path = format!("/api/v1/namespaces/{SYSTEM}/pods/{name}/binding");
        let request = http::Request::post(path).header("content-type", "application/json");
        world.client().request::<Value>(request.body(binding.to_string().into_bytes())?).await?;
        world.get(&pod).await
    };
    // A webhook is called a moment after it is stored; a bound pod stays as it is, so each try takes a new one.
    let mut tries = 0;
    let called = until(Duration::from_secs(20), "the webhook is called", async || {
        tries += 1;
        let pod = bound(&format!("try-{tries}"), &owned, "near").await?;
        Ok(pod["metadata"]["annotations"]["topology.kubernetes.io/zone"] == "z1")
    });
    called.await.with_context(|| std::fs::read_to_string(at("log")).unwrap_or_default())?;
    for (name, labels, node, zone) in rows {
        let pod = bound(name, labels, node).await?;
        let annotations = &pod["metadata"]["annotations"];
        ensure!(pod["spec"]["nodeName"] == node, "{name} is bound");
        ensure!(annotations["topology.kubernetes.io/zone"].as_str() == zone, "{name}: {annotations}");
        ensure!(annotations["kept"] == "yes" && annotations["other"].is_null(), "{name}: {annotations}");
    }
    Ok(())
}

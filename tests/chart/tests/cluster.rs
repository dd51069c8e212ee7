//! The chart on a real API server: installed by helm, certificates made, and the control plane at work with just the rights
//! that the chart gives it.

#![allow(clippy::print_stdout, reason = "the figures are the result")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use apiserver::{
    server::{Server, workspace_bin},
    world::{World, until},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use certs::{Identity, Material, Spec};
use chart::{NAMESPACE, helm_bin, render, repository};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::apiserver::kube_bin;

/// helm and kubectl with an administrator's rights on a cluster without nodes.
struct Desk {
    world: World,
    helm: PathBuf,
    kubectl: PathBuf,
    scratch: TempDir,
}

impl Desk {
    async fn open() -> Result<Option<Self>> {
        let (Some(bin), Some(helm)) = (kube_bin(), helm_bin()) else { return Ok(None) };
        let kubectl = bin.join("kubectl");
        let desk = Self { world: World::start(bin, &[], &[]).await?, helm, kubectl, scratch: TempDir::new()? };
        std::fs::write(desk.kubeconfig(), desk.world.server.kubeconfig("admin", &desk.world.server.url()))?;
        Ok(Some(desk))
    }

    fn kubeconfig(&self) -> PathBuf {
        self.scratch.path().join("kubeconfig")
    }

    /// A kubeconfig with the rights of a service account.
    fn as_account(&self, name: &str) -> String {
        let user = format!("system:serviceaccount:{NAMESPACE}:{name}");
        let groups =
            format!("[\"system:serviceaccounts\", \"system:serviceaccounts:{NAMESPACE}\", \"system:authenticated\"]");
        let admin = self.world.server.kubeconfig("admin", &self.world.server.url());
        admin.replace("token: \"admin\"", &format!("token: \"admin\", as: \"{user}\", as-groups: {groups}"))
    }

    fn run(&self, program: &Path, args: &[&str], input: Option<&str>) -> Result<Output> {
        let mut command = Command::new(program);
        command.args(args).env("KUBECONFIG", self.kubeconfig()).env("HOME", self.scratch.path());
        let file = self.scratch.path().join("input");
        std::fs::write(&file, input.unwrap_or_default())?;
        command.stdin(Stdio::from(std::fs::File::open(file)?));
        command.output().with_context(|| format!("{} does not start", program.display()))
    }

    fn kubectl(&self, args: &[&str], input: Option<&str>) -> Result<String> {
        said(self.run(&self.kubectl, args, input)?).with_context(|| format!("kubectl {}", args.join(" ")))
    }

    fn helm(&self, args: &[&str]) -> Result<String> {
        said(self.run(&self.helm, args, None)?).with_context(|| format!("helm {}", args.join(" ")))
    }

    fn apply(&self, objects: &str) -> Result<()> {
        self.kubectl(&["apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-"], Some(objects))?;
        Ok(())
    }

    /// The API server decides by roles that it has seen: a moment after they are stored.
    async fn may(&self, account: &str, verb: &str, what: &str) -> Result<()> {
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        until(Duration::from_secs(20), &format!("{account} may {verb} {what}"), async || {
            let args = ["auth", "can-i", verb, what, "-n", NAMESPACE, "--as", &user];
            Ok(self.run(&self.kubectl, &args, None)?.status.success())
        })
        .await
    }

    /// `envoy-gateway certgen` with the rights of a service account.
    fn certgen(&self, account: &str, args: &[&str]) -> Result<Output> {
        let file = self.scratch.path().join("certgen-kubeconfig");
        std::fs::write(&file, self.as_account(account))?;
        let out = Command::new(workspace_bin("envoy-gateway")?)
            .arg("certgen")
            .args(args)
            .env("KUBECONFIG", file)
            .env("ENVOY_GATEWAY_NAMESPACE", NAMESPACE)
            .output()?;
        Ok(out)
    }

    fn secret(&self, name: &str) -> Result<Secret> {
        let text = self.kubectl(&["get", "secret", "-n", NAMESPACE, name, "-o", "json"], None)?;
        let value: Value = serde_json::from_str(&text)?;
        let mut data = BTreeMap::new();
        for (key, encoded) in value["data"].as_object().context("no data")? {
            data.insert(key.clone(), BASE64_STANDARD.decode(encoded.as_str().context("no text")?)?);
        }
        let text = |at: &str| value.pointer(at).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Secret {
            kind: text("/type"),
            version: text("/metadata/resourceVersion"),
            label: text("/metadata/labels/control-plane"),
            data,
        })
    }
}

#[derive(Debug)]
struct Secret {
    kind: String,
    version: String,
    label: String,
    data: BTreeMap<String, Vec<u8>>,
}

fn said(out: Output) -> Result<String> {
    ensure!(out.status.success(), "{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn installed_by_helm() -> Result<()> {
    let Some(desk) = Desk::open().await? else { return Ok(()) };
    let packed = said(Command::new(repository("deploy/package.sh")).arg(desk.scratch.path().join("charts")).output()?)?;
    let chart = packed.lines().find(|l| l.contains("/gateway-helm-") && l.ends_with(".tgz")).context("no package")?;
    // No node runs the Job of the hooks.
    desk.helm(&["install", "eg", chart, "-n", NAMESPACE, "--create-namespace", "--no-hooks"])?;

    let definitions = desk.kubectl(&["get", "crd", "-o", "name"], None)?;
    let count = |group: &str| definitions.lines().filter(|l| l.ends_with(group)).count();
    ensure!(count(".gateway.networking.k8s.io") == 10 && count(".gateway.envoyproxy.io") == 8, "{definitions}");
    let record = desk.secret("sh.helm.release.v1.eg.v1")?;
    let bytes: usize = record.data.values().map(Vec::len).sum();
    ensure!(bytes < 100 << 10, "a release record of {bytes} bytes holds definitions");

    // An upgrade with other values is one that the API server takes too.
    desk.helm(&["upgrade", "eg", chart, "-n", NAMESPACE, "--no-hooks", "--set", "deployment.replicas=3"])?;
    let replicas =
        desk.kubectl(&["get", "deploy", "-n", NAMESPACE, "envoy-gateway", "-o", "jsonpath={.spec.replicas}"], None)?;
    ensure!(replicas == "3", "{replicas}");
    desk.helm(&["uninstall", "eg", "-n", NAMESPACE, "--no-hooks"])?;
    ensure!(desk.kubectl(&["get", "crd", "-o", "name"], None)?.lines().count() == definitions.lines().count());
    println!("helm: {} definitions, a release record of {bytes} bytes", definitions.lines().count());

    // The plain manifest, and every mode, with strict validation.
    desk.kubectl(
        &["apply", "--server-side", "-f", &format!("{}/charts/crds.yaml", desk.scratch.path().display())],
        None,
    )?;
    desk.apply(&std::fs::read_to_string(repository("deploy/install.yaml"))?)?;
    for values in [
        "config: {envoyGateway: {provider: {kubernetes: {deploy: {type: GatewayNamespace}}}}}",
        "config: {envoyGateway: {provider: {kubernetes: {deploy: {type: GatewayNamespace}, watch: {namespaces: [default]}}}}}",
        "hpa: {enabled: true, maxReplicas: 4, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}]}",
        "topologyInjector: {enabled: false}\ncommonLabels: {team: edge}\nservice: {trafficDistribution: PreferClose}",
        "certgen: {job: {args: [--overwrite], nodeSelector: {a: b}, resources: {limits: {memory: 64Mi}}}, rbac: {labels: {c: d}, annotations: {e: f}}}",
    ] {
        let objects = render(&desk.helm, "other", &[values, "namespaceOverride: default"])?;
        desk.kubectl(
            &["apply", "--server-side", "--force-conflicts", "--validate=strict", "--dry-run=server", "-f", "-"],
            Some(&objects),
        )
        .with_context(|| values.to_owned())?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_made_once_and_renewed_when_asked() -> Result<()> {
    let Some(desk) = Desk::open().await? else { return Ok(()) };
    desk.world.namespace(NAMESPACE, json!({})).await?;
    desk.apply(&render(&desk.helm, "eg", &[])?)?;
    let account = "eg-gateway-helm-certgen";
    for verb in ["get", "create", "update"] {
        desk.may(account, verb, "secrets").await?;
    }
    desk.may(account, "patch", &format!("mutatingwebhookconfigurations/envoy-gateway-topology-injector.{NAMESPACE}"))
        .await?;
    let spec = Spec::new(NAMESPACE, "cluster.local");
    let good = |identity: Identity| -> Result<Material> {
        let secret = desk.secret(identity.name())?;
        ensure!(secret.kind == "kubernetes.io/tls" && secret.label == "envoy-gateway", "{identity}: {}", secret.kind);
        let material = Material::from_secret(&secret.data)?;
        certs::inspect(&material, identity, &spec, certs::now())?;
        Ok(material)
    };
    let bundle = || -> Result<Vec<u8>> {
        let name = format!("envoy-gateway-topology-injector.{NAMESPACE}");
        let at = "jsonpath={.webhooks[0].clientConfig.caBundle}";
        let text = desk.kubectl(&["get", "mutatingwebhookconfiguration", &name, "-o", at], None)?;
        Ok(BASE64_STANDARD.decode(text)?)
    };

    let text = said(desk.certgen(account, &[])?)?;
    ensure!(text.matches(": made\n").count() == 4 && text.contains("CA bundle set"), "{text}");
    let first = Identity::ALL.map(|i| good(i).map(|m| (i, m))).into_iter().collect::<Result<BTreeMap<_, _>>>()?;
    let hmac = desk.secret("envoy-oidc-hmac")?;
    ensure!(hmac.kind == "Opaque" && hmac.data["hmac-secret"].len() == 32);
    ensure!(bundle()? == first[&Identity::EnvoyGateway].ca.as_bytes());

    // Again: nothing is written.
    let versions = || -> Result<Vec<String>> { certs::SECRETS.iter().map(|n| Ok(desk.secret(n)?.version)).collect() };
    let before = versions()?;
    let text = said(desk.certgen(account, &[])?)?;
    ensure!(text.matches(": kept\n").count() == 5, "{text}");
    ensure!(versions()? == before);

    // One is gone: all are renewed, and those who still show an old one stay trusted.
    desk.kubectl(&["delete", "secret", "-n", NAMESPACE, "envoy-rate-limit"], None)?;
    let text = said(desk.certgen(account, &[])?)?;
    ensure!(text.contains("envoy: made anew: renewed together with envoy-rate-limit"), "{text}");
    let second = good(Identity::EnvoyGateway)?;
    ensure!(second.cert != first[&Identity::EnvoyGateway].cert);
    ensure!(second.ca.contains(first[&Identity::EnvoyGateway].ca.trim()));
    ensure!(desk.secret("envoy-oidc-hmac")?.version == hmac.version);
    ensure!(bundle()? == second.ca.as_bytes());

    // What others made is theirs, also when it is no good.
    desk.kubectl(&["label", "secret", "-n", NAMESPACE, "envoy", "control-plane-"], None)?;
    desk.kubectl(&["patch", "secret", "-n", NAMESPACE, "envoy", "-p", r#"{"data":{"ca.crt":"eA=="}}"#], None)?;
    let foreign = desk.secret("envoy")?.version;
    let text = said(desk.certgen(account, &[])?)?;
    ensure!(text.contains("envoy: kept, as others made it; but ca.crt cannot be parsed"), "{text}");
    ensure!(desk.secret("envoy")?.version == foreign);

    // Unless everything is to be new.
    let text = said(desk.certgen(account, &["--overwrite"])?)?;
    ensure!(text.matches(": made anew: ").count() == 4, "{text}");
    ensure!(good(Identity::EnvoyGateway)?.cert != second.cert);
    ensure!(desk.secret("envoy-oidc-hmac")?.data != hmac.data);

    // In words: rights that are missing, a webhook that is missing.
    let refused = |out: Output, words: &[&str]| -> Result<()> {
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(!out.status.success() && words.iter().all(|w| text.contains(w)), "{text}");
        Ok(())
    };
    refused(desk.certgen("nobody", &[])?, &["Secret envoy-gateway-system/envoy-gateway cannot be read", "forbidden"])?;
    desk.kubectl(&["delete", "mutatingwebhookconfiguration", "--all"], None)?;
    refused(desk.certgen(account, &[])?, &["no MutatingWebhookConfiguration", "--disable-topology-injector"])?;
    said(desk.certgen(account, &["--disable-topology-injector"])?)?;
    Ok(())
}

/// The control plane with the rights of the chart in two modes: statuses and the Lease are written, nothing is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_are_enough() -> Result<()> {
    let Some(desk) = Desk::open().await? else { return Ok(()) };
    desk.world.define(|_| true).await?;
    desk.world.namespace(NAMESPACE, json!({})).await?;
    desk.world.namespace("app", json!({})).await?;
    for (mode, provider) in
        [("all namespaces", "{}"), ("one namespace", "{watch: {type: Namespaces, namespaces: [app]}}")]
    {
        let values = format!("config: {{envoyGateway: {{provider: {{type: Kubernetes, kubernetes: {provider}}}}}}}");
        desk.apply(&render(&desk.helm, "eg", &[&values])?)?;
        if mode != "all namespaces" {
            // What the first mode granted everywhere is not there any more.
            let everywhere =
                desk.kubectl(&["get", "clusterrole", "eg-gateway-helm-envoy-gateway-role", "-o", "json"], None)?;
            ensure!(!everywhere.contains("httproutes"), "{everywhere}");
        }
        desk.may("envoy-gateway", "list", "httproutes.gateway.networking.k8s.io").await?;
        desk.may("envoy-gateway", "update", "leases.coordination.k8s.io").await?;
        let suffix = mode.len();
        let class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": format!("eg-{suffix}")},
            "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}});
        let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": format!("gw-{suffix}"), "namespace": "app"}, "spec": {"gatewayClassName": format!("eg-{suffix}"),
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}});
        desk.world.create(&[class.clone(), gateway.clone()]).await?;
        let config = format!(
            "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider: {{type: Kubernetes, kubernetes: {provider}}}\n"
        );
        let server = Server::start(&desk.as_account("envoy-gateway"), &config).await.context(mode)?;
        let written = until(Duration::from_secs(60), "statuses are written", async || {
            let accepted = |v: &Value| {
                let conditions = v["status"]["conditions"].as_array().into_iter().flatten();
                conditions.into_iter().any(|c| c["type"] == "Accepted" && c["status"] == "True")
            };
            Ok(accepted(&desk.world.get(&class).await?) && accepted(&desk.world.get(&gateway).await?))
        });
        written.await.with_context(|| format!("{mode}: {}", server.log_tail()))?;
        let log = server.log_tail();
        if let Some(line) = log.lines().find(|l| l.contains("forbidden") || l.contains("403")) {
            bail!("{mode}: {line}");
        }
        ensure!(server.terminate().await?.success());
        desk.world.delete(&gateway).await?;
        desk.world.patch(&class, "", json!({"metadata": {"finalizers": null}})).await?;
        desk.world.delete(&class).await?;
    }
    Ok(())
}

/// The safe-upgrade policy: which definitions of Gateway API may come after which.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_definitions_are_refused() -> Result<()> {
    let Some(desk) = Desk::open().await? else { return Ok(()) };
    desk.world.namespace(NAMESPACE, json!({})).await?;
    desk.apply(&render(&desk.helm, "eg", &[])?)?;
    let definition = |group: &str, version: Option<&str>, channel: Option<&str>| {
        let mut annotations =
            json!({"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api/pull/0"});
        for (key, value) in [("bundle-version", version), ("channel", channel)] {
            if let Some(value) = value {
                annotations[format!("gateway.networking.k8s.io/{key}")] = value.into();
            }
        }
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("things.{group}"), "annotations": annotations},
            "spec": {"group": group, "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
        .to_string()
    };
    let ours = "gateway.networking.k8s.io";
    let replaced = |text: &str| -> Result<bool> {
        let out = desk.run(&desk.kubectl, &["apply", "--server-side", "--force-conflicts", "-f", "-"], Some(text))?;
        let words = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(out.status.success() || words.contains("safe-upgrades.gateway.networking.k8s.io"), "{words}");
        Ok(out.status.success())
    };
    until(Duration::from_secs(30), "the policy is in force", async || {
        let text = definition(ours, Some("v1.0.0"), Some("standard"));
        let args = ["apply", "--server-side", "--dry-run=server", "-f", "-"];
        Ok(!desk.run(&desk.kubectl, &args, Some(&text))?.status.success())
    })
    .await?;
    // In this order, on the same definition: group, version, channel, whether it is taken.
    let rows = [
        (ours, None, None, false),
        (ours, Some("v1.4.9"), Some("standard"), false),
        (ours, Some("v0.8.1"), Some("standard"), false),
        (ours, Some("v1.50"), Some("experimental"), true),
        (ours, Some("v1.6.1"), Some("standard"), true),
        (ours, Some("v1.6.1"), Some("experimental"), false),
        (ours, Some("v1.10.0"), Some("standard"), true),
        (ours, Some("v1.5.0"), Some("standard"), true),
        (ours, Some("v0.0.0-dev"), Some("standard"), true),
        (ours, Some("v1.4"), Some("standard"), false),
        ("example.com", None, None, true),
    ];
    for (group, version, channel, taken) in rows {
        let done = replaced(&definition(group, version, channel))?;
        ensure!(done == taken, "{group} {version:?} {channel:?}: {}", if done { "taken" } else { "refused" });
    }
    Ok(())
}

//! A cluster that a command asks: how it is found, how long an answer may take, and what went wrong in plain words.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use http::{Request, StatusCode};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config, Error,
    client::UpgradeConnectionError,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

/// Objects that one request may ask for.
const PAGE: u32 = 500;

/// Which cluster, and how patiently.
#[derive(Clone, Debug, Args)]
pub struct Reach {
    /// Kubeconfig; without it `KUBECONFIG`, `~/.kube/config`, or the pod that this runs in.
    #[arg(long, short = 'i')]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig.
    #[arg(long)]
    pub context: Option<String>,
    /// Longest wait for an answer, such as 500ms or 1m.
    #[arg(long, default_value = "10s", value_parser = api::shared::parse_duration)]
    pub request_timeout: Duration,
}

/// A cluster.
pub(crate) struct Cluster {
    client: Client,
    url: String,
    patience: Duration,
    /// Namespace of the context.
    pub(crate) namespace: String,
}

/// What is asked for, for messages: verb, resource and where.
#[derive(Clone, Copy, Debug)]
struct Asked<'a> {
    verb: &'a str,
    resource: &'a str,
    namespace: Option<&'a str>,
}

/// A kind in the API of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed<'a> {
    /// Name, such as `HTTPRoute`.
    pub(crate) kind: &'a str,
    /// API group.
    pub(crate) group: &'a str,
    /// Versions, the preferred one first.
    pub(crate) versions: &'a [&'a str],
    /// Objects live in a namespace.
    pub(crate) namespaced: bool,
}

// === impl Cluster ===

impl Cluster {
    /// Finds it; nothing is asked yet.
    ///
    /// # Errors
    /// When there is no usable kubeconfig.
    pub(crate) async fn open(reach: &Reach) -> Result<Self> {
        let options = KubeConfigOptions { context: reach.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &reach.kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("the kubeconfig {} cannot be read", path.display()))?;
                Config::from_custom_kubeconfig(file, &options).await?
            }
            None if reach.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await.context(
                "no cluster is known: set KUBECONFIG or give --kubeconfig FILE (a gateway without a cluster: --admin ADDRESS)",
            )?,
        };
        // A command fails soon and says why; whoever typed it decides whether to try again.
        config.default_retry = false;
        config.connect_timeout = Some(reach.request_timeout);
        let (url, namespace) = (config.cluster_url.to_string(), config.default_namespace.clone());
        let client = Client::try_from(config).context("the kubeconfig makes no client")?;
        Ok(Self { client, url, patience: reach.request_timeout, namespace })
    }

    /// The objects of a kind, in one namespace or all, in order of their names; `None` when the cluster does not have the
    /// kind.
    ///
    /// # Errors
    /// When the server does not answer in time or refuses.
    pub(crate) async fn list(&self, kind: Listed<'_>, namespace: Option<&str>) -> Result<Option<Vec<Value>>> {
        let plural = plural(kind.kind);
        let asked = Asked { verb: "list", resource: &plural, namespace };
        let place = namespace.filter(|_| kind.namespaced).map(|n| format!("/namespaces/{n}")).unwrap_or_default();
        for version in kind.versions {
            let path = format!("/apis/{}/{version}{place}/{plural}", kind.group);
            let mut objects: Vec<Value> = Vec::new();
            let mut next = String::new();
            loop {
                let request = Request::get(format!("{path}?limit={PAGE}&continue={next}")).body(Vec::new())?;
                match self.limited(self.client.request::<Value>(request)).await? {
                    Ok(mut page) => {
                        if let Value::Array(items) = page["items"].take() {
                            objects.extend(items.into_iter().map(|mut o| {
                                // Items of a list do not say what they are.
                                o["kind"] = kind.kind.into();
                                o["apiVersion"] = format!("{}/{version}", kind.group).into();
                                o
                            }));
                        }
                        next = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
                        if next.is_empty() {
                            return Ok(Some(objects));
                        }
                    }
                    Err(Error::Api(status)) if status.code == 404 => break,
                    Err(e) => return Err(self.told(e, asked)),
                }
            }
        }
        Ok(None)
    }

    /// Pods by label, in order of namespaces and names.
    ///
    /// # Errors
    /// When the server does not answer in time or refuses.
    pub(crate) async fn pods(&self, namespace: Option<&str>, labels: &str) -> Result<Vec<Pod>> {
        let asked = Asked { verb: "list", resource: "pods", namespace };
        let params = kube::api::ListParams::default().labels(labels);
        let mut pods =
            self.limited(self.pod_api(namespace).list(&params)).await?.map_err(|e| self.told(e, asked))?.items;
        pods.sort_by_key(|p| (p.metadata.namespace.clone(), p.metadata.name.clone()));
        Ok(pods)
    }

    /// A pod by name.
    ///
    /// # Errors
    /// When it is not there, or the server does not answer in time or refuses.
    pub(crate) async fn pod(&self, namespace: &str, name: &str) -> Result<Pod> {
        let asked = Asked { verb: "get", resource: "pods", namespace: Some(namespace) };
        let got = self.limited(self.pod_api(Some(namespace)).get_opt(name)).await?.map_err(|e| self.told(e, asked))?;
        got.with_context(|| format!("there is no pod {name} in namespace {namespace}"))
    }

    /// The JSON at a path of the server that listens on `port` of a pod's loopback, through the API server.
    ///
    /// # Errors
    /// When the port cannot be forwarded, or the answer does not come in time, is no success or no JSON.
    pub(crate) async fn ask_pod(&self, pod: &Pod, port: u16, path: &str) -> Result<Value> {
        let (namespace, name) = place(pod);
        if let Some(why) = not_running(pod) {
            return Err(anyhow!("pod {namespace}/{name} {why}"));
        }
        let asked = Asked { verb: "create", resource: "pods/portforward", namespace: Some(namespace) };
        let api = self.pod_api(Some(namespace));
        let mut forwarder = self
            .limited(api.portforward(name, &[port]))
            .await?
            .map_err(|e| self.told(e, asked))
            .with_context(|| format!("pod {namespace}/{name}"))?;
        let stream = forwarder.take_stream(port).context("the port is not forwarded")?;
        let failure = forwarder.take_error(port);
        let answer = async {
            match failure {
                // What the kubelet says explains more than a stream that ends.
                Some(failure) => tokio::select! {
                    biased;
                    Some(text) = failure => Err(anyhow!("{text}")),
                    answer = crate::admin::fetch(stream, "localhost", path) => answer,
                },
                None => crate::admin::fetch(stream, "localhost", path).await,
            }
        };
        let answer = tokio::time::timeout(self.patience, answer).await.map_err(|_| self.late())?;
        answer.with_context(|| format!("asking port {port} of pod {namespace}/{name} for {path}"))
    }

    fn pod_api(&self, namespace: Option<&str>) -> Api<Pod> {
        match namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    async fn limited<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<Result<T, Error>> {
        tokio::time::timeout(self.patience, request).await.map_err(|_| self.late())
    }

    fn late(&self) -> anyhow::Error {
        anyhow!("no answer from the API server at {} within {:?} (--request-timeout)", self.url, self.patience)
    }

    fn told(&self, error: Error, asked: Asked<'_>) -> anyhow::Error {
        told(error, asked, &self.url)
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("url", &self.url).finish_non_exhaustive()
    }
}

/// An error in words that say what to do.
fn told(error: Error, asked: Asked<'_>, url: &str) -> anyhow::Error {
    let Asked { verb, resource, namespace } = asked;
    let at = namespace.map_or_else(|| " in all namespaces".to_owned(), |n| format!(" in namespace {n}"));
    let flag = namespace.map_or_else(|| "-A".to_owned(), |n| format!("-n {n}"));
    let forbidden = || {
        format!(
            "the API server does not let you {verb} {resource}{at}; `kubectl auth can-i {verb} {resource} {flag}` tells, an administrator grants it"
        )
    };
    let code = match &error {
        Error::Api(status) => Some(status.code),
        Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(status)) => Some(status.as_u16()),
        _ => None,
    };
    let words = match code.and_then(|c| StatusCode::from_u16(c).ok()) {
        Some(StatusCode::UNAUTHORIZED) => format!("the API server at {url} does not accept your credentials"),
        Some(StatusCode::FORBIDDEN) => forbidden(),
        Some(_) => format!("the API server does not {verb} {resource}{at}"),
        None => format!("the API server at {url} cannot be reached"),
    };
    anyhow::Error::new(error).context(words)
}

/// Namespace and name of a pod.
pub(crate) fn place(pod: &Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or("default"), pod.metadata.name.as_deref().unwrap_or_default())
}

/// Why a pod cannot answer, if so.
fn not_running(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref();
    if pod.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted".to_owned());
    }
    let phase = status.and_then(|s| s.phase.as_deref()).unwrap_or("Unknown");
    if phase == "Running" {
        return None;
    }
    let waiting = status.into_iter().flat_map(|s| s.container_statuses.iter().flatten()).find_map(|c| {
        let waiting = c.state.as_ref()?.waiting.as_ref()?;
        Some(format!("{}: {}", c.name, waiting.reason.as_deref().unwrap_or("waiting")))
    });
    let condition = status.into_iter().flat_map(|s| s.conditions.iter().flatten()).find(|c| c.status == "False");
    let why = waiting.or_else(|| condition.and_then(|c| c.message.clone().or_else(|| c.reason.clone())));
    Some(match why {
        Some(why) => format!("does not run: {phase}, {why}"),
        None => format!("does not run: {phase}"),
    })
}

/// Plural of a kind in paths.
fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with('a') => format!("{stem}ies"),
        _ if lower.ends_with('s') => format!("{lower}es"),
        _ => format!("{lower}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_of_the_kinds() {
        for (kind, want) in [
            ("Gateway", "gateways"),
            ("GatewayClass", "gatewayclasses"),
            ("BackendTLSPolicy", "backendtlspolicies"),
            ("EnvoyProxy", "envoyproxies"),
            ("HTTPRoute", "httproutes"),
        ] {
            assert_eq!(plural(kind), want);
        }
    }

    #[test]
    fn a_pod_that_cannot_answer_is_told_with_its_reason() {
        let pod = |status: Value| -> Pod { serde_json::from_value(serde_json::json!({"status": status})).unwrap() };
        let why = |status: Value| not_running(&pod(status));
        assert_eq!(why(serde_json::json!({"phase": "Running"})), None);
        assert_eq!(why(serde_json::json!({})).as_deref(), Some("does not run: Unknown"));
        let pulls = serde_json::json!({"phase": "Pending", "containerStatuses": [
            {"name": "envoy", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        assert_eq!(why(pulls).as_deref(), Some("does not run: Pending, envoy: ImagePullBackOff"));
        let unscheduled = serde_json::json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "message": "0/1 nodes are available"}]});
        assert_eq!(why(unscheduled).as_deref(), Some("does not run: Pending, 0/1 nodes are available"));
    }
}

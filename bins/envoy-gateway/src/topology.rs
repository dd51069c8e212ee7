//! The topology injector: a webhook that tells a proxy's pod in which zone it is placed.
//!
//! A pod learns its node when it is bound to it, and may read its own annotations, but not its node's labels. So when a pod
//! of a fleet is bound, its Binding gets the node's zone and region as annotations; the API server copies them to the pod.
//! Nothing is written, and any replica can answer. Whatever goes wrong, the pod is bound as it is: a proxy without a zone
//! is better than none.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use axum::{Json, Router, extract::State, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD};
use election::kubernetes::{ReadOnlyLayer, read_only_client};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
    service::TowerToHyperService,
};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Api, Client};
use serde_json::{Map, Value, json};
use tokio::{net::TcpListener, task::JoinSet, time::timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

/// Port that the webhook's Service leads to.
pub(crate) const PORT: u16 = 9443;
/// Labels of a node that its proxies are told.
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];
/// Labels of which the pods of a fleet have one.
const FLEET: [&str; 2] = ["gateway.envoyproxy.io/owning-gateway-name", "gateway.envoyproxy.io/owning-gatewayclass"];
/// The API server waits 10 s for a webhook.
const PATIENCE: Duration = Duration::from_secs(4);

/// Answers the API server's reviews of Bindings.
pub(crate) struct Injector {
    client: Client,
    credentials: Arc<certs::Reloading>,
}

// === impl Injector ===

impl Injector {
    /// An injector that reads pods and nodes with this configuration and shows the control plane's certificate.
    ///
    /// # Errors
    /// When the configuration makes no client.
    pub(crate) fn new(config: kube::Config, credentials: Arc<certs::Reloading>) -> Result<Self> {
        let client = read_only_client(config, &ReadOnlyLayer::new()).context("the kubeconfig makes no client")?;
        Ok(Self { client, credentials })
    }

    /// Serves until `end`.
    pub(crate) async fn serve(self, listener: TcpListener, end: impl Future<Output = ()>) {
        let router = Router::new().route("/inject-pod-topology", post(review)).with_state(self.client);
        let mut connections = JoinSet::new();
        let accept = async {
            loop {
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        warn!(%error, "topology injector");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        continue;
                    }
                };
                // Ended connections make room.
                while connections.try_join_next().is_some() {}
                let tls = match self.credentials.current().material.webhook_config(&["h2", "http/1.1"]) {
                    Ok(tls) => TlsAcceptor::from(Arc::new(tls)),
                    Err(error) => {
                        warn!(%error, "topology injector");
                        continue;
                    }
                };
                let service = TowerToHyperService::new(router.clone());
                connections.spawn(async move {
                    let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await else { return };
                    let served =
                        Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                    if let Err(error) = served {
                        debug!(error, "topology injector");
                    }
                });
            }
        };
        tokio::select! { () = accept => {}, () = end => {} }
    }
}

/// Answers one review.
async fn review(State(client): State<Client>, Json(review): Json<Value>) -> Json<Value> {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let patch = match timeout(PATIENCE, annotations(&client, request)).await {
        Ok(Ok(annotations)) => patch(&request["object"], annotations),
        Ok(Err(error)) => {
            warn!(error = format!("{error:#}"), pod = %request["name"], "bound without a zone");
            None
        }
        Err(_) => {
            warn!(pod = %request["name"], "bound without a zone: the API server takes too long");
            None
        }
    };
    if let Some(patch) = patch {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = BASE64_STANDARD.encode(patch.to_string()).into();
    }
    Json(json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response}))
}

/// What the pod of a Binding is to be told; nothing for pods that are no proxies of ours.
async fn annotations(client: &Client, request: &Value) -> Result<Map<String, Value>> {
    let binding = &request["object"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&request["namespace"]);
    // The request has a name even where the object has none.
    let name = binding["metadata"]["name"].as_str().map_or_else(|| text(&request["name"]), str::to_owned);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let pod = pods.get(&name).await.with_context(|| format!("pod {namespace}/{name}"))?;
    if !pod.metadata.labels.iter().flatten().any(|(k, _)| FLEET.contains(&&**k)) {
        return Ok(Map::new());
    }
    let target = text(&binding["target"]["name"]);
    let node = Api::<Node>::all(client.clone()).get(&target).await.with_context(|| format!("node {target}"))?;
    Ok(of_node(&node))
}

fn of_node(node: &Node) -> Map<String, Value> {
    let labels = node.metadata.labels.iter().flatten();
    labels.filter(|(k, _)| TOPOLOGY.contains(&&***k)).map(|(k, v)| (k.clone(), v.as_str().into())).collect()
}

/// The change of a Binding that adds annotations to those that it has.
fn patch(binding: &Value, added: Map<String, Value>) -> Option<Value> {
    if added.is_empty() {
        return None;
    }
    let mut all = binding["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    all.extend(added);
    Some(json!([{"op": "add", "path": "/metadata/annotations", "value": all}]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_node_only_its_topology_is_told() {
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": {
            "topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1", "other": "x"}}}))
        .unwrap();
        let told = of_node(&node);
        assert_eq!(json!(told), json!({"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}));
        assert!(of_node(&Node::default()).is_empty());
        let binding = json!({"metadata": {"annotations": {"a": "b"}}});
        assert_eq!(patch(&binding, told).unwrap()[0]["value"]["a"], "b");
        assert_eq!(patch(&binding, Map::new()), None);
    }
}

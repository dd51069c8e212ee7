//! The other replicas: how fresh they are, whether proxies are handed over to them, what their proxies refused.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use election::{
    Identity,
    kubernetes::{ReadOnlyLayer, read_only_client},
};
use k8s_openapi::api::{coordination::v1::Lease, discovery::v1::EndpointSlice};
use kube::{Api, Client, api::ListParams};
use peers::{Disagreement, Freshness, Options, Peers, Report, Rule, View};
use provider::cluster::ClusterHandle;
use rustls::pki_types::ServerName;
use tokio::{net::TcpListener, sync::watch, time::sleep};
use tracing::{debug, error, info, warn};

use crate::{
    convert,
    engine::EngineHandle,
    leader::LEASE,
    shared::{Agreed, Progress, Replicas},
};

/// Name of the control plane's Service, and in its certificate.
const SERVICE: &str = "envoy-gateway";
/// Name of the port in the Service's EndpointSlices, where it has that port; without it all replicas have the same.
const PORT_NAME: &str = "peers";
/// How often it is looked where the replicas are.
const LOOK: Duration = Duration::from_secs(10);
/// How often it is looked at what was seen and is served.
const SAMPLE: Duration = Duration::from_millis(250);
/// What is served follows from what was seen when neither has changed for so many looks.
const STEADY: u32 = 4;
/// How often the engine is told what proxies of others refused.
const TELL: Duration = Duration::from_secs(2);

/// What the tasks need.
pub(crate) struct Setup {
    /// Where this replica tells.
    pub(crate) listener: TcpListener,
    /// Where the others are, instead of asking the API server.
    pub(crate) fixed: Vec<SocketAddr>,
    /// Connection to the API server.
    pub(crate) config: kube::Config,
    /// Certificate of the control plane.
    pub(crate) credentials: Arc<certs::Reloading>,
    /// The engine.
    pub(crate) engine: EngineHandle,
    /// How far it is.
    pub(crate) progress: Arc<Progress>,
    /// What is served.
    pub(crate) cache: xds::Cache,
    /// What was read of the cluster.
    pub(crate) handle: ClusterHandle,
    /// Ready as far as this replica itself is concerned.
    pub(crate) ready: Box<dyn Fn() -> bool + Send + Sync>,
    /// Handles of what is known.
    pub(crate) replicas: Replicas,
}

/// A name for this start of this replica.
///
/// # Errors
/// Never in a pod.
pub(crate) fn new() -> Result<Replicas> {
    let pod = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME")).unwrap_or_else(|_| SERVICE.to_owned());
    let own = Identity::unique(&pod)?.as_str().to_owned();
    Ok(Replicas { peers: Peers::new(&own), own, freshness: Freshness::new(), agreed: Agreed::new() })
}

/// Does it all until `end`.
///
/// # Errors
/// When the configuration makes no client.
pub(crate) fn run(setup: Setup, end: impl Future<Output = ()>) -> Result<impl Future<Output = ()>> {
    let Setup { listener, fixed, config, credentials, engine, progress, cache, handle, ready, replicas } = setup;
    let client = read_only_client(config, &ReadOnlyLayer::new()).context("the kubeconfig makes no client")?;
    let name = ServerName::try_from(SERVICE).context("a DNS name")?;
    let Replicas { own, peers, freshness, agreed } = replicas;
    let port = listener.local_addr()?.port();
    let (places, addresses) = watch::channel(fixed.iter().copied().collect::<BTreeSet<_>>());
    let certificate = credentials.clone();
    let options = Options {
        own: own.clone(),
        rule: Rule::default(),
        freshness: freshness.clone(),
        addresses,
        name,
        tls: Box::new(move || certificate.current().material.client_config(&[peers::ALPN]).ok().map(Arc::new)),
    };
    let (hand_over, age, told) = (peers.hand_over(), freshness.clone(), progress.clone());
    let comparing = compare(agreed.clone(), peers.clone(), handle, cache.clone(), progress.clone());
    let report = move || Report {
        replica: own.clone(),
        age_millis: age.age().map(|a| u64::try_from(a.as_millis()).unwrap_or(u64::MAX)),
        serving: ready() && !*hand_over.borrow(),
        digest: cache.digest().to_string(),
        refusals: told.refusals(),
        views: agreed.with(|agreement, _| agreement.told()),
    };
    let server = move || credentials.current().material.server_config(&[peers::ALPN]).ok().map(Arc::new);
    let ask = {
        let client = client.clone();
        async move || answers(&client).await && progress.is_live()
    };
    Ok(async move {
        tokio::select! {
            () = peers::serve(listener, server, SERVICE, report, end) => {}
            () = peers::probe(freshness, ask) => {}
            () = look(&client, port, &fixed, &places) => {}
            () = tell(&peers, &engine) => {}
            () = comparing => {}
            () = peers.clone().run(options) => {}
        }
    })
}

/// The API server answers from its store: that it has no such Lease, or that we may not read it, is an answer.
async fn answers(client: &Client) -> bool {
    let leases: Api<Lease> = Api::namespaced(client.clone(), &convert::controller_namespace());
    match leases.get_opt(LEASE).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) => status.code < 500 && status.code != 429,
        Err(_) => false,
    }
}

/// Looks where the replicas are, ready or not; what cannot be read stays as it was.
async fn look(client: &Client, port: u16, fixed: &[SocketAddr], places: &watch::Sender<BTreeSet<SocketAddr>>) {
    if !fixed.is_empty() {
        return std::future::pending().await;
    }
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &convert::controller_namespace());
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={SERVICE}"));
    loop {
        match slices.list(&of_service).await {
            Ok(list) => {
                let all = list.items.iter().flat_map(|slice| places_of(slice, port)).collect();
                places.send_if_modified(|last| std::mem::replace(last, all) != *last);
            }
            Err(error) => debug!(%error, "it is not known where the other replicas are now"),
        }
        sleep(LOOK).await;
    }
}

/// Replicas of an EndpointSlice, ready or not.
fn places_of(slice: &EndpointSlice, port: u16) -> impl Iterator<Item = SocketAddr> {
    let named = slice.ports.iter().flatten().find(|p| p.name.as_deref() == Some(PORT_NAME));
    let port = named.and_then(|p| u16::try_from(p.port?).ok()).unwrap_or(port);
    let addresses = slice.endpoints.iter().flat_map(|e| &e.addresses);
    addresses.filter_map(move |a| Some(SocketAddr::new(a.parse().ok()?, port)))
}

/// Compares what this replica and others make of what they see. Replicas of other versions may well make something else of it.
async fn compare(agreed: Agreed, peers: Peers, handle: ClusterHandle, cache: xds::Cache, progress: Arc<Progress>) {
    let (mut last, mut same) = (None, 0_u32);
    let mut told: Vec<Disagreement> = Vec::new();
    loop {
        sleep(SAMPLE).await;
        let seen = handle.seen().filter(|_| progress.is_live());
        let now = Some((seen, progress.translations.load(Ordering::Relaxed), cache.digest()));
        same = if now == last { same.saturating_add(1) } else { 0 };
        last = now;
        if let (Some((Some(seen), _, digest)), true) = (&last, same >= STEADY) {
            let seen = format!("{} {seen:032x}", env!("CARGO_PKG_VERSION"));
            agreed.with(|agreement, _| agreement.note(View { seen, digest: digest.to_string() }));
        }
        let reports = peers.reports();
        agreed.with(|agreement, now| agreement.compare(now, &reports));
        let all = agreed.disagreements();
        for d in all.iter().filter(|d| !told.iter().any(|t| t.replica == d.replica)) {
            error!(
                replica = d.replica,
                seen = d.seen,
                ours = d.ours,
                theirs = d.theirs,
                "a replica has seen the same resource versions and serves something else"
            );
        }
        for t in told.iter().filter(|t| !all.iter().any(|d| d.replica == t.replica)) {
            info!(replica = t.replica, "serves the same again, or is not heard any more");
        }
        told = all;
    }
}

/// Tells the engine what proxies of others refused: all leave out the same, and the leader can say so.
async fn tell(peers: &Peers, engine: &EngineHandle) {
    let mut last = Vec::new();
    loop {
        sleep(TELL).await;
        let refusals = peers.refusals();
        if refusals != last {
            for refusal in refusals.iter().filter(|r| !last.contains(r)) {
                warn!(
                    kind = refusal.kind,
                    namespace = refusal.namespace,
                    name = refusal.name,
                    detail = refusal.detail,
                    "refused by a proxy of another replica"
                );
            }
            last.clone_from(&refusals);
        }
        if !refusals.is_empty() {
            engine.refused_elsewhere(refusals).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_where_the_slices_say() {
        let slice = |ports: serde_json::Value| -> EndpointSlice {
            serde_json::from_value(serde_json::json!({"addressType": "IPv4", "ports": ports, "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": false}}, {"addresses": ["10.0.0.2", "no address"]}]}))
            .expect("a slice")
        };
        let of = |slice: &EndpointSlice| places_of(slice, 18_003).map(|a| a.to_string()).collect::<Vec<_>>();
        let other = slice(serde_json::json!([{"name": "grpc", "port": 18000}]));
        assert_eq!(of(&other), ["10.0.0.1:18003", "10.0.0.2:18003"]);
        let named = slice(serde_json::json!([{"name": "grpc", "port": 18000}, {"name": "peers", "port": 7}]));
        assert_eq!(of(&named), ["10.0.0.1:7", "10.0.0.2:7"]);
    }
}

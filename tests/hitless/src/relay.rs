//! A planted bug: a relay between the control plane and its proxy that breaks the order of updates on the wire.
//!
//! The control plane keeps its order by waiting for acknowledgements, and takes clusters away long after nothing leads to
//! them. The relay answers in the proxy's place and hands the update over later, or takes the clusters away at once, as a
//! control plane without those waits would: so a run through it must fail, or it proves nothing.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use envoy_types::pb::envoy::{
    config::route::v3::{RouteConfiguration, route, route_action::ClusterSpecifier},
    service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
    },
};
use prost::Message as _;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tokio_stream::{
    Stream,
    wrappers::{ReceiverStream, TcpListenerStream},
};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig},
};

/// How much later the proxy gets what was answered in its place.
const HOLD: Duration = Duration::from_millis(250);
const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Begin of the nonces of what the relay itself tells the proxy.
const OWN: &str = "relay-";
const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// What is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Routes reach the proxy before the clusters that they need.
    RoutesFirst,
    /// Clusters are taken from the proxy before the routes that use them.
    RemovalsFirst,
}

/// The relay, listening.
#[derive(Debug)]
pub(crate) struct Relay {
    fault: Fault,
    listener: TcpListener,
}

// === impl Fault ===

impl Fault {
    /// All, with their names on the command line.
    pub(crate) const ALL: [(&'static str, Self); 2] =
        [("routes-first", Self::RoutesFirst), ("removals-first", Self::RemovalsFirst)];

    /// Whether the proxy gets such an update later.
    fn holds(self, kind: &str) -> bool {
        match self {
            Self::RoutesFirst => kind == CLUSTER || kind == ENDPOINTS,
            Self::RemovalsFirst => kind == ROUTES,
        }
    }

    /// Whether the relay answers it in the proxy's place. (For endpoints nothing waits.)
    fn answers(self, kind: &str) -> bool {
        self == Self::RoutesFirst && kind == CLUSTER
    }

    /// Whether clusters go from the proxy before the table that leaves them gets there.
    fn takes_clusters(self, kind: &str) -> bool {
        self == Self::RemovalsFirst && kind == ROUTES
    }
}

// === impl Relay ===

impl Relay {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn bind(fault: Fault) -> Result<Self> {
        Ok(Self { fault, listener: TcpListener::bind(("127.0.0.1", 0)).await? })
    }

    /// Writes a program that starts Envoy with the relay in place of the control plane. It finds the control plane's
    /// address in the file `addresses.json` somewhere above the bootstrap.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn wrap(&self, dir: &Path, envoy: &Path) -> Result<PathBuf> {
        let port = self.listener.local_addr()?.port();
        let path = dir.join("envoy-through-relay");
        let script = format!(
            r#"#!/bin/sh
last= config=
for a; do [ "$last" != -c ] || config=$a; last=$a; done
if [ -n "$config" ]; then
  dir=$(dirname "$config")
  while [ ! -f "$dir/addresses.json" ] && [ "$dir" != / ]; do dir=$(dirname "$dir"); done
  xds=$(sed -n 's/.*"xds":"127.0.0.1:\([0-9]*\)".*/\1/p' "$dir/addresses.json")
  sed -i "s/\(port_value\"*: *\)$xds\b/\1{port}/" "$config"
fi
exec '{}' "$@"
"#,
            envoy.display()
        );
        std::fs::write(&path, script)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// Relays to the control plane on this port, with the certificates below its home folder, until dropped.
    ///
    /// # Errors
    /// When the certificates cannot be used or the server ends.
    pub(crate) async fn run(self, home: &Path, xds: u16) -> Result<()> {
        let of = |who: &str| -> Result<(String, Identity)> {
            let dir = find(home, who).with_context(|| format!("no certificates of {who} in {}", home.display()))?;
            let text = |name: &str| std::fs::read_to_string(dir.join(name));
            Ok((text("ca.crt")?, Identity::from_pem(text("tls.crt")?, text("tls.key")?)))
        };
        let (ca, server) = of("envoy-gateway")?;
        let (_, client) = of("envoy")?;
        let ca = Certificate::from_pem(ca);
        let tls = ClientTlsConfig::new().ca_certificate(ca.clone()).identity(client).domain_name("envoy-gateway");
        let upstream = Channel::from_shared(format!("https://127.0.0.1:{xds}"))?.tls_config(tls)?.connect_lazy();
        let ads = Ads { fault: self.fault, upstream, streams: Arc::default() };
        let service = AggregatedDiscoveryServiceServer::new(ads).max_decoding_message_size(64 << 20);
        Server::builder()
            .tls_config(ServerTlsConfig::new().identity(server).client_ca_root(ca))?
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(self.listener))
            .await
            .context("the relay ended")
    }
}

/// The folder of that name with a certificate in it.
fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    let mut below = Vec::new();
    for entry in std::fs::read_dir(dir).ok()?.flatten().filter(|e| e.path().is_dir()) {
        let path = entry.path();
        if entry.file_name() == name && path.join("tls.crt").is_file() {
            return Some(path);
        }
        below.push(path);
    }
    below.iter().find_map(|path| find(path, name))
}

struct Ads {
    fault: Fault,
    upstream: Channel,
    streams: Arc<Mutex<JoinSet<()>>>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        _: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("delta only"))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        let (to_proxy, answers) = mpsc::channel(64);
        let stream = RelayedStream {
            fault: self.fault,
            from_proxy: request.into_inner(),
            to_proxy,
            answered: BTreeSet::new(),
            named: BTreeMap::new(),
            later: VecDeque::new(),
        };
        let client = AggregatedDiscoveryServiceClient::new(self.upstream.clone()).max_decoding_message_size(64 << 20);
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            if let Err(status) = stream.run(client).await {
                println!("relay: {status}");
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

struct RelayedStream {
    fault: Fault,
    from_proxy: Streaming<DeltaDiscoveryRequest>,
    to_proxy: mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    /// Nonces that were answered in the proxy's place.
    answered: BTreeSet<String>,
    /// Clusters that each route table leads to.
    named: BTreeMap<String, BTreeSet<String>>,
    later: VecDeque<(Instant, DeltaDiscoveryResponse)>,
}

impl RelayedStream {
    async fn run(mut self, mut client: AggregatedDiscoveryServiceClient<Channel>) -> Result<(), Status> {
        let (up, requests) = mpsc::channel(64);
        let mut down = client.delta_aggregated_resources(ReceiverStream::new(requests)).await?.into_inner();
        loop {
            let due = self.later.front().map(|(at, _)| *at);
            let next = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                request = self.from_proxy.message() => {
                    let Ok(Some(mut request)) = request else { return Ok(()) };
                    if self.answered.remove(&request.response_nonce) || request.response_nonce.starts_with(OWN) {
                        let asks = !request.resource_names_subscribe.is_empty()
                            || !request.resource_names_unsubscribe.is_empty();
                        if !asks {
                            continue;
                        }
                        request.response_nonce.clear();
                        request.error_detail = None;
                    }
                    if up.send(request).await.is_err() {
                        return Ok(());
                    }
                }
                response = down.message() => {
                    let Some(response) = response? else { return Ok(()) };
                    if self.fault.answers(&response.type_url) {
                        self.answered.insert(response.nonce.clone());
                        let request = DeltaDiscoveryRequest {
                            type_url: response.type_url.clone(),
                            response_nonce: response.nonce.clone(),
                            ..DeltaDiscoveryRequest::default()
                        };
                        if up.send(request).await.is_err() {
                            return Ok(());
                        }
                    }
                    if self.fault.takes_clusters(&response.type_url)
                        && let Some(early) = self.leave(&response)
                        && self.to_proxy.send(Ok(early)).await.is_err()
                    {
                        return Ok(());
                    }
                    if self.fault.holds(&response.type_url) {
                        self.later.push_back((Instant::now() + HOLD, response));
                    } else if self.to_proxy.send(Ok(response)).await.is_err() {
                        return Ok(());
                    }
                }
                () = next => {
                    if let Some((_, response)) = self.later.pop_front()
                        && self.to_proxy.send(Ok(response)).await.is_err()
                    {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The removal of the clusters that no table leads to any more when it is as in this update.
    fn leave(&mut self, update: &DeltaDiscoveryResponse) -> Option<DeltaDiscoveryResponse> {
        let all = |named: &BTreeMap<_, BTreeSet<String>>| named.values().flatten().cloned().collect::<BTreeSet<_>>();
        let before = all(&self.named);
        for resource in &update.resources {
            let table = resource.resource.as_ref().and_then(|any| RouteConfiguration::decode(&*any.value).ok())?;
            self.named.insert(table.name.clone(), clusters(table));
        }
        let now = all(&self.named);
        let removed: Vec<String> = before.difference(&now).cloned().collect();
        (!removed.is_empty()).then(|| DeltaDiscoveryResponse {
            type_url: CLUSTER.to_owned(),
            nonce: format!("{OWN}{}", update.nonce),
            removed_resources: removed,
            ..DeltaDiscoveryResponse::default()
        })
    }
}

/// The clusters that a table leads to.
fn clusters(table: RouteConfiguration) -> BTreeSet<String> {
    let routes = table.virtual_hosts.into_iter().flat_map(|host| host.routes);
    let specifiers = routes.filter_map(|route| match route.action {
        Some(route::Action::Route(action)) => action.cluster_specifier,
        _ => None,
    });
    specifiers
        .flat_map(|specifier| match specifier {
            ClusterSpecifier::Cluster(name) => vec![name],
            ClusterSpecifier::WeightedClusters(all) => all.clusters.into_iter().map(|c| c.name).collect(),
            _ => Vec::new(),
        })
        .collect()
}

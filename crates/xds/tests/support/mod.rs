//! An ADS peer in the test's hand, and a server for it to talk to.
#![allow(dead_code, reason = "each test file uses its part")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use envoy_types::pb::envoy::{
    config::core::v3::Node,
    service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
    },
};
use envoy_types::pb::google::rpc::Status as RpcStatus;
use tokio::{net::TcpListener, sync::mpsc, sync::oneshot, sync::watch, task::JoinSet, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming, transport::Channel};
use xds::{
    Admit, Cache, Config, Feedback, FeedbackReceiver, Hints, Name, NodeGroup, Resource, Server, TlsConfig, TypeUrl,
};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn list(names: &[&str]) -> Arc<[Name]> {
    names.iter().map(|name| Name::from(*name)).collect()
}

pub(crate) fn leaf(body: &str) -> Resource {
    Resource::new(body.to_owned(), Hints::Unknown)
}

pub(crate) fn cluster(name: &str, body: &str) -> Resource {
    let hints = Hints::Cluster { warms: false, endpoints: Some(name.into()), secrets: list(&[]) };
    Resource::new(body.to_owned(), hints)
}

pub(crate) fn table(body: &str, clusters: &[&str]) -> Resource {
    Resource::new(body.to_owned(), Hints::RouteConfiguration { clusters: list(clusters) })
}

pub(crate) fn changes<const N: usize>(
    of: [(TypeUrl, &str, Option<Resource>); N],
) -> BTreeMap<(TypeUrl, Name), Option<Resource>> {
    of.into_iter().map(|(kind, name, resource)| ((kind, name.into()), resource)).collect()
}

/// A server on a free port of loopback.
pub(crate) struct Rig {
    pub(crate) cache: Cache,
    pub(crate) server: Server,
    pub(crate) facts: FeedbackReceiver,
    pub(crate) port: u16,
    pub(crate) hand_over: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

impl Rig {
    pub(crate) async fn start(cache: Cache, config: Config, tls: Option<TlsConfig>) -> Self {
        Self::start_on(0, cache, config, tls).await
    }

    pub(crate) async fn start_on(port: u16, cache: Cache, config: Config, tls: Option<TlsConfig>) -> Self {
        Self::start_admitting(port, cache, config, tls, None).await
    }

    pub(crate) async fn start_admitting(
        port: u16,
        cache: Cache,
        config: Config,
        tls: Option<TlsConfig>,
        admit: Option<Admit>,
    ) -> Self {
        let listener = loop {
            match TcpListener::bind(("127.0.0.1", port)).await {
                Ok(listener) => break listener,
                // The port of a server that has just stopped.
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let port = listener.local_addr().unwrap().port();
        let (server, facts) = Server::new(cache.clone(), config);
        let hand_over = watch::Sender::new(false);
        let mut server = server.with_hand_over(hand_over.subscribe());
        if let Some(admit) = admit {
            server = server.with_admission(admit);
        }
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let serving = server.clone();
        tasks.spawn(async move {
            serving
                .serve(listener, tls, async {
                    let _ = stopped.await;
                })
                .await;
        });
        Self { cache, server, facts, port, hand_over, stop: Some(stop), tasks }
    }

    pub(crate) async fn plain() -> Self {
        Self::start(Cache::new(), Config::default(), None).await
    }

    pub(crate) async fn channel(&self) -> Channel {
        Channel::from_shared(format!("http://127.0.0.1:{}", self.port)).unwrap().connect().await.unwrap()
    }

    pub(crate) async fn delta(&self, group: &str) -> Peer {
        Peer::open(self.channel().await, group).await
    }

    pub(crate) async fn sotw(&self, group: &str) -> SotwPeer {
        SotwPeer::open(self.channel().await, group).await
    }

    pub(crate) fn set<const N: usize>(&self, group: &str, of: [(TypeUrl, &str, Option<Resource>); N]) {
        self.cache.update(NodeGroup::from(group), changes(of));
    }

    /// The next fact that this picks.
    pub(crate) async fn fact(&mut self, pick: impl Fn(&Feedback) -> bool) -> Feedback {
        timeout(PATIENCE, async {
            loop {
                let fact = self.facts.recv().await.expect("the server tells facts while it lives");
                if pick(&fact) {
                    return fact;
                }
            }
        })
        .await
        .expect("the fact comes in time")
    }

    /// Asks the server to stop.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits for the server's end.
    pub(crate) async fn ended(&mut self) {
        let ended = timeout(PATIENCE, self.tasks.join_next()).await.expect("the server ends in time");
        ended.expect("there is one task").expect("the server does not panic");
    }

    /// Stops the server and closes its connections at once.
    pub(crate) async fn kill(mut self) -> Cache {
        self.tasks.shutdown().await;
        self.cache.clone()
    }

    pub(crate) fn is_serving(&mut self) -> bool {
        self.tasks.try_join_next().is_none()
    }
}

pub(crate) fn node(group: &str) -> Node {
    Node { id: format!("node-of-{group}"), cluster: group.to_owned(), ..Default::default() }
}

/// A delta ADS client that does only what the test says.
pub(crate) struct Peer {
    pub(crate) requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
    node: Option<Node>,
    barriers: usize,
}

impl Peer {
    pub(crate) async fn open(channel: Channel, group: &str) -> Self {
        let (requests, sent) = mpsc::channel(64);
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client.delta_aggregated_resources(ReceiverStream::new(sent)).await.unwrap().into_inner();
        Self { requests, responses, node: Some(node(group)), barriers: 0 }
    }

    /// Shows that as its authorization.
    pub(crate) async fn open_with(channel: Channel, group: &str, shown: &str) -> Self {
        let (requests, sent) = mpsc::channel(64);
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let mut request = tonic::Request::new(ReceiverStream::new(sent));
        request.metadata_mut().insert("authorization", shown.parse().unwrap());
        let responses = client.delta_aggregated_resources(request).await.unwrap().into_inner();
        Self { requests, responses, node: Some(node(group)), barriers: 0 }
    }

    pub(crate) async fn send(&mut self, mut request: DeltaDiscoveryRequest) {
        if let Some(node) = self.node.take() {
            request.node = Some(node);
        }
        self.requests.send(request).await.expect("the stream is open");
    }

    pub(crate) async fn ask(&mut self, kind: TypeUrl, names: &[&str]) {
        self.send(DeltaDiscoveryRequest {
            type_url: kind.as_str().into(),
            resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
            ..Default::default()
        })
        .await;
    }

    pub(crate) async fn back(&mut self, kind: TypeUrl, names: &[&str], has: &[(&str, &Resource)]) {
        self.send(DeltaDiscoveryRequest {
            type_url: kind.as_str().into(),
            resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
            initial_resource_versions: has.iter().map(|(n, of)| (n.to_string(), of.version().to_string())).collect(),
            ..Default::default()
        })
        .await;
    }

    pub(crate) async fn ack(&mut self, response: &DeltaDiscoveryResponse) {
        self.answer(response, None).await;
    }

    pub(crate) async fn nack(&mut self, response: &DeltaDiscoveryResponse, why: &str) {
        self.answer(response, Some(why)).await;
    }

    async fn answer(&mut self, response: &DeltaDiscoveryResponse, why: Option<&str>) {
        self.send(DeltaDiscoveryRequest {
            type_url: response.type_url.clone(),
            response_nonce: response.nonce.clone(),
            error_detail: why.map(|why| RpcStatus { code: 3, message: why.into(), ..Default::default() }),
            ..Default::default()
        })
        .await;
    }

    pub(crate) async fn next(&mut self) -> Result<Option<DeltaDiscoveryResponse>, Status> {
        timeout(PATIENCE, self.responses.message()).await.expect("a response or the end comes in time")
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, kind: TypeUrl, names: &[&str]) -> impl Future<Output = DeltaDiscoveryResponse> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let caller = std::panic::Location::caller();
        async move {
            let response = self.next().await.unwrap().unwrap_or_else(|| panic!("the stream ended ({caller})"));
            let has: Vec<String> = response.resources.iter().map(|of| of.name.clone()).collect();
            assert_eq!((response.type_url.as_str(), &has), (kind.as_str(), &names), "{caller}");
            response
        }
    }

    pub(crate) async fn accept(&mut self, kind: TypeUrl, names: &[&str]) -> DeltaDiscoveryResponse {
        let response = self.expect(kind, names).await;
        self.ack(&response).await;
        response
    }

    /// Proves that nothing was sent: responses come in order, and the next one is the answer to a question asked now.
    pub(crate) async fn nothing(&mut self) {
        self.barriers += 1;
        let name = format!("barrier-{}", self.barriers);
        self.ask(TypeUrl::ClusterLoadAssignment, &[&name]).await;
        self.accept(TypeUrl::ClusterLoadAssignment, &[&name]).await;
    }
}

/// A state-of-the-world ADS client that does only what the test says.
pub(crate) struct SotwPeer {
    pub(crate) requests: mpsc::Sender<DiscoveryRequest>,
    responses: Streaming<DiscoveryResponse>,
    node: Option<Node>,
}

impl SotwPeer {
    pub(crate) async fn open(channel: Channel, group: &str) -> Self {
        let (requests, sent) = mpsc::channel(64);
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client.stream_aggregated_resources(ReceiverStream::new(sent)).await.unwrap().into_inner();
        Self { requests, responses, node: Some(node(group)) }
    }

    pub(crate) async fn ask(
        &mut self,
        kind: TypeUrl,
        names: &[&str],
        of: Option<&DiscoveryResponse>,
        why: Option<&str>,
    ) {
        let request = DiscoveryRequest {
            node: self.node.take(),
            type_url: kind.as_str().into(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            version_info: of.map(|of| of.version_info.clone()).unwrap_or_default(),
            response_nonce: of.map(|of| of.nonce.clone()).unwrap_or_default(),
            error_detail: why.map(|why| RpcStatus { code: 3, message: why.into(), ..Default::default() }),
            ..Default::default()
        };
        self.requests.send(request).await.expect("the stream is open");
    }

    pub(crate) async fn next(&mut self) -> DiscoveryResponse {
        let next = timeout(PATIENCE, self.responses.message()).await.expect("a response comes in time");
        next.unwrap().expect("the stream is open")
    }
}

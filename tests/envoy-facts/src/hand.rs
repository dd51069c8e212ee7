//! An ADS server (delta) that sends what a test says and nothing else.

use std::time::Duration;

use envoy_types::pb::{
    envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
        aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
    },
    google::protobuf::Any,
};
use futures::{StreamExt, stream::BoxStream};
use tokio::{
    net::TcpListener,
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use xds::TypeUrl;

use crate::config::Item;

/// The server. Its streams end with it.
#[derive(Debug)]
pub struct Hand {
    /// Where it listens.
    pub port: u16,
    streams: mpsc::Receiver<Stream>,
    _tasks: JoinSet<()>,
}

impl Hand {
    /// Starts on a free port of loopback.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port of loopback is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (opened, streams) = mpsc::channel(8);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let service = AggregatedDiscoveryServiceServer::new(Service(opened));
            let serving = tonic::transport::Server::builder().add_service(service);
            let _ = serving.serve_with_incoming(TcpListenerStream::new(listener)).await;
        });
        Self { port, streams, _tasks: tasks }
    }

    /// The next stream that a proxy opens.
    ///
    /// # Panics
    /// When none comes in time.
    pub async fn stream(&mut self) -> Stream {
        crate::soon("a proxy opens a stream", self.streams.recv()).await.expect("the server lives")
    }
}

struct Service(mpsc::Sender<Stream>);

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = BoxStream<'static, Result<DiscoveryResponse, Status>>;
    type DeltaAggregatedResourcesStream = BoxStream<'static, Result<DeltaDiscoveryResponse, Status>>;

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
        let (responses, sent) = mpsc::channel(64);
        let (note, log) = watch::channel(Vec::new());
        let mut requests = request.into_inner();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            while let Some(Ok(request)) = requests.next().await {
                note.send_modify(|log: &mut Vec<DeltaDiscoveryRequest>| log.push(request));
            }
        });
        let stream = Stream { responses, log, nonces: 0, _tasks: tasks };
        self.0.send(stream).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(sent).boxed()))
    }
}

/// One stream of a proxy. Dropping it cuts the stream.
#[derive(Debug)]
pub struct Stream {
    responses: mpsc::Sender<Result<DeltaDiscoveryResponse, Status>>,
    log: watch::Receiver<Vec<DeltaDiscoveryRequest>>,
    nonces: u64,
    _tasks: JoinSet<()>,
}

/// A response that was sent.
#[derive(Clone, Debug)]
pub struct Sent(String);

/// A moment in what a proxy has asked.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

impl Stream {
    /// Sends one response: resources of one type, and names of removed ones.
    pub async fn send(&mut self, kind: TypeUrl, items: &[&Item], removed: &[&str]) -> Sent {
        self.nonces += 1;
        let nonce = format!("nonce-{}", self.nonces);
        let resources = items.iter().map(|item| {
            assert_eq!(item.kind, kind, "one type per response");
            Resource {
                name: item.name.clone(),
                version: item.resource.version().to_string(),
                resource: Some(Any { type_url: kind.as_str().into(), value: item.resource.body().to_vec() }),
                ..Default::default()
            }
        });
        let response = DeltaDiscoveryResponse {
            type_url: kind.as_str().into(),
            nonce: nonce.clone(),
            resources: resources.collect(),
            removed_resources: removed.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        self.responses.send(Ok(response)).await.expect("the stream is open");
        Sent(nonce)
    }

    /// Sends resources of one type and waits until they are accepted.
    ///
    /// # Panics
    /// When they are refused or not answered in time.
    pub async fn give(&mut self, items: &[&Item]) {
        let sent = self.send(items[0].kind, items, &[]).await;
        assert_eq!(self.answer(&sent).await, Ok(()));
    }

    /// Removes resources of one type and waits until that is accepted.
    ///
    /// # Panics
    /// When that is refused or not answered in time.
    pub async fn take(&mut self, kind: TypeUrl, names: &[&str]) {
        let sent = self.send(kind, &[], names).await;
        assert_eq!(self.answer(&sent).await, Ok(()));
    }

    /// What the proxy says about a response: nothing against it, or why it refuses it.
    ///
    /// # Errors
    /// The proxy's words when it refuses the response.
    ///
    /// # Panics
    /// When it does not answer in time.
    pub async fn answer(&self, sent: &Sent) -> Result<(), String> {
        let find = |log: &Vec<DeltaDiscoveryRequest>| log.iter().find_map(|request| answer_to(request, sent));
        let mut log = self.log.clone();
        let found = log.wait_for(|log| find(log).is_some());
        let found = crate::soon("the proxy answers", found).await.expect("the stream is open");
        find(&found).expect("it was there")
    }

    /// Whether the proxy has answered a response.
    #[must_use]
    pub fn is_answered(&self, sent: &Sent) -> bool {
        self.log.borrow().iter().any(|request| answer_to(request, sent).is_some())
    }

    /// Lets some time pass in which the proxy must not answer a response.
    ///
    /// # Panics
    /// When it does.
    pub async fn stays_unanswered(&self, sent: &Sent, during: Duration) {
        let mut log = self.log.clone();
        let find = |log: &Vec<DeltaDiscoveryRequest>| log.iter().find_map(|request| answer_to(request, sent));
        let answered = tokio::time::timeout(during, log.wait_for(|log| find(log).is_some())).await;
        assert!(answered.is_err(), "answered: {:?}", find(&self.log.borrow()));
    }

    /// Now.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark(self.log.borrow().len())
    }

    /// The beginning of the stream.
    #[must_use]
    pub fn start(&self) -> Mark {
        Mark(0)
    }

    /// Waits for the first request of a type since a moment that is no answer, and returns it.
    ///
    /// # Panics
    /// When none comes in time.
    pub async fn request(&self, kind: TypeUrl, since: Mark) -> DeltaDiscoveryRequest {
        let find = |log: &Vec<DeltaDiscoveryRequest>| {
            let later = log.iter().skip(since.0);
            later.clone().find(|of| of.type_url == kind.as_str() && of.response_nonce.is_empty()).cloned()
        };
        let mut log = self.log.clone();
        let found = log.wait_for(|log| find(log).is_some());
        let found = crate::soon(&format!("the proxy asks for {kind}"), found).await.expect("the stream is open");
        find(&found).expect("it was there")
    }

    /// Waits until the proxy has asked for a name since a moment.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn asked(&self, kind: TypeUrl, name: &str, since: Mark) {
        let mut log = self.log.clone();
        let found = log.wait_for(|log| log.iter().skip(since.0).any(|of| asks(of, kind, name)));
        crate::soon(&format!("the proxy asks for {kind} {name}"), found).await.expect("the stream is open");
    }

    /// Whether the proxy has asked for a name since a moment.
    #[must_use]
    pub fn has_asked(&self, kind: TypeUrl, name: &str, since: Mark) -> bool {
        self.log.borrow().iter().skip(since.0).any(|of| asks(of, kind, name))
    }

    /// Whether the proxy has sent any request of a type since a moment.
    #[must_use]
    pub fn has_requested(&self, kind: TypeUrl, since: Mark) -> bool {
        self.log.borrow().iter().skip(since.0).any(|of| of.type_url == kind.as_str())
    }

    /// Waits until the proxy has given up a subscription to a name since a moment.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn left(&self, kind: TypeUrl, name: &str, since: Mark) {
        let mut log = self.log.clone();
        let found = log.wait_for(|log| log.iter().skip(since.0).any(|of| leaves(of, kind, name)));
        crate::soon(&format!("the proxy leaves {kind} {name}"), found).await.expect("the stream is open");
    }

    /// Whether the proxy has given up a subscription to a name since a moment.
    #[must_use]
    pub fn has_left(&self, kind: TypeUrl, name: &str, since: Mark) -> bool {
        self.log.borrow().iter().skip(since.0).any(|of| leaves(of, kind, name))
    }
}

fn answer_to(request: &DeltaDiscoveryRequest, sent: &Sent) -> Option<Result<(), String>> {
    let refused = || request.error_detail.as_ref().map(|error| error.message.clone());
    (request.response_nonce == sent.0).then(|| refused().map_or(Ok(()), Err))
}

fn asks(of: &DeltaDiscoveryRequest, kind: TypeUrl, name: &str) -> bool {
    of.type_url == kind.as_str() && of.resource_names_subscribe.iter().any(|of| of == name)
}

fn leaves(of: &DeltaDiscoveryRequest, kind: TypeUrl, name: &str) -> bool {
    of.type_url == kind.as_str() && of.resource_names_unsubscribe.iter().any(|of| of == name)
}

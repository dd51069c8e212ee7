//! A stream without a network, on a clock that the test moves.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use envoy_types::pb::envoy::config::core::v3::Node;
use futures::{Stream, StreamExt};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Carrier, Context, responses};
use crate::{
    Cache, Config, Connections, Hints, Metrics, Name, NodeGroup, Resource,
    TypeUrl::{self, Cluster as CDS, Listener as LDS, RouteConfiguration as RDS},
    session::{DeltaAsk, Mode, Response, Waits},
    wire::{Ask, Incoming},
};

struct Proxy<S> {
    requests: mpsc::Sender<Result<Incoming, Status>>,
    responses: S,
}

impl<S: Stream<Item = Result<Response, Status>> + Unpin> Proxy<S> {
    async fn ask(&self, kind: TypeUrl, names: &[&str], nonce: &str) {
        let subscribe = names.iter().map(ToString::to_string).collect();
        let ask = DeltaAsk { subscribe, nonce: nonce.to_owned(), ..Default::default() };
        let node = Node { id: "proxy".into(), cluster: "g".into(), ..Default::default() };
        let incoming = Incoming { node: Some(node), type_url: kind.as_str().into(), ask: Ask::Delta(ask) };
        self.requests.send(Ok(incoming)).await.unwrap();
    }

    /// The next response, which is acknowledged.
    async fn accept(&mut self, kind: TypeUrl, names: &[&str], removed: &[&str]) {
        let response = self.responses.next().await.expect("the stream is open").unwrap();
        let has: Vec<&str> = response.resources.iter().map(|(name, _)| &**name).collect();
        let gone: Vec<&str> = response.removed.iter().map(|name| &**name).collect();
        assert_eq!((response.kind, has.as_slice(), gone.as_slice()), (kind, names, removed));
        self.ask(kind, &[], &response.nonce.to_string()).await;
    }
}

fn open(cache: &Cache) -> Proxy<impl Stream<Item = Result<Response, Status>> + Unpin + use<>> {
    let config = Config::default();
    let context = Context {
        cache: cache.clone(),
        waits: Waits { ack: config.ack_timeout, settle: config.settle, drain: config.drain_time },
        feedback: mpsc::channel(64).0,
        connections: Connections::default(),
        metrics: Metrics::default(),
        numbers: AtomicU64::new(1),
    };
    let (requests, sent) = mpsc::channel(64);
    let drain = watch::channel(false).1;
    let carrier = Carrier { peer: None, drain, admit: None, certified: false, authorization: None };
    let responses = responses(Arc::new(context), ReceiverStream::new(sent), Mode::Delta, None, carrier);
    Proxy { requests, responses: Box::pin(responses) }
}

fn names(of: &[&str]) -> Arc<[Name]> {
    of.iter().map(|name| Name::from(*name)).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_removed_listener_used_goes_when_the_drain_time_is_over() {
    gone_after(None, 60).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_has_a_drain_time_of_its_own() {
    for seconds in [5, 300] {
        gone_after(Some(Duration::from_secs(seconds)), seconds).await;
    }
}

async fn gone_after(own: Option<Duration>, seconds: u64) {
    let cache = Cache::new();
    cache.set_drain_time(&NodeGroup::from("other"), Some(Duration::from_secs(1)));
    cache.set_drain_time(&NodeGroup::from("g"), own);
    let cluster = Resource::new("c", Hints::Cluster { warms: false, endpoints: None, secrets: names(&[]) });
    let hints = Hints::Listener { routes: names(&["r"]), secrets: names(&[]), clusters: names(&[]) };
    let listener = Resource::new("l", hints);
    let table = Resource::new("r", Hints::RouteConfiguration { clusters: names(&["c"]) });
    let all = [((CDS, Name::from("c")), cluster), ((LDS, "l".into()), listener), ((RDS, "r".into()), table)];
    let group = NodeGroup::from("g");
    cache.update(group.clone(), all.iter().map(|(key, of)| (key.clone(), Some(of.clone()))).collect());
    let mut proxy = open(&cache);
    proxy.ask(CDS, &[], "").await;
    proxy.accept(CDS, &["c"], &[]).await;
    proxy.ask(LDS, &[], "").await;
    proxy.accept(LDS, &["l"], &[]).await;
    proxy.ask(RDS, &["r"], "").await;
    proxy.accept(RDS, &["r"], &[]).await;
    cache.update(group, all.into_iter().map(|(key, _)| (key, None)).collect::<BTreeMap<_, _>>());
    proxy.accept(LDS, &[], &["l"]).await;
    let removed = Instant::now();
    proxy.accept(RDS, &[], &["r"]).await;
    assert_eq!(removed.elapsed().as_secs(), seconds);
    proxy.accept(CDS, &[], &["c"]).await;
    assert_eq!(removed.elapsed().as_secs(), seconds);
    // Nothing more comes, and nothing more is timed.
    assert!(timeout(Duration::from_secs(3_600), proxy.responses.next()).await.is_err());
}

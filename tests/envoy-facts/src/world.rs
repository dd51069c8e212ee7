//! A proxy with something to do: what most tests start from.

use xds::TypeUrl;

use crate::{
    backend::Backend,
    client::H1,
    config::{Cluster, Item, Listener, endpoints, table},
    hand::{Hand, Stream},
    proxy::{self, Envoy, Proxy, Setup, free_port},
};

/// An Envoy that a hand has given a listener `in` with table `table` → cluster `one` → a backend.
#[derive(Debug)]
pub struct Running {
    /// The server.
    pub hand: Hand,
    /// Its stream.
    pub stream: Stream,
    /// The proxy.
    pub proxy: Proxy,
    /// Where the listener listens.
    pub port: u16,
    /// The backend of cluster `one`.
    pub one: Backend,
    /// Another backend, not used yet.
    pub other: Backend,
}

impl Running {
    /// `None`, said aloud, when there is no Envoy.
    pub async fn start() -> Option<Self> {
        Self::start_with(|port| Listener::http("in", port, "table")).await
    }

    /// The same with another listener. Its table, if it has one, is called `table`.
    pub async fn start_with(listener: impl FnOnce(u16) -> Listener) -> Option<Self> {
        let envoy = Envoy::find()?;
        let mut hand = Hand::start().await;
        let (one, other) = (Backend::start("one").await, Backend::start("other").await);
        let proxy = Setup::new(hand.port).start(&envoy);
        let mut stream = hand.stream().await;
        let port = free_port();
        let cluster = Cluster::eds("one").item();
        bring_up(&mut stream, &cluster, &endpoints("one", &[one.port]), &listener(port).item()).await;
        proxy::opens(port).await;
        Some(Self { hand, stream, proxy, port, one, other })
    }

    /// A new cluster with a backend, warm when this returns.
    pub async fn cluster(&mut self, cluster: &Cluster, port: u16) {
        let cluster = cluster.item();
        let sent = self.stream.send(TypeUrl::Cluster, &[&cluster], &[]).await;
        self.stream.send(TypeUrl::ClusterLoadAssignment, &[&endpoints(&cluster.name, &[port])], &[]).await;
        assert_eq!(self.stream.answer(&sent).await, Ok(()));
    }

    /// Points the table elsewhere.
    pub async fn route(&mut self, cluster: &str) {
        self.stream.give(&[&table("table", &[("/", cluster)])]).await;
    }

    /// Sends one request over a new connection.
    pub async fn get(&self, path: &str) -> Result<crate::client::Answer, String> {
        H1::open(self.port).await?.get(path).await
    }
}

/// Gives a starting proxy one cluster, one listener and the table `table`.
pub async fn bring_up(stream: &mut Stream, cluster: &Item, endpoints: &Item, listener: &Item) {
    stream.request(TypeUrl::Cluster, stream.start()).await;
    let sent = stream.send(TypeUrl::Cluster, &[cluster], &[]).await;
    stream.asked(TypeUrl::ClusterLoadAssignment, &endpoints.name, stream.start()).await;
    stream.give(&[endpoints]).await;
    assert_eq!(stream.answer(&sent).await, Ok(()));
    stream.request(TypeUrl::Listener, stream.start()).await;
    stream.give(&[listener]).await;
    if stream_needs_table(listener) {
        stream.asked(TypeUrl::RouteConfiguration, "table", stream.start()).await;
        stream.give(&[&table("table", &[("/", &cluster.name)])]).await;
    }
}

fn stream_needs_table(listener: &Item) -> bool {
    matches!(listener.resource.hints(), xds::Hints::Listener { routes, .. } if !routes.is_empty())
}

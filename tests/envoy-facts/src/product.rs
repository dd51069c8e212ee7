//! The server of this project, with a proxy to serve.

use std::{collections::BTreeMap, time::Duration};

use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinSet,
};
use xds::{Cache, Config, Feedback, FeedbackReceiver, Name, NodeGroup, Resource, Server, TypeUrl};

use crate::{config::Item, proxy::GROUP, soon, until};

/// The wanted resources by type and name.
pub type Wanted = BTreeMap<(TypeUrl, Name), Resource>;

/// An `xds` server on a port of loopback; it and its connections end with the value.
#[derive(Debug)]
pub struct Product {
    /// Where it listens.
    pub port: u16,
    /// The server.
    pub server: Server,
    /// Its cache.
    pub cache: Cache,
    /// While true, its proxies are handed over to others.
    pub hand_over: watch::Sender<bool>,
    facts: FeedbackReceiver,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<()>,
}

/// The group of the proxies here.
#[must_use]
pub fn group() -> NodeGroup {
    NodeGroup::from(GROUP)
}

/// Times for tests: as in a product, but that suspects are found soon and connections drain as [`crate::proxy::Setup`] says.
#[must_use]
pub fn config() -> Config {
    Config { ack_timeout: Duration::from_secs(4), drain_time: Duration::from_secs(1), ..Config::default() }
}

impl Product {
    /// Starts on a free port.
    pub async fn start(config: Config) -> Self {
        Self::start_on(0, Cache::new(), config).await
    }

    /// Starts on a port, which may be that of a server that has just ended.
    pub async fn start_on(port: u16, cache: Cache, config: Config) -> Self {
        let bind = async {
            loop {
                match TcpListener::bind(("127.0.0.1", port)).await {
                    Ok(listener) => break listener,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        };
        let listener = soon("the port is free", bind).await;
        let port = listener.local_addr().expect("it is bound").port();
        let (server, facts) = Server::new(cache.clone(), config);
        let hand_over = watch::Sender::new(false);
        let server = server.with_hand_over(hand_over.subscribe());
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let serving = server.clone();
        tasks.spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            serving.serve(listener, None, stopped).await;
        });
        Self { port, server, cache, hand_over, facts, stop: Some(stop), tasks }
    }

    /// Sets what the proxies are to have, all of it.
    pub fn publish(&self, wanted: &Wanted) {
        let before = self.cache.resources(&group()).unwrap_or_default();
        let gone = before.into_keys().filter(|key| !wanted.contains_key(key)).map(|key| (key, None));
        let all = wanted.iter().map(|(key, of)| (key.clone(), Some(of.clone())));
        self.cache.update(group(), all.chain(gone).collect());
    }

    /// The next fact that this picks.
    ///
    /// # Panics
    /// When none comes in time.
    pub async fn fact(&mut self, what: &str, pick: impl Fn(&Feedback) -> bool) -> Feedback {
        soon(what, async {
            loop {
                let fact = self.facts.recv().await.expect("the server lives");
                if pick(&fact) {
                    return fact;
                }
            }
        })
        .await
    }

    /// Waits until a proxy has accepted all that it is to have.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn settled(&self) {
        until("the proxy has everything", async || self.is_settled()).await;
    }

    /// Whether a proxy has accepted all that it is to have.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let wanted = self.cache.digests(&group()).unwrap_or_default();
        let has = |stream: &xds::Connection, kind: &TypeUrl| match stream.types.get(kind) {
            Some(state) => state.acked_version.as_ref() == wanted.get(kind),
            None => *kind == TypeUrl::Secret,
        };
        self.server.connections().snapshot().iter().any(|stream| TypeUrl::ALL.iter().all(|kind| has(stream, kind)))
    }

    /// Refusals so far.
    #[must_use]
    pub fn nacks(&self) -> u64 {
        self.server.metrics().snapshot().types.values().map(|of| of.nacks).sum()
    }

    /// Stops it and closes its connections at once; the cache stays.
    pub async fn kill(mut self) -> Cache {
        self.tasks.shutdown().await;
        self.cache.clone()
    }

    /// Asks it to stop.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until it has stopped.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn ended(&mut self) {
        soon("the server ends", self.tasks.join_next()).await.expect("there is one task").expect("no panic");
    }
}

/// Puts a resource among the wanted ones.
pub fn set(wanted: &mut Wanted, item: &Item) {
    wanted.insert((item.kind, item.name.as_str().into()), item.resource.clone());
}

/// Takes a resource out of the wanted ones.
pub fn drop_from(wanted: &mut Wanted, kind: TypeUrl, name: &str) {
    wanted.remove(&(kind, name.into()));
}

//! Listening, TLS, keepalive, and connections that end in an orderly way.

use std::{
    future::Future,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tonic::service::Routes;
use tower::ServiceExt;

use crate::{
    Admit, Cache, Connections, FeedbackReceiver, Metrics,
    feedback::CAPACITY,
    metrics::{count, less},
    service::Services,
    session::Waits,
    stream::{Carrier, Context},
};

/// How the server treats its clients.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long an update waits for an acknowledgement before it goes on (default 20 s: longer than the 15 s that Envoy gives a
    /// cluster to get its first endpoints).
    pub ack_timeout: Duration,
    /// How long removals wait for a proxy that came back to name its listeners and route tables (default 5 s).
    pub settle: Duration,
    /// How long clusters, and tables of removed listeners, stay on a proxy after the last listener or table that used them went:
    /// connections of a listener that was removed or changed are served as long as Envoy's `--drain-time-s`, and a request that waits
    /// in a filter looks for its cluster only after it (default 60 s, as Envoy Gateway starts Envoy). Should be no less than that option;
    /// [`Cache::set_drain_time`] has another one for the proxies of a group.
    pub drain_time: Duration,
    /// How old a connection may become, give or take a tenth (default 10 h, as Envoy Gateway). It then ends in an orderly way and the
    /// proxy connects again, to another replica perhaps. `None`: any age.
    pub max_connection_age: Option<Duration>,
    /// How long streams of such a connection may take to finish what is on its way (default 2 min, as Envoy Gateway).
    pub max_connection_age_grace: Duration,
    /// The same when the server stops (default 5 s).
    pub stop_grace: Duration,
    /// How often a silent connection is tried (default 30 s); `None`: never.
    pub keepalive_interval: Option<Duration>,
    /// How long the answer to that may take (default 20 s).
    pub keepalive_timeout: Duration,
    /// How long a TLS handshake may take (default 10 s).
    pub handshake_timeout: Duration,
    /// The largest request, in bytes (default 32 MiB).
    pub max_request_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ack_timeout: Duration::from_secs(20),
            settle: Duration::from_secs(5),
            drain_time: Duration::from_secs(60),
            max_connection_age: Some(Duration::from_secs(10 * 3600)),
            max_connection_age_grace: Duration::from_secs(120),
            stop_grace: Duration::from_secs(5),
            keepalive_interval: Some(Duration::from_secs(30)),
            keepalive_timeout: Duration::from_secs(20),
            handshake_timeout: Duration::from_secs(10),
            max_request_bytes: 32 * 1024 * 1024,
        }
    }
}

/// Where the TLS configuration of a new connection comes from. It is asked for at each handshake, so certificates rotate without a
/// restart; connections that are open stay. Client certificates are asked for when the configuration says so; without ALPN protocols
/// in it, HTTP/2 is offered.
#[derive(Clone)]
pub struct TlsConfig(Arc<dyn Fn() -> Arc<ServerConfig> + Send + Sync>);

impl TlsConfig {
    /// Asks this function, which should be quick.
    pub fn new(current: impl Fn() -> Arc<ServerConfig> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }
}

impl From<watch::Receiver<Arc<ServerConfig>>> for TlsConfig {
    fn from(latest: watch::Receiver<Arc<ServerConfig>>) -> Self {
        Self::new(move || latest.borrow().clone())
    }
}

impl std::fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsConfig").finish_non_exhaustive()
    }
}

/// The xDS server.
#[derive(Clone, Debug)]
pub struct Server {
    context: Arc<Context>,
    config: Config,
    hand_over: watch::Receiver<bool>,
    admit: Option<Admit>,
}

impl Server {
    /// A server over this cache, and the facts that its clients tell.
    pub fn new(cache: Cache, config: Config) -> (Self, FeedbackReceiver) {
        let (feedback, facts) = mpsc::channel(CAPACITY);
        let context = Context {
            cache,
            waits: Waits { ack: config.ack_timeout, settle: config.settle, drain: config.drain_time },
            feedback,
            connections: Connections::default(),
            metrics: Metrics::default(),
            numbers: AtomicU64::new(1),
        };
        (Self { context: Arc::new(context), config, hand_over: watch::channel(false).1, admit: None }, facts)
    }

    /// While this is true, proxies are handed over to others: connections are told to go as at the end of [`Server::serve`], and new
    /// ones are closed at once, so that the proxy tries elsewhere. Without it, or when its sender is gone while it is false, nothing
    /// is handed over.
    #[must_use]
    pub fn with_hand_over(mut self, hand_over: watch::Receiver<bool>) -> Self {
        self.hand_over = hand_over;
        self
    }

    /// Has each stream decided about when its client has told who it is. Without it, whoever may connect may have the configuration
    /// of any group.
    #[must_use]
    pub fn with_admission(mut self, admit: Admit) -> Self {
        self.admit = Some(admit);
        self
    }

    /// Who is connected.
    pub fn connections(&self) -> Connections {
        self.context.connections.clone()
    }

    /// The server's counters.
    pub fn metrics(&self) -> Metrics {
        self.context.metrics.clone()
    }

    /// Serves on a bound socket until `stop` is ready, then lets the streams finish: each connection is told to go (HTTP/2 GOAWAY), its
    /// streams end when nothing is on its way, and at the latest after [`Config::stop_grace`]. Without `tls` the connection is plain text.
    pub async fn serve(self, listener: TcpListener, tls: Option<TlsConfig>, stop: impl Future<Output = ()>) {
        let routes = Services(self.context.clone()).routes(self.config.max_request_bytes).prepare();
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended
                        && error.is_panic()
                    {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
                accepted = listener.accept() => match accepted {
                    // Closed at once, so that the proxy tries another replica.
                    Ok(_) if *self.hand_over.borrow() => count(&self.context.metrics.0.connections_refused),
                    Ok((socket, peer)) => {
                        let connection = ConnectionOf {
                            metrics: self.metrics(),
                            config: self.config.clone(),
                            routes: routes.clone(),
                            stopped: stopped.clone(),
                            hand_over: self.hand_over.clone(),
                            admit: self.admit.clone(),
                        };
                        let tls = tls.clone();
                        connections.spawn(connection.run(socket, peer, tls));
                    }
                    Err(error) => {
                        // Out of file descriptors, most likely: others may be closed in a moment.
                        tracing::warn!(%error, "cannot accept a connection");
                        sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(listener);
        stopping.send_replace(true);
        while connections.join_next().await.is_some() {}
    }
}

/// One connection.
struct ConnectionOf {
    metrics: Metrics,
    config: Config,
    routes: Routes,
    stopped: watch::Receiver<bool>,
    hand_over: watch::Receiver<bool>,
    admit: Option<Admit>,
}

/// Counts a connection for as long as it lives.
struct Counted(Metrics);

impl Drop for Counted {
    fn drop(&mut self) {
        less(&self.0.0.connections);
    }
}

impl ConnectionOf {
    async fn run(self, socket: TcpStream, peer: SocketAddr, tls: Option<TlsConfig>) {
        count(&self.metrics.0.connections);
        count(&self.metrics.0.connections_total);
        let _counted = Counted(self.metrics.clone());
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
        }
        let Some(tls) = tls else { return self.talk(socket, peer, false).await };
        let mut tls = (tls.0)();
        if tls.alpn_protocols.is_empty() {
            let mut with_h2 = ServerConfig::clone(&tls);
            with_h2.alpn_protocols = vec![b"h2".to_vec()];
            tls = Arc::new(with_h2);
        }
        match timeout(self.config.handshake_timeout, TlsAcceptor::from(tls).accept(socket)).await {
            Ok(Ok(socket)) => {
                let certified = socket.get_ref().1.peer_certificates().is_some_and(|shown| !shown.is_empty());
                self.talk(socket, peer, certified).await;
            }
            Ok(Err(error)) => {
                count(&self.metrics.0.handshakes_failed);
                tracing::warn!(%peer, %error, "TLS handshake failed");
            }
            Err(_) => {
                count(&self.metrics.0.handshakes_failed);
                tracing::warn!(%peer, "TLS handshake took too long");
            }
        }
    }

    async fn talk<I>(mut self, io: I, peer: SocketAddr, certified: bool)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (drain, draining) = watch::channel(false);
        let carrier =
            Carrier { peer: Some(peer), drain: draining, admit: self.admit.clone(), certified, authorization: None };
        let service = self.routes.clone().map_request(move |request: http::Request<_>| {
            let mut request = request.map(tonic::body::Body::new);
            request.extensions_mut().insert(carrier.clone());
            request
        });
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(self.config.keepalive_interval)
            .keep_alive_timeout(self.config.keepalive_timeout)
            .max_concurrent_streams(100)
            .initial_stream_window_size(1024 * 1024)
            .initial_connection_window_size(2 * 1024 * 1024);
        let connection = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service));
        let mut connection = pin!(connection);
        let age = self.config.max_connection_age.map(|age| jittered(age, peer));
        let old = async {
            match age {
                Some(age) => sleep(age).await,
                None => std::future::pending().await,
            }
        };
        let grace = tokio::select! {
            ended = &mut connection => return log_end(peer, ended),
            () = old => self.config.max_connection_age_grace,
            _ = self.stopped.wait_for(|stopped| *stopped) => self.config.stop_grace,
            () = told(&mut self.hand_over) => self.config.stop_grace,
        };
        connection.as_mut().graceful_shutdown();
        drain.send_replace(true);
        let mut stopped = self.stopped.clone();
        let stop_grace = self.config.stop_grace;
        let patience = async move {
            tokio::select! {
                () = sleep(grace) => {}
                () = async {
                    let _ = stopped.wait_for(|stopped| *stopped).await;
                    sleep(stop_grace).await;
                } => {}
            }
        };
        tokio::select! {
            ended = &mut connection => log_end(peer, ended),
            () = patience => tracing::info!(%peer, "connection closed before its streams came to rest"),
        }
    }
}

/// Waits until proxies are handed over; for ever where nobody says so.
async fn told(hand_over: &mut watch::Receiver<bool>) {
    if hand_over.wait_for(|hand_over| *hand_over).await.is_err() {
        std::future::pending().await
    }
}

fn log_end(peer: SocketAddr, ended: Result<(), hyper::Error>) {
    match ended {
        Ok(()) => tracing::debug!(%peer, "connection ended"),
        Err(error) => tracing::debug!(%peer, %error, "connection broke"),
    }
}

/// Spreads an age by a tenth up or down, so that proxies that came together do not all leave together.
fn jittered(age: Duration, peer: SocketAddr) -> Duration {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u16(peer.port());
    let share = (hasher.finish() % 2_001) as f64 / 10_000.0;
    age.mul_f64(0.9 + share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_spread_around_the_configured_one() {
        let age = Duration::from_secs(1000);
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let ages: Vec<Duration> = (0..200).map(|_| jittered(age, peer)).collect();
        assert!(ages.iter().all(|of| (900..=1100).contains(&of.as_secs())));
        assert!(ages.iter().min() < ages.iter().max());
    }
}

//! Backends: they answer with their name, wait to be let go, echo, and count.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
};

use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    service::service_fn,
};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::watch,
    task::JoinSet,
};

type Body = BoxBody<Bytes, hyper::Error>;

/// What a backend says to health checks: no answer.
pub const SILENT: u16 = 0;

/// A backend on a port of loopback, for HTTP/1.1 and HTTP/2 with prior knowledge. It ends with the value.
///
/// | path | answer |
/// |---|---|
/// | `/health` | the status given to [`Backend::health`], 200 at first |
/// | `/hold` | its name, once [`Backend::release`] was called |
/// | `/echo` | the request's body as it comes, with the trailer `grpc-status: 0` |
/// | `/socket` with `Upgrade` | switches protocols and echoes bytes |
/// | others | its name |
#[derive(Debug)]
pub struct Backend {
    /// Where it listens.
    pub port: u16,
    state: Arc<State>,
    asked: watch::Receiver<u64>,
    holding: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    name: &'static str,
    health: AtomicU16,
    healthy: watch::Sender<u16>,
    asked: watch::Sender<u64>,
    holding: watch::Sender<u64>,
    released: watch::Sender<bool>,
    sockets: Mutex<JoinSet<()>>,
}

impl Backend {
    /// Starts one that answers with this name.
    pub async fn start(name: &'static str) -> Self {
        Self::start_with(name, None).await
    }

    /// Starts one behind TLS.
    pub async fn start_tls(name: &'static str, tls: Arc<ServerConfig>) -> Self {
        Self::start_with(name, Some(tls)).await
    }

    async fn start_with(name: &'static str, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port of loopback is free");
        let port = listener.local_addr().expect("it is bound").port();
        let (asked, was_asked) = watch::channel(0);
        let (holding, is_holding) = watch::channel(0);
        let state = Arc::new(State {
            name,
            health: AtomicU16::new(200),
            healthy: watch::channel(200).0,
            asked,
            holding,
            released: watch::channel(false).0,
            sockets: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        let shared = state.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let _ = socket.set_nodelay(true);
                let (state, tls) = (shared.clone(), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => talk(state, socket).await,
                        Some(tls) => {
                            if let Ok(socket) = tokio_rustls::TlsAcceptor::from(tls).accept(socket).await {
                                talk(state, socket).await;
                            }
                        }
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, state, asked: was_asked, holding: is_holding, _tasks: tasks }
    }

    /// What health checks are answered from now on; [`SILENT`] leaves them without an answer until this changes.
    pub fn health(&self, status: u16) {
        self.state.health.store(status, Ordering::Relaxed);
        self.state.healthy.send_replace(status);
    }

    /// Lets every request to `/hold` go, now and later.
    pub fn release(&self) {
        self.state.released.send_replace(true);
    }

    /// What it answers with.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.state.name
    }

    /// How many requests came, health checks included.
    #[must_use]
    pub fn count(&self) -> u64 {
        *self.asked.borrow()
    }

    /// Waits until it has been asked anything.
    pub async fn asked(&self) {
        let mut asked = self.asked.clone();
        crate::soon("the backend is asked", asked.wait_for(|count| *count > 0)).await.expect("the backend lives");
    }

    /// Waits until so many requests are held.
    pub async fn holds(&self, count: u64) {
        let mut holding = self.holding.clone();
        crate::soon("requests are held", holding.wait_for(|has| *has >= count)).await.expect("the backend lives");
    }
}

async fn talk(state: Arc<State>, io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let service = service_fn(move |request| answer(state.clone(), request));
    let builder = auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(io), service).await;
}

async fn answer(state: Arc<State>, mut request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    state.asked.send_modify(|count| *count += 1);
    let said = |status: u16| {
        let body = Full::new(Bytes::from(state.name)).map_err(|never| match never {}).boxed();
        Response::builder().status(status).body(body).expect("a valid response")
    };
    Ok(match request.uri().path() {
        "/health" => {
            let mut healthy = state.healthy.subscribe();
            let _ = healthy.wait_for(|status| *status != SILENT).await;
            said(state.health.load(Ordering::Relaxed).max(200))
        }
        "/hold" => {
            let mut released = state.released.subscribe();
            state.holding.send_modify(|count| *count += 1);
            let _ = released.wait_for(|released| *released).await;
            state.holding.send_modify(|count| *count -= 1);
            said(200)
        }
        "/echo" => {
            let trailers = http::HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                http::HeaderValue::from_static("0"),
            )]);
            let body = futures::StreamExt::chain(
                http_body_util::BodyStream::new(request.into_body()),
                futures::stream::iter([Ok(Frame::trailers(trailers))]),
            );
            let response = Response::builder().header("content-type", "application/grpc");
            response.body(BodyExt::boxed(StreamBody::new(body))).expect("a valid response")
        }
        "/socket" if request.headers().contains_key("upgrade") => {
            let upgrade = hyper::upgrade::on(&mut request);
            state.sockets.lock().expect("no panic holds it").spawn(async move {
                let Ok(io) = upgrade.await else { return };
                let (mut read, mut write) = tokio::io::split(TokioIo::new(io));
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
            let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed();
            Response::builder()
                .status(101)
                .header("connection", "upgrade")
                .header("upgrade", "websocket")
                .header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
                .body(body)
                .expect("a valid response")
        }
        _ => {
            let _ = request.into_body().collect().await;
            said(200)
        }
    })
}

//! A TCP proxy that can cut, stall and slow down, and an HTTP proxy that can answer errors in place of the server.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail};
use bytes::Bytes;
use futures::Stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo},
};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

/// What the TCP proxy does to bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Hands them on.
    Open,
    /// Ends all connections and refuses new ones.
    Cut,
    /// Keeps connections and accepts new ones, but hands no byte on in either direction.
    Stall,
    /// Hands requests on, but no answer back: the server acts and the client does not learn of it.
    LoseAnswers,
    /// Hands each chunk on after so long.
    Slow(Duration),
}

/// A TCP proxy on a port of loopback; ends when dropped.
#[derive(Debug)]
pub struct TcpProxy {
    address: SocketAddr,
    mode: watch::Sender<Network>,
    tasks: JoinSet<()>,
}

// === impl TcpProxy ===

impl TcpProxy {
    /// Starts a proxy to a port of loopback.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(to: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (mode, receiver) = watch::channel(Network::Open);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, to, receiver));
        Ok(Self { address, mode, tasks })
    }

    /// Port that the proxy listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes what happens to bytes, on open connections too.
    pub fn set(&self, mode: Network) {
        self.mode.send_replace(mode);
    }

    /// Nothing of it runs any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.tasks.is_empty()
    }
}

async fn accept(listener: TcpListener, to: u16, mode: watch::Receiver<Network>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                if *mode.borrow() != Network::Cut {
                    connections.spawn(connection(client, to, mode.clone()));
                }
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(client: TcpStream, to: u16, mut mode: watch::Receiver<Network>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let (up, down) = (mode.clone(), mode.clone());
    let cut = async { mode.wait_for(|m| *m == Network::Cut).await.is_ok() };
    let there = pump(client_read, server_write, up, |m| matches!(m, Network::Stall));
    let back = pump(server_read, client_write, down, |m| matches!(m, Network::Stall | Network::LoseAnswers));
    tokio::pin!(cut);
    tokio::select! {
        _ = cut => {}
        () = async { tokio::join!(there, back); } => {}
    }
}

async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut mode: watch::Receiver<Network>,
    held: impl Fn(&Network) -> bool,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if mode.wait_for(|m| !held(m)).await.is_err() {
            break;
        }
        let now = *mode.borrow();
        if let Network::Slow(by) = now {
            sleep(by).await;
        }
        if to.write_all(&buffer[..n]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

/// What the HTTP proxy answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Nothing: all requests go through.
    Pass,
    /// This status for every n-th request (1: all), with `Retry-After: 1` where it is 429.
    Status {
        /// HTTP status.
        code: u16,
        /// Every n-th.
        every: u64,
    },
    /// Ends the watches of a resource, answers the first that comes again with 410 so that the resource is listed anew, and
    /// lets the first list fail. Everything else goes through.
    FailList {
        /// Last part of the path of a list: `httproutes`, `secrets`.
        resource: &'static str,
        /// HTTP status of the list; none: no answer, and after a second the end of the connection.
        code: Option<u16>,
    },
    /// What watches tell comes so much later; everything else goes through.
    LateWatches(Duration),
}

/// How far [`Answers::FailList`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No watch has come again yet.
    #[default]
    Waiting,
    /// The next list fails.
    Expired,
    /// It has failed.
    Failed,
}

/// A plain HTTP proxy in front of a TLS server; ends when dropped.
#[derive(Debug)]
pub struct HttpProxy {
    address: SocketAddr,
    mode: watch::Sender<Answers>,
    shared: Shared,
    _tasks: JoinSet<()>,
}

/// What the requests of a proxy share.
#[derive(Clone, Debug)]
struct Shared {
    mode: watch::Receiver<Answers>,
    count: Arc<AtomicU64>,
    stage: Arc<Mutex<Stage>>,
}

// === impl HttpProxy ===

impl HttpProxy {
    /// Starts a proxy to a TLS port of loopback whose certificate the CA (PEM) signed.
    ///
    /// # Errors
    /// When no port is free or the CA is no certificate.
    pub async fn start(to: u16, ca_pem: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes())?)?;
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            hyper_rustls::HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let (mode, receiver) = watch::channel(Answers::Pass);
        let shared = Shared { mode: receiver, count: Arc::default(), stage: Arc::default() };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, to, client, shared.clone()));
        Ok(Self { address, mode, shared, _tasks: tasks })
    }

    /// Port that the proxy listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Changes what the proxy answers itself.
    pub fn set(&self, mode: Answers) {
        *self.shared.stage() = Stage::Waiting;
        self.mode.send_replace(mode);
    }

    /// Requests so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// The list of [`Answers::FailList`] has come and failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        *self.shared.stage() == Stage::Failed
    }
}

type Upstream = Client<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Incoming>;
type Body = UnsyncBoxBody<Bytes, hyper::Error>;

async fn serve(listener: TcpListener, to: u16, client: Upstream, shared: Shared) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let (client, shared) = (client.clone(), shared.clone());
                let service = service_fn(move |request| answer(request, to, client.clone(), shared.clone()));
                connections.spawn(async move {
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

impl Shared {
    fn stage(&self) -> std::sync::MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The status that a request is answered with in place of the server; an error ends the connection.
    async fn own_answer(&self, request: &Request<Incoming>) -> Result<Option<u16>> {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        let mode = *self.mode.borrow();
        match mode {
            Answers::Status { code, every } => Ok(n.is_multiple_of(every.max(1)).then_some(code)),
            Answers::FailList { resource, code } if is_of(request, resource) => {
                let query = request.uri().query().unwrap_or_default();
                // A streaming list is a watch that begins with what is there.
                let list = !is_watch(request) || query.contains("sendInitialEvents=true");
                let stage = *self.stage();
                match stage {
                    Stage::Waiting if !list => {
                        *self.stage() = Stage::Expired;
                        Ok(Some(410))
                    }
                    Stage::Expired if list => {
                        *self.stage() = Stage::Failed;
                        if code.is_none() {
                            sleep(Duration::from_secs(1)).await;
                            bail!("the connection ends without an answer");
                        }
                        Ok(code)
                    }
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }
}

fn is_watch(request: &Request<Incoming>) -> bool {
    request.uri().query().unwrap_or_default().split('&').any(|p| p == "watch=true" || p == "watch=1")
}

fn is_of(request: &Request<Incoming>, resource: &str) -> bool {
    request.method() == http::Method::GET && request.uri().path().rsplit('/').next() == Some(resource)
}

async fn answer(
    request: Request<Incoming>,
    to: u16,
    client: Upstream,
    shared: Shared,
) -> Result<Response<Body>, anyhow::Error> {
    if let Some(code) = shared.own_answer(&request).await? {
        let reason = match code {
            429 => "TooManyRequests",
            410 => "Expired",
            _ => "InternalError",
        };
        let body = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
            "reason": reason, "message": "answered by the test proxy"});
        let mut response =
            Response::builder().status(StatusCode::from_u16(code)?).header("content-type", "application/json");
        if code == 429 {
            response = response.header("retry-after", "1");
        }
        let body = Full::new(Bytes::from(serde_json::to_vec(&body)?)).map_err(|never| match never {}).boxed_unsync();
        return Ok(response.body(body)?);
    }
    let watches = is_watch(&request).then(|| request.uri().path().rsplit('/').next().unwrap_or_default().to_owned());
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
    parts.uri = format!("https://127.0.0.1:{to}{path}").parse()?;
    parts.headers.remove(http::header::HOST);
    let response = client.request(Request::from_parts(parts, body)).await?;
    Ok(response.map(|body| match watches {
        Some(resource) => StreamBody::new(events(body, resource, shared.mode)).boxed_unsync(),
        None => body.boxed_unsync(),
    }))
}

/// What a watch tells, late where that is wanted, until the proxy ends it.
fn events<B>(
    body: B,
    resource: String,
    mut mode: watch::Receiver<Answers>,
) -> impl Stream<Item = Result<Frame<Bytes>, B::Error>> + Send
where
    B: hyper::body::Body<Data = Bytes> + Send + Unpin,
    B::Error: Send,
{
    // What is set from now on ends it, not what was set before.
    mode.mark_unchanged();
    let late: VecDeque<(Instant, Frame<Bytes>)> = VecDeque::new();
    let state = (Some(body), late, mode, resource);
    futures::stream::unfold(state, |(mut body, mut late, mut mode, resource)| async move {
        loop {
            if body.is_none() && late.is_empty() {
                return None;
            }
            let due = late.front().map(|(due, _)| *due);
            tokio::select! {
                biased;
                () = async { match due { Some(due) => sleep_until(due).await, None => std::future::pending().await } } => {
                    let (_, frame) = late.pop_front()?;
                    return Some((Ok(frame), (body, late, mode, resource)));
                }
                Ok(()) = mode.changed() => {
                    if matches!(*mode.borrow_and_update(), Answers::FailList { resource: of, .. } if of == resource) {
                        return None;
                    }
                }
                frame = async { match &mut body { Some(body) => body.frame().await, None => std::future::pending().await } } => {
                    match frame {
                        Some(Ok(frame)) => {
                            let by = match *mode.borrow() {
                                Answers::LateWatches(by) => by,
                                _ => Duration::ZERO,
                            };
                            late.push_back((Instant::now() + by, frame));
                        }
                        Some(Err(e)) => return Some((Err(e), (None, late, mode, resource))),
                        None => body = None,
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;
    use tokio::time::timeout;

    use super::*;

    async fn echo() -> (u16, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut s, _)) = listener.accept().await {
                open.spawn(async move {
                    let (mut r, mut w) = s.split();
                    let _ = tokio::io::copy(&mut r, &mut w).await;
                });
            }
        });
        (port, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_watch_tells_comes_late_and_so_does_its_end() {
        let told = ["a", "b"].map(|text| Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(text))));
        let body = StreamBody::new(futures::stream::iter(told));
        let by = Duration::from_secs(3);
        let (_mode, answers) = watch::channel(Answers::LateWatches(by));
        let begin = Instant::now();
        let frames = timeout(by * 2, events(body, "pods".to_owned(), answers).collect::<Vec<_>>()).await;
        assert_eq!(frames.expect("it ends").len(), 2);
        assert_eq!(begin.elapsed(), by);
    }

    #[tokio::test]
    async fn bytes_pass_stall_and_are_cut() {
        let (port, _echo) = echo().await;
        let proxy = TcpProxy::start(port).await.unwrap();
        let mut c = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        let mut b = [0; 1];
        c.write_all(b"a").await.unwrap();
        c.read_exact(&mut b).await.unwrap();
        assert_eq!(&b, b"a");
        proxy.set(Network::Stall);
        c.write_all(b"b").await.unwrap();
        assert!(timeout(Duration::from_millis(100), c.read_exact(&mut b)).await.is_err(), "nothing passes");
        proxy.set(Network::Open);
        c.read_exact(&mut b).await.unwrap();
        assert_eq!(&b, b"b", "what was held comes when the stall ends");
        proxy.set(Network::Cut);
        assert!(matches!(c.read(&mut b).await, Ok(0) | Err(_)));
        let mut again = TcpStream::connect(("127.0.0.1", proxy.port())).await.unwrap();
        assert!(matches!(again.read(&mut b).await, Ok(0) | Err(_)), "new connections end at once");
    }
}

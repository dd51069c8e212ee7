//! A client that never retries.
//!
//! A request is sent once. When its connection breaks after any of its bytes may have been written, that is its outcome.
//! A kept-alive connection that the proxy closed *between* requests is another matter: if nothing of the request was
//! written to it, the request goes on a new connection and the event is counted in [`Client::reopened`].

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::expect::{Answer, Outcome};

/// Response header that the filter of a rule sets.
pub(crate) const HEADER: &str = "x-hitless";
/// Request header that the filter of a backend sets.
pub(crate) const SPLIT: &str = "x-hitless-split";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// Requests that a kept-alive connection carries at most.
const USES: u32 = 200;
/// HTTP/2 connections to each place.
const CONNECTIONS: usize = 2;

/// Where connections go: a port of this host, and the server name where it is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Port on loopback.
    pub(crate) port: u16,
    /// Server name; without one the connection is plain text.
    pub(crate) sni: Option<Arc<str>>,
}

/// How a request travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// HTTP/1.1 on a connection of its own.
    Fresh,
    /// HTTP/1.1 on a connection that others used before.
    Kept,
    /// HTTP/2 on a connection that others use at the same time.
    Http2,
}

/// A POST.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    /// Where.
    pub(crate) place: Place,
    /// Host.
    pub(crate) host: String,
    /// Path, which also tells the request apart in logs.
    pub(crate) path: String,
    /// Bytes of the body.
    pub(crate) body: Bytes,
    /// What the backend waits before it answers.
    pub(crate) delay: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Client {
    tls: [Arc<rustls::ClientConfig>; 2],
    kept: Mutex<BTreeMap<Place, VecDeque<Kept>>>,
    shared: Mutex<BTreeMap<Place, VecDeque<Shared>>>,
    /// Kept-alive connections that were found closed before anything was written to them.
    pub(crate) reopened: AtomicU64,
}

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// An HTTP/1.1 connection; ends when dropped.
#[derive(Debug)]
struct Kept {
    sender: http1::SendRequest<Full<Bytes>>,
    uses: u32,
    _driver: JoinSet<()>,
}

/// An HTTP/2 connection; ends when the last clone is dropped.
#[derive(Clone, Debug)]
struct Shared {
    sender: http2::SendRequest<Full<Bytes>>,
    uses: u32,
    _driver: Arc<JoinSet<()>>,
}

/// What of a backend's answer is looked at.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Echoed {
    backend: String,
    proto: String,
    body_bytes: usize,
    headers: BTreeMap<String, Vec<String>>,
}

// === impl Post ===

impl Post {
    fn request(&self, mode: Mode) -> Result<Request<Full<Bytes>>> {
        let scheme = if self.place.sni.is_some() { "https" } else { "http" };
        let uri = match mode {
            Mode::Http2 => format!("{scheme}://{}{}", self.host, self.path),
            Mode::Fresh | Mode::Kept => self.path.clone(),
        };
        let mut request = Request::post(uri).body(Full::new(self.body.clone()))?;
        let headers = request.headers_mut();
        if mode != Mode::Http2 {
            headers.insert(header::HOST, HeaderValue::from_str(&self.host)?);
        }
        if !self.delay.is_zero() {
            headers.insert("x-echo-delay-ms", self.delay.as_millis().to_string().parse()?);
        }
        Ok(request)
    }
}

// === impl Client ===

impl Client {
    /// A client that trusts this CA (PEM).
    ///
    /// # Errors
    /// When the CA cannot be read.
    pub(crate) fn new(ca: &str) -> Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let plain = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let of = |alpn: &[u8]| {
            let mut config = plain.clone();
            config.alpn_protocols = vec![alpn.to_vec()];
            Arc::new(config)
        };
        Ok(Self {
            tls: [of(b"http/1.1"), of(b"h2")],
            kept: Mutex::default(),
            shared: Mutex::default(),
            reopened: AtomicU64::new(0),
        })
    }

    /// Sends a request, once.
    pub(crate) async fn send(&self, post: &Post, mode: Mode) -> Outcome {
        let request = match post.request(mode) {
            Ok(request) => request,
            Err(e) => return Outcome::Broken(format!("no request: {e}")),
        };
        let exchange = async {
            match mode {
                Mode::Fresh => self.fresh(post, request).await,
                Mode::Kept => self.kept(post, request).await,
                Mode::Http2 => self.shared(post, request).await,
            }
        };
        let limit = PATIENCE + post.delay;
        timeout(limit, exchange)
            .await
            .unwrap_or_else(|_| Outcome::Broken(format!("no answer in {} s", limit.as_secs())))
    }

    /// Closes the connections to a place that are not in use, as a client does that goes elsewhere.
    pub(crate) fn leave(&self, place: &Place) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
    }

    /// Closes all connections that are not in use.
    pub(crate) fn leave_all(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Opens a connection and looks at the certificate (DER) that the server shows; `None` in plain text.
    ///
    /// # Errors
    /// When there is no connection.
    pub(crate) async fn look(&self, place: &Place) -> Result<Option<Vec<u8>>> {
        let stream = TcpStream::connect(("127.0.0.1", place.port)).await?;
        let Some(sni) = &place.sni else { return Ok(None) };
        let stream = timeout(PATIENCE, self.encrypt(sni, stream, 0)).await??;
        let (_, tls) = stream.get_ref();
        Ok(tls.peer_certificates().and_then(|c| c.first()).map(|c| c.to_vec()))
    }

    async fn fresh(&self, post: &Post, request: Request<Full<Bytes>>) -> Outcome {
        let mut connection = match self.open(&post.place).await {
            Ok(connection) => connection,
            Err(e) => return Outcome::Refused(format!("{e:#}")),
        };
        match connection.sender.try_send_request(request).await {
            Ok(response) => read(response, post).await,
            Err(mut e) => match e.take_message() {
                Some(_) => Outcome::Refused(format!("closed at once: {}", e.error())),
                None => broken(&e),
            },
        }
    }

    async fn kept(&self, post: &Post, mut request: Request<Full<Bytes>>) -> Outcome {
        loop {
            let idle = {
                let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.get_mut(&post.place).and_then(VecDeque::pop_front)
            };
            let known = idle.is_some();
            let mut connection = match idle {
                Some(connection) => connection,
                None => match self.open(&post.place).await {
                    Ok(connection) => connection,
                    Err(e) => return Outcome::Refused(format!("{e:#}")),
                },
            };
            match connection.sender.try_send_request(request).await {
                Ok(response) => {
                    let outcome = read(response, post).await;
                    connection.uses += 1;
                    let good = matches!(outcome, Outcome::Answer(_)) && connection.uses < USES;
                    if good && connection.sender.ready().await.is_ok() {
                        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                        kept.entry(post.place.clone()).or_default().push_back(connection);
                    }
                    return outcome;
                }
                Err(mut e) => match e.take_message() {
                    Some(back) if known => {
                        self.reopened.fetch_add(1, Ordering::Relaxed);
                        request = back;
                    }
                    Some(_) => return Outcome::Refused(format!("closed at once: {}", e.error())),
                    None => return broken(&e),
                },
            }
        }
    }

    async fn shared(&self, post: &Post, mut request: Request<Full<Bytes>>) -> Outcome {
        loop {
            let found = {
                let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                let of = all.entry(post.place.clone()).or_default();
                of.retain(|c| !c.sender.is_closed() && c.uses < USES);
                let next = if of.len() < CONNECTIONS { None } else { of.pop_front() };
                next.map(|mut next| {
                    next.uses += 1;
                    of.push_back(next.clone());
                    next
                })
            };
            let known = found.is_some();
            let mut connection = match found {
                Some(connection) => connection,
                None => match self.open_shared(&post.place).await {
                    Ok(connection) => {
                        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
                        all.entry(post.place.clone()).or_default().push_back(connection.clone());
                        connection
                    }
                    Err(e) => return Outcome::Refused(format!("{e:#}")),
                },
            };
            if known && connection.sender.ready().await.is_err() {
                self.reopened.fetch_add(1, Ordering::Relaxed);
                self.discard(&post.place);
                continue;
            }
            match connection.sender.try_send_request(request).await {
                Ok(response) => return read(response, post).await,
                Err(mut e) => match e.take_message() {
                    Some(back) if known => {
                        self.reopened.fetch_add(1, Ordering::Relaxed);
                        self.discard(&post.place);
                        request = back;
                    }
                    Some(_) => return Outcome::Refused(format!("closed at once: {}", e.error())),
                    None => return broken(&e),
                },
            }
        }
    }

    /// Forgets the HTTP/2 connections to a place that take no more requests.
    fn discard(&self, place: &Place) {
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of) = all.get_mut(place) {
            of.retain(|c| c.sender.is_ready() && !c.sender.is_closed());
        }
    }

    async fn open(&self, place: &Place) -> Result<Kept> {
        let io = TokioIo::new(self.connect(place, 0).await?);
        let (sender, connection) = http1::handshake(io).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Ok(Kept { sender, uses: 0, _driver: driver })
    }

    async fn open_shared(&self, place: &Place) -> Result<Shared> {
        let io = TokioIo::new(self.connect(place, 1).await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Ok(Shared { sender, uses: 0, _driver: Arc::new(driver) })
    }

    async fn connect(&self, place: &Place, alpn: usize) -> Result<Box<dyn Io>> {
        let stream = TcpStream::connect(("127.0.0.1", place.port)).await.context("connect")?;
        stream.set_nodelay(true)?;
        Ok(match &place.sni {
            None => Box::new(stream),
            Some(sni) => Box::new(self.encrypt(sni, stream, alpn).await.context("TLS handshake")?),
        })
    }

    async fn encrypt(&self, sni: &str, stream: TcpStream, alpn: usize) -> Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(sni.to_owned())?;
        Ok(TlsConnector::from(Arc::clone(&self.tls[alpn])).connect(name, stream).await?)
    }
}

fn broken(e: &TrySendError<Request<Full<Bytes>>>) -> Outcome {
    Outcome::Broken(with_causes(e.error()))
}

fn with_causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut next = e.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

async fn read(response: Response<Incoming>, post: &Post) -> Outcome {
    let (parts, body) = response.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(e) => return Outcome::Broken(format!("{} and then {}", parts.status, with_causes(&e))),
    };
    let header = parts.headers.get(HEADER).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let mut answer = Answer { status: parts.status.as_u16(), header, ..Answer::default() };
    match serde_json::from_slice::<Echoed>(&body) {
        Ok(echoed) => {
            answer.whole = echoed.body_bytes == post.body.len();
            answer.split = echoed.headers.get(SPLIT).and_then(|v| v.first()).cloned();
            answer.backend = echoed.backend;
            answer.proto = echoed.proto;
        }
        Err(_) => answer.text = String::from_utf8_lossy(&body).chars().take(120).collect(),
    }
    Outcome::Answer(answer)
}

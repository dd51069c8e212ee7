//! A backend that answers with what it was asked: HTTP/1.1, HTTP/2 (prior knowledge, and by ALPN with TLS), WebSocket.
//!
//! The answer is a JSON object ([`Answer`]). What a request can ask for:
//!
//! | header | path | effect |
//! |---|---|---|
//! | `x-echo-status: 503` | `/status/503` | that status instead of 200 |
//! | `x-echo-delay-ms: 250` | `/delay/250` | answers after so many milliseconds |
//! | `x-echo-set-header: name: value` | | sets a header of the answer; may be repeated |
//! | `x-echo-abort: 1` | | closes the connection without an answer |
//! | `upgrade: websocket`, or extended CONNECT in HTTP/2 | | echoes every message |
//!
//! Limits: a body over 1 MiB is counted, not shown.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Bodies up to this size are shown in the answer.
const SHOWN: usize = 1024 * 1024;

/// What a backend answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The backend's name.
    pub backend: String,
    /// The request's method.
    pub method: String,
    /// The request's path without the query.
    pub path: String,
    /// The query without `?`; empty when there is none.
    pub query: String,
    /// `Host` or `:authority`.
    pub host: String,
    /// `HTTP/1.1` or `HTTP/2`.
    pub proto: String,
    /// The request's headers, lower case, values in the order of arrival.
    pub headers: BTreeMap<String, Vec<String>>,
    /// Size of the request's body in bytes.
    pub body_bytes: usize,
    /// The request's body as text (lossy), when it is not too large.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// How the connection was secured; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// What a backend knows about its TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// `TLSv1_3` or `TLSv1_2`.
    pub version: String,
    /// The name in the client's SNI; empty without one.
    pub server_name: String,
    /// The protocol agreed on by ALPN; empty without one.
    pub negotiated_protocol: String,
    /// Number of certificates that the client showed.
    pub peer_certificates: usize,
}

/// How a backend behaves.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The name in its answers.
    pub name: String,
    /// Serves TLS with this configuration (ALPN is set by [`serve`] if it is empty); plain text without one.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Added to the delay of every answer.
    pub delay: Duration,
}

impl Config {
    /// A plain-text backend with this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }
}

/// A TLS configuration from a PEM certificate chain and key, for HTTP/2 and HTTP/1.1.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] when the texts are no certificate and key that belong together.
pub fn tls_from_pem(cert: &str, key: &str) -> io::Result<Arc<rustls::ServerConfig>> {
    use rustls_pki_types::pem::PemObject;
    let invalid = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidInput, e.to_string());
    let chain = rustls_pki_types::CertificateDer::pem_slice_iter(cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| invalid(&e))?;
    let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| invalid(&e))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| invalid(&e))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|e| invalid(&e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What has arrived at a backend.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    probes: AtomicU64,
    delayed: Mutex<BTreeMap<String, u64>>,
}

/// A backend in this process; stops, connections included, when dropped.
#[derive(Debug)]
pub struct Echo {
    addr: SocketAddr,
    counts: Arc<Counts>,
    _tasks: JoinSet<io::Result<()>>,
}

impl Echo {
    /// Starts a plain-text backend on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn start(name: impl Into<String>) -> io::Result<Self> {
        Self::start_with(([127, 0, 0, 1], 0).into(), Config::named(name)).await
    }

    /// Starts a backend on `addr`; port 0 picks a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn start_with(addr: SocketAddr, config: Config) -> io::Result<Self> {
        let listener = TcpListener::bind(addr).await?;
        let addr = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, config, Arc::clone(&counts)));
        Ok(Self { addr, counts, _tasks: tasks })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many requests have arrived.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// How many of those for a host asked for a delay.
    #[must_use]
    pub fn delayed(&self, host: &str) -> u64 {
        self.counts.delayed.lock().unwrap_or_else(PoisonError::into_inner).get(host).copied().unwrap_or_default()
    }

    /// How many of them were health checks of Envoy.
    #[must_use]
    pub fn probes(&self) -> u64 {
        self.counts.probes.load(Ordering::Relaxed)
    }
}

/// Serves on `listener` until dropped; counts the requests.
///
/// # Errors
/// Never returns `Ok`; an error when the listener fails for good.
pub async fn serve(listener: TcpListener, mut config: Config, counts: Arc<Counts>) -> io::Result<()> {
    if let Some(tls) = &mut config.tls
        && tls.alpn_protocols.is_empty()
    {
        let mut with_alpn = rustls::ServerConfig::clone(tls);
        with_alpn.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        *tls = Arc::new(with_alpn);
    }
    let config = Arc::new(config);
    let mut connections: JoinSet<()> = JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) if is_of_connection(&e) => continue,
                Err(e) => return Err(e),
            },
            Some(_) = connections.join_next() => continue,
        };
        stream.set_nodelay(true).ok();
        let (config, counts) = (Arc::clone(&config), Arc::clone(&counts));
        connections.spawn(async move {
            match config.tls.clone() {
                None => connection(stream, config, counts, None).await,
                Some(tls) => {
                    let Ok(stream) = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await else { return };
                    let seen = describe(stream.get_ref().1);
                    connection(stream, config, counts, Some(seen)).await;
                }
            }
        });
    }
}

/// Errors of one connection that `accept` reports; the listener is fine.
fn is_of_connection(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

fn describe(tls: &rustls::ServerConnection) -> Tls {
    Tls {
        version: tls.protocol_version().map(|v| format!("{v:?}")).unwrap_or_default(),
        server_name: tls.server_name().unwrap_or_default().to_owned(),
        negotiated_protocol: tls.alpn_protocol().map(|p| String::from_utf8_lossy(p).into_owned()).unwrap_or_default(),
        peer_certificates: tls.peer_certificates().map_or(0, <[_]>::len),
    }
}

/// The request asked for the connection to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("aborted as asked")]
struct Abort;

async fn connection<S>(stream: S, config: Arc<Config>, counts: Arc<Counts>, tls: Option<Tls>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let tls = tls.map(Arc::new);
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        counts.requests.fetch_add(1, Ordering::Relaxed);
        if request.headers().get(header::USER_AGENT).is_some_and(|agent| agent == "Envoy/HC") {
            counts.probes.fetch_add(1, Ordering::Relaxed);
        }
        let host = request.uri().host().or_else(|| request.headers().get(header::HOST)?.to_str().ok());
        if let (Some(host), true) = (host, request.headers().contains_key("x-echo-delay-ms")) {
            *counts.delayed.lock().unwrap_or_else(PoisonError::into_inner).entry(host.to_owned()).or_default() += 1;
        }
        answer(request, Arc::clone(&config), tls.clone())
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().enable_connect_protocol();
    // The client's going away is no error here.
    builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await.ok();
}

async fn answer(
    request: Request<Incoming>,
    config: Arc<Config>,
    tls: Option<Arc<Tls>>,
) -> Result<Response<Full<Bytes>>, Abort> {
    let wishes = Wishes::of(&request);
    tokio::time::sleep(config.delay + wishes.delay).await;
    if wishes.abort {
        return Err(Abort);
    }
    if is_websocket(&request) {
        return Ok(websocket(request));
    }
    let mut answer = Answer {
        backend: config.name.clone(),
        method: request.method().to_string(),
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or_default().to_owned(),
        host: host(&request),
        proto: if request.version() == Version::HTTP_2 {
            "HTTP/2".to_owned()
        } else {
            format!("{:?}", request.version())
        },
        tls: tls.map(|t| Tls::clone(&t)),
        ..Answer::default()
    };
    for (name, value) in request.headers() {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        answer.headers.entry(name.as_str().to_owned()).or_default().push(value);
    }
    let body = request.into_body().collect().await.map_err(|_| Abort)?.to_bytes();
    answer.body_bytes = body.len();
    if body.len() <= SHOWN {
        answer.body = String::from_utf8_lossy(&body).into_owned();
    }
    let mut json = serde_json::to_vec_pretty(&answer).expect("invariant: strings and numbers are JSON");
    json.push(b'\n');
    let mut response = Response::new(Full::from(json));
    *response.status_mut() = wishes.status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in wishes.headers {
        headers.append(name, value);
    }
    Ok(response)
}

fn host(request: &Request<Incoming>) -> String {
    let header = request.headers().get(header::HOST).map(|h| String::from_utf8_lossy(h.as_bytes()).into_owned());
    request.uri().authority().map(ToString::to_string).or(header).unwrap_or_default()
}

/// What the request wants of the answer.
#[derive(Debug)]
struct Wishes {
    status: StatusCode,
    delay: Duration,
    headers: Vec<(HeaderName, HeaderValue)>,
    abort: bool,
}

impl Wishes {
    fn of<B>(request: &Request<B>) -> Self {
        let number = |header: &str, prefix: &str| -> Option<u64> {
            let from_header = request.headers().get(header).and_then(|v| v.to_str().ok()?.trim().parse().ok());
            from_header.or_else(|| request.uri().path().strip_prefix(prefix)?.split('/').next()?.parse().ok())
        };
        let status = number("x-echo-status", "/status/")
            .and_then(|n| StatusCode::from_u16(u16::try_from(n).ok()?).ok())
            .filter(|s| s.as_u16() >= 200)
            .unwrap_or(StatusCode::OK);
        let headers = request
            .headers()
            .get_all("x-echo-set-header")
            .iter()
            .filter_map(|v| {
                let (name, value) = v.to_str().ok()?.split_once(':')?;
                Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
            })
            .collect();
        Self {
            status,
            delay: Duration::from_millis(number("x-echo-delay-ms", "/delay/").unwrap_or(0)),
            headers,
            abort: request.headers().contains_key("x-echo-abort"),
        }
    }
}

fn is_websocket<B>(request: &Request<B>) -> bool {
    let upgrade =
        request.headers().get(header::UPGRADE).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let connect = request.method() == Method::CONNECT
        && request.extensions().get::<hyper::ext::Protocol>().is_some_and(|p| p.as_str() == "websocket");
    upgrade || connect
}

/// Accepts the WebSocket (RFC 6455 section 4.2.2; RFC 8441 for HTTP/2) and echoes its messages.
fn websocket(mut request: Request<Incoming>) -> Response<Full<Bytes>> {
    let upgrade = hyper::upgrade::on(&mut request);
    let mut response = Response::new(Full::default());
    let headers = response.headers_mut();
    if let Some(protocol) = request.headers().get(header::SEC_WEBSOCKET_PROTOCOL) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol.clone());
    }
    if request.version() != Version::HTTP_2 {
        let Some(key) = request.headers().get(header::SEC_WEBSOCKET_KEY) else {
            *response.status_mut() = StatusCode::BAD_REQUEST;
            return response;
        };
        let accept = derive_accept_key(key.as_bytes());
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept.parse().expect("invariant: base64 is a header value"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    }
    #[expect(clippy::disallowed_methods, reason = "ends with its connection; a test backend watches nobody")]
    tokio::spawn(async move {
        let Ok(stream) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(stream), Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
                break;
            }
        }
    });
    response
}

#[cfg(test)]
mod tests;

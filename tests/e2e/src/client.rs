//! HTTP requests on a fresh connection each, never retried: what fails is seen.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest};

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// URL; its host becomes the `Host` header and the SNI, its port the port on loopback.
    pub url: String,
    /// Method.
    pub method: Method,
    /// Headers.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Bytes,
    /// Speak HTTP/2 (over plain TCP: with prior knowledge).
    pub http2: bool,
    /// CA that the server's certificate must chain to, PEM (https only).
    pub ca: Option<String>,
    /// Client certificate and key, PEM (https only).
    pub identity: Option<(String, String)>,
    /// Send another SNI than the URL's host; the certificate must be valid for it.
    pub sni: Option<String>,
    /// Longest wait for the answer.
    pub timeout: Duration,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
    /// The server's certificate, DER (https only).
    pub certificate: Option<Vec<u8>>,
}

/// A connection, encrypted or not.
trait Io: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

struct Connection {
    io: Box<dyn Io>,
    certificate: Option<Vec<u8>>,
}

// === impl Request ===

impl Request {
    /// A GET.
    #[must_use]
    pub fn get(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            method: Method::GET,
            headers: Vec::new(),
            body: Bytes::new(),
            http2: false,
            ca: None,
            identity: None,
            sni: None,
            timeout: Duration::from_secs(10),
        }
    }

    /// Sends it on a new connection.
    ///
    /// # Errors
    /// When the connection, the handshake or the exchange fails, or takes too long.
    pub async fn send(&self) -> Result<Answer> {
        let late = || format!("no answer to {} within {} s", self.url, self.timeout.as_secs());
        timeout(self.timeout, self.exchange()).await.with_context(late)?
    }

    /// Opens a WebSocket on a new connection, sends the body as a text message and waits for one; the answer has the
    /// status 101 and the message as its body, or is what came instead of the upgrade.
    ///
    /// # Errors
    /// When the connection, the handshake or the exchange fails, or takes too long.
    pub async fn websocket(&self) -> Result<Answer> {
        let late = || format!("no message from {} within {} s", self.url, self.timeout.as_secs());
        timeout(self.timeout, self.messages()).await.with_context(late)?
    }

    async fn exchange(&self) -> Result<Answer> {
        let uri: Uri = self.url.parse()?;
        let Connection { io, certificate } = self.connect(&uri).await?;
        let request = self.build(&uri)?;
        let io = TokioIo::new(io);
        // The connection runs beside the exchange and ends with it.
        let mut connection = JoinSet::new();
        let response = if self.http2 {
            let (mut sender, driver) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await?;
            connection.spawn(async move { drop(driver.await) });
            sender.send_request(request).await?
        } else {
            let (mut sender, driver) = hyper::client::conn::http1::handshake(io).await?;
            connection.spawn(async move { drop(driver.await) });
            sender.send_request(request).await?
        };
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, certificate })
    }

    async fn messages(&self) -> Result<Answer> {
        let uri: Uri = self.url.parse()?;
        let Connection { io, certificate } = self.connect(&uri).await?;
        let mut request = self.url.replacen("http", "ws", 1).into_client_request()?;
        for (name, value) in &self.headers {
            request.headers_mut().insert(HeaderName::try_from(name.as_str())?, HeaderValue::from_str(value)?);
        }
        let (mut socket, response) = match tokio_tungstenite::client_async(request, io).await {
            Ok(both) => both,
            Err(tungstenite::Error::Http(instead)) => {
                let (parts, body) = instead.into_parts();
                let body = body.unwrap_or_default().into();
                return Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, certificate });
            }
            Err(e) => return Err(e.into()),
        };
        let text = String::from_utf8(self.body.to_vec())?;
        socket.send(Message::text(text)).await?;
        let message = socket.next().await.context("the WebSocket ended without a message")??;
        let body = message.into_data();
        socket.close(None).await.ok();
        let (parts, _) = response.into_parts();
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body, certificate })
    }

    async fn connect(&self, uri: &Uri) -> Result<Connection> {
        let host = uri.host().context("URL without host")?.to_owned();
        let https = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if https { 443 } else { 80 });
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        if !https {
            return Ok(Connection { io: Box::new(stream), certificate: None });
        }
        let name = ServerName::try_from(self.sni.clone().unwrap_or(host))?;
        let connector = tokio_rustls::TlsConnector::from(Arc::new(self.tls()?));
        let stream = connector.connect(name, stream).await?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|c| c.first()).map(|c| c.to_vec());
        Ok(Connection { io: Box::new(stream), certificate })
    }

    fn build(&self, uri: &Uri) -> Result<http::Request<Full<Bytes>>> {
        let target =
            if self.http2 { self.url.clone() } else { uri.path_and_query().map_or("/", |p| p.as_str()).to_owned() };
        let mut request = http::Request::builder().method(self.method.clone()).uri(target);
        let headers = request.headers_mut().context("bad request line")?;
        for (name, value) in &self.headers {
            headers.append(HeaderName::try_from(name.as_str())?, HeaderValue::from_str(value)?);
        }
        if !self.http2 && !headers.contains_key(http::header::HOST) {
            let authority = uri.authority().context("URL without authority")?;
            headers.insert(http::header::HOST, HeaderValue::from_str(authority.as_str())?);
        }
        Ok(request.body(Full::new(self.body.clone()))?)
    }

    fn tls(&self) -> Result<rustls::ClientConfig> {
        let Some(ca) = &self.ca else { bail!("https needs a CA") };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let builder =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()?
                .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(
                CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?,
                PrivateKeyDer::from_pem_slice(key.as_bytes())?,
            )?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![if self.http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        Ok(config)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("tls", &self.certificate.is_some()).finish_non_exhaustive()
    }
}

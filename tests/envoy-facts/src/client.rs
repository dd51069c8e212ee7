//! Clients that never send anything twice.

use std::{future::Future, sync::Arc, time::Duration};

use http_body_util::{BodyExt, Empty, StreamBody, combinators::BoxBody};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Frame, Incoming},
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
    task::JoinSet,
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::PATIENCE;

/// A body that can be sent bit by bit.
pub type Body = BoxBody<Bytes, std::convert::Infallible>;

/// An answer, read to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body as text.
    pub body: String,
    /// Whether the server said that it closes the connection.
    pub closes: bool,
}

impl Answer {
    /// Status and body, for assertions.
    #[must_use]
    pub fn is(&self, status: u16, body: &str) -> bool {
        self.status == status && self.body == body
    }
}

/// An empty body.
#[must_use]
pub fn empty() -> Body {
    Empty::new().boxed()
}

/// A body that is sent as it comes.
#[must_use]
pub fn chunks() -> (mpsc::Sender<Result<Frame<Bytes>, std::convert::Infallible>>, Body) {
    let (sender, receiver) = mpsc::channel(16);
    (sender, BodyExt::boxed(StreamBody::new(ReceiverStream::new(receiver))))
}

fn request(method: Method, host: &str, path: &str, body: Body) -> Request<Body> {
    let uri = if host.is_empty() { path.to_owned() } else { format!("http://{host}{path}") };
    Request::builder().method(method).uri(uri).header("host", "test.example").body(body).expect("a valid request")
}

async fn read(response: Response<Incoming>) -> Result<Answer, String> {
    let closes = response.headers().get("connection").is_some_and(|value| value == "close");
    let status = response.status().as_u16();
    let body = timeout(PATIENCE, response.into_body().collect()).await.map_err(|_| "the body does not end")?;
    let body = body.map_err(|e| format!("body: {e:?}"))?.to_bytes();
    Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned(), closes })
}

/// One HTTP/1.1 connection.
#[derive(Debug)]
pub struct H1 {
    sender: http1::SendRequest<Body>,
    tasks: JoinSet<()>,
}

impl H1 {
    /// Connects to a port of loopback.
    ///
    /// # Errors
    /// When that fails.
    pub async fn open(port: u16) -> Result<Self, String> {
        Self::over(tcp(port).await?).await
    }

    /// Connects over TLS; any certificate will do.
    ///
    /// # Errors
    /// When that fails.
    pub async fn open_tls(port: u16, sni: &str) -> Result<Self, String> {
        Self::over(tls(port, sni, b"http/1.1").await?).await
    }

    async fn over(io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Self, String> {
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await.map_err(|e| format!("handshake: {e}"))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        Ok(Self { sender, tasks })
    }

    /// Sends a GET and reads the answer to its end.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.send(Method::GET, path, empty()).await
    }

    /// Sends a request and reads the answer to its end.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn send(&mut self, method: Method, path: &str, body: Body) -> Result<Answer, String> {
        let sent = timeout(PATIENCE, self.sender.send_request(request(method, "", path, body))).await;
        read(sent.map_err(|_| "no answer")?.map_err(|e| format!("request: {e:?}"))?).await
    }

    /// Whether the server has closed the connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the server has closed the connection.
    pub async fn closed(&mut self) {
        crate::soon("the connection is closed", self.tasks.join_next()).await;
    }
}

/// One HTTP/2 connection. Cloning gives another handle of it.
#[derive(Clone, Debug)]
pub struct H2 {
    sender: http2::SendRequest<Body>,
    _tasks: Arc<JoinSet<()>>,
}

impl H2 {
    /// Connects to a port of loopback with prior knowledge.
    ///
    /// # Errors
    /// When that fails.
    pub async fn open(port: u16) -> Result<Self, String> {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(tcp(port).await?))
            .await
            .map_err(|e| format!("handshake: {e}"))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, _tasks: Arc::new(tasks) })
    }

    /// Sends a GET and reads the answer to its end.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.send(Method::GET, path, empty()).await
    }

    /// Sends a request and reads the answer to its end.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn send(&mut self, method: Method, path: &str, body: Body) -> Result<Answer, String> {
        read(self.begin(method, path, body).await?).await
    }

    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn begin(&mut self, method: Method, path: &str, body: Body) -> Result<Response<Incoming>, String> {
        let sent = timeout(PATIENCE, self.sender.send_request(request(method, "test.example", path, body))).await;
        sent.map_err(|_| "no answer")?.map_err(|e| format!("request: {e:?}"))
    }

    /// Whether the server takes no new request on it.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// The next piece of a streamed answer as text; `None` at its end.
///
/// # Errors
/// What went wrong, in words.
pub async fn piece(of: &mut Incoming) -> Result<Option<String>, String> {
    match timeout(PATIENCE, of.frame()).await.map_err(|_| "no more of the body")? {
        None => Ok(None),
        Some(Err(error)) => Err(format!("body: {error:?}")),
        Some(Ok(frame)) => match frame.into_data() {
            Ok(data) => Ok(Some(String::from_utf8_lossy(&data).into_owned())),
            Err(trailers) => {
                let trailers = trailers.into_trailers().map_err(|_| "neither data nor trailers")?;
                let status = trailers.get("grpc-status").and_then(|of| of.to_str().ok()).unwrap_or_default();
                Ok(Some(format!("grpc-status: {status}")))
            }
        },
    }
}

/// A connection of bytes: plain TCP, or what an upgrade left.
#[derive(Debug)]
pub struct Raw(TcpStream);

impl Raw {
    /// Connects to a port of loopback.
    ///
    /// # Errors
    /// When that fails.
    pub async fn open(port: u16) -> Result<Self, String> {
        tcp(port).await.map(Self)
    }

    /// Connects and upgrades to a WebSocket.
    ///
    /// # Errors
    /// When the answer is not 101.
    pub async fn websocket(port: u16) -> Result<Self, String> {
        let mut raw = Self::open(port).await?;
        let ask = "GET /socket HTTP/1.1\r\nhost: test.example\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        raw.0.write_all(ask.as_bytes()).await.map_err(|e| e.to_string())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let byte = timeout(PATIENCE, raw.0.read_u8()).await.map_err(|_| "no answer")?;
            head.push(byte.map_err(|e| e.to_string())?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101") { Ok(raw) } else { Err(head) }
    }

    /// Sends some bytes, and reads as many.
    ///
    /// # Errors
    /// What went wrong, in words.
    pub async fn echo(&mut self, text: &str) -> Result<String, String> {
        self.0.write_all(text.as_bytes()).await.map_err(|e| e.to_string())?;
        let mut back = vec![0; text.len()];
        let read = timeout(PATIENCE, self.0.read_exact(&mut back)).await.map_err(|_| "nothing comes back")?;
        read.map_err(|e| e.to_string())?;
        Ok(String::from_utf8_lossy(&back).into_owned())
    }

    /// Waits until the other side has closed it.
    pub async fn closed(&mut self) {
        let mut rest = Vec::new();
        let _ = crate::soon("the connection is closed", self.0.read_to_end(&mut rest)).await;
    }
}

async fn tcp(port: u16) -> Result<TcpStream, String> {
    let socket = timeout(PATIENCE, TcpStream::connect(("127.0.0.1", port))).await.map_err(|_| "connect: no answer")?;
    let socket = socket.map_err(|e| format!("connect: {e}"))?;
    socket.set_nodelay(true).map_err(|e| e.to_string())?;
    Ok(socket)
}

async fn tls(port: u16, sni: &str, alpn: &[u8]) -> Result<tokio_rustls::client::TlsStream<TcpStream>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate))
        .with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    let name = ServerName::try_from(sni.to_owned()).map_err(|e| e.to_string())?;
    let connecting = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp(port).await?);
    timeout(Duration::from_secs(5), connecting).await.map_err(|_| "tls: no answer")?.map_err(|e| format!("tls: {e}"))
}

/// Takes every certificate: these tests look at whether there is an answer.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// A request that runs while the test goes on.
#[derive(Debug)]
pub struct Running<T>(JoinSet<T>);

impl<T: Send + 'static> Running<T> {
    /// Starts it.
    pub fn start(of: impl Future<Output = T> + Send + 'static) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(of);
        Self(tasks)
    }

    /// What came out.
    ///
    /// # Panics
    /// When it does not end in time.
    pub async fn done(mut self) -> T {
        crate::soon("the request ends", self.0.join_next()).await.expect("there is one task").expect("no panic")
    }
}

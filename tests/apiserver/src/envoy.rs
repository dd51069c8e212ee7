//! A real Envoy that is configured by a control plane of a cluster without nodes.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use envoy::bootstrap::{Bootstrap, Node, Protocol, Socket, XdsServer, sds_certificate, sds_trusted_ca};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::server::Server;

/// A proxy; it ends when this is dropped.
#[derive(Debug)]
pub struct Envoy {
    child: Child,
    scratch: TempDir,
}

/// The Envoy binary from `ENVOY_BIN`, or `None` (said on the terminal) where it is not set.
#[must_use]
pub fn envoy_bin() -> Option<PathBuf> {
    let path = std::env::var_os("ENVOY_BIN").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: ENVOY_BIN is not set (tests/tools/envoy.sh prints the path)");
    }
    path
}

// === impl Envoy ===

impl Envoy {
    /// Starts a proxy of that group (`NAMESPACE/GATEWAY`), connected to that server.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(bin: &Path, server: &Server, group: &str) -> Result<Self> {
        Self::connected(bin, &server.certificates(), server.xds_port()?, group, "live-0")
    }

    /// Starts a proxy with that name, connected to any port of loopback, with certificates from a folder.
    ///
    /// # Errors
    /// When it does not start.
    pub fn connected(bin: &Path, certificates: &Path, xds_port: u16, group: &str, name: &str) -> Result<Self> {
        let scratch = TempDir::new()?;
        let file = |name: &str| certificates.join(name).display().to_string();
        let at = |name: &str| scratch.path().join(name).display().to_string();
        let write = |name: &str, text: String| -> Result<String> {
            std::fs::write(at(name), text)?;
            Ok(at(name))
        };
        let certificate = sds_certificate(&file("tls.crt"), &file("tls.key")).to_string();
        let trusted_ca = sds_trusted_ca(&file("ca.crt"), "envoy-gateway").to_string();
        let mut bootstrap = Bootstrap::new(XdsServer {
            address: Socket { host: "127.0.0.1".into(), port: xds_port },
            certificate: write("xds-certificate.json", certificate)?.into(),
            trusted_ca: write("xds-trusted-ca.json", trusted_ca)?.into(),
            token: None,
            protocol: Protocol::Delta,
        });
        bootstrap.node = Some(Node { cluster: group.into(), id: name.into() });
        bootstrap.admin.port = 0;
        let config = write("bootstrap.yaml", bootstrap.to_yaml())?;
        let log = std::fs::File::create(at("log"))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(bin)
            .args(["-c", &config, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"])
            .args(["--admin-address-path", &at("admin")])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("Envoy does not start")?;
        Ok(Self { child, scratch })
    }

    /// A page of its admin server.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn admin(&self, path: &str) -> Result<String> {
        let address = std::fs::read_to_string(self.scratch.path().join("admin")).context("no admin address yet")?;
        let port = address.rsplit(':').next().context("a port")?.trim().parse()?;
        let answer = asked(port, "localhost", path).await.context("Envoy's admin server does not answer")?;
        ensure!(answer.status == 200, "{path}: {}", answer.status);
        Ok(answer.body)
    }

    /// Names and versions of what the control plane told it, by type.
    ///
    /// # Errors
    /// As [`Envoy::admin`].
    pub async fn versions(&self) -> Result<BTreeSet<String>> {
        let dump: Value = serde_json::from_str(&self.admin("/config_dump?include_eds").await?)?;
        let mut all = BTreeSet::new();
        dynamic(&dump, &mut all);
        Ok(all)
    }

    /// It runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it (SIGKILL).
    ///
    /// # Errors
    /// When it does not end.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// An answer of a server on loopback.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Value of `location`.
    pub location: Option<String>,
    /// All after the head.
    pub body: String,
}

/// GET on a fresh connection; none when there is no answer within 2 s.
pub async fn asked(port: u16, host: &str, path: &str) -> Option<Answer> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        // Envoy waits for the client's end, for a second; the answer is whole before.
        while !is_whole(&answer) && stream.read_buf(&mut answer).await.ok()? > 0 {}
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let chunked = head.lines().any(|l| l == "transfer-encoding: chunked");
        let body = if chunked { joined(body) } else { body.to_owned() };
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let location = head.lines().find_map(|l| l.strip_prefix("location: "));
        Some(Answer { status, location: location.map(str::to_owned), body })
    };
    timeout(Duration::from_secs(2), ask).await.ok()?
}

/// All of an answer that says how long it is.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
    let length = head.lines().find_map(|l| l.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| answer.len() >= end + 4 + length)
}

/// The chunks of a body.
fn joined(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_default();
        let (Some(chunk), true) = (rest.get(..size), size > 0) else { break };
        out.push_str(chunk);
        body = rest[size..].strip_prefix("\r\n").unwrap_or_default();
    }
    out
}

/// Resources of a dump that carry a version and are in use, as `TYPE NAME VERSION`.
fn dynamic(dump: &Value, all: &mut BTreeSet<String>) {
    match dump {
        Value::Array(list) => list.iter().for_each(|v| dynamic(v, all)),
        Value::Object(fields) => {
            let resource = ["cluster", "listener", "route_config", "endpoint_config", "secret"]
                .iter()
                .find_map(|f| fields.get(*f).filter(|v| v.is_object()));
            if let (Some(version), Some(resource)) = (fields.get("version_info").and_then(Value::as_str), resource) {
                let name = ["name", "cluster_name"].iter().find_map(|n| resource[*n].as_str()).unwrap_or_default();
                let kind = resource["@type"].as_str().unwrap_or_default();
                all.insert(format!("{kind} {name} {version}"));
                return;
            }
            fields.values().for_each(|v| dynamic(v, all));
        }
        _ => {}
    }
}

/// The certificate that a server on loopback shows for a host, as DER.
///
/// # Errors
/// When there is no handshake within a second.
pub async fn served_certificate(port: u16, host: &str) -> Result<Vec<u8>> {
    let shown = Arc::new(Shown { last: Mutex::default(), provider: Arc::new(aws_lc_rs::default_provider()) });
    let config = ClientConfig::builder_with_provider(shown.provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(shown.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())?;
    let handshake = async {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    timeout(Duration::from_secs(1), handshake).await??;
    let last = shown.last.lock().unwrap_or_else(PoisonError::into_inner).take();
    last.context("no certificate was shown")
}

/// Takes any certificate, and remembers it.
#[derive(Debug)]
struct Shown {
    last: Mutex<Option<Vec<u8>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Shown {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(end_entity.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

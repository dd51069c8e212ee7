//! A real Envoy that is configured by a control plane of a cluster without nodes.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use envoy::bootstrap::{Bootstrap, Node, Protocol, Socket, XdsServer, sds_certificate, sds_trusted_ca};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::server::Server;

/// A proxy; it ends when this is dropped.
#[derive(Debug)]
pub struct Envoy {
    _child: Child,
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
    /// Starts a proxy of that group (`NAMESPACE/GATEWAY`).
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(bin: &Path, server: &Server, group: &str) -> Result<Self> {
        let (certificates, scratch) = (server.certificates(), server.scratch());
        let file = |name: &str| certificates.join(name).display().to_string();
        let write = |name: &str, text: String| -> Result<String> {
            let path = scratch.join(name);
            std::fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        let certificate = sds_certificate(&file("tls.crt"), &file("tls.key")).to_string();
        let trusted_ca = sds_trusted_ca(&file("ca.crt"), "envoy-gateway").to_string();
        let mut bootstrap = Bootstrap::new(XdsServer {
            address: Socket { host: "127.0.0.1".into(), port: server.xds_port()? },
            certificate: write("xds-certificate.json", certificate)?.into(),
            trusted_ca: write("xds-trusted-ca.json", trusted_ca)?.into(),
            token: None,
            protocol: Protocol::Delta,
        });
        bootstrap.node = Some(Node { cluster: group.into(), id: "live-0".into() });
        bootstrap.admin.port = 0;
        let config = write("bootstrap.yaml", bootstrap.to_yaml())?;
        let log = std::fs::File::create(scratch.join("envoy.log"))?;
        let child = Command::new(bin)
            .args(["-c", &config, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("Envoy does not start")?;
        Ok(Self { _child: child })
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

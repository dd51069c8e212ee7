//! Telling: whoever connects with the control plane's own certificate gets one report, and the connection ends.

use std::{future::Future, sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::{PATIENCE, Report};

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 32;

/// Tells until `stop`. `tls` is the server's configuration now (it must ask for client certificates and offer
/// [`crate::ALPN`]); `name` is the DNS name that a client's certificate must have; `report` is what there is to tell now.
pub async fn serve(
    listener: TcpListener,
    tls: impl Fn() -> Option<Arc<ServerConfig>>,
    name: &str,
    report: impl Fn() -> Report,
    stop: impl Future<Output = ()>,
) {
    let mut connections = JoinSet::new();
    let accept = async {
        loop {
            while connections.len() >= CONNECTIONS {
                connections.join_next().await;
            }
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "peers cannot be accepted");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Ended connections make room.
            while connections.try_join_next().is_some() {}
            let Some(tls) = tls() else { continue };
            let (name, text) = (name.to_owned(), report().encode());
            connections.spawn(async move {
                match timeout(PATIENCE, tell(stream, tls, &name, &text)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => debug!(%error, "a peer was not told"),
                    Err(_) => debug!("a peer took too long"),
                }
            });
        }
    };
    tokio::select! { () = accept => {}, () = stop => {} }
}

async fn tell(stream: TcpStream, tls: Arc<ServerConfig>, name: &str, text: &[u8]) -> std::io::Result<()> {
    let mut stream = TlsAcceptor::from(tls).accept(stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    if !certificate.is_some_and(|c| has_name(c, name)) {
        return Err(std::io::Error::other("its certificate is not the control plane's"));
    }
    stream.write_all(text).await?;
    stream.shutdown().await
}

/// The certificate is for this DNS name.
fn has_name(certificate: &[u8], name: &str) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
    names.value.general_names.iter().any(|n| matches!(n, GeneralName::DNSName(n) if *n == name))
}

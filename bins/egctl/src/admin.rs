//! Requests to admin servers: of a gateway that runs, of proxies.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};

/// Largest answer, bytes.
const LIMIT: usize = 256 << 20;

/// The JSON at a path of the admin server at `address` (`host:port`).
///
/// # Errors
/// When there is no server, or its answer does not come in time, is no success or no JSON.
pub(crate) async fn get(address: &str, path: &str, patience: Duration) -> Result<Value> {
    let request = async { fetch(TcpStream::connect(address).await?, address, path).await };
    let answer = async { timeout(patience, request).await.with_context(|| format!("no answer within {patience:?}"))? };
    answer.await.with_context(|| format!("asking http://{address}{path}"))
}

/// The JSON at a path of the server at the other end of a stream.
///
/// # Errors
/// When the answer is no success or no JSON.
pub(crate) async fn fetch(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    host: &str,
    path: &str,
) -> Result<Value> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header("host", host).body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LIMIT).collect().await.map_err(|e| anyhow::anyhow!(e))?;
        if !status.is_success() {
            bail!("the answer is {status}");
        }
        Ok(serde_json::from_slice(&body.to_bytes())?)
    };
    // The connection has to be driven while the answer is awaited; it ends with its sender. How it ends says no more
    // than the exchange does.
    tokio::join!(exchange, connection).0
}

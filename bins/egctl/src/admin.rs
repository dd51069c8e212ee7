//! Requests to the admin server of a gateway that runs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{Request, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};

/// Longest time for a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer, bytes.
const LIMIT: usize = 256 << 20;

/// The JSON at a path of the admin server at `address` (`host:port`).
///
/// # Errors
/// When there is no server, or its answer is no success or no JSON.
pub(crate) fn get(address: &str, path: &str) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let request = async { timeout(PATIENCE, fetch(address, path)).await.context("no answer")? };
    runtime.block_on(request).with_context(|| format!("asking http://{address}{path}"))
}

async fn fetch(address: &str, path: &str) -> Result<Value> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(path).header("host", address).body(Empty::<Bytes>::new())?;
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

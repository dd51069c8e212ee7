//! A pod's way out: the shutdown manager beside Envoy, and the command that drains it.
//!
//! # Contract
//!
//! When a pod is to end, Kubernetes runs two hooks at once. That of Envoy's container asks [`manager`] whether it may stop
//! ([`READY_PATH`]) and gets no answer before the drain is over. That of the manager's own container is [`drain`]: it makes
//! health checks fail, so that no new connections come, asks clients to leave, waits until they have or the time is over, and
//! leaves a file that the manager waits for.
//!
//! Nothing of this keeps a pod longer than its times say: whatever fails, the file is left.
//!
//! # Limits
//!
//! Both run in one container. Connections of the listeners for probes and scrapes count for nothing.
//!
//! Source: Kubernetes' documentation of container hooks and of the end of pods; Envoy's of the administration interface and
//! of draining.

use std::{
    fmt,
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// Port of the shutdown manager.
pub const PORT: u16 = 19002;
/// Path that answers when Envoy may stop.
pub const READY_PATH: &str = "/shutdown/ready";
/// Path that tells that the manager runs.
pub const HEALTH_PATH: &str = "/healthz";
/// File that tells the manager that the drain is over.
pub const READY_FILE: &str = "/tmp/shutdown-ready";

/// How often connections are counted, and the file is looked for.
const POLL: Duration = Duration::from_secs(1);
/// No answer of Envoy may take longer.
const ANSWER: Duration = Duration::from_secs(5);

/// What the shutdown manager waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manager {
    /// Envoy may stop after this long in any case. Default: 610 s.
    pub ready_timeout: Duration,
    /// The file that tells that the drain is over.
    pub ready_file: PathBuf,
}

/// How a proxy is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Envoy's administration interface. Default: `127.0.0.1:19000`.
    pub admin: SocketAddr,
    /// Longest drain. Default: 60 s.
    pub timeout: Duration,
    /// Shortest drain: endpoints are withdrawn meanwhile. Default: 10 s.
    pub least: Duration,
    /// Wait before health checks fail; listeners drain from the start then. Default: none.
    pub delay: Duration,
    /// Open connections that count as none. Default: 0.
    pub exit_at: u64,
    /// The file that is left in the end.
    pub ready_file: PathBuf,
}

/// Why Envoy did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}")]
pub struct AdminFailed {
    path: String,
    why: String,
}

// === impl Manager ===

impl Default for Manager {
    fn default() -> Self {
        Self { ready_timeout: Duration::from_secs(610), ready_file: READY_FILE.into() }
    }
}

// === impl Drain ===

impl Default for Drain {
    fn default() -> Self {
        Self {
            admin: SocketAddr::from(([127, 0, 0, 1], 19000)),
            timeout: Duration::from_secs(60),
            least: Duration::from_secs(10),
            delay: Duration::ZERO,
            exit_at: 0,
            ready_file: READY_FILE.into(),
        }
    }
}

/// Runs the shutdown manager until `stop` resolves. Questions that wait for an answer then still get it: the end of this
/// container comes before that of Envoy's.
///
/// # Errors
/// When connections cannot be accepted.
pub async fn manager(listener: TcpListener, manager: Manager, stop: impl Future<Output = ()>) -> io::Result<()> {
    tokio::pin!(stop);
    let (ending, end) = watch::channel(false);
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted?,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let (manager, mut end) = (manager.clone(), end.clone());
        connections.spawn(async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let manager = manager.clone();
                async move { Ok::<_, std::convert::Infallible>(answer(&manager, &request).await) }
            });
            let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            let asked = async {
                // The sender lives as long as the connections.
                let _ = end.wait_for(|end| *end).await;
            };
            let outcome = tokio::select! {
                outcome = &mut connection => Some(outcome),
                () = asked => None,
            };
            let outcome = match outcome {
                Some(outcome) => outcome,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = outcome {
                tracing::debug!(%error, "a connection to the shutdown manager broke");
            }
        });
    }
    ending.send_replace(true);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn answer(manager: &Manager, request: &Request<hyper::body::Incoming>) -> Response<Full<Bytes>> {
    let status = match request.uri().path() {
        HEALTH_PATH => StatusCode::OK,
        READY_PATH => match timeout(manager.ready_timeout, left(&manager.ready_file)).await {
            Ok(()) => {
                tracing::info!("drained; Envoy may stop");
                StatusCode::OK
            }
            Err(_) => {
                tracing::info!(after = ?manager.ready_timeout, "not drained in time; Envoy may stop");
                StatusCode::INTERNAL_SERVER_ERROR
            }
        },
        _ => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

/// Resolves when the file is there.
async fn left(file: &Path) {
    while !tokio::fs::try_exists(file).await.unwrap_or(false) {
        sleep(POLL).await;
    }
}

/// Drains Envoy and leaves the file. Whatever Envoy does not do is told in the log and holds nothing up.
///
/// # Errors
/// When the file cannot be left: the manager then waits its full time.
pub async fn drain(drain: &Drain) -> io::Result<()> {
    let begin = Instant::now();
    // Two containers of one pod are told at once: what is there already is of an earlier life.
    if drain.delay.is_zero() {
        drain.tell("/healthcheck/fail").await;
        drain.tell("/drain_listeners?graceful&skip_exit").await;
    } else {
        drain.tell("/drain_listeners?graceful&skip_exit").await;
        sleep(drain.delay).await;
        drain.tell("/healthcheck/fail").await;
    }
    let begin = begin.max(Instant::now());
    loop {
        let passed = begin.elapsed();
        if passed >= drain.timeout {
            tracing::info!(after = ?passed, "the time is over; connections that are left are cut");
            break;
        }
        if passed >= drain.least {
            match drain.connections().await {
                Ok(open) if open <= drain.exit_at => {
                    tracing::info!(after = ?passed, open, "drained");
                    break;
                }
                Ok(open) => tracing::debug!(open, "connections are open"),
                Err(error) => tracing::warn!(%error, "connections cannot be counted"),
            }
        }
        sleep(POLL.min(drain.timeout.saturating_sub(begin.elapsed()))).await;
    }
    tokio::fs::write(&drain.ready_file, []).await
}

impl Drain {
    async fn tell(&self, path: &str) {
        if let Err(error) = self.ask(Method::POST, path).await {
            tracing::warn!(%error, "Envoy did not do what was asked");
        }
    }

    /// Open connections of clients: of the whole server, without those of the listeners for probes, scrapes and the admin
    /// interface itself.
    async fn connections(&self) -> Result<u64, AdminFailed> {
        let text = self.ask(Method::GET, "/stats?filter=downstream_cx_active$").await?;
        let mut open = 0;
        for line in text.lines() {
            let Some((name, value)) = line.rsplit_once(": ") else { continue };
            let own = ["admin", "19001", "19003"].iter().any(|p| name.contains(p));
            // One number for each listener: those of its workers and of its HTTP statistics are parts of it.
            if name.starts_with("listener.")
                && name.matches(".worker_").count() == 0
                && !name.contains(".http.")
                && !own
            {
                open += value.trim().parse::<u64>().unwrap_or(0);
            }
        }
        Ok(open)
    }

    async fn ask(&self, method: Method, path: &str) -> Result<String, AdminFailed> {
        let failed = |why: &dyn fmt::Display| AdminFailed { path: path.to_owned(), why: why.to_string() };
        let exchange = async {
            let stream = TcpStream::connect(self.admin).await.map_err(|e| failed(&e))?;
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(http::header::HOST, "localhost")
                .body(Empty::<Bytes>::new())
                .map_err(|e| failed(&e))?;
            let answer = async {
                let response = sender.send_request(request).await.map_err(|e| failed(&e))?;
                let status = response.status();
                let body = response.into_body().collect().await.map_err(|e| failed(&e))?.to_bytes();
                if status != StatusCode::OK {
                    return Err(failed(&status));
                }
                Ok(String::from_utf8_lossy(&body).into_owned())
            };
            let mut connection = std::pin::pin!(connection);
            let mut answer = std::pin::pin!(answer);
            tokio::select! {
                biased;
                done = &mut answer => done,
                ended = &mut connection => match ended {
                    Ok(()) => answer.await,
                    Err(e) => Err(failed(&e)),
                },
            }
        };
        timeout(ANSWER, exchange).await.unwrap_or_else(|_| Err(failed(&"no answer in time")))
    }
}

//! Steady requests from outside the cluster, of which none may fail.
//!
//! Half of them open a connection each, half share one that stays open as long as the proxy lets it. Nothing is retried.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

/// Longest wait for an answer.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Where requests go.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address of the load balancer.
    pub address: SocketAddr,
    /// `Host`.
    pub host: String,
    /// Path.
    pub path: String,
}

/// What came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: StatusCode,
    /// The backend's answer as JSON, or null.
    pub body: Value,
}

/// Requests that were sent, and what was wrong with those that failed.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// All requests.
    pub sent: u64,
    /// Seconds since the start, and what was wrong.
    pub failed: Vec<String>,
}

/// Requests that go on until [`Load::stop`].
#[derive(Debug)]
pub struct Load {
    tally: Arc<Mutex<Tally>>,
    stop: tokio::sync::watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// An open connection; it closes when this is dropped.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    _driver: JoinSet<hyper::Result<()>>,
}

// === impl Target ===

impl Target {
    /// One request on a connection of its own.
    ///
    /// # Errors
    /// When no whole answer came within [`PATIENCE`].
    pub async fn get(&self) -> Result<Answer> {
        let once = async { self.send(&mut self.connect().await?).await };
        timeout(PATIENCE, once).await.with_context(|| format!("no answer within {} s", PATIENCE.as_secs()))?
    }

    async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(self.address).await.context("connect")?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(connection);
        Ok(Connection { sender, _driver: driver })
    }

    async fn send(&self, connection: &mut Connection) -> Result<Answer> {
        let request = Request::get(&self.path).header(header::HOST, &self.host).body(Empty::new())?;
        let response = connection.sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await.context("body")?.to_bytes();
        Ok(Answer { status, body: serde_json::from_slice(&body).unwrap_or_default() })
    }
}

// === impl Tally ===

impl Tally {
    /// The failures as one line; `None` without any.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let first = self.failed.first()?;
        Some(format!("{} of {} requests failed, the first: {first}", self.failed.len(), self.sent))
    }
}

// === impl Load ===

impl Load {
    /// Starts two lanes that send a request each `period`.
    #[must_use]
    pub fn start(target: &Target, period: Duration) -> Self {
        let tally = Arc::new(Mutex::new(Tally::default()));
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut tasks = JoinSet::new();
        for kept in [false, true] {
            let (target, tally, mut stopped) = (target.clone(), Arc::clone(&tally), stopped.clone());
            tasks.spawn(async move {
                let from = Instant::now();
                let mut ticks = interval(period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let mut connection = None;
                let mut requests = JoinSet::new();
                loop {
                    tokio::select! {
                        _ = ticks.tick() => {}
                        _ = stopped.wait_for(|s| *s) => break,
                    }
                    let at = from.elapsed();
                    if kept {
                        let outcome = timeout(PATIENCE, shared(&target, &mut connection)).await;
                        note(&tally, at, outcome.context("no answer in time").flatten());
                    } else {
                        let (target, tally) = (target.clone(), Arc::clone(&tally));
                        requests.spawn(async move { note(&tally, at, target.get().await) });
                    }
                    while requests.try_join_next().is_some() {}
                }
                requests.join_all().await;
            });
        }
        Self { tally, stop, tasks }
    }

    /// Requests so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).sent
    }

    /// Lets requests under way end; then what all of them came to.
    pub async fn stop(self) -> Tally {
        self.stop.send_replace(true);
        self.tasks.join_all().await;
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A request on the connection that stays open. One that the proxy closed between two requests is opened anew; that a
/// request on it fails counts.
async fn shared(target: &Target, connection: &mut Option<Connection>) -> Result<Answer> {
    let mut open = match connection.take() {
        Some(mut open) => match open.sender.ready().await {
            Ok(()) => open,
            Err(_) => target.connect().await?,
        },
        None => target.connect().await?,
    };
    let answer = target.send(&mut open).await?;
    *connection = Some(open);
    Ok(answer)
}

fn note(tally: &Mutex<Tally>, at: Duration, outcome: Result<Answer>) {
    let wrong = outcome.and_then(|a| {
        ensure!(a.status == StatusCode::OK, "status {}", a.status.as_u16());
        Ok(())
    });
    let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
    tally.sent += 1;
    if let Err(e) = wrong {
        tally.failed.push(format!("after {:.2} s: {e:#}", at.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers the first `good` requests well, then with 503; it keeps connections open.
    async fn server(servers: &mut JoinSet<()>, good: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answered = Arc::new(Mutex::new(0));
        servers.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let answered = Arc::clone(&answered);
                connections.spawn(async move {
                    let mut buffer = [0; 1024];
                    while stream.read(&mut buffer).await.is_ok_and(|n| n > 0) {
                        let status = {
                            let mut answered = answered.lock().unwrap();
                            *answered += 1;
                            if *answered <= good { "200 OK" } else { "503 No" }
                        };
                        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}");
                        if stream.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    async fn tally_of(address: SocketAddr) -> Tally {
        let target = Target { address, host: "test".into(), path: "/".into() };
        let load = Load::start(&target, Duration::from_millis(1));
        while load.sent() < 40 {
            tokio::task::yield_now().await;
        }
        load.stop().await
    }

    #[tokio::test]
    async fn good_answers_are_no_complaint() {
        let mut servers = JoinSet::new();
        let tally = tally_of(server(&mut servers, usize::MAX).await).await;
        assert!(tally.sent >= 40);
        assert_eq!(tally.complaint(), None);
    }

    #[tokio::test]
    async fn a_bad_status_is_a_failure() {
        let mut servers = JoinSet::new();
        let tally = tally_of(server(&mut servers, 10).await).await;
        assert_eq!(tally.failed.len() as u64, tally.sent - 10);
        assert!(tally.complaint().unwrap().contains("status 503"));
    }

    #[tokio::test]
    async fn a_refused_connection_is_a_failure() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let tally = tally_of(closed).await;
        assert_eq!(tally.failed.len() as u64, tally.sent);
    }
}

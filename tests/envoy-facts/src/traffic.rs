//! Requests without a break while something changes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use hyper::Method;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    client::{Answer, H1, H2, empty},
    soon,
};

/// Which protocol a worker speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1 with keep-alive.
    Http1,
    /// HTTP/2.
    Http2,
}

/// POST requests to `/`, one after another on each of several connections, none ever sent twice. A new connection is opened when the
/// server has said that it closes the old one.
#[derive(Debug)]
pub struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<String>>>,
    heard: watch::Receiver<BTreeMap<String, u64>>,
    tasks: JoinSet<()>,
}

impl Traffic {
    /// Starts: half of the workers speak HTTP/1.1, the others HTTP/2.
    #[must_use]
    pub fn start(port: u16, workers: usize) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failed = Arc::new(Mutex::new(Vec::new()));
        let (tell, heard) = watch::channel(BTreeMap::new());
        let tell = Arc::new(tell);
        let mut tasks = JoinSet::new();
        for at in 0..workers {
            let (stop, sent, failed, tell) = (stop.clone(), sent.clone(), failed.clone(), tell.clone());
            let protocol = if at % 2 == 0 { Protocol::Http1 } else { Protocol::Http2 };
            tasks.spawn(async move {
                let mut client = Client::Closed;
                while !stop.load(Ordering::Relaxed) {
                    match client.post(port, protocol).await {
                        Ok(Answer { status: 200, body, .. }) => {
                            tell.send_modify(|heard: &mut BTreeMap<String, u64>| *heard.entry(body).or_default() += 1);
                        }
                        other => {
                            failed.lock().unwrap().push(format!("{protocol:?}: {other:?}"));
                            client = Client::Closed;
                        }
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        Self { stop, sent, failed, heard, tasks }
    }

    /// Waits until this backend has answered once more.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn hear(&self, backend: &str) {
        let mut heard = self.heard.clone();
        let before = heard.borrow().get(backend).copied().unwrap_or_default();
        let more = heard.wait_for(|heard| heard.get(backend).copied().unwrap_or_default() > before);
        let what = format!("{backend} answers (failed: {:?})", self.failed.lock().unwrap());
        soon(&what, more).await.expect("the workers live");
    }

    /// Waits until so many more requests were answered.
    ///
    /// # Panics
    /// When they are not in time.
    pub async fn more(&self, count: u64) {
        let mut heard = self.heard.clone();
        let sum = |heard: &BTreeMap<String, u64>| heard.values().sum::<u64>();
        let enough = sum(&heard.borrow()) + count;
        let what = format!("{count} more answers (failed: {:?})", self.failed.lock().unwrap());
        soon(&what, heard.wait_for(|heard| sum(heard) >= enough)).await.expect("the workers live");
    }

    /// Ends it and tells how many requests were sent and what went wrong.
    ///
    /// # Panics
    /// When a worker panicked.
    pub async fn stop(mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a worker does not panic");
        }
        let failed = self.failed.lock().unwrap().clone();
        (self.sent.load(Ordering::Relaxed), failed)
    }

    /// Ends it and checks that every request was answered.
    ///
    /// # Panics
    /// When one was not.
    pub async fn all_is_well(self, what: &str) {
        let (sent, failed) = self.stop().await;
        println!("{what}: {sent} requests, {} failed", failed.len());
        assert!(failed.is_empty(), "{what}: {failed:?}");
    }
}

enum Client {
    Closed,
    Http1(H1),
    Http2(H2),
}

impl Client {
    async fn post(&mut self, port: u16, protocol: Protocol) -> Result<Answer, String> {
        if matches!(self, Self::Http2(client) if client.is_closed()) {
            *self = Self::Closed;
        }
        if matches!(self, Self::Closed) {
            *self = match protocol {
                Protocol::Http1 => Self::Http1(H1::open(port).await?),
                Protocol::Http2 => Self::Http2(H2::open(port).await?),
            };
        }
        match self {
            Self::Closed => Err("closed".into()),
            Self::Http1(client) => {
                let answer = client.send(Method::POST, "/", empty()).await;
                if answer.as_ref().is_ok_and(|answer| answer.closes) {
                    *self = Self::Closed;
                }
                answer
            }
            Self::Http2(client) => client.send(Method::POST, "/", empty()).await,
        }
    }
}

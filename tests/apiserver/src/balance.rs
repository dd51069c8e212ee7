//! What a Service is for proxies: new connections go to a replica that is ready, those that are open stay where they are.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{interval, timeout},
};

use crate::envoy::asked;

/// How often replicas are asked whether they are ready.
const EVERY: Duration = Duration::from_millis(500);
/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a replica is, on loopback.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Port of the probes.
    pub health: u16,
    /// Port that connections go to.
    pub xds: u16,
}

/// A port of loopback that stands for all replicas; ends when dropped.
#[derive(Debug)]
pub struct Balancer {
    port: u16,
    ready: Arc<Mutex<Vec<bool>>>,
    _tasks: JoinSet<()>,
}

// === impl Balancer ===

impl Balancer {
    /// Starts it.
    ///
    /// # Errors
    /// When no port is free.
    pub async fn start(places: Vec<Place>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let ready = Arc::new(Mutex::new(vec![false; places.len()]));
        let mut tasks = JoinSet::new();
        for (i, place) in places.iter().copied().enumerate() {
            let ready = ready.clone();
            tasks.spawn(async move {
                let mut tick = interval(EVERY);
                loop {
                    tick.tick().await;
                    let answer = timeout(PATIENCE, asked(place.health, "probe", "/readyz")).await;
                    let now = matches!(answer, Ok(Some(a)) if a.status == 200);
                    ready.lock().unwrap_or_else(PoisonError::into_inner)[i] = now;
                }
            });
        }
        tasks.spawn(accept(listener, places, ready.clone()));
        Ok(Self { port, ready, _tasks: tasks })
    }

    /// Port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Replicas that were ready when they were asked last.
    #[must_use]
    pub fn ready(&self) -> Vec<bool> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, places: Vec<Place>, ready: Arc<Mutex<Vec<bool>>>) {
    let mut connections = JoinSet::new();
    let mut turn = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((mut client, _)) = accepted else { continue };
                turn += 1;
                // In turn, those that are ready; nobody is: the connection ends.
                let now = ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let next = (0..places.len()).map(|i| (i + turn) % places.len()).find(|i| now[*i]);
                let Some(place) = next.map(|i| places[i]) else { continue };
                connections.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(("127.0.0.1", place.xds)).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

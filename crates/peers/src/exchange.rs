//! Asking the peers, again and again, and deciding.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::AsyncReadExt,
    net::TcpStream,
    sync::watch,
    task::JoinSet,
    time::{Instant, interval, timeout},
};
use tokio_rustls::TlsConnector;
use tracing::{debug, info, warn};

use crate::{Decider, EVERY, Freshness, InvalidReport, LARGEST, MOST_PEERS, PATIENCE, Refusal, Report, Rule, Table};

/// Why a peer gave no report.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No connection, or no TLS.
    #[error("it cannot be asked: {0}")]
    Io(#[from] io::Error),
    /// No answer in time.
    #[error("no answer within {PATIENCE:?}")]
    Late,
    /// The answer is none.
    #[error("what it tells is no report: {0}")]
    Invalid(#[from] InvalidReport),
}

/// Asks one peer, whose certificate has to have `name`.
///
/// # Errors
/// [`AskError`].
pub async fn ask(address: SocketAddr, tls: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Report, AskError> {
    let read = async {
        let stream = TcpStream::connect(address).await?;
        let stream = TlsConnector::from(tls).connect(name, stream).await?;
        let mut text = Vec::new();
        stream.take(LARGEST as u64 + 1).read_to_end(&mut text).await?;
        io::Result::Ok(text)
    };
    let text = timeout(PATIENCE, read).await.map_err(|_| AskError::Late)??;
    Ok(Report::decode(&text)?)
}

/// How peers are asked.
pub struct Options {
    /// Our name in reports.
    pub own: String,
    /// When to hand over.
    pub rule: Rule,
    /// How long ago we were in touch.
    pub freshness: Freshness,
    /// Where peers are; our own address among them does no harm.
    pub addresses: watch::Receiver<BTreeSet<SocketAddr>>,
    /// DNS name in the certificates of peers.
    pub name: ServerName<'static>,
    /// The client's configuration now; none while there is no usable certificate.
    pub tls: Box<dyn Fn() -> Option<Arc<ClientConfig>> + Send + Sync>,
}

/// What is known of the peers, and what was decided. Cloning shares.
#[derive(Clone, Debug)]
pub struct Peers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    start: Instant,
    table: Mutex<Table>,
    hand_over: watch::Sender<bool>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("own", &self.own).field("rule", &self.rule).finish_non_exhaustive()
    }
}

// === impl Peers ===

impl Peers {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(own: &str) -> Self {
        let (table, hand_over) = (Mutex::new(Table::new(own)), watch::Sender::new(false));
        Self(Arc::new(Shared { start: Instant::now(), table, hand_over }))
    }

    /// Whether this replica hands its proxies over; changes as it is decided.
    #[must_use]
    pub fn hand_over(&self) -> watch::Receiver<bool> {
        self.0.hand_over.subscribe()
    }

    /// Reports of the peers that are believed now.
    #[must_use]
    pub fn reports(&self) -> Vec<Report> {
        self.table().reports(self.now()).cloned().collect()
    }

    /// What proxies refused at peers, each once.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.table().refusals(self.now())
    }

    fn now(&self) -> Duration {
        self.0.start.elapsed()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks and decides, for ever.
    pub async fn run(self, options: Options) {
        let mut decider = Decider::new(options.rule);
        let mut asked: JoinSet<()> = JoinSet::new();
        let mut tick = interval(EVERY);
        loop {
            tokio::select! {
                _ = tick.tick() => self.ask_all(&options, &mut asked),
                Some(_) = asked.join_next() => {}
            }
            let now = self.now();
            let own = options.freshness.age();
            let hand_over = {
                let mut table = self.table();
                table.forget(now);
                decider.decide(now, own, table.peers(now))
            };
            let changed = self.0.hand_over.send_if_modified(|last| std::mem::replace(last, hand_over) != hand_over);
            if changed && hand_over {
                warn!(age = ?own, "out of touch with the API server, and a peer is in touch: handing proxies over");
            } else if changed {
                info!(age = ?own, "taking proxies again");
            }
        }
    }

    /// Asks every peer, unless the last round is still under way: then those that hang are given up first.
    fn ask_all(&self, options: &Options, asked: &mut JoinSet<()>) {
        let Some(tls) = (options.tls)() else { return };
        let addresses: Vec<SocketAddr> = options.addresses.borrow().iter().take(MOST_PEERS).copied().collect();
        if asked.len() > 2 * MOST_PEERS {
            asked.abort_all();
        }
        for address in addresses {
            let (peers, tls, name) = (self.clone(), tls.clone(), options.name.clone());
            asked.spawn(async move {
                let at = peers.now();
                match ask(address, tls, name).await {
                    Ok(report) => peers.table().take(at, report),
                    Err(error) => debug!(%address, %error, "a peer was not heard"),
                }
            });
        }
    }
}

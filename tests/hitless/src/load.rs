//! The load: an open loop that sends at its rate however long the answers take, and what every request goes through.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

use crate::{
    client::{Client, Mode, Post},
    expect::{Outcome, Want},
    report::{Failed, Report},
    target::{Board, Target},
};

/// How long a slow request takes.
pub(crate) const SLOW: Duration = Duration::from_secs(2);
/// Of a thousand requests, the slow ones (those that accompany a change come on top).
const SLOW_SHARE: u32 = 15;
/// Sizes of bodies, in bytes; the first is the usual one.
const SIZES: [usize; 4] = [200, 0, 4_000, 60_000];
/// Longest wait until a change is seen.
const SEEN: Duration = Duration::from_secs(20);
/// Answers in a row that tell that a change came which no single answer tells.
const ROW: u32 = 12;

/// What load and changes share.
#[derive(Debug)]
pub(crate) struct Context {
    /// The client.
    pub(crate) client: Client,
    /// Where requests go.
    pub(crate) board: Board,
    /// What happened.
    pub(crate) report: Report,
    /// Requests beside the steady ones.
    extra: mpsc::UnboundedSender<Shot>,
    resources: PathBuf,
    number: AtomicU64,
    body: Bytes,
    writing: Mutex<()>,
}

/// A request to be sent.
#[derive(Debug)]
pub(crate) struct Shot {
    target: Arc<Target>,
    mode: Mode,
    delay: Duration,
    size: usize,
}

// === impl Shot ===

impl Shot {
    /// It counts as asked from now on.
    fn new(target: Arc<Target>, mode: Mode, delay: Duration, size: usize) -> Self {
        target.asked(!delay.is_zero());
        Self { target, mode, delay, size }
    }

    fn at(target: Arc<Target>, rng: &mut impl Rng, slow: u32) -> Self {
        let mode = match (rng.random_range(0..100), target.place.sni.is_some()) {
            (0..30, false) | (0..10, true) => Mode::Fresh,
            (..65, _) => Mode::Kept,
            _ => Mode::Http2,
        };
        let delay = if rng.random_range(0..1000) < slow { SLOW } else { Duration::ZERO };
        let size = if rng.random_range(0..10) < 7 { SIZES[0] } else { SIZES[rng.random_range(1..SIZES.len())] };
        Self::new(target, mode, delay, size)
    }
}

// === impl Context ===

impl Context {
    /// Shared state of a run whose resource files are in this folder, and the queue of extra requests.
    #[must_use]
    pub(crate) fn new(client: Client, resources: PathBuf) -> (Self, mpsc::UnboundedReceiver<Shot>) {
        let (extra, queue) = mpsc::unbounded_channel();
        let context = Self {
            client,
            board: Board::default(),
            report: Report::default(),
            extra,
            resources,
            number: AtomicU64::new(0),
            body: Bytes::from(vec![b'x'; 60_000]),
            writing: Mutex::default(),
        };
        (context, queue)
    }

    /// Writes a resource file whole.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, name: &str, objects: Vec<Value>) -> Result<()> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let tmp = self.resources.with_file_name("hitless.tmp");
        std::fs::write(&tmp, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
        std::fs::rename(&tmp, self.resources.join(name)).with_context(|| name.to_owned())
    }

    /// Removes a resource file.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        std::fs::remove_file(self.resources.join(name)).with_context(|| name.to_owned())
    }

    /// Begins some slow requests, so that they are under way when the change comes.
    pub(crate) fn begin_slow(&self, target: &Arc<Target>, count: usize) {
        for mode in [Mode::Kept, Mode::Http2, Mode::Fresh].into_iter().cycle().take(count) {
            let shot = Shot::new(Arc::clone(target), mode, SLOW, SIZES[0]);
            // Nobody listens any more at the very end.
            let _ = self.extra.send(shot);
        }
    }

    /// Sends a request and judges its answer.
    pub(crate) async fn fire(&self, shot: &Shot) -> Outcome {
        let Shot { target, mode, delay, size } = shot;
        let path = format!("/{}", self.number.fetch_add(1, Ordering::Relaxed));
        let post = Post {
            place: target.place.clone(),
            host: target.host.clone(),
            path,
            body: self.body.slice(..*size),
            delay: *delay,
        };
        let begin = Instant::now();
        let early = target.is_early(begin);
        let since = target.expect.begin(begin);
        let outcome = self.client.send(&post, *mode).await;
        target.ended(!delay.is_zero());
        let over = if target.place.sni.is_some() { " over TLS" } else { "" };
        let name = format!("{mode:?}{over}");
        let slow = !delay.is_zero();
        match target.expect.judge(since, &outcome) {
            Ok(()) => self.report.passed(&name, slow),
            Err(right) => {
                let took = begin.elapsed().as_secs_f64();
                let failed =
                    Failed { host: &target.host, path: &post.path, took, outcome: &outcome, right: &right, early };
                self.report.failed(&name, slow, &failed);
            }
        }
        outcome
    }

    /// Asks until the answers are those of `new`; `old` is what they were before.
    ///
    /// # Errors
    /// When that takes too long.
    pub(crate) async fn seen(&self, target: &Arc<Target>, old: &Want, new: &Want, rng: &mut StdRng) -> Result<()> {
        let begin = Instant::now();
        let needed = if new.is_within(old) { ROW } else { 1 };
        let mut row = 0;
        loop {
            let shot = Shot::at(Arc::clone(target), rng, 0);
            let outcome = self.fire(&shot).await;
            let told = new.allows(&outcome) && (needed > 1 || !old.allows(&outcome));
            row = if told { row + 1 } else { 0 };
            if row >= needed {
                return Ok(());
            }
            if begin.elapsed() > SEEN {
                anyhow::bail!("{}: not seen in {} s: {new:?}; last: {outcome}", target.host, SEEN.as_secs());
            }
            sleep(Duration::from_millis(6)).await;
        }
    }
}

/// Sends `rate` requests a second, and the extra ones, until told to stop; then waits for those under way.
pub(crate) async fn run(
    context: Arc<Context>,
    rate: f64,
    seed: u64,
    mut extra: mpsc::UnboundedReceiver<Shot>,
    mut stop: watch::Receiver<bool>,
) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut under_way: JoinSet<()> = JoinSet::new();
    let mut tick = interval(Duration::from_secs_f64(1.0 / rate));
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let send = |under_way: &mut JoinSet<()>, shot: Shot| {
        let context = Arc::clone(&context);
        under_way.spawn(async move { drop(context.fire(&shot).await) });
    };
    loop {
        tokio::select! {
            _ = stop.wait_for(|s| *s) => break,
            Some(ended) = under_way.join_next() => ended.expect("invariant: a request does not panic"),
            Some(shot) = extra.recv() => send(&mut under_way, shot),
            _ = tick.tick() => {
                if let Some(target) = context.board.pick(&mut rng) {
                    send(&mut under_way, Shot::at(target, &mut rng, SLOW_SHARE));
                }
            }
        }
    }
    while let Some(ended) = under_way.join_next().await {
        ended.expect("invariant: a request does not panic");
    }
}

//! One attempt at a time: what to do with the lease as it is found.
//!
//! The arguments for safety, each tested by the simulation:
//!
//! * A leadership begins only with a `store` over a version, so the record cannot have changed since it was read.
//! * That record was free, or had not changed for the lease's duration since *this* process first saw it, so every earlier
//!   leadership is over by its own clock; or it was written by this process itself over such a version.
//! * A missing lease proves nothing: its holder may still lead, and a creation carries no version. So it is replaced by a
//!   placeholder by which nobody leads, and the wait begins there. Only a process that still leads when it sees the lease
//!   missing, or a placeholder, takes it at once: until its own end nobody else can have waited long enough.

use crate::{
    clock::{Clock, Moment, WallTime},
    jitter::Jitter,
    mutant::{Mutant, Planted},
    outcome::Reason,
    record::{LeaseStore, Record, StoreError},
    role::{Term, TermState},
    stats::Stats,
    timings::Timings,
};
use std::{collections::VecDeque, pin::pin, sync::Arc, task::Poll, time::Duration};
use tokio::sync::watch;

/// Attempts of one leadership that are remembered, to know when a stored one was sent.
const REMEMBERED: usize = 16;

/// What a candidate knows and does, without the role channel.
pub(crate) struct Contender<S: LeaseStore> {
    pub(crate) store: S,
    pub(crate) me: Arc<str>,
    pub(crate) timings: Timings,
    pub(crate) clock: Clock,
    pub(crate) jitter: Jitter,
    pub(crate) planted: Planted,
    pub(crate) stats: Stats,
    pub(crate) floor: watch::Sender<Term>,
    /// The leadership, while this process has one.
    pub(crate) held: Option<Held<S::Version>>,
    /// When the API server last answered anything.
    pub(crate) answered_at: Moment,
    pub(crate) last_error: Option<Arc<str>>,
    /// Highest term seen or tried.
    high: Term,
    /// The record as last seen, and when it was first seen so.
    seen: Option<(Record, Moment)>,
    /// The longest duration that any holder asked for: a missing lease may have been one of those.
    longest: Duration,
    /// The last claim that was sent, and when: it may be found stored although its answer was lost.
    claimed: Option<(Record, Moment)>,
    last_stamp: WallTime,
}

/// A leadership and the lease behind it.
pub(crate) struct Held<V> {
    pub(crate) state: Arc<TermState>,
    version: V,
    acquired: WallTime,
    /// Whether `version` may be out of date: a renewal was not answered, or met a conflict.
    doubt: bool,
    /// Stamps of this leadership's attempts and when they were sent.
    attempts: VecDeque<(WallTime, Moment)>,
}

/// How an attempt went.
pub(crate) enum Progress {
    /// The leadership was renewed.
    Renewed { sent: Moment },
    /// A leadership began; `held` is set. It may replace one of this process.
    Taken { sent: Moment, reason: Reason, replaced: Option<Term> },
    /// Another holds the lease, or nobody is known to; it can be taken at `until` unless it changes.
    Waiting { started: Moment, until: Moment, leader: Option<Arc<str>> },
    /// Somebody else was quicker; worth another look soon.
    Raced,
    /// The lease is no longer this process's.
    Lost(Reason),
    /// No success, for a reason that may pass.
    Failed(StoreError),
}

/// A second look at the lease after a doubtful renewal.
enum ReRead<V> {
    Ours,
    Missing,
    Placeholder(Record, V),
    Other(Option<Arc<str>>),
}

// === impl Contender ===

impl<S: LeaseStore> Contender<S> {
    pub(crate) fn new(store: S, me: Arc<str>, timings: Timings, floor: watch::Sender<Term>, stats: Stats) -> Self {
        Self {
            store,
            me,
            timings,
            clock: Clock::boottime(),
            jitter: Jitter::random(),
            planted: Planted::default(),
            stats,
            floor,
            held: None,
            answered_at: Moment::default(),
            last_error: None,
            high: Term(0),
            seen: None,
            longest: timings.lease_duration,
            claimed: None,
            last_stamp: WallTime(0),
        }
    }

    /// Waits until `due`, or as follower until the lease seems free.
    pub(crate) async fn wait(&self, due: Moment) {
        if self.held.is_some() {
            return self.clock.sleep_until(due).await;
        }
        // A store that reports a free lease again and again does not make this a busy loop.
        let pause = self.clock.now().plus(self.timings.retry_period / 20).min(due);
        self.clock.sleep_until(pause).await;
        tokio::select! {
            biased;
            () = self.clock.sleep_until(due) => {}
            () = self.store.vacated() => {}
        }
    }

    pub(crate) async fn attempt(&mut self) -> Progress {
        if self.held.is_some() { self.renew().await } else { self.contend().await }
    }

    /// Takes the lease if it is free to take.
    async fn contend(&mut self) -> Progress {
        let started = self.clock.now();
        let found = match self.look().await {
            Ok(found) => found,
            Err(error) => return self.failed(error),
        };
        let Some((record, version)) = found else { return self.hold_place(started).await };
        self.notice(&record);
        let floor = *self.floor.borrow();
        if let Some((_, sent)) = self.claimed.as_ref().filter(|(claim, _)| *claim == record && record.term > floor) {
            let from = if self.planted.is(Mutant::AdoptedEndExtended) { self.clock.now() } else { *sent };
            if self.clock.now() < from.plus(self.timings.renew_deadline) {
                return self.lead(Reason::OwnLease, record, version, from, None);
            }
        }
        if let Some(reason) = self.claimable(&record) {
            return self.claim(reason, record.term, version, None).await;
        }
        self.waiting(started, &record)
    }

    fn waiting(&self, started: Moment, record: &Record) -> Progress {
        let leader = record.holder.clone().filter(|_| !record.is_placeholder());
        Progress::Waiting { started, until: self.expiry(record), leader }
    }

    /// When a record that does not change can be taken.
    fn expiry(&self, record: &Record) -> Moment {
        let asked = match record {
            _ if self.planted.is(Mutant::OwnDurationOnly) => Duration::ZERO,
            placeholder if placeholder.is_placeholder() => record.duration.max(self.longest),
            held => held.duration,
        };
        let since = self.seen.as_ref().map_or_else(|| self.clock.now(), |(_, at)| *at);
        since.plus(self.timings.lease_duration.max(asked))
    }

    fn claimable(&self, record: &Record) -> Option<Reason> {
        if record.holder.is_none() {
            return Some(Reason::Vacant);
        }
        // Only a claim over a version carries an acquisition time, and no other process has this identity.
        if record.holder.as_ref() == Some(&self.me) && record.acquired.is_some() {
            return Some(Reason::OwnLease);
        }
        let silent = if self.planted.is(Mutant::WallClockTrusted) {
            let micros = i64::try_from(record.duration.as_micros()).unwrap_or(i64::MAX);
            record.renewed.is_none_or(|at| at.0.saturating_add(micros) <= self.clock.wall().0)
        } else {
            self.clock.now() >= self.expiry(record)
        };
        if silent && record.is_placeholder() {
            return Some(Reason::Missing);
        }
        silent.then(|| Reason::HolderSilent { holder: record.holder.clone() })
    }

    /// Notes a record, and when it was first seen like this. The moment is taken after the answer: never too early.
    fn notice(&mut self, record: &Record) {
        self.high = self.high.max(record.term);
        self.longest = self.longest.max(record.duration);
        let same = self.seen.as_ref().is_some_and(|(old, _)| {
            if self.planted.is(Mutant::RenewalsUnseen) { old.holder == record.holder } else { old == record }
        });
        if !same {
            self.seen = Some((record.clone(), self.clock.now()));
            self.stats.holder(record.holder.clone().filter(|_| !record.is_placeholder()));
        }
    }

    /// The lease is missing: puts a placeholder there, by which nobody leads, and waits from there on.
    async fn hold_place(&mut self, started: Moment) -> Progress {
        if self.planted.is(Mutant::AbsenceTrusted) {
            return self.create_and_lead().await;
        }
        match self.create_placeholder().await {
            Ok((record, _)) => {
                tracing::info!(wait = ?record.duration, "no lease found: waiting in case its holder still leads");
                self.waiting(started, &record)
            }
            Err(StoreError::Conflict) => Progress::Raced,
            Err(error) => self.failed(error),
        }
    }

    async fn create_placeholder(&mut self) -> Result<(Record, S::Version), StoreError> {
        let floor = if self.planted.is(Mutant::TermReuse) { Term(0) } else { self.high.max(*self.floor.borrow()) };
        let record = Record {
            holder: Some(self.me.clone()),
            term: floor,
            duration: self.longest,
            acquired: None,
            renewed: Some(self.stamp()),
        };
        let created = bounded(&self.clock, self.short_limit(), self.store.store(record.clone(), None)).await;
        let version = self.heard(created)?;
        self.notice(&record);
        Ok((record, version))
    }

    async fn create_and_lead(&mut self) -> Progress {
        let term = self.next_term(Term(0));
        let (record, sent) = self.claim_record(term);
        let created = bounded(&self.clock, self.limit(), self.store.store(record.clone(), None)).await;
        match self.heard(created) {
            Ok(version) => self.lead(Reason::Vacant, record, version, sent, None),
            Err(StoreError::Conflict) => Progress::Raced,
            Err(error) => self.failed(error),
        }
    }

    /// Stores a claim over `version`, with a new term.
    async fn claim(&mut self, reason: Reason, term: Term, version: S::Version, replaced: Option<Term>) -> Progress {
        let (record, sent) = self.claim_record(self.next_term(term));
        let stored = bounded(&self.clock, self.short_limit(), self.store.store(record.clone(), Some(version))).await;
        match self.heard(stored) {
            Ok(version) => self.lead(reason, record, version, sent, replaced),
            Err(StoreError::Conflict) => Progress::Raced,
            Err(error) => self.failed(error),
        }
    }

    fn next_term(&self, record: Term) -> Term {
        if self.planted.is(Mutant::TermReuse) {
            return Term(record.0.saturating_add(1));
        }
        Term(record.0.max(self.high.0).max(self.floor.borrow().0).saturating_add(1))
    }

    fn claim_record(&mut self, term: Term) -> (Record, Moment) {
        self.high = self.high.max(term);
        let stamp = self.stamp();
        let record = Record {
            holder: Some(self.me.clone()),
            term,
            duration: self.timings.lease_duration,
            acquired: Some(stamp),
            renewed: Some(stamp),
        };
        let sent = self.clock.now();
        self.claimed = Some((record.clone(), sent));
        (record, sent)
    }

    /// A claim was stored: leads until `renewDeadline` after it was *sent*.
    fn lead(
        &mut self,
        reason: Reason,
        record: Record,
        version: S::Version,
        sent: Moment,
        replaced: Option<Term>,
    ) -> Progress {
        let end = self.end_after(sent);
        if self.clock.now() >= end {
            return Progress::Raced; // answered too late to be of use; the lease is found as our own
        }
        if let Some(old) = self.held.take() {
            old.state.end_now();
        }
        self.claimed = None; // a leadership that ends is not found again
        let acquired = record.acquired.unwrap_or_default();
        let state = TermState::new(record.term, end, self.clock.clone(), self.planted);
        self.held = Some(Held { state, version, acquired, doubt: false, attempts: VecDeque::new() });
        self.notice(&record);
        Progress::Taken { sent, reason, replaced }
    }

    fn end_after(&self, sent: Moment) -> Moment {
        let from = if self.planted.is(Mutant::EndFromAnswer) { self.clock.now() } else { sent };
        from.plus(self.timings.renew_deadline)
    }

    /// Renews the leadership; looks again where that is in doubt.
    async fn renew(&mut self) -> Progress {
        for _ in 0..3 {
            if self.held.as_ref().is_some_and(|held| held.doubt) {
                match self.re_read().await {
                    Ok(ReRead::Ours) => {}
                    Ok(ReRead::Missing) => return self.restore(None).await,
                    Ok(ReRead::Placeholder(record, version)) => return self.restore(Some((record, version))).await,
                    Ok(ReRead::Other(holder)) => return Progress::Lost(Reason::TakenBy { holder }),
                    Err(error) => return self.failed(error),
                }
            }
            let (stamp, limit) = (self.stamp(), self.limit());
            let sent = self.clock.now();
            let Some(held) = &mut self.held else { return Progress::Raced };
            if held.attempts.len() == REMEMBERED {
                held.attempts.pop_front();
            }
            held.attempts.push_back((stamp, sent));
            // Until it is answered: an attempt that is cut short leaves its doubt behind.
            held.doubt = true;
            let record = Record {
                holder: Some(self.me.clone()),
                term: held.state.term,
                duration: self.timings.lease_duration,
                acquired: Some(held.acquired),
                renewed: Some(stamp),
            };
            let store = self.store.store(record, Some(held.version.clone()));
            let stored = bounded(&self.clock, limit, store).await;
            match self.heard(stored) {
                Ok(version) => {
                    let end = self.end_after(sent);
                    let latency = self.clock.now().since(sent);
                    let Some(held) = &mut self.held else { return Progress::Raced };
                    held.version = version;
                    held.doubt = false;
                    held.state.extend(end);
                    self.stats.renewed(latency);
                    self.last_error = None;
                    return Progress::Renewed { sent };
                }
                Err(error) if self.planted.is(Mutant::MissingReRead) => {
                    let _ = self.failed(error);
                    return Progress::Lost(Reason::TakenBy { holder: None });
                }
                Err(StoreError::Conflict) => self.stats.failed("conflict on renewal".into()),
                Err(error) => return self.failed(error),
            }
        }
        self.failed(StoreError::Conflict)
    }

    /// Reads the lease again. If it is ours, adopts it: the end then counts from when the stored attempt was sent.
    async fn re_read(&mut self) -> Result<ReRead<S::Version>, StoreError> {
        let Some((record, version)) = self.look().await? else { return Ok(ReRead::Missing) };
        self.notice(&record);
        let now = self.clock.now();
        let Some(held) = &mut self.held else { return Ok(ReRead::Other(record.holder)) };
        if record.holder.as_ref() == Some(&self.me) && record.acquired.is_some() && record.term == held.state.term {
            held.version = version;
            held.doubt = false;
            let sent = held.attempts.iter().find(|(stamp, _)| record.renewed == Some(*stamp)).map(|(_, sent)| *sent);
            if let Some(sent) = sent {
                let from = if self.planted.is(Mutant::AdoptedEndExtended) { now } else { sent };
                held.state.extend(from.plus(self.timings.renew_deadline));
            }
            return Ok(ReRead::Ours);
        }
        Ok(if record.is_placeholder() { ReRead::Placeholder(record, version) } else { ReRead::Other(record.holder) })
    }

    /// The lease was deleted while this process leads: puts it back and takes it with a new term, if that can be done before
    /// the leadership's own end.
    async fn restore(&mut self, found: Option<(Record, S::Version)>) -> Progress {
        let (record, version) = match found {
            Some(found) => found,
            None => match self.create_placeholder().await {
                Ok(created) => created,
                Err(StoreError::Conflict) => return Progress::Raced,
                Err(error) => return self.failed(error),
            },
        };
        let Some(old) = self.held.as_ref().filter(|held| held.state.open()).map(|held| held.state.term) else {
            return Progress::Raced;
        };
        self.claim(Reason::Deleted, record.term, version, Some(old)).await
    }

    /// Empties the holder, so that others need not wait.
    pub(crate) async fn release(&mut self) -> Result<(), StoreError> {
        for _ in 0..3 {
            let stamp = self.stamp();
            let Some(held) = &self.held else { return Ok(()) };
            if held.doubt {
                match self.re_read().await? {
                    ReRead::Ours => continue,
                    _ => return Err(StoreError::Conflict),
                }
            }
            let record = Record {
                holder: None,
                term: held.state.term,
                duration: Duration::from_secs(1),
                acquired: Some(stamp),
                renewed: Some(stamp),
            };
            let version = held.version.clone();
            match bounded(&self.clock, self.limit(), self.store.store(record, Some(version))).await {
                Err(StoreError::Conflict) => {
                    if let Some(held) = &mut self.held {
                        held.doubt = true;
                    }
                }
                done => return done.map(drop),
            }
        }
        Err(StoreError::Conflict)
    }

    /// The lease as it is. A read that hangs is not waited for alone: another is sent beside it every retry period, so that
    /// an API server that is back is noticed at once.
    async fn look(&mut self) -> Result<Option<(Record, S::Version)>, StoreError> {
        let limit = self.limit();
        let Self { store, clock, timings, stats, last_error, planted, .. } = self;
        let mut reads = vec![Box::pin(bounded(clock, limit, store.load()))];
        let mut next = clock.now().plus(timings.retry_period);
        if planted.is(Mutant::NoAttemptTimeout) {
            next = Moment::NEVER;
        }
        let found = loop {
            let mut tick = pin!(clock.sleep_until(next));
            let done = std::future::poll_fn(|cx| {
                for at in 0..reads.len() {
                    if let Poll::Ready(done) = reads[at].as_mut().poll(cx) {
                        drop(reads.swap_remove(at));
                        return Poll::Ready(Some(done));
                    }
                }
                tick.as_mut().poll(cx).map(|()| None)
            })
            .await;
            match done {
                None => {
                    reads.push(Box::pin(bounded(clock, limit, store.load())));
                    next = clock.now().plus(timings.retry_period);
                }
                Some(Err(StoreError::Unavailable(why))) if !reads.is_empty() => {
                    stats.failed(why.clone());
                    *last_error = Some(why);
                }
                Some(done) => break done,
            }
        };
        drop(reads);
        self.heard(found)
    }

    /// Notes whether the API server answered.
    fn heard<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if !matches!(result, Err(StoreError::Unavailable(_))) {
            self.answered_at = self.clock.now();
        }
        if result.is_ok() {
            self.stats.answered();
        }
        result
    }

    fn failed(&mut self, error: StoreError) -> Progress {
        let why: Arc<str> = error.to_string().into();
        self.stats.failed(why.clone());
        self.last_error = Some(why);
        Progress::Failed(error)
    }

    fn limit(&self) -> Duration {
        if self.planted.is(Mutant::NoAttemptTimeout) { Duration::MAX } else { self.timings.attempt_timeout() }
    }

    /// For what a look finds if it was stored: not waited for longer than a retry period, so that a call that hangs delays
    /// nothing else.
    fn short_limit(&self) -> Duration {
        if self.planted.is(Mutant::NoAttemptTimeout) {
            Duration::MAX
        } else {
            self.limit().min(self.timings.retry_period)
        }
    }

    /// A time for the record that no other attempt of this process carries.
    fn stamp(&mut self) -> WallTime {
        self.last_stamp = WallTime(self.clock.wall().0.max(self.last_stamp.0 + 1));
        self.last_stamp
    }
}

/// A call to the store that is not waited for longer than `limit`.
async fn bounded<T>(
    clock: &Clock,
    limit: Duration,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match clock.timeout(limit, call).await {
        Some(result) => result,
        None => Err(StoreError::Unavailable(format!("time-out after {limit:?}").into())),
    }
}

//! What consumers see: the role channel, a leadership with its own end, and permits for single writes.

use crate::{
    clock::{Clock, Moment},
    ledger::Ledger,
    mutant::{Mutant, Planted},
    stats::{Snapshot, Stats},
};
use std::{fmt, future::Future, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Number of a leadership; each new one has a higher number than all before it. Kept in `Lease.spec.leaseTransitions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

/// What this process is right now.
#[derive(Clone, Debug)]
pub enum Role {
    /// Somebody else leads, or nobody does.
    Follower {
        /// Identity of the leader as last seen in the lease; `None` if nobody holds it or it is not known.
        leader: Option<Arc<str>>,
    },
    /// This process leads, until the leadership ends.
    Leader(Leadership),
}

/// A leadership, with its own end: nobody has to be told that it is over.
///
/// Once over it stays over; coming back means a new `Leadership` with a higher [`Term`].
#[derive(Clone)]
pub struct Leadership(Arc<TermState>);

/// The right to start one write now. Neither cloned nor kept longer than the leadership it was taken from.
#[derive(Debug)]
#[must_use = "a permit does nothing unless a write runs within it"]
pub struct Permit<'l> {
    leadership: &'l Leadership,
}

/// Refusal: the leadership that was asked is over, or about to be released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the leader: the leadership of term {} is over", .0.0)]
pub struct NotLeader(
    /// Term of the leadership that is over.
    pub Term,
);

/// Why a write under a permit did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError<E> {
    /// The leadership was over before the write began; nothing was sent.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The leadership ended while the write was under way. It may or may not have happened.
    #[error("the leadership ended before the write was answered")]
    Overrun,
    /// The write's own error.
    #[error(transparent)]
    Write(E),
}

/// The consumers' end of the role channel. Never fails: without a living elector it reads as follower.
#[derive(Clone, Debug)]
pub struct RoleWatch {
    role: watch::Receiver<Role>,
    floor: Floor,
    stats: Stats,
}

/// Where a term seen on an object goes to.
#[derive(Clone, Debug)]
enum Floor {
    /// To the elector, which then looks for a higher term.
    Elected(watch::Sender<Term>),
    /// There is no elector: the next leadership is made on the spot.
    Fixed(Arc<watch::Sender<Role>>),
}

/// The shared heart of one leadership.
pub(crate) struct TermState {
    pub(crate) term: Term,
    pub(crate) ledger: Ledger,
    clock: Clock,
    phase: watch::Sender<Phase>,
    planted: Planted,
}

/// How far a leadership has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Gives permits until its end.
    Open(Moment),
    /// Gives no new permits; writes that run may finish until its end. The lease is about to be released.
    Closing(Moment),
    /// Over.
    Over,
}

/// The permit that a task runs under, for the client layer.
#[derive(Clone)]
pub(crate) struct Ticket(Arc<TermState>);

tokio::task_local! {
    static TICKET: Ticket;
}

// === impl Leadership ===

impl Leadership {
    /// The number of this leadership.
    #[must_use]
    pub fn term(&self) -> Term {
        self.0.term
    }

    /// The right to write now.
    ///
    /// # Errors
    /// [`NotLeader`] once the leadership is over or about to be released.
    pub fn permit(&self) -> Result<Permit<'_>, NotLeader> {
        if self.0.open() { Ok(Permit { leadership: self }) } else { Err(NotLeader(self.0.term)) }
    }

    /// Resolves when no more permits are given: by loss, by reaching its end, by a release or by the elector's death.
    pub async fn ended(&self) {
        self.0.reaches(|phase| matches!(phase, Phase::Open(_))).await;
    }

    /// Time left until this leadership's end unless it is renewed; zero when over.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        self.0.end().since(self.0.clock.now())
    }

    pub(crate) fn new(state: Arc<TermState>) -> Self {
        Self(state)
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("term", &self.0.term.0).field("phase", &*self.0.phase.borrow()).finish()
    }
}

// === impl Permit ===

impl<'l> Permit<'l> {
    /// The term to stamp on what is written.
    #[must_use]
    pub fn term(&self) -> Term {
        self.leadership.term()
    }

    /// Another permit of the same leadership, for a task that has several writes to make.
    ///
    /// # Errors
    /// [`NotLeader`] once the leadership is over or about to be released.
    pub fn another(&self) -> Result<Permit<'l>, NotLeader> {
        self.leadership.permit()
    }

    /// Runs one write. It does not start if the leadership is over, and is not waited for past the leadership's end.
    ///
    /// While it runs, clients with a `PermitLayer` (feature `kube`) let this task's mutating requests pass, each checked again as it leaves.
    /// An error of the write counts as an answer; where an error can mean that no answer came, use
    /// [`run_judged`](Self::run_judged), or a client with a `PermitLayer`, which sees by itself what was answered.
    ///
    /// # Errors
    /// [`WriteError`] with the write's own error, or that the leadership was over before or during it.
    pub async fn run<T, E>(self, write: impl Future<Output = Result<T, E>>) -> Result<T, WriteError<E>> {
        self.run_judged(write, |_| true).await
    }

    /// As [`run`](Self::run); `answered` tells for an error whether the other side answered. A write without an answer may
    /// still happen, so the lease is left to expire instead of being released early.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_judged<T, E>(
        self,
        write: impl Future<Output = Result<T, E>>,
        answered: impl FnOnce(&E) -> bool,
    ) -> Result<T, WriteError<E>> {
        let state = &self.leadership.0;
        // Counted before the check: a release that begins in between waits for it.
        let flight = state.ledger.begin(&state.clock);
        if !state.open() {
            flight.answered();
            return Err(NotLeader(state.term).into());
        }
        let raced = async {
            tokio::select! {
                biased; // the end first: nothing more is sent once it is reached
                () = state.over() => None,
                done = write => Some(done),
            }
        };
        match TICKET.scope(Ticket(state.clone()), raced).await {
            None => Err(WriteError::Overrun), // dropping the flight counts it as unanswered
            Some(done) => {
                if done.as_ref().err().is_none_or(answered) {
                    flight.answered();
                }
                done.map_err(WriteError::Write)
            }
        }
    }
}

/// Term of the live permit that the current task runs under; `None` outside of [`Permit::run`] or when that leadership is over.
#[must_use]
pub fn current_term() -> Option<Term> {
    Ticket::current().filter(Ticket::live).map(|t| t.0.term)
}

// === impl Ticket ===

#[cfg_attr(not(feature = "kube"), expect(dead_code, reason = "for the client layer"))]
impl Ticket {
    /// The permit that the current task runs under.
    pub(crate) fn current() -> Option<Self> {
        TICKET.try_with(Clone::clone).ok()
    }

    /// Whether a request may leave now: also while closing, as a write that runs is let finish.
    pub(crate) fn live(&self) -> bool {
        self.0.live()
    }

    pub(crate) fn term(&self) -> Term {
        self.0.term
    }

    /// Counts a request of its own, apart from the write that it belongs to.
    pub(crate) fn begin(&self) -> crate::ledger::Flight<'_> {
        self.0.ledger.begin(&self.0.clock)
    }
}

// === impl RoleWatch ===

impl RoleWatch {
    /// A role without an election: this process leads, for ever. For a single replica (`leaderElection.disable: true`) and
    /// for standalone use; the code behind it is the same.
    #[must_use]
    pub fn always_leader() -> Self {
        let leadership = Leadership::new(TermState::new(Term(1), Moment::NEVER, Clock::boottime(), Planted::default()));
        let (tx, role) = watch::channel(Role::Leader(leadership));
        Self { role, floor: Floor::Fixed(Arc::new(tx)), stats: Stats::fixed() }
    }

    pub(crate) fn new(role: watch::Receiver<Role>, floor: watch::Sender<Term>, stats: Stats) -> Self {
        Self { role, floor: Floor::Elected(floor), stats }
    }

    /// The role now. A leadership that is over reads as follower, whether or not the elector has noticed.
    #[must_use]
    pub fn current(&self) -> Role {
        match &*self.role.borrow() {
            Role::Leader(leadership) if !leadership.0.open() => Role::Follower { leader: None },
            role => role.clone(),
        }
    }

    /// Waits for a leadership newer than term `than`, or for any if `None`. Waits for ever if the elector is gone.
    pub async fn elected(&mut self, than: Option<Term>) -> Leadership {
        loop {
            if let Role::Leader(leadership) = &*self.role.borrow_and_update()
                && leadership.0.open()
                && than.is_none_or(|than| leadership.term() > than)
            {
                return leadership.clone();
            }
            if self.role.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits for the next change of the role and returns it. A leadership that merely reaches its end is noticed through
    /// [`Leadership::ended`]. Waits for ever if the elector is gone.
    pub async fn changed(&mut self) -> Role {
        if self.role.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.role.borrow_and_update();
        self.current()
    }

    /// Tells that an object owned by the leader carries the term `stamped`. A leadership that is not newer than it ends, and
    /// the next one gets a higher number: a deleted and re-created Lease brings no old number back.
    pub fn outrank(&self, stamped: Term) {
        match &self.floor {
            Floor::Elected(floor) => {
                floor.send_if_modified(|known| {
                    *known < stamped && {
                        *known = stamped;
                        true
                    }
                });
            }
            Floor::Fixed(tx) => {
                tx.send_if_modified(|role| {
                    let Role::Leader(old) = &*role else { return false };
                    if old.term() > stamped {
                        return false;
                    }
                    old.0.end_now();
                    let next = Term(stamped.0.saturating_add(1));
                    *role = Role::Leader(Leadership::new(TermState::new(
                        next,
                        Moment::NEVER,
                        Clock::boottime(),
                        Planted::default(),
                    )));
                    true
                });
            }
        }
    }

    /// Role, term, holder, time left and counters, for `/readyz`, the admin page and `/metrics`.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.stats.snapshot(&self.current())
    }
}

// === impl TermState ===

impl TermState {
    pub(crate) fn new(term: Term, end: Moment, clock: Clock, planted: Planted) -> Arc<Self> {
        Arc::new(Self { term, ledger: Ledger::default(), clock, phase: watch::Sender::new(Phase::Open(end)), planted })
    }

    fn before(&self, end: Moment) -> bool {
        self.planted.is(Mutant::OwnClockIgnored) || self.clock.now() < end
    }

    /// Whether permits are given.
    pub(crate) fn open(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Open(end) if self.before(end))
    }

    /// Whether a write that runs may go on.
    pub(crate) fn live(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Open(end) | Phase::Closing(end) if self.before(end))
    }

    /// The end as known now; the clock's origin when over.
    pub(crate) fn end(&self) -> Moment {
        match *self.phase.borrow() {
            Phase::Open(end) | Phase::Closing(end) => end,
            Phase::Over => Moment::default(),
        }
    }

    /// Moves the end to `end` if that is later and the leadership is not over.
    pub(crate) fn extend(&self, end: Moment) {
        self.phase.send_if_modified(|phase| match phase {
            Phase::Open(old) if *old < end && self.before(*old) => {
                *old = end;
                true
            }
            _ => false,
        });
    }

    /// Gives no more permits; writes that run may finish.
    pub(crate) fn close(&self) {
        self.phase.send_if_modified(|phase| match *phase {
            Phase::Open(end) => {
                *phase = Phase::Closing(end);
                true
            }
            _ => false,
        });
    }

    pub(crate) fn end_now(&self) {
        self.phase.send_replace(Phase::Over);
    }

    /// Resolves when running writes are no longer waited for.
    pub(crate) async fn over(&self) {
        self.reaches(|phase| phase != Phase::Over).await;
    }

    /// Resolves when the leadership leaves the phases that `lasts` accepts, or reaches its end. Looks at the clock at every
    /// poll, not only when a timer fires.
    async fn reaches(&self, lasts: impl Fn(Phase) -> bool) {
        let mut phases = self.phase.subscribe();
        loop {
            let phase = *phases.borrow_and_update();
            let (Phase::Open(end) | Phase::Closing(end)) = phase else { return };
            if !lasts(phase) || !self.before(end) {
                return;
            }
            let wait = async {
                if self.planted.is(Mutant::OwnClockIgnored) {
                    std::future::pending::<()>().await;
                }
                self.clock.sleep_until(end).await;
            };
            tokio::pin!(wait);
            let mut changed = std::pin::pin!(phases.changed());
            std::future::poll_fn(|cx| {
                if changed.as_mut().poll(cx).is_ready() || wait.as_mut().poll(cx).is_ready() || !self.before(end) {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ticket").field(&self.0.term).finish()
    }
}

//! The elector: takes the lease, keeps it, gives it back. It ends only when asked to, or as its policy says.

use crate::{
    clock::{Clock, Moment},
    contender::{Contender, Progress},
    jitter::Jitter,
    mutant::Mutant,
    outcome::{OnLostLease, Outcome, Policy, Reason, Transition},
    record::{Identity, LeaseStore},
    role::{Leadership, Role, RoleWatch, Term},
    stats::Stats,
    timings::{InvalidTimings, Timings},
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::watch;

/// Takes part in the election of one lease, for one process.
///
/// Made with [`new`](Self::new), run with [`run`](Self::run) or on a thread of its own with
/// [`spawn_thread`](Self::spawn_thread). Dropping it ends its leadership without releasing the lease.
pub struct Elector<S: LeaseStore> {
    contender: Contender<S>,
    role: watch::Sender<Role>,
    policy: Policy,
    stop: watch::Sender<bool>,
    observer: Option<Observer>,
}

/// What is called at every transition.
type Observer = Box<dyn Fn(&Transition) + Send + Sync>;

/// Asks an elector to stop: no more permits, the writes under way get their answers, then the lease is released.
#[derive(Clone, Debug)]
pub struct Stopper(watch::Sender<bool>);

/// What an elector was woken by.
enum Woken {
    Stop,
    Ended,
    Outranked(Term),
    Unreachable,
    Done(Progress),
}

// === impl Stopper ===

impl Stopper {
    /// Begins the stop; [`Elector::run`] returns when it is done. Can be called again.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

// === impl Elector ===

impl<S: LeaseStore> Elector<S> {
    /// An elector and the channel on which it publishes its role.
    ///
    /// # Errors
    /// [`InvalidTimings`] with the fields that do not fit together.
    pub fn new(store: S, identity: Identity, timings: Timings) -> Result<(Self, RoleWatch), InvalidTimings> {
        timings.validate()?;
        let me = identity.shared();
        let (role, watch) = watch::channel(Role::Follower { leader: None });
        let floor = watch::Sender::new(Term(0));
        let stats = Stats::new(me.clone());
        let contender = Contender::new(store, me, timings, floor.clone(), stats.clone());
        let elector =
            Self { contender, role, policy: Policy::default(), stop: watch::Sender::new(false), observer: None };
        Ok((elector, RoleWatch::new(watch, floor, stats)))
    }

    /// What to do when things do not get better; by default the election goes on for ever.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Another clock than [`Clock::boottime`].
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.contender.clock = clock;
        self
    }

    /// Makes the jitter repeatable.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.contender.jitter = Jitter::new(seed);
        self
    }

    /// Calls `observer` at every transition, on the elector's own task: it must not block.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Fn(&Transition) + Send + Sync + 'static) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// Plants a bug. For the simulation, which must catch it.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn with_mutant(mut self, bug: Mutant) -> Self {
        self.contender.planted.bug = Some(bug);
        self
    }

    /// The handle that stops this elector.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.clone())
    }

    /// Takes part in the election until stopped, until every [`RoleWatch`] is dropped, or until the policy ends it.
    pub async fn run(mut self) -> Outcome {
        let outcome = self.elect().await;
        match &outcome {
            Outcome::Lost { .. } | Outcome::Unreachable { .. } => {
                tracing::error!(identity = %self.contender.me, "{outcome}")
            }
            _ => tracing::info!(identity = %self.contender.me, "{outcome}"),
        }
        self.contender.store.close().await;
        outcome
    }

    async fn elect(&mut self) -> Outcome {
        self.contender.answered_at = self.contender.clock.now();
        let mut due = self.contender.clock.now();
        let mut failures = 0u32;
        loop {
            let woken = self.turn(due).await;
            let now = self.contender.clock.now();
            let retry = self.contender.timings.retry_period;
            match woken {
                Woken::Stop => return self.leave().await,
                Woken::Unreachable => {
                    if let Some(outcome) = self.unreachable() {
                        return outcome;
                    }
                    due = now;
                }
                Woken::Ended => {
                    let last_error = self.contender.last_error.clone();
                    if let Some(outcome) = self.lost(Reason::Expired { last_error }) {
                        return outcome;
                    }
                    due = now;
                }
                Woken::Outranked(seen) => {
                    self.demote(&Reason::Outranked { seen });
                    due = now;
                }
                Woken::Done(Progress::Lost(reason)) => {
                    if let Some(outcome) = self.lost(reason) {
                        return outcome;
                    }
                    due = now;
                }
                Woken::Done(Progress::Renewed { sent }) => {
                    failures = 0;
                    due = sent.plus(self.contender.jitter.shorten(retry));
                }
                Woken::Done(Progress::Taken { sent, reason, replaced }) => {
                    failures = 0;
                    due = sent.plus(self.contender.jitter.shorten(retry));
                    self.promote(reason, replaced);
                }
                Woken::Done(Progress::Waiting { started, until, leader }) => {
                    failures = 0;
                    due = started.plus(self.contender.jitter.shorten(retry)).min(until);
                    self.follow(leader);
                }
                Woken::Done(Progress::Raced) => due = now.plus(self.contender.jitter.shorten(retry / 4)),
                Woken::Done(Progress::Failed(error)) => {
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        tracing::warn!(identity = %self.contender.me, %error, failures, "the lease could not be read or written");
                    }
                    if self.contender.planted.is(Mutant::LeavesOnError) {
                        return Outcome::Stopped;
                    }
                    if let Some(outcome) = self.unreachable() {
                        return outcome;
                    }
                    let backoff = (retry / 4).saturating_mul(1 << (failures - 1).min(8)).min(retry);
                    due = now.plus(self.contender.jitter.shorten(backoff));
                }
            }
        }
    }

    /// Waits until `due` and makes an attempt, unless something else comes first.
    async fn turn(&mut self, due: Moment) -> Woken {
        let leading = self.contender.held.as_ref().map(|held| held.state.clone());
        let mut stop = self.stop.subscribe();
        let mut floor = self.contender.floor.subscribe();
        let clock = self.contender.clock.clone();
        let give_up = match self.policy.max_recovery {
            Some(limit) if leading.is_none() => self.contender.answered_at.plus(limit),
            _ => Moment::NEVER,
        };
        let deaf = self.contender.planted.is(Mutant::TermReuse);
        let ended = async {
            match &leading {
                Some(state) => state.over().await,
                None => std::future::pending().await,
            }
        };
        let outranked = async {
            match &leading {
                Some(state) if !deaf => {
                    floor.wait_for(|seen| *seen >= state.term).await.map_or(state.term, |seen| *seen)
                }
                _ => std::future::pending().await,
            }
        };
        let contender = &mut self.contender;
        let work = async {
            contender.wait(due).await;
            contender.attempt().await
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Woken::Stop,
            () = self.role.closed() => Woken::Stop,
            () = ended => Woken::Ended,
            seen = outranked => Woken::Outranked(seen),
            () = clock.sleep_until(give_up) => Woken::Unreachable,
            progress = work => Woken::Done(progress),
        }
    }

    /// Whether the API server has been out of reach for as long as the policy bears.
    fn unreachable(&self) -> Option<Outcome> {
        let limit = self.policy.max_recovery?;
        let since = self.contender.clock.now().since(self.contender.answered_at);
        let last_error = || self.contender.last_error.clone().unwrap_or_else(|| "no answer".into());
        (self.contender.held.is_none() && since >= limit)
            .then(|| Outcome::Unreachable { since, last_error: last_error() })
    }

    /// A leadership began: publishes it.
    fn promote(&mut self, reason: Reason, replaced: Option<Term>) {
        let Some(held) = &self.contender.held else { return };
        let (term, leadership) = (held.state.term, Leadership::new(held.state.clone()));
        if let Some(term) = replaced {
            self.tell(false, term, reason.clone());
        }
        self.role.send_replace(Role::Leader(leadership));
        self.tell(true, term, reason);
    }

    fn follow(&self, leader: Option<Arc<str>>) {
        self.role.send_if_modified(|role| {
            let same = matches!(role, Role::Follower { leader: known } if *known == leader);
            if !same {
                *role = Role::Follower { leader };
            }
            !same
        });
    }

    /// Ends the leadership. Writers see it in the leadership itself; the role follows.
    fn demote(&mut self, reason: &Reason) -> Option<Term> {
        let held = self.contender.held.take()?;
        held.state.end_now();
        self.follow(match reason {
            Reason::TakenBy { holder } => holder.clone(),
            _ => None,
        });
        self.tell(false, held.state.term, reason.clone());
        Some(held.state.term)
    }

    fn lost(&mut self, reason: Reason) -> Option<Outcome> {
        let term = self.demote(&reason)?;
        (self.policy.on_lost_lease == OnLostLease::Exit).then_some(Outcome::Lost { term, reason })
    }

    /// The stop: no more permits, the writes under way get their answers, and only then the lease is released.
    async fn leave(&mut self) -> Outcome {
        let Some(state) = self.contender.held.as_ref().map(|held| held.state.clone()) else { return Outcome::Stopped };
        let term = state.term;
        state.close();
        self.follow(None);
        let left = |why: &str| Outcome::LeftToExpire { term, why: why.into() };
        let clock = self.contender.clock.clone();
        if !self.contender.planted.is(Mutant::EarlyRelease) {
            let answered = tokio::select! {
                biased;
                () = state.ledger.settled() => true,
                () = state.over() => false,
                () = clock.sleep(self.contender.timings.write_timeout) => false,
            };
            // After the lease's duration a lost write does no more harm than it would after an expiry.
            let lost = state
                .ledger
                .last_given_up()
                .is_some_and(|at| clock.now() < at.plus(self.contender.timings.lease_duration));
            if !answered || lost {
                let why = format!(
                    "{} writes in flight and {} given up without an answer",
                    state.ledger.in_flight(),
                    state.ledger.unanswered()
                );
                self.demote(&Reason::Stopping);
                return left(&why);
            }
            if !state.live() {
                self.demote(&Reason::Stopping);
                return left("the leadership ended before the release");
            }
            state.end_now();
        }
        let limit = self.contender.timings.attempt_timeout();
        let released = clock.timeout(limit, self.contender.release()).await;
        self.demote(&Reason::Stopping);
        match released {
            Some(Ok(())) => Outcome::Released { term },
            Some(Err(error)) => left(&error.to_string()),
            None => left("the release was not answered"),
        }
    }

    /// One log line, one Event and one call of the observer for each transition.
    fn tell(&self, leads: bool, term: Term, reason: Reason) {
        let identity = self.contender.me.clone();
        if leads {
            tracing::info!(%identity, term = term.0, %reason, "became leader");
        } else {
            tracing::info!(%identity, term = term.0, %reason, "stopped leading");
        }
        self.contender.stats.transition(reason.to_string().into());
        let transition = Transition { identity, leads, term, reason };
        self.contender.store.announce(&transition);
        if let Some(observer) = &self.observer {
            observer(&transition);
        }
    }
}

impl<S: LeaseStore> Drop for Elector<S> {
    /// A dead elector reads as follower.
    fn drop(&mut self) {
        if let Some(held) = self.contender.held.take() {
            held.state.end_now();
        }
        self.follow(None);
    }
}

impl<S: LeaseStore> fmt::Debug for Elector<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elector")
            .field("identity", &self.contender.me)
            .field("timings", &self.contender.timings)
            .field("term", &self.contender.held.as_ref().map(|held| held.state.term))
            .finish_non_exhaustive()
    }
}

/// Longest time that a stop can take: the writes' time-out, then the release.
#[must_use]
pub fn longest_stop(timings: &Timings) -> Duration {
    timings.write_timeout + timings.attempt_timeout()
}

//! One candidate: the real elector and a writer that uses real permits, on a clock of its own.

use crate::{
    plan::{Candidate, PPM, SECOND},
    rng::Rng,
    world::{Answer, Request, Shared},
};
use election::{
    Clock, Elector, Identity, Leadership, LeaseStore, ManualClock, Moment, Mutant, Outcome, Record, Role, RoleWatch,
    Stopper, StoreError, Term, WallTime, WriteError,
};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

/// A candidate's process, through all its starts.
pub struct Process {
    /// Its number.
    pub number: usize,
    /// Its circumstances.
    pub candidate: Candidate,
    /// How often it was started.
    pub incarnation: u64,
    /// Whether it stands still.
    pub paused: bool,
    /// The true time of its next timer; `u64::MAX` if it has none or stands still.
    pub timer: u64,
    /// Whether it was asked to stop.
    pub stopping: bool,
    running: Option<Running>,
    highest: Term,
}

/// What runs in a started process.
struct Running {
    clock: ManualClock,
    elector: Task<Outcome>,
    writer: Task<()>,
    role: RoleWatch,
    stopper: Stopper,
    leadership: Option<Leadership>,
}

struct Task<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    flag: Arc<Flag>,
    waker: Waker,
    done: bool,
}

/// Set when a task has something to do.
struct Flag(AtomicBool);

/// The lease as one process reaches it.
struct SimStore {
    world: Shared,
    process: usize,
    incarnation: u64,
}

/// Why an object was not written.
enum Failure {
    /// Nothing was heard of the write.
    Unanswered,
    /// It was refused, or there was nothing to write.
    Refused,
}

// === impl Process ===

impl Process {
    /// A process that is not started yet.
    #[must_use]
    pub fn new(number: usize, candidate: Candidate) -> Self {
        Self {
            number,
            candidate,
            incarnation: 0,
            paused: false,
            timer: u64::MAX,
            stopping: false,
            running: None,
            highest: Term(0),
        }
    }

    /// Its own clock at a true time. The clocks of different machines have nothing in common.
    fn local(&self, now: u64) -> Moment {
        let base = (self.number as u64 + 1) * 1_000 * SECOND;
        Moment::from_nanos(base + now * self.candidate.rate / PPM) // a history's nanoseconds times a million fit in 64 bits
    }

    /// The true time at which its clock shows `at`.
    fn true_time(&self, at: Moment) -> u64 {
        let base = (self.number as u64 + 1) * 1_000 * SECOND;
        let local = at.as_nanos().saturating_sub(base);
        (local * PPM).div_ceil(self.candidate.rate)
    }

    fn wall(&self, now: u64) -> WallTime {
        WallTime(1_750_000_000_000_000 + i64::try_from(now / 1_000).unwrap_or(0) + self.candidate.wall_offset)
    }

    /// Whether it runs (perhaps paused).
    #[must_use]
    pub const fn alive(&self) -> bool {
        self.running.is_some()
    }

    /// Starts it, with a new identity.
    pub fn start(&mut self, world: &Shared, seed: u64, now: u64, bug: Option<Mutant>) {
        self.incarnation += 1;
        self.stopping = false;
        self.paused = false;
        self.highest = Term(0);
        let (number, incarnation) = (self.number, self.incarnation);
        let clock = ManualClock::new(self.local(now), self.wall(now));
        let identity = Identity::with_suffix(&format!("p{number}"), &incarnation.to_string()).expect("not empty");
        let store = SimStore { world: world.clone(), process: number, incarnation };
        let (elector, role) = Elector::new(store, identity, self.candidate.timings).expect("valid timings");
        let observed = world.clone();
        let mut elector = elector
            .with_clock(clock.clock())
            .with_seed(Rng::new(seed, 100 + number as u64 * 1000 + incarnation).draw())
            .with_observer(move |transition| observed.lock().transition(number, incarnation, transition));
        if let Some(bug) = bug {
            elector = elector.with_mutant(bug);
        }
        let stopper = elector.stopper();
        let rng = Rng::new(seed, 50_000 + number as u64 * 1000 + incarnation);
        let writer = write_as_leader(
            world.clone(),
            role.clone(),
            clock.clock(),
            rng,
            number,
            incarnation,
            self.candidate.timings.write_timeout,
        );
        self.running = Some(Running {
            clock,
            elector: Task::new(elector.run()),
            writer: Task::new(writer),
            role,
            stopper,
            leadership: None,
        });
    }

    /// It dies on the spot.
    pub fn crash(&mut self) {
        self.running = None;
        self.paused = false;
        self.set_timer();
    }

    /// It is asked to stop.
    pub fn stop(&mut self) {
        if let Some(running) = &self.running {
            self.stopping = true;
            running.stopper.stop();
        }
    }

    /// Its wall clock jumps.
    pub fn jump(&mut self, by: i64) {
        self.candidate.wall_offset += by;
    }

    /// Lets its clock go on to the true time `now`.
    pub fn tick(&mut self, now: u64) {
        let local = self.local(now);
        if let Some(running) = &self.running {
            running.clock.set(local);
        }
    }

    /// Runs what has something to do; true if it did anything.
    ///
    /// # Errors
    /// A rule that it broke.
    pub fn run(&mut self, now: u64) -> Result<bool, String> {
        let result = self.run_tasks(now);
        if !matches!(result, Ok(false)) {
            self.set_timer();
        }
        result
    }

    fn run_tasks(&mut self, now: u64) -> Result<bool, String> {
        if self.paused {
            return Ok(false);
        }
        let wall = self.wall(now);
        let Some(running) = self.running.as_mut() else { return Ok(false) };
        let mut worked = false;
        loop {
            let mut again = false;
            if running.elector.due() {
                running.clock.set_wall(wall);
                again = true;
                if let Some(outcome) = running.elector.poll() {
                    let asked = self.stopping;
                    self.running = None;
                    return if asked {
                        Ok(true)
                    } else {
                        Err(format!("the elector of p{} ended by itself: {outcome}", self.number))
                    };
                }
            }
            if running.writer.due() {
                again = true;
                let _ = running.writer.poll(); // it never ends
            }
            if !again {
                break;
            }
            worked = true;
        }
        if !worked {
            return Ok(false);
        }
        let before = running.leadership.as_ref().map(Leadership::term);
        if let Role::Leader(leadership) = running.role.current() {
            let term = leadership.term();
            running.leadership = Some(leadership);
            if before != Some(term) {
                let known = std::mem::replace(&mut self.highest, term);
                if term <= known {
                    return Err(format!(
                        "p{} leads with term {} after it had led with term {}",
                        self.number, term.0, known.0
                    ));
                }
            }
        }
        Ok(true)
    }

    /// Whether it would get a permit now. Its clock must be at the present.
    #[must_use]
    pub fn leads(&self) -> Option<Term> {
        let leadership = self.running.as_ref()?.leadership.as_ref()?;
        leadership.permit().ok().map(|permit| permit.term())
    }

    /// Looks when its next timer is due.
    pub fn set_timer(&mut self) {
        let next = self.running.as_ref().filter(|_| !self.paused).and_then(|running| running.clock.next_timer());
        self.timer = next.map_or(u64::MAX, |at| self.true_time(at));
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("number", &self.number).field("alive", &self.alive()).finish_non_exhaustive()
    }
}

// === impl Task ===

impl<T> Task<T> {
    fn new(future: impl Future<Output = T> + Send + 'static) -> Self {
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        Self { future: Box::pin(future), waker: Waker::from(flag.clone()), flag, done: false }
    }

    fn due(&self) -> bool {
        !self.done && self.flag.0.swap(false, Ordering::Relaxed)
    }

    fn poll(&mut self) -> Option<T> {
        match self.future.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(value) => {
                self.done = true;
                Some(value)
            }
            Poll::Pending => None,
        }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl SimStore ===

impl LeaseStore for SimStore {
    type Version = u64;

    async fn load(&self) -> Result<Option<(Record, u64)>, StoreError> {
        match self.world.call(self.process, self.incarnation, Request::Load).await? {
            Answer::Lease(lease) => Ok(lease),
            other => unreachable!("a load answered by {other:?}"),
        }
    }

    async fn store(&self, record: Record, over: Option<u64>) -> Result<u64, StoreError> {
        match self.world.call(self.process, self.incarnation, Request::Store(record, over)).await? {
            Answer::Stored(version) => Ok(version),
            other => unreachable!("a store answered by {other:?}"),
        }
    }

    async fn vacated(&self) {
        self.world.vacated(self.process).await;
    }
}

/// What the leader does: reads an object, and replaces it if it carries no newer term.
async fn write_as_leader(
    world: Shared,
    mut role: RoleWatch,
    clock: Clock,
    mut rng: Rng,
    process: usize,
    incarnation: u64,
    limit: Duration,
) {
    let mut last = None;
    loop {
        let leadership = role.elected(last).await;
        last = Some(leadership.term());
        let mut written = [false; 3];
        while let Ok(permit) = leadership.permit() {
            let (object, term) = (usize::try_from(rng.range(0, 2)).expect("small"), permit.term());
            let write = async {
                let read = clock.timeout(limit, world.call(process, incarnation, Request::Get(object))).await;
                let Some(Ok(Answer::Object(version, stamped))) = read else { return Err(Failure::Refused) };
                // A term that is not ours can be on an object that we have not written yet: the lease had been deleted.
                if stamped > term || (stamped == term && !written[object]) {
                    role.outrank(stamped);
                    return Err(Failure::Refused);
                }
                written[object] = true;
                match clock
                    .timeout(limit, world.call(process, incarnation, Request::Put { object, version, term }))
                    .await
                {
                    None | Some(Err(StoreError::Unavailable(_))) => Err(Failure::Unanswered),
                    Some(Ok(_)) => Ok(()),
                    Some(Err(_)) => Err(Failure::Refused),
                }
            };
            let done = permit.run_judged(write, |failure| matches!(failure, Failure::Refused)).await;
            if matches!(done, Err(WriteError::NotLeader(_) | WriteError::Overrun)) {
                break;
            }
            let pause = clock.sleep(Duration::from_millis(rng.range(50, 4_000)));
            tokio::select! {
                biased;
                () = leadership.ended() => {}
                () = pause => {}
            }
        }
    }
}

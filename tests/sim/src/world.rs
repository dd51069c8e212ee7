//! True time, the API server and the network between it and the processes.

use crate::{
    plan::{Kind, MILLI, SECOND},
    rng::Rng,
};
use election::{Reason, Record, StoreError, Term, Transition};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::oneshot;

/// The world as the futures share it.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<World>>);

/// Something that happens at a point of true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A process starts.
    Start(usize),
    /// Fault number so-and-so begins.
    Begin(usize),
    /// It ends.
    End(usize),
    /// A request reaches the server.
    Land(u64),
    /// An answer reaches its process.
    Deliver(u64),
    /// A process hears that the lease is free.
    Vacated(usize),
    /// Somebody leads, unless there was a disturbance since the one of this number.
    Check(u64),
    /// The history is over.
    Finish,
}

/// What is asked of the server.
#[derive(Clone, Debug)]
pub enum Request {
    /// Read the lease.
    Load,
    /// Create or replace the lease.
    Store(Record, Option<u64>),
    /// Read an object.
    Get(usize),
    /// Replace an object, if it is still at this version.
    Put {
        /// Which.
        object: usize,
        /// Its version as read.
        version: u64,
        /// The writer's term, stamped on it.
        term: Term,
    },
}

/// What the server says.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The lease.
    Lease(Option<(Record, u64)>),
    /// The new version of the lease or the object.
    Stored(u64),
    /// An object: its version and the term stamped on it.
    Object(u64, Term),
}

#[derive(Debug)]
struct Call {
    process: usize,
    incarnation: u64,
    request: Request,
    sent: u64,
    late: bool,
    answer: Option<Result<Answer, StoreError>>,
    reply: oneshot::Sender<Result<Answer, StoreError>>,
}

/// An object that the leader writes.
#[derive(Clone, Copy, Debug, Default)]
struct Object {
    version: u64,
    term: Term,
    writer: Option<(usize, u64)>,
}

/// What the network and the server do at present.
#[derive(Clone, Debug, Default)]
pub struct Weather {
    /// Each is the number of faults of that kind under way.
    pub slow: u32,
    /// Requests get lost.
    pub hang: u32,
    /// Answers get lost.
    pub lost: u32,
    /// Conflicts out of nothing.
    pub conflicts: u32,
    /// Requests land late.
    pub late: u32,
    /// The API is away.
    pub away: u32,
    /// Whether calls to an API that is away hang instead of failing at once.
    pub away_hangs: bool,
    /// Per process: cut off.
    pub cut: Vec<u32>,
    /// Whether calls of one that is cut off hang.
    pub cut_hangs: bool,
}

/// What was seen in a number of histories.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// Counters by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// Slowest and fastest clock.
    pub rates: Option<(u64, u64)>,
    /// Virtual nanoseconds.
    pub time: u64,
}

/// True time, the server, the network, and the judge of what happens.
#[derive(Debug)]
pub struct World {
    /// True time in nanoseconds.
    pub now: u64,
    /// The network's state.
    pub weather: Weather,
    /// What was seen.
    pub coverage: Coverage,
    /// Rules that were broken.
    pub violations: Vec<String>,
    /// What happened, if it is wanted.
    pub trace: Option<Vec<String>>,
    /// Since when nothing has gone wrong.
    pub calm_since: u64,
    /// When somebody was last seen to lead.
    pub led_at: u64,
    /// Time from a disturbance within which somebody leads.
    bound: u64,
    disturbances: u64,
    /// Faults under way.
    pub faults: u32,
    rng: Rng,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    next_event: u64,
    calls: BTreeMap<u64, Call>,
    next_call: u64,
    lease: Option<(Record, u64)>,
    version: u64,
    objects: [Object; 3],
    waiting: Vec<Option<oneshot::Sender<()>>>,
}

// === impl Shared ===

impl Shared {
    /// A world at time zero.
    #[must_use]
    pub fn new(seed: u64, processes: usize, bound: u64, traced: bool) -> Self {
        Self(Arc::new(Mutex::new(World {
            now: 0,
            weather: Weather { cut: vec![0; processes], ..Weather::default() },
            coverage: Coverage::default(),
            violations: Vec::new(),
            trace: traced.then(Vec::new),
            calm_since: 0,
            led_at: 0,
            bound,
            disturbances: 0,
            faults: 0,
            rng: Rng::new(seed, 2),
            events: BinaryHeap::new(),
            next_event: 0,
            calls: BTreeMap::new(),
            next_call: 0,
            lease: None,
            version: 0,
            objects: [Object::default(); 3],
            waiting: (0..processes).map(|_| None).collect(),
        })))
    }

    /// The world, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its answer, for ever if it gets lost.
    pub async fn call(&self, process: usize, incarnation: u64, request: Request) -> Result<Answer, StoreError> {
        let reply = self.lock().send(process, incarnation, request);
        match reply.await {
            Ok(answer) => answer,
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits for word that the lease is free.
    pub async fn vacated(&self, process: usize) {
        let (tx, rx) = oneshot::channel();
        self.lock().waiting[process] = Some(tx);
        if rx.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

// === impl World ===

impl World {
    /// Adds an event.
    pub fn at(&mut self, time: u64, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((time, self.next_event, event)));
    }

    /// The next event, unless there is none before `timer`; true time goes on to it.
    pub fn next(&mut self, timer: u64) -> Option<Event> {
        let time = self.events.peek().map_or(u64::MAX, |Reverse((time, _, _))| *time);
        self.now = self.now.max(time.min(timer));
        if time <= timer { self.events.pop().map(|Reverse((_, _, event))| event) } else { None }
    }

    /// Notes what happens.
    pub fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} {}", self.now as f64 / 1e9, what()));
        }
    }

    /// Counts what happens.
    pub fn count(&mut self, what: &'static str) {
        *self.coverage.counts.entry(what).or_default() += 1;
    }

    /// A rule was broken.
    pub fn violation(&mut self, what: String) {
        self.note(|| format!("VIOLATION {what}"));
        let at = self.now as f64 / 1e9;
        self.violations.push(format!("at {at:.3} s: {what}"));
    }

    /// Something went wrong or came back: from now on the time to the next leader counts anew.
    pub fn disturb(&mut self) {
        self.disturbances += 1;
        self.calm_since = self.now;
        self.at(self.now + self.bound, Event::Check(self.disturbances));
    }

    /// Whether this check is about the last disturbance, and no fault is under way.
    #[must_use]
    pub const fn is_due(&self, check: u64) -> bool {
        check == self.disturbances && self.faults == 0
    }

    /// Puts a free lease there before the start.
    pub fn preset_lease(&mut self) {
        self.version += 1;
        let past = election::WallTime(1);
        let record =
            Record { holder: None, term: Term(3), acquired: Some(past), renewed: Some(past), ..Record::default() };
        self.lease = Some((record, self.version));
    }

    /// Somebody deletes the lease.
    pub fn delete_lease(&mut self) {
        if self.lease.take().is_some() {
            self.count("deletions");
        }
        self.vacate();
    }

    /// Somebody else touches the lease: a new version of the same record.
    pub fn touch_lease(&mut self) {
        self.version += 1;
        let version = self.version;
        if let Some((_, at)) = &mut self.lease {
            *at = version;
        }
    }

    fn vacate(&mut self) {
        for process in 0..self.waiting.len() {
            if self.rng.chance(90) && self.weather.away == 0 && self.weather.cut[process] == 0 {
                let at = self.now + self.rng.range(MILLI, 30 * MILLI);
                self.at(at, Event::Vacated(process));
            }
        }
    }

    /// A process hears that the lease is free.
    pub fn notify(&mut self, process: usize) {
        if let Some(waiting) = self.waiting[process].take() {
            let _ = waiting.send(()); // nobody waits any more: fine
        }
    }

    fn latency(&mut self) -> u64 {
        if self.weather.slow > 0 && self.rng.chance(70) {
            self.rng.range(50 * MILLI, 4 * SECOND)
        } else {
            self.rng.range(MILLI / 2, 20 * MILLI)
        }
    }

    fn send(
        &mut self,
        process: usize,
        incarnation: u64,
        request: Request,
    ) -> oneshot::Receiver<Result<Answer, StoreError>> {
        let (reply, receiver) = oneshot::channel();
        let id = self.next_call;
        self.next_call += 1;
        let mut call = Call { process, incarnation, request, sent: self.now, late: false, answer: None, reply };
        self.note(|| format!("p{process} sends {:?} as call {id}", call.request));
        let cut = self.weather.cut[process] > 0;
        if cut || self.weather.away > 0 {
            if if cut { self.weather.cut_hangs } else { self.weather.away_hangs } {
                return receiver; // lost: nothing will ever be heard
            }
            call.answer = Some(Err(StoreError::Unavailable("connection refused".into())));
            self.calls.insert(id, call);
            let at = self.now + self.rng.range(MILLI / 10, MILLI);
            self.at(at, Event::Deliver(id));
            return receiver;
        }
        if self.weather.hang > 0 && self.rng.chance(40) {
            self.count("lost requests");
            return receiver;
        }
        let mut delay = self.latency();
        if self.weather.late > 0 && self.rng.chance(30) {
            delay = self
                .rng
                .range(SECOND, if matches!(call.request, Request::Put { .. }) { 5 * SECOND } else { 20 * SECOND });
            call.late = true;
        }
        self.calls.insert(id, call);
        self.at(self.now + delay, Event::Land(id));
        receiver
    }

    /// A request reaches the server, which does what it says.
    pub fn land(&mut self, id: u64) {
        let Some(mut call) = self.calls.remove(&id) else { return };
        let late =
            call.late && self.now - call.sent > SECOND && !matches!(call.request, Request::Load | Request::Get(_));
        if self.weather.away > 0 || (self.weather.cut[call.process] > 0 && !late) {
            return;
        }
        if late {
            self.count("late requests");
            self.disturb();
        }
        let result = if self.weather.conflicts > 0 && matches!(call.request, Request::Store(..)) && self.rng.chance(30)
        {
            self.count("conflicts");
            Err(StoreError::Conflict)
        } else {
            self.serve(&call)
        };
        self.note(|| format!("call {id} of p{} is done: {result:?}", call.process));
        let lost = self.weather.lost > 0 && self.rng.chance(40);
        if lost || self.weather.cut[call.process] > 0 {
            self.count("lost answers");
            if self.rng.chance(50) {
                return;
            }
            call.answer = Some(Err(StoreError::Unavailable("502 bad gateway".into())));
        } else {
            call.answer = Some(result);
        }
        self.calls.insert(id, call);
        let delay = self.latency();
        self.at(self.now + delay, Event::Deliver(id));
    }

    /// An answer reaches its process.
    pub fn deliver(&mut self, id: u64) {
        let Some(call) = self.calls.remove(&id) else { return };
        let local = matches!(&call.answer, Some(Err(StoreError::Unavailable(why))) if &**why == "connection refused");
        if !local && self.weather.cut[call.process] > 0 {
            self.count("lost answers");
            return;
        }
        if let Some(answer) = call.answer {
            let _ = call.reply.send(answer); // a process that no longer waits does not hear it
        }
    }

    fn serve(&mut self, call: &Call) -> Result<Answer, StoreError> {
        match &call.request {
            Request::Load => Ok(Answer::Lease(self.lease.clone())),
            Request::Store(record, over) => {
                if self.lease.as_ref().map(|(_, version)| *version) != *over {
                    self.count("conflicts");
                    return Err(StoreError::Conflict);
                }
                if record.holder.is_none() {
                    self.judge_release(call, record);
                }
                self.version += 1;
                self.lease = Some((record.clone(), self.version));
                let version = self.version;
                if record.holder.is_none() {
                    self.count("releases");
                    self.vacate();
                }
                Ok(Answer::Stored(version))
            }
            Request::Get(object) => Ok(Answer::Object(self.objects[*object].version, self.objects[*object].term)),
            Request::Put { object, version, term } => {
                let (now, who) = (self.objects[*object], (call.process, call.incarnation));
                if now.version != *version {
                    return Err(StoreError::Conflict);
                }
                if *term < now.term {
                    self.violation(format!(
                        "object {object}: a write of term {} after one of term {}",
                        term.0, now.term.0
                    ));
                }
                if *term == now.term && now.writer.is_some_and(|writer| writer != who) {
                    self.violation(format!("object {object}: two processes write under term {}", term.0));
                }
                self.count("object writes");
                self.version += 1;
                self.objects[*object] = Object { version: self.version, term: *term, writer: Some(who) };
                Ok(Answer::Stored(self.version))
            }
        }
    }

    /// A release comes after the answers of all writes of that leadership.
    fn judge_release(&mut self, call: &Call, record: &Record) {
        let (now, who) = (self.now, (call.process, call.incarnation));
        let open = self.calls.values().find(|c| {
            let put = matches!(&c.request, Request::Put { term, .. } if *term == record.term);
            put && c.answer.is_none() && (c.process, c.incarnation) == who && now - c.sent < 5 * SECOND
        });
        if let Some(sent) = open.map(|c| c.sent) {
            let age = (now - sent) as f64 / 1e9;
            self.violation(format!(
                "p{} released term {} with a write under way for {age:.3} s",
                call.process, record.term.0
            ));
        }
    }

    /// A process tells that it began or stopped leading.
    pub fn transition(&mut self, process: usize, incarnation: u64, transition: &Transition) {
        self.note(|| format!("p{process}.{incarnation} {transition:?}"));
        if transition.leads {
            self.count("takeovers");
            return;
        }
        self.count(match transition.reason {
            Reason::Expired { .. } => "expired",
            Reason::TakenBy { .. } => "taken",
            Reason::Deleted => "put back",
            Reason::Outranked { .. } => "outranked",
            _ => "stopped leading",
        });
        let ours = self.lease.as_ref().is_some_and(|(record, _)| {
            record.holder.as_deref() == Some(&*transition.identity)
                && record.acquired.is_some()
                && record.term == transition.term
        });
        if matches!(transition.reason, Reason::TakenBy { .. }) && ours {
            self.violation(format!(
                "p{process} gave up term {} although the lease says that it holds it",
                transition.term.0
            ));
        }
        let unforced = !matches!(transition.reason, Reason::Stopping | Reason::Outranked { .. });
        if unforced && self.faults == 0 && self.now > self.calm_since + self.bound {
            self.violation(format!(
                "p{process} lost term {} while nothing was wrong: {}",
                transition.term.0, transition.reason
            ));
        }
    }

    /// Begins or ends what concerns the network; true if it did.
    pub fn turn_weather(&mut self, kind: Kind, process: usize, flavour: u64, on: bool) -> bool {
        let weather = &mut self.weather;
        let counter = match kind {
            Kind::Slow => &mut weather.slow,
            Kind::Hang => &mut weather.hang,
            Kind::LostAnswers => &mut weather.lost,
            Kind::Conflicts => &mut weather.conflicts,
            Kind::Late => &mut weather.late,
            Kind::Away => &mut weather.away,
            Kind::Partition => &mut weather.cut[process],
            _ => return false,
        };
        if on {
            *counter += 1;
        } else {
            *counter -= 1;
        }
        match kind {
            Kind::Away if on => weather.away_hangs = flavour.is_multiple_of(2),
            Kind::Partition if on => weather.cut_hangs = flavour.is_multiple_of(2),
            _ => {}
        }
        true
    }
}

// === impl Coverage ===

impl Coverage {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
        self.time += other.time;
        for rate in other.rates.iter().flat_map(|(a, b)| [*a, *b]) {
            self.rates = Some(self.rates.map_or((rate, rate), |(low, high)| (low.min(rate), high.max(rate))));
        }
    }

    /// A count, zero if it never happened.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }
}

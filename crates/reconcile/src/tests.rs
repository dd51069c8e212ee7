//! The gate, on a paused clock, with a real elector over a lease in memory where the role matters.

use crate::{Backoff, Gated, Sync as Writer, Wanted};
use election::{
    Clock, Elector, Identity, LeaseStore, Permit, Record, RoleWatch, StoreError, Timings, WallTime, WriteError,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinSet, time::sleep};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A lease in memory that can be away.
#[derive(Clone, Default)]
struct Lease(Arc<Mutex<(Option<Record>, u64)>>, Arc<AtomicBool>);

impl Lease {
    fn away(&self, away: bool) {
        self.1.store(away, Ordering::SeqCst);
    }

    fn reach(&self) -> Result<(), StoreError> {
        if self.1.load(Ordering::SeqCst) { Err(StoreError::Unavailable("away".into())) } else { Ok(()) }
    }
}

impl LeaseStore for Lease {
    type Version = u64;

    async fn load(&self) -> Result<Option<(Record, u64)>, StoreError> {
        self.reach()?;
        let state = self.0.lock().unwrap();
        Ok(state.0.clone().map(|record| (record, state.1)))
    }

    async fn store(&self, record: Record, over: Option<u64>) -> Result<u64, StoreError> {
        self.reach()?;
        let mut state = self.0.lock().unwrap();
        if state.0.as_ref().map(|_| state.1) != over {
            return Err(StoreError::Conflict);
        }
        *state = (Some(record), state.1 + 1);
        Ok(state.1)
    }
}

/// The other side: what is there, what was written, and what fails.
#[derive(Clone, Default)]
struct Side(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    there: BTreeMap<u32, u32>,
    /// Term, key, value of each write.
    log: Vec<(u64, u32, Option<u32>)>,
    attempts: BTreeMap<u32, u32>,
    failing: BTreeMap<u32, &'static str>,
    list_fails: bool,
    lists: u32,
    delay: Duration,
    busy: BTreeMap<u32, u32>,
    most_busy: usize,
}

impl Side {
    fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.0.lock().unwrap()
    }

    fn log(&self) -> Vec<(u64, u32, Option<u32>)> {
        std::mem::take(&mut self.world().log)
    }
}

impl Writer for Side {
    type Key = u32;
    type Value = u32;
    type Error = &'static str;

    async fn owned(&self, permit: Permit<'_>) -> Result<Vec<u32>, WriteError<&'static str>> {
        let read = async {
            let mut world = self.world();
            world.lists += 1;
            if world.list_fails { Err("cannot list") } else { Ok(world.there.keys().copied().collect()) }
        };
        permit.run(read).await
    }

    async fn sync(&self, permit: Permit<'_>, key: &u32, want: Option<&u32>) -> Result<(), WriteError<&'static str>> {
        let term = permit.term().0;
        let write = async {
            let delay = {
                let mut world = self.world();
                *world.attempts.entry(*key).or_default() += 1;
                let busy = world.busy.entry(*key).or_default();
                *busy += 1;
                assert_eq!(*busy, 1, "two writes of key {key} at once");
                world.most_busy = world.most_busy.max(world.busy.len());
                world.delay
            };
            sleep(delay).await;
            let mut world = self.world();
            world.busy.remove(key);
            if let Some(error) = world.failing.get(key) {
                return Err(*error);
            }
            if world.there.get(key) == want {
                return Ok(()); // nothing differs
            }
            match want {
                Some(value) => world.there.insert(*key, *value),
                None => world.there.remove(key),
            };
            world.log.push((term, *key, want.copied()));
            Ok(())
        };
        permit.run(write).await
    }
}

/// A running gate.
struct Gate {
    tasks: JoinSet<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Gate {
    fn start(side: &Side, wanted: &Wanted<u32, u32>, role: RoleWatch, concurrency: usize) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let backoff = Backoff { first: s(1), cap: s(30) };
        let gate = Gated::new(side.clone(), wanted.clone(), role, backoff).with_concurrency(concurrency);
        let mut tasks = JoinSet::new();
        tasks.spawn(gate.run(async move {
            let _ = stopped.await;
        }));
        Self { tasks, stop: Some(stop) }
    }

    async fn stop(mut self) {
        drop(self.stop.take());
        self.tasks.join_next().await.unwrap().unwrap();
    }
}

/// An elector over `lease`, which is free.
fn elect(lease: &Lease, tasks: &mut JoinSet<()>) -> RoleWatch {
    lease.0.lock().unwrap().0 = Some(Record { acquired: Some(WallTime(1)), ..Record::default() });
    let identity = Identity::with_suffix("a", "1").unwrap();
    let (elector, role) = Elector::new(lease.clone(), identity, Timings::default()).unwrap();
    tasks.spawn(async move {
        elector.with_clock(Clock::tokio()).with_seed(1).run().await;
    });
    role
}

#[tokio::test(start_paused = true)]
async fn rule_08_nothing_is_lost_over_a_demotion_and_nothing_is_written_in_it() {
    let (lease, side, wanted, mut tasks) = (Lease::default(), Side::default(), Wanted::new(), JoinSet::new());
    let role = elect(&lease, &mut tasks);
    wanted.publish([(1, Some(10))]);
    let gate = Gate::start(&side, &wanted, role, 1);
    sleep(s(1)).await;
    assert_eq!(side.log(), [(1, 1, Some(10))]);

    lease.away(true);
    sleep(s(40)).await; // long past the end
    wanted.publish([(1, Some(11)), (2, Some(20))]);
    wanted.publish([(1, Some(12)), (3, Some(30))]);
    sleep(s(40)).await;
    assert_eq!(side.log(), [], "a demoted replica writes nothing");
    assert_eq!(wanted.pending(), 3);

    lease.away(false);
    sleep(s(5)).await;
    assert_eq!(
        side.log(),
        [(2, 1, Some(12)), (2, 2, Some(20)), (2, 3, Some(30))],
        "a new term, and the latest values only"
    );
    assert_eq!(wanted.pending(), 0);

    gate.stop().await;
    sleep(s(5)).await;
    let holder = lease.0.lock().unwrap().0.clone().unwrap().holder;
    assert_eq!(holder, None, "the gate held the last role watch; the lease is released after it");
}

#[tokio::test(start_paused = true)]
async fn rule_08_a_new_leader_compares_everything_and_writes_the_differences() {
    let (side, wanted) = (Side::default(), Wanted::new());
    side.world().there = BTreeMap::from([(1, 10), (2, 99)]);
    wanted.publish([(1, Some(10)), (2, Some(20)), (3, Some(30))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 1);
    sleep(s(1)).await;
    assert_eq!(side.log(), [(1, 2, Some(20)), (1, 3, Some(30))]);
    gate.stop().await;
}

#[tokio::test(start_paused = true)]
async fn rule_08_what_is_owned_and_not_wanted_goes_but_an_error_is_not_absence() {
    let (side, wanted) = (Side::default(), Wanted::new());
    side.world().there = BTreeMap::from([(7, 70), (8, 80)]); // left by an earlier leader
    side.world().list_fails = true;
    wanted.publish([(1, Some(10))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 1);
    sleep(s(100)).await;
    assert_eq!((side.log(), side.world().lists), (vec![(1, 1, Some(10))], 0), "not before everything wanted is known");
    wanted.publish([(8, Some(80))]);
    wanted.complete();
    sleep(s(100)).await;
    assert_eq!(side.log(), [], "a list that fails deletes nothing");
    assert!(side.world().lists > 3, "and is tried again");
    side.world().list_fails = false;
    sleep(s(31)).await;
    assert_eq!(side.log(), [(1, 7, None)], "what nobody wants goes, what was published meanwhile stays");
    assert_eq!(wanted.len(), 2);
    gate.stop().await;
}

/// A value that counts how many of its kind are alive.
struct Counted;
static ALIVE: AtomicUsize = AtomicUsize::new(0);
impl Counted {
    fn new() -> Self {
        ALIVE.fetch_add(1, Ordering::SeqCst);
        Self
    }
}
impl Drop for Counted {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn rule_08_a_followers_memory_does_not_grow_with_events() {
    let wanted = Wanted::<u32, Counted>::new();
    let mut sizes = Vec::new();
    for updates in [1_000u32, 100_000] {
        for update in 0..updates {
            wanted.publish([(update % 50, Some(Counted::new()))]);
            // Other keys come and go.
            wanted.publish([(1_000 + update, Some(Counted::new()))]);
            wanted.publish([(1_000 + update, None)]);
        }
        sizes.push((wanted.len(), wanted.pending(), ALIVE.load(Ordering::SeqCst)));
    }
    assert_eq!(sizes, [(50, 50, 50), (50, 50, 50)]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_key_is_tried_for_ever_and_holds_up_no_other() {
    let (side, wanted) = (Side::default(), Wanted::new());
    side.world().failing.insert(1, "forbidden");
    wanted.publish([(1, Some(10)), (2, Some(20))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 1);
    sleep(s(1)).await;
    assert_eq!(side.log(), [(1, 2, Some(20))]);
    assert_eq!((wanted.pending(), wanted.failing()), (1, 1));
    let state = wanted.states().into_iter().find(|k| k.key == 1).unwrap();
    assert!(state.pending && !state.gone && state.failures >= 1);
    assert_eq!(state.last_error.as_deref(), Some("forbidden"));

    sleep(s(3600)).await;
    let attempts = side.world().attempts[&1];
    assert!((120..=260).contains(&attempts), "{attempts} attempts in an hour with a cap of 15 to 30 s");
    wanted.publish([(3, Some(30))]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(side.log(), [(1, 3, Some(30))], "others at once");

    // A new value is a new chance, at once.
    side.world().failing.clear();
    wanted.publish([(1, Some(11))]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(side.log(), [(1, 1, Some(11))]);
    assert_eq!((wanted.pending(), wanted.failing()), (0, 0));
    gate.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_value_published_during_a_write_is_written_after_it() {
    let (side, wanted) = (Side::default(), Wanted::new());
    side.world().delay = s(1);
    wanted.publish([(1, Some(10))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 4);
    sleep(Duration::from_millis(500)).await;
    for value in 11..=15 {
        wanted.publish([(1, Some(value))]);
    }
    sleep(s(5)).await;
    assert_eq!(side.log(), [(1, 1, Some(10)), (1, 1, Some(15))], "the latest only");
    gate.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_gone_is_forgotten_once_that_is_confirmed() {
    let (side, wanted) = (Side::default(), Wanted::new());
    wanted.publish([(1, Some(10)), (2, Some(20))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 1);
    sleep(s(1)).await;
    side.world().failing.insert(1, "conflict");
    wanted.publish_all([(2, 20)]);
    sleep(s(5)).await;
    let state = wanted.states().into_iter().find(|k| k.key == 1).expect("kept until the deletion is confirmed");
    assert!(state.gone && state.pending);
    side.world().failing.clear();
    sleep(s(40)).await;
    assert!(!side.world().there.contains_key(&1));
    assert_eq!(wanted.values(), BTreeMap::from([(2, 20)]));
    assert_eq!(wanted.len(), 1);
    gate.stop().await;
}

#[tokio::test(start_paused = true)]
async fn different_keys_are_written_at_once_up_to_the_limit() {
    let (side, wanted) = (Side::default(), Wanted::new());
    side.world().delay = s(1);
    wanted.publish((0..20).map(|key| (key, Some(key))));
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 4);
    sleep(Duration::from_millis(5_100)).await;
    assert_eq!((side.log().len(), side.world().most_busy), (20, 4));
    gate.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_write_under_way_finish_and_begins_no_other() {
    let (side, wanted) = (Side::default(), Wanted::new());
    side.world().delay = s(2);
    wanted.publish([(1, Some(10)), (2, Some(20))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 1);
    sleep(s(1)).await;
    gate.stop().await;
    assert_eq!(side.log(), [(1, 1, Some(10))]);
    sleep(s(60)).await;
    assert_eq!(side.log(), []);
}

#[tokio::test(start_paused = true)]
async fn a_recheck_puts_back_what_somebody_else_changed() {
    let (side, wanted) = (Side::default(), Wanted::new());
    wanted.publish([(1, Some(10))]);
    let gate = Gate::start(&side, &wanted, RoleWatch::always_leader(), 1);
    sleep(s(1)).await;
    side.log();
    side.world().there.insert(1, 66);
    wanted.recheck([&1, &5]);
    sleep(s(1)).await;
    assert_eq!(side.log(), [(1, 1, Some(10))]);
    assert_eq!(wanted.len(), 1, "an unknown key stays unknown");
    gate.stop().await;
}

//! The rules of the election, one by one, on a paused clock.

use crate::{fake::Fake, *};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

/// Candidates of one test.
#[derive(Default)]
struct Run {
    tasks: JoinSet<Outcome>,
    told: Arc<Mutex<Vec<Transition>>>,
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn unavailable() -> Option<StoreError> {
    Some(StoreError::Unavailable("connection refused".into()))
}

/// A free lease, so that a test need not wait for the first leader.
fn vacant(term: u64) -> Record {
    Record { term: Term(term), acquired: Some(WallTime(1)), renewed: Some(WallTime(1)), ..Record::default() }
}

fn held_by(holder: &str, term: u64, duration: Duration) -> Record {
    Record { holder: Some(holder.into()), term: Term(term), duration, ..vacant(term) }
}

fn free() -> Fake {
    let fake = Fake::default();
    fake.put(Some(vacant(0)));
    fake
}

impl Run {
    fn elector(&self, fake: &Fake, name: &str) -> (Elector<Fake>, RoleWatch) {
        let told = self.told.clone();
        let identity = Identity::with_suffix(name, "1").unwrap();
        let (elector, role) = Elector::new(fake.clone(), identity, Timings::default()).unwrap();
        let elector = elector
            .with_clock(Clock::tokio())
            .with_seed(1)
            .with_observer(move |t| told.lock().unwrap().push(t.clone()));
        (elector, role)
    }

    fn start(&mut self, fake: &Fake, name: &str) -> RoleWatch {
        let (elector, role) = self.elector(fake, name);
        self.tasks.spawn(elector.run());
        role
    }

    fn told(&self) -> Vec<(bool, u64)> {
        self.told.lock().unwrap().iter().map(|t| (t.leads, t.term.0)).collect()
    }
}

async fn elected(role: &mut RoleWatch) -> Leadership {
    timeout(s(120), role.elected(None)).await.expect("somebody is elected")
}

fn follows(role: &RoleWatch) -> bool {
    matches!(role.current(), Role::Follower { .. })
}

#[tokio::test(start_paused = true)]
async fn rule_01_a_role_has_an_end_and_a_dead_elector_reads_as_follower() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let first = elected(&mut role).await;
    assert!(matches!(role.current(), Role::Leader(_)) && first.permit().is_ok());

    // It ends by itself, and one that is over is never revived.
    fake.mood(|m| m.hang = true);
    timeout(s(11), first.ended()).await.expect("it knows its own end");
    assert!(follows(&role) && first.permit().is_err() && first.time_left().is_zero());
    fake.mood(|m| m.hang = false);
    let second = elected(&mut role).await;
    assert!(second.term() > first.term() && first.permit().is_err());

    // The elector dies: its thread is gone without a word.
    run.tasks.shutdown().await;
    timeout(s(0), second.ended()).await.expect("over at once");
    assert!(follows(&role) && second.permit().is_err());
    assert!(timeout(s(600), role.elected(None)).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn rule_02_the_end_counts_from_before_the_last_renewal_was_sent() {
    let (fake, mut run) = (free(), Run::default());
    fake.mood(|m| m.delay = s(1));
    let mut role = run.start(&fake, "a");
    let begun = Instant::now();
    let leadership = elected(&mut role).await; // a read of 1 s, then a claim of 1 s
    assert_eq!(begun.elapsed(), s(2));
    assert_eq!(leadership.time_left(), s(9), "counted from when the claim was sent, not answered");
    fake.mood(|m| m.hang = true);
    leadership.ended().await;
    assert_eq!(begun.elapsed(), s(11));
}

#[tokio::test(start_paused = true)]
async fn rule_02_a_challenger_waits_as_long_as_the_record_or_its_own_configuration_asks() {
    for (asked, waits) in [(s(40), s(40)), (s(3), s(15))] {
        let (fake, mut run) = (Fake::default(), Run::default());
        // A wall clock that is years off means nothing.
        let mut record = held_by("b_9", 4, asked);
        record.renewed = Some(WallTime(5));
        fake.put(Some(record.clone()));
        let mut role = run.start(&fake, "a");
        // Each change of the record counts anew, from when it was seen.
        sleep(s(10)).await;
        record.renewed = Some(WallTime(6));
        fake.put(Some(record));
        let changed = Instant::now();
        let leadership = elected(&mut role).await;
        let waited = changed.elapsed();
        assert!(waited >= waits && waited <= waits + s(4), "{waited:?} for {asked:?}");
        assert_eq!(leadership.term(), Term(5));
    }
}

#[tokio::test(start_paused = true)]
async fn rule_02_an_attempt_that_hangs_leaves_time_for_another() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let leadership = elected(&mut role).await;
    fake.mood(|m| m.hang = true);
    sleep(s(4)).await; // the renewal that was due hangs by now
    fake.mood(|m| m.hang = false);
    sleep(s(60)).await;
    assert!(leadership.permit().is_ok(), "one call that hung did not cost the leadership");
}

#[tokio::test(start_paused = true)]
async fn rule_03_a_write_needs_a_permit_and_is_not_waited_for_past_the_end() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let leadership = elected(&mut role).await;
    let kept = leadership.permit().unwrap();
    fake.mood(|m| m.error = unavailable());
    let begun = Instant::now();
    let slow = async {
        sleep(s(60)).await;
        Ok::<_, ()>(())
    };
    assert!(matches!(leadership.permit().unwrap().run(slow).await, Err(WriteError::Overrun)));
    assert!(begun.elapsed() <= s(10));
    let late = kept.run(async { panic!("a permit that was kept starts nothing") as Result<(), ()> }).await;
    assert!(matches!(late, Err(WriteError::NotLeader(NotLeader(Term(1))))));
}

#[tokio::test(start_paused = true)]
async fn rule_03_an_idle_process_that_wakes_up_late_gets_no_permit() {
    let manual = ManualClock::new(Moment::default(), WallTime(0));
    let fake = free();
    let identity = Identity::with_suffix("a", "1").unwrap();
    let (elector, mut role) = Elector::new(fake, identity, Timings::default()).unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(elector.with_clock(manual.clock()).run());
    let leadership = elected(&mut role).await;
    // The machine was suspended: time has passed, and nobody has been told of anything yet.
    manual.set(manual.now().plus(s(3600)));
    assert!(leadership.permit().is_err() && follows(&role));
}

#[tokio::test(start_paused = true)]
async fn rule_04_the_term_to_stamp_is_known_where_the_request_is_made() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let leadership = elected(&mut role).await;
    assert_eq!(current_term(), None);
    let permit = leadership.permit().unwrap();
    assert_eq!(permit.term(), Term(1));
    assert_eq!(permit.another().unwrap().term(), Term(1));
    let stamped = permit.run(async { Ok::<_, ()>(current_term()) }).await.unwrap();
    assert_eq!(stamped, Some(Term(1)));
    // The order of writes per object is proven by the simulation (`object writes` with versions and terms).
}

#[tokio::test(start_paused = true)]
async fn rule_05_a_deleted_lease_brings_no_old_term_back() {
    let (fake, mut run) = (Fake::default(), Run::default());
    fake.put(Some(vacant(41)));
    let mut role = run.start(&fake, "a");
    let first = elected(&mut role).await;
    assert_eq!(first.term(), Term(42), "leaseTransitions and one");
    fake.put(None);
    let second =
        timeout(s(5), role.elected(Some(first.term()))).await.expect("it is put back before the next renewal but one");
    assert_eq!(second.term(), Term(43));
    assert!(first.permit().is_err());
    assert_eq!(fake.record().unwrap().term, Term(43));
}

#[tokio::test(start_paused = true)]
async fn rule_05_a_missing_lease_is_not_led_before_its_former_holder_must_have_stopped() {
    let (fake, mut run) = (Fake::default(), Run::default());
    let mut role = run.start(&fake, "a");
    sleep(s(1)).await;
    let placeholder = fake.record().unwrap();
    assert!(placeholder.is_placeholder() && follows(&role));
    let begun = Instant::now();
    elected(&mut role).await;
    assert!(begun.elapsed() >= s(13) && begun.elapsed() <= s(16), "{:?}", begun.elapsed());
    assert_eq!(run.told.lock().unwrap()[0].reason, Reason::Missing);
}

#[tokio::test(start_paused = true)]
async fn rule_05_a_term_seen_on_an_object_is_outranked() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let first = elected(&mut role).await;
    role.outrank(Term(0));
    sleep(s(5)).await;
    assert!(first.permit().is_ok(), "an older term changes nothing");
    role.outrank(Term(7));
    let second = timeout(s(1), role.elected(Some(first.term()))).await.expect("at once");
    assert_eq!(second.term(), Term(8));
    assert!(first.permit().is_err());
}

#[tokio::test(start_paused = true)]
async fn rule_06_a_renewal_whose_answer_was_lost_is_adopted() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let leadership = elected(&mut role).await;
    for _ in 0..5 {
        fake.mood(|m| m.lose_answer = true);
        sleep(s(7)).await;
        fake.touch(); // a conflict out of nothing
        sleep(s(7)).await;
    }
    assert!(leadership.permit().is_ok(), "the same leadership all along");
    assert_eq!(run.told(), [(true, 1)]);
}

#[tokio::test(start_paused = true)]
async fn rule_06_an_adopted_renewal_counts_from_when_it_was_sent() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let leadership = elected(&mut role).await;
    fake.mood(|m| m.swallow_answer = true);
    while fake.stores().len() < 2 {
        sleep(Duration::from_millis(10)).await; // until the renewal is stored, and its answer swallowed
    }
    let (sent, loads) = (Instant::now(), fake.loads());
    fake.mood(|m| m.hang_stores = true); // the second look finds it stored, and no renewal follows
    leadership.ended().await;
    let lasted = sent.elapsed();
    assert!(fake.loads() > loads, "it was looked at again");
    assert!(
        lasted >= s(9) && lasted <= s(10) + Duration::from_millis(20),
        "{lasted:?} after the stored attempt was sent"
    );
}

#[tokio::test(start_paused = true)]
async fn rule_06_a_restarted_process_does_not_inherit() {
    let one = Identity::unique("pod-a").unwrap();
    let two = Identity::unique("pod-a").unwrap();
    assert_ne!(one, two);
    assert!(one.as_str().starts_with("pod-a_") && one.as_str().len() == "pod-a_".len() + 36);

    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    elected(&mut role).await;
    run.tasks.shutdown().await;
    let identity = Identity::with_suffix("a", "2").unwrap();
    let (elector, mut role) = Elector::new(fake.clone(), identity, Timings::default()).unwrap();
    run.tasks.spawn(elector.with_clock(Clock::tokio()).run());
    let begun = Instant::now();
    elected(&mut role).await;
    assert!(begun.elapsed() >= s(15));
}

#[tokio::test(start_paused = true)]
async fn rule_07_no_error_ends_the_election() {
    let errors = [
        StoreError::Unavailable("connection refused".into()),
        StoreError::Unavailable("503 service unavailable".into()),
        StoreError::Refused("403 forbidden".into()),
        StoreError::Refused("404 namespace not found".into()),
        StoreError::Conflict,
    ];
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    let mut last = elected(&mut role).await.term();
    for error in errors {
        fake.mood(|m| m.error = Some(error.clone()));
        sleep(s(600)).await;
        assert!(follows(&role), "{error}");
        fake.mood(|m| m.error = None);
        let next = timeout(s(3), role.elected(Some(last))).await;
        last = next.unwrap_or_else(|_| panic!("back after {error}")).term();
    }
    assert!(run.tasks.try_join_next().is_none(), "still in the election");
}

#[tokio::test(start_paused = true)]
async fn rule_07_on_lost_lease_exit_ends_with_code_3() {
    let (fake, mut run) = (free(), Run::default());
    let (elector, mut role) = run.elector(&fake, "a");
    run.tasks.spawn(elector.with_policy(Policy { on_lost_lease: OnLostLease::Exit, max_recovery: None }).run());
    let leadership = elected(&mut role).await;
    fake.put(Some(held_by("b_1", 9, s(15))));
    let begun = Instant::now();
    let outcome = run.tasks.join_next().await.unwrap().unwrap();
    assert!(begun.elapsed() <= s(2) + s(1), "at the next renewal");
    assert_eq!(outcome.exit_code(), 3);
    assert!(outcome.to_string().contains("held by b_1") && outcome.to_string().contains("onLostLease"), "{outcome}");
    assert!(leadership.permit().is_err());
}

#[tokio::test(start_paused = true)]
async fn rule_07_max_recovery_duration_ends_with_code_4() {
    let (fake, mut run) = (free(), Run::default());
    let (elector, mut role) = run.elector(&fake, "a");
    run.tasks
        .spawn(elector.with_policy(Policy { on_lost_lease: OnLostLease::Demote, max_recovery: Some(s(90)) }).run());
    elected(&mut role).await;
    // An answer, even one that says no, is not "out of reach".
    fake.mood(|m| m.error = Some(StoreError::Refused("403 forbidden".into())));
    sleep(s(300)).await;
    assert!(run.tasks.try_join_next().is_none());
    for hang in [false, true] {
        fake.mood(|m| (m.hang, m.error) = (hang, unavailable()));
        sleep(s(60)).await;
        assert!(run.tasks.try_join_next().is_none());
        if !hang {
            fake.mood(|m| m.error = None);
            sleep(s(60)).await;
        }
    }
    let outcome = timeout(s(32), run.tasks.join_next()).await.expect("after 90 s").unwrap().unwrap();
    assert_eq!(outcome.exit_code(), 4);
    assert!(outcome.to_string().contains("maxRecoveryDuration"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn rule_09_the_lease_is_released_after_the_writes_and_the_next_leader_is_there_at_once() {
    let (fake, mut run) = (free(), Run::default());
    let (elector, mut role) = run.elector(&fake, "a");
    let stopper = elector.stopper();
    run.tasks.spawn(elector.run());
    let leadership = elected(&mut role).await;
    let mut next = run.start(&fake, "b");
    sleep(s(20)).await;
    assert!(follows(&next));

    let mut writes = JoinSet::new();
    let writing = leadership.clone();
    writes.spawn(async move {
        let write = async {
            sleep(s(2)).await;
            Ok::<_, ()>(())
        };
        writing.permit().unwrap().run(write).await
    });
    tokio::task::yield_now().await;
    stopper.stop();
    sleep(s(1)).await;
    assert!(leadership.permit().is_err() && follows(&role), "no new write");
    assert_eq!(fake.holder().as_deref(), Some("a_1"), "not before the write under way is answered");
    assert!(writes.join_next().await.unwrap().unwrap().is_ok(), "it may finish");
    let released = Instant::now();
    let leadership = timeout(s(1), next.elected(None)).await.expect("within a second of the release");
    assert!(released.elapsed() < s(1));
    assert_eq!(leadership.term(), Term(2));
    let outcome = run.tasks.join_next().await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::Released { term: Term(1) });
    let release = fake.stores().into_iter().find(|r| r.holder.is_none()).unwrap();
    assert_eq!((release.term, release.duration), (Term(1), s(1)), "as client-go releases");
}

#[tokio::test(start_paused = true)]
async fn rule_09_with_an_unanswered_write_the_lease_is_left_to_expire() {
    for (pause, released) in [(s(0), false), (s(16), true)] {
        let (fake, mut run) = (free(), Run::default());
        let (elector, mut role) = run.elector(&fake, "a");
        let stopper = elector.stopper();
        run.tasks.spawn(elector.run());
        let leadership = elected(&mut role).await;
        let lost = leadership.permit().unwrap().run_judged(async { Err::<(), _>("no answer") }, |_| false).await;
        assert!(matches!(lost, Err(WriteError::Write("no answer"))));
        sleep(pause).await; // a lost write of long ago does no more harm than after an expiry
        stopper.stop();
        let outcome = run.tasks.join_next().await.unwrap().unwrap();
        assert_eq!(matches!(outcome, Outcome::Released { .. }), released, "{outcome}");
        assert_eq!(fake.holder().is_none(), released);
        assert_eq!(outcome.exit_code(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn rule_09_a_write_that_hangs_is_not_waited_for_longer_than_its_time_out() {
    let (fake, mut run) = (free(), Run::default());
    let (elector, mut role) = run.elector(&fake, "a");
    let stopper = elector.stopper();
    run.tasks.spawn(elector.run());
    let leadership = elected(&mut role).await;
    let mut writes = JoinSet::new();
    writes.spawn(async move { leadership.permit().unwrap().run(std::future::pending::<Result<(), ()>>()).await });
    tokio::task::yield_now().await;
    stopper.stop();
    let begun = Instant::now();
    let outcome = run.tasks.join_next().await.unwrap().unwrap();
    assert!(matches!(outcome, Outcome::LeftToExpire { .. }), "{outcome}");
    assert_eq!(begun.elapsed(), s(3));
    assert_eq!(fake.holder().as_deref(), Some("a_1"));
}

#[tokio::test(start_paused = true)]
async fn rule_09_dropping_every_watch_releases_too() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    elected(&mut role).await;
    drop(role);
    assert_eq!(run.tasks.join_next().await.unwrap().unwrap(), Outcome::Released { term: Term(1) });
    assert_eq!(fake.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn rule_11_each_transition_is_told_once_and_the_counters_tell_the_rest() {
    let (fake, mut run) = (free(), Run::default());
    let mut role = run.start(&fake, "a");
    assert!(!role.snapshot().leading);
    let first = elected(&mut role).await;
    sleep(s(20)).await;
    let now = role.snapshot();
    assert!(now.leading && now.term == Some(Term(1)) && now.holder.as_deref() == Some("a_1"));
    assert!(now.time_left.unwrap() > s(7) && now.time_left.unwrap() <= s(10));
    assert!(now.renewals >= 9 && now.failures == 0 && now.transitions == 1, "{now:?}");
    assert_eq!(now.latency_buckets[LATENCY_BUCKETS.len()], now.renewals);

    fake.mood(|m| m.error = unavailable());
    first.ended().await;
    sleep(s(5)).await;
    let now = role.snapshot();
    assert!(!now.leading && now.term.is_none() && now.time_left.is_none());
    assert!(now.failures > 3 && now.last_error.as_deref().unwrap().contains("connection refused"), "{now:?}");
    assert!(now.last_reason.as_deref().unwrap().contains("not renewed before its end"), "{now:?}");
    fake.mood(|m| m.error = None);
    elected(&mut role).await;
    assert_eq!(role.snapshot().last_error, None);
    assert_eq!(run.told(), [(true, 1), (false, 1), (true, 2)]);

    fake.put(Some(held_by("b_1", 9, s(15))));
    role.changed().await;
    assert_eq!(run.told().last(), Some(&(false, 2)));
    assert!(matches!(role.current(), Role::Follower { leader: Some(l) } if &*l == "b_1"));
    assert_eq!(role.snapshot().holder.as_deref(), Some("b_1"));
}

#[tokio::test(start_paused = true)]
async fn rule_12_without_an_election_the_same_code_leads() {
    let mut role = RoleWatch::always_leader();
    let leadership = role.elected(None).await;
    let written = leadership.permit().unwrap().run(async { Ok::<_, ()>(current_term()) }).await.unwrap();
    assert_eq!(written, Some(leadership.term()));
    assert!(timeout(s(1_000_000), leadership.ended()).await.is_err(), "for ever");
    assert!(role.snapshot().leading && role.snapshot().time_left.is_none());
    // Objects from an earlier election do not lock it out.
    let other = role.clone();
    other.outrank(Term(12));
    let next = role.elected(Some(leadership.term())).await;
    assert_eq!(next.term(), Term(13));
    assert!(leadership.permit().is_err() && next.permit().is_ok());
}

#[tokio::test(start_paused = true)]
async fn candidates_do_not_knock_at_the_same_instant_nor_more_often_than_asked() {
    let (fake, mut run) = (Fake::default(), Run::default());
    fake.put(Some(held_by("z_1", 4, s(100_000))));
    let _role = run.start(&fake, "a");
    sleep(s(200)).await;
    let loads = fake.loads();
    assert!((100..=126).contains(&loads), "{loads} reads in 200 s at a retry period of 2 s shortened by up to 20 %");
}

#[tokio::test]
async fn an_elector_has_a_thread_of_its_own() {
    let fake = free();
    let (elector, mut role) = Elector::new(fake.clone(), Identity::unique("a").unwrap(), Timings::default()).unwrap();
    let mut thread = elector.spawn_thread().unwrap();
    let leadership = timeout(s(20), role.elected(None)).await.expect("a free lease is taken at once");
    // This thread is blocked, and the lease is renewed all the same.
    let before = role.snapshot().renewals;
    std::thread::sleep(Duration::from_millis(2_500));
    assert!(role.snapshot().renewals > before && leadership.permit().is_ok());
    thread.stopper().stop();
    let outcome = timeout(s(20), thread.ended()).await.expect("it stops").unwrap();
    assert!(matches!(outcome, Outcome::Released { .. }));
    assert_eq!(thread.ended().await.unwrap(), outcome, "asked again, the same");
    assert_eq!(fake.holder(), None);
}

#[test]
fn an_identity_needs_a_name() {
    assert_eq!(Identity::unique(""), Err(MissingIdentity));
    assert_eq!(Identity::unique("  "), Err(MissingIdentity));
}

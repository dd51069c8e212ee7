//! The only clock that elections trust: this process's own, counting suspended time.
//!
//! [`Clock::boottime`] reads `CLOCK_BOOTTIME` (`clock_gettime(2)`), which goes on while the machine is suspended;
//! `CLOCK_MONOTONIC`, which most runtimes use, does not. Tests use [`Clock::tokio`] (obeys `tokio::time::pause`) or a
//! [`ManualClock`], which a simulation sets by hand and which needs no runtime at all.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

/// Longest stretch that a production sleep hands to the runtime's timer, which stands still during a suspend: after a
/// wake-up an overdue sleep ends within this time.
const SUSPEND_GRAIN: Duration = Duration::from_secs(1);

/// A point on one process's own clock, in nanoseconds since that clock's origin. Points of different clocks do not compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

/// Microseconds since the Unix epoch, as `MicroTime` carries them. Shown to people and copied into records; nothing is
/// decided by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub i64);

/// Reads the time and sleeps. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Boot,
    Tokio(tokio::time::Instant),
    Manual(ManualClock),
}

/// A clock that stands still until it is set. Works without an async runtime.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Manual>);

#[derive(Debug)]
struct Manual {
    now: AtomicU64,
    wall: AtomicI64,
    timers: Mutex<Timers>,
}

#[derive(Debug, Default)]
struct Timers {
    next_id: u64,
    waiting: Vec<(Moment, u64, Waker)>,
}

/// A sleep on a [`ManualClock`].
#[derive(Debug)]
struct ManualSleep {
    clock: ManualClock,
    at: Moment,
    id: Option<u64>,
}

// === impl Moment ===

impl Moment {
    /// Later than any moment that a clock shows.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment this many nanoseconds after the clock's origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment and `by` more; [`Moment::NEVER`] stays never.
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time from `earlier` to this moment; zero if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

// === impl Clock ===

impl Clock {
    /// The clock of production: `CLOCK_BOOTTIME`.
    #[must_use]
    pub const fn boottime() -> Self {
        Self(Source::Boot)
    }

    /// The runtime's clock, which `tokio::time::pause` stops. For tests; it may stand still while a machine is suspended.
    #[must_use]
    pub fn tokio() -> Self {
        Self(Source::Tokio(tokio::time::Instant::now()))
    }

    /// What this clock shows now.
    #[must_use]
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Boot => boottime(),
            Source::Tokio(origin) => Moment::default().plus(origin.elapsed()),
            Source::Manual(manual) => manual.now(),
        }
    }

    /// The wall clock, for records and messages only.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "shown to people as renewTime; nothing is decided by it")]
            Source::Boot => WallTime(
                std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |d| i64::try_from(d.as_micros()).unwrap_or(i64::MAX)),
            ),
            // A fixed day, so that tests with a paused clock are repeatable.
            Source::Tokio(origin) => {
                WallTime(1_750_000_000_000_000 + i64::try_from(origin.elapsed().as_micros()).unwrap_or(i64::MAX / 2))
            }
            Source::Manual(manual) => WallTime(manual.0.wall.load(Ordering::Relaxed)),
        }
    }

    /// Waits until the clock shows `at` or later. [`Moment::NEVER`] waits for ever.
    pub async fn sleep_until(&self, at: Moment) {
        if at == Moment::NEVER {
            return std::future::pending().await;
        }
        match &self.0 {
            Source::Boot => loop {
                let left = at.since(boottime());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(SUSPEND_GRAIN)).await;
            },
            Source::Tokio(origin) => tokio::time::sleep_until(*origin + Duration::from_nanos(at.as_nanos())).await,
            Source::Manual(manual) => ManualSleep { clock: manual.clone(), at, id: None }.await,
        }
    }

    /// Waits for `time` on this clock.
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now().plus(time)).await;
    }

    /// The value of `work`, or `None` if it takes longer than `limit` on this clock. `work` is polled first, so a value
    /// that is there at the limit is taken.
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let limit = self.sleep(limit);
        tokio::select! {
            biased;
            value = work => Some(value),
            () = limit => None,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::boottime()
    }
}

fn boottime() -> Moment {
    let t =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).expect("Linux has CLOCK_BOOTTIME since 2.6.39");
    let nanos = Duration::from(t).as_nanos();
    Moment(u64::try_from(nanos).expect("584 years of uptime fit in 64 bits"))
}

// === impl ManualClock ===

impl ManualClock {
    /// A clock that shows `now` and the wall time `wall`.
    #[must_use]
    pub fn new(now: Moment, wall: WallTime) -> Self {
        Self(Arc::new(Manual { now: AtomicU64::new(now.0), wall: AtomicI64::new(wall.0), timers: Mutex::default() }))
    }

    /// The reading side, for what is under test.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock(Source::Manual(self.clone()))
    }

    /// What this clock shows.
    #[must_use]
    pub fn now(&self) -> Moment {
        Moment(self.0.now.load(Ordering::Relaxed))
    }

    /// Sets the clock and wakes the sleeps that are due. A clock never goes back: an earlier `now` is ignored.
    pub fn set(&self, now: Moment) {
        if now <= self.now() {
            return;
        }
        self.0.now.store(now.0, Ordering::Relaxed);
        let mut timers = self.timers();
        let mut at = 0;
        while at < timers.waiting.len() {
            if timers.waiting[at].0 <= now {
                timers.waiting.swap_remove(at).2.wake();
            } else {
                at += 1;
            }
        }
    }

    /// Sets the wall clock, forth or back.
    pub fn set_wall(&self, wall: WallTime) {
        self.0.wall.store(wall.0, Ordering::Relaxed);
    }

    /// When the next sleep is due, if any task sleeps.
    #[must_use]
    pub fn next_timer(&self) -> Option<Moment> {
        self.timers().waiting.iter().map(|t| t.0).min()
    }

    fn timers(&self) -> std::sync::MutexGuard<'_, Timers> {
        self.0.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.clock.now() >= self.at {
            return Poll::Ready(());
        }
        let mut timers = self.clock.timers();
        if let Some(mine) = self.id.and_then(|id| timers.waiting.iter_mut().find(|t| t.1 == id)) {
            mine.2.clone_from(cx.waker());
        } else {
            let id = timers.next_id;
            timers.next_id += 1;
            timers.waiting.push((self.at, id, cx.waker().clone()));
            drop(timers);
            self.id = Some(id);
        }
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut timers = self.clock.timers();
            if let Some(at) = timers.waiting.iter().position(|t| t.1 == id) {
                timers.waiting.swap_remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boottime_goes_forward() {
        let clock = Clock::boottime();
        let before = clock.now();
        assert!(before > Moment::default());
        assert!(clock.now() >= before);
        assert!(clock.wall().0 > 1_700_000_000_000_000);
    }

    #[tokio::test(start_paused = true)]
    async fn the_tokio_clock_obeys_pause() {
        let clock = Clock::tokio();
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now().since(Moment::default()), Duration::from_secs(3600));
        assert_eq!(clock.timeout(Duration::from_secs(1), std::future::pending::<()>()).await, None);
        assert_eq!(clock.timeout(Duration::from_secs(1), async { 7 }).await, Some(7));
    }

    #[test]
    fn a_manual_clock_wakes_what_is_due_and_forgets_dropped_sleeps() {
        let manual = ManualClock::new(Moment::default(), WallTime(0));
        let clock = manual.clock();
        let mut cx = Context::from_waker(Waker::noop());
        let mut soon = Box::pin(clock.sleep(Duration::from_secs(1)));
        let mut late = Box::pin(clock.sleep(Duration::from_secs(5)));
        assert!(soon.as_mut().poll(&mut cx).is_pending());
        assert!(late.as_mut().poll(&mut cx).is_pending());
        assert_eq!(manual.next_timer(), Some(Moment::default().plus(Duration::from_secs(1))));
        manual.set(Moment::default().plus(Duration::from_secs(2)));
        assert!(soon.as_mut().poll(&mut cx).is_ready());
        assert!(late.as_mut().poll(&mut cx).is_pending());
        drop(late);
        assert_eq!(manual.next_timer(), None);
        let mut never = Box::pin(clock.sleep_until(Moment::NEVER));
        assert!(never.as_mut().poll(&mut cx).is_pending());
        assert_eq!(manual.next_timer(), None);
    }
}

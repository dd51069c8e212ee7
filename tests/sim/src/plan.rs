//! What goes wrong in a history, and when: drawn from its seed before it starts.

use crate::rng::Rng;
use election::{Preset, Timings};
use std::time::Duration;

/// Nanoseconds of a second and a millisecond.
pub const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a millisecond.
pub const MILLI: u64 = 1_000_000;
/// Rate of a clock that is right, in parts per million.
pub const PPM: u64 = 1_000_000;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Calls take up to four seconds in each direction.
    Slow,
    /// Requests get lost on their way: the caller hears nothing.
    Hang,
    /// Requests are done, but the answer gets lost or is an error.
    LostAnswers,
    /// The server answers "conflict", or somebody else touches the lease.
    Conflicts,
    /// The API server is away for all.
    Away,
    /// The lease is deleted.
    Deleted,
    /// A process stands still while time goes on.
    Pause,
    /// A process dies and is started again.
    Crash,
    /// A process is asked to stop (SIGTERM) and is started again.
    Stop,
    /// One process is cut off from the API server.
    Partition,
    /// Requests land long after they were sent.
    Late,
    /// A process's wall clock jumps.
    WallJump,
}

/// All kinds.
pub const KINDS: [Kind; 12] = [
    Kind::Slow,
    Kind::Hang,
    Kind::LostAnswers,
    Kind::Conflicts,
    Kind::Away,
    Kind::Deleted,
    Kind::Pause,
    Kind::Crash,
    Kind::Stop,
    Kind::Partition,
    Kind::Late,
    Kind::WallJump,
];

/// One fault.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// From when, in nanoseconds of true time.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// Which process, where it is about one.
    pub process: usize,
    /// Free for the kind to use.
    pub flavour: u64,
}

/// One candidate's circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Its durations.
    pub timings: Timings,
    /// Rate of its clock in parts per million: 900,000 to 1,100,000.
    pub rate: u64,
    /// What its wall clock is off, in microseconds.
    pub wall_offset: i64,
    /// When it first starts.
    pub start: u64,
}

/// A whole history.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The faults, of at least three kinds.
    pub faults: Vec<Fault>,
    /// Whether a lease exists at the start.
    pub lease_exists: bool,
    /// True time from the return of the API within which somebody leads.
    pub bound: u64,
    /// End of the history.
    pub end: u64,
}

/// Timings just inside of what is valid.
const TIGHT: Timings = Timings {
    lease_duration: Duration::from_millis(12_400),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
    write_timeout: Duration::from_secs(2),
};

// === impl Plan ===

impl Plan {
    /// Draws the history of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 1);
        let number = usize::try_from(rng.range(2, 5)).expect("small");
        let family = rng.range(0, 9);
        let rates = rng.range(0, 3);
        let candidates: Vec<Candidate> = (0..number)
            .map(|_| Candidate {
                timings: match (family, rng.range(0, 3)) {
                    (0, _) | (1, 0) => Timings::from(Preset::Fast),
                    (2, _) => TIGHT,
                    (1, 1) => Timings {
                        lease_duration: Duration::from_secs(30),
                        renew_deadline: Duration::from_secs(20),
                        ..Timings::default()
                    },
                    _ => Timings::default(),
                },
                rate: match rates {
                    0 => PPM,
                    1 => rng.range(900_000, 1_100_000),
                    _ => {
                        if rng.chance(50) {
                            900_000
                        } else {
                            1_100_000
                        }
                    }
                },
                wall_offset: i64::try_from(rng.range(0, 240_000_000)).expect("small") - 120_000_000,
                start: rng.range(0, 3 * SECOND),
            })
            .collect();
        let lease = candidates.iter().map(|c| c.timings.lease_duration).max().expect("two at least");
        let retry = candidates.iter().map(|c| c.timings.retry_period).max().expect("two at least");
        let slowest = candidates.iter().map(|c| c.rate).min().expect("two at least");
        // The promise is measured on the candidates' own clocks; a slow one takes longer in true time.
        let local = u64::try_from((lease + 2 * retry).as_nanos()).expect("seconds");
        let bound = local / slowest * PPM;
        let mut kinds = KINDS.to_vec();
        if family == 1 {
            // A process that has just started cannot know that the holder of a deleted lease asked for longer than itself.
            kinds.retain(|kind| *kind != Kind::Deleted);
        }
        let mut faults = Vec::new();
        let bursts = 2;
        let mut at = 5 * SECOND;
        let chosen: Vec<Kind> = (0..rng.range(3, 6))
            .map(|_| kinds.swap_remove(usize::try_from(rng.draw()).unwrap_or(usize::MAX) % kinds.len()))
            .collect();
        for _ in 0..bursts {
            let length = rng.range(40, 80) * SECOND;
            for kind in &chosen {
                for _ in 0..rng.range(1, 2) {
                    let from = at + rng.range(0, length);
                    let to = (from + Self::length(*kind, &mut rng)).min(at + length + 5 * SECOND);
                    let process = usize::try_from(rng.range(0, number as u64 - 1)).expect("small");
                    faults.push(Fault { kind: *kind, from, to, process, flavour: rng.draw() });
                }
            }
            at += length + 5 * SECOND + bound + 15 * SECOND;
        }
        faults.sort_by_key(|f| (f.from, f.to));
        Self { candidates, faults, lease_exists: rng.chance(70), bound, end: at.max(300 * SECOND) }
    }

    fn length(kind: Kind, rng: &mut Rng) -> u64 {
        match kind {
            Kind::Slow | Kind::LostAnswers | Kind::Conflicts | Kind::Hang | Kind::Late => {
                rng.range(5 * SECOND, 40 * SECOND)
            }
            Kind::Away | Kind::Partition | Kind::Pause => rng.range(SECOND, 40 * SECOND),
            Kind::Crash | Kind::Stop => rng.range(200 * MILLI, 20 * SECOND),
            Kind::Deleted | Kind::WallJump => 0,
        }
    }
}

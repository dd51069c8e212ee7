//! `sim --histories N --seed S`: runs N histories without and, some of them, with planted bugs.

use election::Mutant;
use sim::{
    history::{Verdict, run, seed_of},
    world::Coverage,
};
use std::{
    io::Write,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

/// What is asked for.
struct Options {
    histories: u64,
    seed: u64,
    /// Most histories that a planted bug gets to show itself.
    mutant_histories: u64,
    /// A single history to show, by its own seed.
    replay: Option<u64>,
    mutant: Option<Mutant>,
}

/// Histories that broke a rule, and what was seen in all.
#[derive(Default)]
struct Summary {
    coverage: Coverage,
    broken: Vec<Verdict>,
    histories: u64,
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(why) => {
            say(&format!(
                "{why}\nusage: sim [--histories N] [--seed S] [--mutant-histories N] [--replay SEED [--mutant NAME]]"
            ));
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.replay {
        let verdict = run(seed, options.mutant, true);
        show(&verdict);
        return ExitCode::from(u8::from(!verdict.violations.is_empty()));
    }
    let begun = Instant::now();
    let real = batch(options.seed, options.histories, None, u64::MAX);
    for verdict in real.broken.iter().skip(1).take(100) {
        say(&format!("seed {}: {}", verdict.seed, verdict.violations.join("; ")));
    }
    if let Some(verdict) = real.broken.first() {
        show(&run(verdict.seed, None, true));
    }
    say(&format!("{} in {:.0} s", coverage_line(&real.coverage), begun.elapsed().as_secs_f64()));
    let mut caught = 0;
    for bug in Mutant::ALL {
        let found = batch(options.seed, options.mutant_histories, Some(bug), 1);
        let verdict = found.broken.first();
        caught += usize::from(verdict.is_some());
        say(&match verdict {
            Some(v) => format!(
                "mutant {bug:?}: caught in one of {} histories (seed {}): {}",
                found.histories, v.seed, v.violations[0]
            ),
            None => format!("mutant {bug:?}: NOT CAUGHT in {} histories", found.histories),
        });
    }
    let (violations, of) = (real.broken.len(), Mutant::ALL.len());
    say(&format!(
        "simulation: {} histories, {violations} violations; mutants: {caught} of {of} caught",
        real.histories
    ));
    ExitCode::from(u8::from(violations > 0 || caught < of))
}

/// Runs histories on all processors until enough of them have broken a rule.
fn batch(seed: u64, histories: u64, bug: Option<Mutant>, enough: u64) -> Summary {
    let (next, broken) = (AtomicU64::new(0), AtomicU64::new(0));
    let summary = Mutex::new(Summary::default());
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut mine = Summary::default();
                while broken.load(Ordering::Relaxed) < enough {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= histories {
                        break;
                    }
                    let verdict = run(seed_of(seed, number), bug, false);
                    mine.histories += 1;
                    mine.coverage.add(&verdict.coverage);
                    if !verdict.violations.is_empty() {
                        broken.fetch_add(1, Ordering::Relaxed);
                        mine.broken.push(verdict);
                    }
                }
                let mut all = summary.lock().unwrap_or_else(PoisonError::into_inner);
                all.histories += mine.histories;
                all.coverage.add(&mine.coverage);
                all.broken.append(&mut mine.broken);
            });
        }
    });
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.broken.sort_by_key(|v| v.seed);
    summary
}

fn coverage_line(coverage: &Coverage) -> String {
    let (low, high) = coverage.rates.unwrap_or_default();
    let counts: Vec<String> = coverage.counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!(
        "coverage: {}, clock rates {:.2}-{:.2}, virtual hours {:.0}",
        counts.join(", "),
        low as f64 / 1e6,
        high as f64 / 1e6,
        coverage.time as f64 / 3.6e12
    )
}

fn show(verdict: &Verdict) {
    for line in &verdict.trace {
        say(line);
    }
    say(&format!(
        "history of seed {}: {}",
        verdict.seed,
        match verdict.violations.as_slice() {
            [] => "no rule broken".to_owned(),
            broken => broken.join("; "),
        }
    ));
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}"); // a reader that has gone away has seen enough
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self { histories: 100_000, seed: 1, mutant_histories: 20_000, replay: None, mutant: None };
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| format!("{name} needs a value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{name}: {value} is not a number"));
            match name.as_str() {
                "--histories" => options.histories = number()?,
                "--seed" => options.seed = number()?,
                "--mutant-histories" => options.mutant_histories = number()?,
                "--replay" => options.replay = Some(number()?),
                "--mutant" => {
                    let bug = Mutant::ALL.into_iter().find(|m| format!("{m:?}") == value);
                    options.mutant =
                        Some(bug.ok_or_else(|| format!("no mutant {value}; there are {:?}", Mutant::ALL))?);
                }
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

//! Runs all cases and tells the outcome.

use std::{
    fmt::Write as _,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    case::{Case, Set},
    verdict::{Judge, Level, Verdict},
};

/// A set with the verdicts on its cases, in order.
#[derive(Debug)]
pub struct Outcome {
    /// Name of the set.
    pub set: String,
    /// Case and verdict.
    pub cases: Vec<(Case, Verdict)>,
}

/// Judges all cases, several at a time; each set's cases stay in order.
#[must_use]
pub fn run(sets: Vec<Set>, judge: &Judge) -> Vec<Outcome> {
    let jobs: Vec<(usize, Case)> =
        sets.iter().enumerate().flat_map(|(i, s)| s.cases.iter().map(move |c| (i, c.clone()))).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from).min(8);
    thread::scope(|scope| {
        for _ in 0..workers {
            // Deep configurations, debug build.
            let work = || {
                while let Some((set, case)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = judge.judge(case);
                    let mut done = done.lock().expect("invariant: no worker panics with the lock held");
                    done.push((*set, case.clone(), verdict));
                }
            };
            thread::Builder::new()
                .stack_size(64 << 20)
                .spawn_scoped(scope, work)
                .expect("invariant: a thread can be started");
        }
    });
    let mut done = done.into_inner().expect("invariant: all workers are done");
    done.sort_by(|a, b| (a.0, &a.1.name).cmp(&(b.0, &b.1.name)));
    let mut out: Vec<Outcome> = sets.into_iter().map(|s| Outcome { set: s.name, cases: Vec::new() }).collect();
    for (set, case, verdict) in done {
        out[set].cases.push((case, verdict));
    }
    out
}

/// Differences of the cases that fail, at most `cases` per set.
#[must_use]
pub fn differences(outcomes: &[Outcome], cases: usize) -> String {
    let mut out = String::new();
    for outcome in outcomes {
        let failed = outcome.cases.iter().filter(|(_, v)| v.passed != v.judged);
        for (case, verdict) in failed.clone().take(cases) {
            let levels: Vec<_> = verdict.judged.difference(&verdict.passed).map(|l| l.name()).collect();
            let _ = writeln!(out, "{}/{}: {} not equal", outcome.set, case.name, levels.join(", "));
            for line in &verdict.differences {
                let _ = writeln!(out, "    {line}");
            }
        }
        let more = failed.count().saturating_sub(cases);
        if more > 0 {
            let _ = writeln!(out, "{}: {more} more not equal (--verbose tells them)", outcome.set);
        }
    }
    out
}

/// One line per set, then the sum.
#[must_use]
pub fn summary(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for outcome in outcomes {
        let line = line(outcome.cases.iter().map(|(_, v)| v), true);
        let _ = writeln!(out, "{:<12} {line}", outcome.set);
    }
    let all = || outcomes.iter().flat_map(|o| o.cases.iter().map(|(_, v)| v));
    let judged = all().filter(|v| v.judged.contains(&Level::Infra)).count();
    if judged > 0 {
        let passed = all().filter(|v| v.passed.contains(&Level::Infra)).count();
        let _ = writeln!(out, "infra: {passed} of {judged}");
    }
    let _ = writeln!(out, "peer: {}", line(outcomes.iter().flat_map(|o| o.cases.iter().map(|(_, v)| v)), false));
    out
}

fn line<'a>(verdicts: impl Iterator<Item = &'a Verdict> + Clone, of: bool) -> String {
    let mut out = format!("{} cases", verdicts.clone().count());
    for level in Level::COMMON {
        let passed = verdicts.clone().filter(|v| v.passed.contains(&level)).count();
        let judged = verdicts.clone().filter(|v| v.judged.contains(&level)).count();
        let _ = write!(out, ", {} {passed}", level.name());
        if of && judged > 0 {
            let _ = write!(out, " of {judged}");
        }
    }
    if of {
        let same = verdicts.filter(|v| v.same_messages).count();
        let _ = write!(out, " (messages too: {same})");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Judged;

    fn verdict(judged: &[Level], passed: &[Level]) -> Verdict {
        Verdict {
            judged: judged.iter().copied().collect(),
            passed: passed.iter().copied().collect(),
            differences: vec!["here".to_owned()],
            ..Verdict::default()
        }
    }

    fn outcome() -> Outcome {
        let case = |name: &str| Case { name: name.to_owned(), folder: name.into(), judged: Judged::Fully };
        let all = [Level::Names, Level::Xds, Level::Status];
        Outcome {
            set: "http".to_owned(),
            cases: vec![
                (case("good"), verdict(&all, &all)),
                (case("bad"), verdict(&all, &[Level::Names])),
                (case("worse"), verdict(&[Level::Refused], &[])),
            ],
        }
    }

    #[test]
    fn the_last_line_is_the_sum() {
        let text = summary(&[outcome()]);
        assert_eq!(text.lines().last().unwrap(), "peer: 3 cases, names 2, xds 1, status 1, refused 0");
        assert!(text.starts_with("http         3 cases, names 2 of 2, xds 1 of 2"));
    }

    #[test]
    fn failed_cases_are_told_with_their_differences() {
        let text = differences(&[outcome()], 1);
        assert!(text.contains("http/bad: xds, status not equal\n    here\n") && !text.contains("good"));
        assert!(text.contains("http: 1 more"));
    }
}

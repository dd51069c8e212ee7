//! What happened: counts, failures as they come, what was changed around them.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

use crate::expect::{Outcome, Want};

/// Failures that are told in full.
const TOLD: usize = 20;
/// Changes that are told with a failure.
const RECENT: usize = 6;

/// Counts and failures of a run.
#[derive(Debug)]
pub(crate) struct Report {
    start: Instant,
    requests: AtomicU64,
    slow: AtomicU64,
    failed: AtomicU64,
    early: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    kinds: BTreeMap<&'static str, u64>,
    done: u64,
    recent: VecDeque<String>,
    modes: BTreeMap<String, u64>,
    told: Vec<String>,
}

/// The figures of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Changes written and seen.
    pub(crate) changes: u64,
    /// Requests answered or failed.
    pub(crate) requests: u64,
    /// Of these, answered wrongly or not at all.
    pub(crate) failed: u64,
    /// Updates that a proxy refused.
    pub(crate) nacks: u64,
    /// Of the failed, server errors and broken connections of routes just added.
    pub(crate) early: u64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { changes, requests, failed, nacks, early } = self;
        write!(f, "hitless: {changes} changes, {requests} requests, {failed} failed, {nacks} nacks, {early} early 5xx")
    }
}

// === impl Report ===

impl Default for Report {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            requests: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            early: AtomicU64::new(0),
            log: Mutex::default(),
        }
    }
}

impl Report {
    /// A change is about to be written.
    pub(crate) fn begins(&self, kind: &str, what: &str) {
        let mut log = self.log();
        let line = format!("{:.3} s after {}: {kind} {what}", self.start.elapsed().as_secs_f64(), log.done);
        log.recent.push_back(line);
        if log.recent.len() > RECENT {
            log.recent.pop_front();
        }
    }

    /// A change was seen.
    pub(crate) fn done(&self, kind: &'static str) {
        let mut log = self.log();
        *log.kinds.entry(kind).or_default() += 1;
        log.done += 1;
    }

    /// Changes so far.
    #[must_use]
    pub(crate) fn changes(&self) -> u64 {
        self.log().done
    }

    /// A request ended well.
    pub(crate) fn passed(&self, mode: &str, slow: bool) {
        self.count(mode, slow);
    }

    /// A request failed.
    pub(crate) fn failed(&self, mode: &str, slow: bool, request: &Failed<'_>) {
        self.count(mode, slow);
        self.failed.fetch_add(1, Ordering::Relaxed);
        if request.early && request.outcome.is_error() {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        let now = self.start.elapsed().as_secs_f64();
        let mut log = self.log();
        if log.told.len() < TOLD {
            println!("failed: {now:.3} s, change {}, {mode}: {request}", log.done);
            for line in &log.recent {
                println!("    change: {line}");
            }
            log.told.push(request.path.to_owned());
        }
    }

    /// Something else is wrong, so the run is.
    pub(crate) fn wrong(&self, what: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        println!("failed: {:.3} s: {what}", self.start.elapsed().as_secs_f64());
    }

    /// The figures so far.
    #[must_use]
    pub(crate) fn figures(&self, nacks: u64) -> Figures {
        Figures {
            changes: self.changes(),
            requests: self.requests.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            nacks,
            early: self.early.load(Ordering::Relaxed),
        }
    }

    /// Requests so far.
    #[must_use]
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Counts by kind, and the proxy's own words about the failures that were told.
    pub(crate) fn details(&self, logs: &Path) {
        let log = self.log();
        let list =
            |map: Vec<(String, u64)>| map.into_iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ");
        println!("changes: {}", list(log.kinds.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect()));
        let mut modes: Vec<(String, u64)> = log.modes.iter().map(|(k, n)| (k.clone(), *n)).collect();
        modes.push(("2 s long".to_owned(), self.slow.load(Ordering::Relaxed)));
        println!("requests: {}", list(modes));
        if log.told.is_empty() {
            return;
        }
        let mut text = String::new();
        for path in access_logs(logs) {
            text.push_str(&String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()));
        }
        for path in &log.told {
            let of = format!("\"{path}\"");
            match text.lines().find(|l| l.contains(&of)) {
                Some(line) => println!("access log of {path}: {line}"),
                None => println!("access log of {path}: nothing"),
            }
        }
    }

    fn count(&self, mode: &str, slow: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if slow {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
        let mut log = self.log();
        match log.modes.get_mut(mode) {
            Some(n) => *n += 1,
            None => drop(log.modes.insert(mode.to_owned(), 1)),
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that failed.
#[derive(Debug)]
pub(crate) struct Failed<'a> {
    /// Host that it was for.
    pub(crate) host: &'a str,
    /// Its path.
    pub(crate) path: &'a str,
    /// Seconds that it took.
    pub(crate) took: f64,
    /// What it met.
    pub(crate) outcome: &'a Outcome,
    /// What would have been right.
    pub(crate) right: &'a [Want],
    /// Its route was just added.
    pub(crate) early: bool,
}

impl fmt::Display for Failed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, path, took, outcome, right, early } = self;
        let new = if *early { " (just added)" } else { "" };
        write!(f, "POST http://{host}{path}{new} met {outcome} after {took:.3} s; right would be {right:?}")
    }
}

fn access_logs(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(access_logs(&path));
        } else if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("access.log")) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn server_errors_of_new_routes_are_failures_and_told_apart() {
        let report = Report::default();
        report.begins("add", "r1");
        report.passed("HTTP/2", true);
        let outcome = Outcome::Broken("reset".to_owned());
        let failed = |early| Failed { host: "h", path: "/1", took: 0.1, outcome: &outcome, right: &[], early };
        report.failed("HTTP/2", false, &failed(false));
        report.failed("HTTP/2", false, &failed(true));
        report.done("add");
        let line = report.figures(3).to_string();
        assert_eq!(line, "hitless: 1 changes, 3 requests, 2 failed, 3 nacks, 1 early 5xx");
    }
}

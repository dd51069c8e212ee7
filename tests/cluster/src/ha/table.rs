//! The table: one row per event.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use anyhow::{Result, ensure};
use tokio::time::Instant;

/// What an event came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was measured, in seconds, and what it is.
    pub measured: (f64, &'static str),
    /// Other figures.
    pub words: String,
    /// What was wrong; empty when everything held.
    pub wrong: Vec<String>,
}

/// What an event must come to, and what is known of the peer.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// The event.
    pub event: &'a str,
    /// The measured time is less than so many seconds.
    pub seconds: f64,
    /// What the peer's measured time was; `-` where there is none.
    pub peer: &'a str,
}

/// Prints rows and counts them.
#[derive(Debug, Default)]
pub struct Table {
    passed: u32,
    failed: u32,
}

// === impl Outcome ===

impl Outcome {
    /// A time.
    #[must_use]
    pub fn new(seconds: f64, what: &'static str) -> Self {
        Self { measured: (seconds, what), words: String::new(), wrong: Vec::new() }
    }

    /// Adds a figure.
    pub fn say(&mut self, words: impl AsRef<str>) {
        if !self.words.is_empty() {
            self.words.push_str(", ");
        }
        self.words.push_str(words.as_ref());
    }

    /// Something must hold.
    pub fn must(&mut self, holds: bool, else_wrong: impl Into<String>) {
        if !holds {
            self.wrong.push(else_wrong.into());
        }
    }

    /// Nothing of this may be.
    pub fn none(&mut self, wrong: impl IntoIterator<Item = String>) {
        let mut wrong = wrong.into_iter();
        let first: Vec<_> = wrong.by_ref().take(3).collect();
        let more = wrong.count();
        self.wrong.extend(first);
        if more > 0 {
            self.wrong.push(format!("and {more} more like that"));
        }
    }

    fn judged(mut self, bound: &Bound<'_>) -> Result<Self> {
        let (seconds, what) = self.measured;
        self.must(seconds < bound.seconds, format!("{what} {seconds:.2} s, not < {} s", bound.seconds));
        ensure!(self.wrong.is_empty(), "{} ({what} {seconds:.2} s, {})", self.wrong.join("; "), self.words);
        Ok(self)
    }
}

// === impl Table ===

impl Table {
    /// Prints the head.
    #[must_use]
    pub fn new() -> Self {
        println!("ha: {:<28} {:>9}  {:<7} {:<13} what was measured, and more", "event", "measured", "must", "peer");
        Self::default()
    }

    /// Prints a row; true when everything held.
    pub fn row(&mut self, bound: &Bound<'_>, from: Instant, outcome: Result<Outcome>) -> bool {
        let took = from.elapsed().as_secs();
        let (event, must, peer) = (bound.event, format!("< {} s", bound.seconds), bound.peer);
        match outcome.and_then(|o| o.judged(bound)) {
            Ok(Outcome { measured: (seconds, what), words, .. }) => {
                self.passed += 1;
                println!("ha: {event:<28} {seconds:>7.2} s  {must:<7} {peer:<13} {what}; {words} [{took} s]");
                true
            }
            Err(e) => {
                self.failed += 1;
                println!("ha: {event:<28} {:>9}  {must:<7} {peer:<13} {e:#} [{took} s]", "FAILED");
                false
            }
        }
    }

    /// Prints the last line; true when no row failed and there was one.
    #[must_use]
    pub fn end(&self) -> bool {
        println!("ha: {} rows, {} passed, {} failed", self.passed + self.failed, self.passed, self.failed);
        self.failed == 0 && self.passed > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Bound<'_> = Bound { event: "e", seconds: 3.0, peer: "-" };

    #[test]
    fn a_row_fails_by_time_and_by_what_was_wrong() {
        let mut table = Table::default();
        assert!(table.row(&BOUND, Instant::now(), Ok(Outcome::new(2.9, "t"))));
        assert!(!table.row(&BOUND, Instant::now(), Ok(Outcome::new(3.1, "t"))));
        let mut wrong = Outcome::new(1.0, "t");
        wrong.none(["a", "b", "c", "d", "e"].map(str::to_owned));
        assert_eq!(wrong.wrong.last().unwrap(), "and 2 more like that");
        assert!(!table.row(&BOUND, Instant::now(), Ok(wrong)));
        assert!(!table.end());
        assert!(!Table::default().end(), "no row is no success");
    }
}

//! What the answer to a request may be, while what it is aimed at changes.
//!
//! A target has a history of what it is to do. From the moment a change is written until it was seen, and [`GRACE`]
//! longer (Envoy's workers take updates one after another), the old and the new are right; then only the new. A request
//! is judged by everything that was right at some time between its beginning and its end.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// How long the old is still right after the new was first seen.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How long what is no longer right is remembered: longer than any request takes.
const MEMORY: Duration = Duration::from_secs(40);

/// What a target is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Nobody listens, or nobody has that server name.
    Closed,
    /// No route: 404.
    Absent,
    /// A route.
    Served(Served),
}

/// What a route is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// Backends that may answer.
    pub(crate) backends: BTreeSet<String>,
    /// Value of the response header that a filter of the rule sets.
    pub(crate) header: String,
    /// Value of the request header that a filter of the backend sets.
    pub(crate) split: Option<String>,
    /// Protocol towards the backend.
    pub(crate) proto: &'static str,
}

/// What a request met.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// An answer.
    Answer(Answer),
    /// No connection, so nothing was sent.
    Refused(String),
    /// The connection broke, or nothing came in time, after the request was sent.
    Broken(String),
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    /// HTTP status.
    pub(crate) status: u16,
    /// Backend that answered; empty when none did.
    pub(crate) backend: String,
    /// Protocol that the backend was spoken to in.
    pub(crate) proto: String,
    /// See [`Served::header`].
    pub(crate) header: Option<String>,
    /// See [`Served::split`].
    pub(crate) split: Option<String>,
    /// The backend got the whole body.
    pub(crate) whole: bool,
    /// Begin of the body where no backend answered.
    pub(crate) text: String,
}

/// The history of one target.
#[derive(Debug)]
pub(crate) struct Expect {
    spans: Mutex<Spans>,
}

#[derive(Debug)]
struct Spans {
    next: u64,
    all: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    number: u64,
    until: Option<Instant>,
    want: Want,
}

/// Where in a history a request began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since(u64);

// === impl Outcome ===

impl Outcome {
    /// A server error, or no answer at all.
    #[must_use]
    pub(crate) fn is_error(&self) -> bool {
        match self {
            Self::Answer(a) => a.status >= 500,
            Self::Refused(_) | Self::Broken(_) => true,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "no connection: {why}"),
            Self::Broken(why) => write!(f, "sent, then broken: {why}"),
            Self::Answer(a) if a.backend.is_empty() => write!(f, "{} {:?}", a.status, a.text),
            Self::Answer(a) => {
                write!(
                    f,
                    "{} by {} over {}, header {:?}, split {:?}",
                    a.status, a.backend, a.proto, a.header, a.split
                )?;
                if a.whole { Ok(()) } else { write!(f, ", the body was cut") }
            }
        }
    }
}

// === impl Want ===

impl Want {
    /// Whether that is right.
    #[must_use]
    pub(crate) fn allows(&self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Closed, Outcome::Refused(_)) => true,
            (Self::Absent, Outcome::Answer(a)) => a.status == 404,
            (Self::Served(want), Outcome::Answer(a)) => {
                a.status == 200
                    && a.whole
                    && want.backends.contains(&a.backend)
                    && a.proto == want.proto
                    && a.header.as_ref() == Some(&want.header)
                    && a.split == want.split
            }
            _ => false,
        }
    }

    /// Whether everything that is right for this is also right for the other: no single answer tells that it came.
    #[must_use]
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Served(a), Self::Served(b)) => {
                a.backends.is_subset(&b.backends) && a.proto == b.proto && a.header == b.header && a.split == b.split
            }
            _ => self == other,
        }
    }
}

// === impl Expect ===

impl Expect {
    /// A history that begins with this.
    #[must_use]
    pub(crate) fn new(want: Want) -> Self {
        Self { spans: Mutex::new(Spans { next: 1, all: vec![Span { number: 0, until: None, want }] }) }
    }

    /// A change was written: from now on this is right too.
    pub(crate) fn push(&self, want: Want) {
        let mut spans = self.lock();
        let number = spans.next;
        spans.next += 1;
        spans.all.push(Span { number, until: None, want });
    }

    /// The last change was seen: what was before ends soon.
    pub(crate) fn settle(&self, now: Instant) {
        let mut spans = self.lock();
        spans.all.retain(|s| s.until.is_none_or(|u| u + MEMORY > now));
        let last = spans.next - 1;
        for span in spans.all.iter_mut().filter(|s| s.number != last) {
            span.until.get_or_insert(now + GRACE);
        }
    }

    /// A request begins.
    #[must_use]
    pub(crate) fn begin(&self, now: Instant) -> Since {
        let spans = self.lock();
        Since(spans.all.iter().find(|s| s.until.is_none_or(|u| u >= now)).map_or(spans.next, |s| s.number))
    }

    /// A request ends.
    ///
    /// # Errors
    /// What would have been right.
    pub(crate) fn judge(&self, since: Since, outcome: &Outcome) -> Result<(), Vec<Want>> {
        let spans = self.lock();
        let mut right = spans.all.iter().filter(|s| s.number >= since.0).map(|s| &s.want);
        if right.clone().any(|w| w.allows(outcome)) { Ok(()) } else { Err(right.by_ref().cloned().collect()) }
    }

    fn lock(&self) -> MutexGuard<'_, Spans> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(backend: &str) -> Want {
        Want::Served(Served {
            backends: BTreeSet::from([backend.to_owned()]),
            header: "1".to_owned(),
            split: None,
            proto: "HTTP/1.1",
        })
    }

    fn answer(status: u16, backend: &str) -> Outcome {
        Outcome::Answer(Answer {
            status,
            backend: backend.to_owned(),
            proto: "HTTP/1.1".to_owned(),
            header: Some("1".to_owned()),
            whole: true,
            ..Answer::default()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn old_and_new_are_right_until_the_new_was_seen_and_a_while_longer() {
        let expect = Expect::new(by("a"));
        let before = expect.begin(Instant::now());
        assert!(expect.judge(before, &answer(200, "b")).is_err());
        expect.push(by("b"));
        let during = expect.begin(Instant::now());
        for since in [before, during] {
            assert!(expect.judge(since, &answer(200, "a")).is_ok());
            assert!(expect.judge(since, &answer(200, "b")).is_ok());
        }
        expect.settle(Instant::now());
        tokio::time::advance(GRACE + Duration::from_millis(1)).await;
        let after = expect.begin(Instant::now());
        assert!(expect.judge(after, &answer(200, "a")).is_err(), "the old is over");
        assert!(expect.judge(after, &answer(200, "b")).is_ok());
        assert!(expect.judge(during, &answer(200, "a")).is_ok(), "it began while the old was right");
    }

    #[test]
    fn errors_are_never_right() {
        let expect = Expect::new(Want::Absent);
        expect.push(by("a"));
        let since = expect.begin(Instant::now());
        assert!(expect.judge(since, &answer(404, "")).is_ok());
        for wrong in [
            answer(503, ""),
            answer(500, "a"),
            Outcome::Broken("reset".to_owned()),
            Outcome::Refused("refused".to_owned()),
        ] {
            assert!(expect.judge(since, &wrong).is_err(), "{wrong}");
            assert!(wrong.is_error());
        }
    }

    #[test]
    fn a_cut_body_another_header_and_another_protocol_are_wrong() {
        let Outcome::Answer(good) = answer(200, "a") else { unreachable!() };
        let right = |a: Answer| by("a").allows(&Outcome::Answer(a));
        assert!(right(good.clone()));
        assert!(!right(Answer { whole: false, ..good.clone() }));
        assert!(!right(Answer { header: Some("2".to_owned()), ..good.clone() }));
        assert!(!right(Answer { proto: "HTTP/2".to_owned(), ..good.clone() }));
        assert!(!right(Answer { split: Some("1".to_owned()), ..good }));
    }
}

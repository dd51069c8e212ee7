//! What a replica tells.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{MOST_VIEWS, View};

/// Bytes of a report at most.
pub const LARGEST: usize = 64 * 1024;
/// Refusals in a report at most; of more, the first by object.
pub const MOST_REFUSALS: usize = 32;
/// Bytes of a text at most: names of Kubernetes are shorter, the words of proxies are cut.
const TEXT: usize = 512;

/// What a replica tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Who: another one at each start.
    pub replica: String,
    /// Time since it asked the API server for what was then answered, in milliseconds; none: there was no answer yet.
    pub age_millis: Option<u64>,
    /// It takes proxies: it is ready and does not hand over itself.
    pub serving: bool,
    /// Digest of what it serves to proxies.
    pub digest: String,
    /// What proxies refused there.
    pub refusals: Vec<Refusal>,
    /// What it has seen and made of it, the latest last; none from versions that do not tell.
    #[serde(default)]
    pub views: Vec<View>,
}

/// An object that is left out because a proxy refused what it asks for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// Kind of the object.
    pub kind: String,
    /// Namespace of the object; empty if it has none.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// UID of the object: one of the same name that comes later is another one.
    pub uid: String,
    /// Generation that was refused.
    pub generation: i64,
    /// The proxy's words.
    pub detail: String,
}

/// A report that is not taken.
#[derive(Debug, thiserror::Error)]
pub enum InvalidReport {
    /// It is longer than [`LARGEST`].
    #[error("it is longer than {LARGEST} bytes")]
    TooLong,
    /// It is no report.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// A text or a list is longer than it may be.
    #[error("{0} is longer than allowed")]
    Bound(&'static str),
    /// Nobody sent it.
    #[error("it does not say whose it is")]
    Nobody,
}

// === impl Report ===

impl Report {
    /// The age that it tells.
    #[must_use]
    pub fn age(&self) -> Option<Duration> {
        self.age_millis.map(Duration::from_millis)
    }

    /// Cuts what is longer than it may be.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        self.refusals.sort();
        self.refusals.truncate(MOST_REFUSALS);
        self.views.drain(..self.views.len().saturating_sub(MOST_VIEWS));
        for refusal in &mut self.refusals {
            cut(&mut refusal.detail);
        }
        self
    }

    /// As bytes, within bounds.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        serde_json::to_vec(&self.bounded()).expect("invariant: texts and numbers are always JSON")
    }

    /// Reads a report.
    ///
    /// # Errors
    /// [`InvalidReport`] when it is not one, or not within bounds.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidReport> {
        if bytes.len() > LARGEST {
            return Err(InvalidReport::TooLong);
        }
        let report: Self = serde_json::from_slice(bytes)?;
        if report.replica.is_empty() {
            return Err(InvalidReport::Nobody);
        }
        if report.replica.len() > TEXT || report.digest.len() > TEXT {
            return Err(InvalidReport::Bound("a name"));
        }
        if report.refusals.len() > MOST_REFUSALS {
            return Err(InvalidReport::Bound("the list of refusals"));
        }
        let short = |v: &View| v.seen.len() <= TEXT && v.digest.len() <= TEXT;
        if report.views.len() > MOST_VIEWS || !report.views.iter().all(short) {
            return Err(InvalidReport::Bound("a view"));
        }
        let texts = |r: &Refusal| [&r.kind, &r.namespace, &r.name, &r.uid, &r.detail].iter().all(|t| t.len() <= TEXT);
        if !report.refusals.iter().all(texts) {
            return Err(InvalidReport::Bound("a refusal"));
        }
        Ok(report)
    }
}

fn cut(text: &mut String) {
    let end = (0..=TEXT.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or_default();
    text.truncate(end);
}

//! Statuses that somebody else replaces again and again: written ever more seldom, so that two who do not agree do not keep
//! the API server busy.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use resources::ObjectKey;
use serde_json::{Map, Value};
use tokio::time::Instant;

/// So many times what others undo is put back at once.
const AT_ONCE: u32 = 3;
/// Longest wait before it is put back.
const LONGEST: Duration = Duration::from_secs(60);
/// A write is forgotten after this long.
const KEPT: Duration = Duration::from_secs(300);

/// What was written last, and how often it was undone. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Contested(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    writes: BTreeMap<ObjectKey, Write>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Write {
    what: u64,
    at: Instant,
    undone: u32,
}

// === impl Contested ===

impl Contested {
    /// Objects whose status others replace again and again, at present.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().writes.values().filter(|w| w.undone > AT_ONCE && w.at.elapsed() < 2 * LONGEST).count()
    }

    /// How long to wait before that status, which the object with that uid does not have, may be written again; none: it may
    /// be now.
    pub(crate) fn wait(&self, key: &ObjectKey, uid: &str, wanted: &Map<String, Value>) -> Option<Duration> {
        let table = self.lock();
        let last = table.writes.get(key).filter(|w| w.what == digest(uid, wanted))?;
        let after = match last.undone.checked_sub(AT_ONCE) {
            None => Duration::ZERO,
            Some(n) => Duration::from_secs(1).saturating_mul(2u32.saturating_pow(n.min(8))).min(LONGEST),
        };
        after.checked_sub(last.at.elapsed()).filter(|left| !left.is_zero())
    }

    /// That status was written.
    pub(crate) fn wrote(&self, key: &ObjectKey, uid: &str, wanted: &Map<String, Value>) {
        let (what, at) = (digest(uid, wanted), Instant::now());
        let mut table = self.lock();
        if table.swept.is_none_or(|swept| swept.elapsed() > LONGEST) {
            table.writes.retain(|_, w| w.at.elapsed() < KEPT);
            table.swept = Some(at);
        }
        let same = table.writes.get(key).filter(|w| w.what == what);
        let undone = same.map_or(0, |w| w.undone.saturating_add(1));
        table.writes.insert(key.clone(), Write { what, at, undone });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells contents apart within this process.
fn digest(uid: &str, wanted: &Map<String, Value>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (uid, Value::Object(wanted.clone()).to_string()).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use resources::Kind;
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_undone_again_and_again_is_written_ever_more_seldom_and_what_is_new_at_once() {
        let (contested, key) = (Contested::default(), ObjectKey::new(Kind::Gateway, "ns", "gw"));
        let status = |n: u32| json!({"n": n}).as_object().cloned().expect("an object");
        let mut waits = Vec::new();
        for _ in 0..14 {
            let wait = contested.wait(&key, "uid", &status(1)).unwrap_or_default();
            waits.push(wait.as_secs());
            tokio::time::sleep(wait).await;
            assert_eq!(contested.wait(&key, "uid", &status(1)), None);
            contested.wrote(&key, "uid", &status(1));
        }
        assert_eq!(waits, [0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
        assert_eq!(contested.count(), 1);
        assert_eq!(contested.wait(&key, "uid", &status(2)), None, "another status is nobody's quarrel");
        contested.wrote(&key, "uid", &status(2));
        assert_eq!(contested.count(), 0);
        // A quarrel is forgotten, and with it the memory that it takes.
        tokio::time::sleep(KEPT).await;
        contested.wrote(&ObjectKey::new(Kind::Gateway, "ns", "other"), "uid", &status(1));
        assert_eq!(contested.lock().writes.len(), 1);
    }
}

//! The latest version that is known of an object: from the watch, or from the answer to our own write while that is on
//! its way to the watch.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use resources::{ObjectKey, Observed, Seen};

/// What the watch says, and what the answers to our writes said that the watch does not show yet.
#[derive(Debug)]
pub(crate) struct Latest<O> {
    pub(crate) observed: O,
    answers: Mutex<BTreeMap<ObjectKey, Seen>>,
}

impl<O: Observed> Latest<O> {
    pub(crate) fn new(observed: O) -> Self {
        Self { observed, answers: Mutex::default() }
    }

    /// The object; `None` if it is not there.
    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Seen> {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = self.observed.observed(key) else {
            answers.remove(key);
            return None;
        };
        match answers.get(key) {
            Some(answer) if answer.uid == seen.uid && newer(answer, &seen) => {
                Some(Seen { object: seen.object, ..answer.clone() })
            }
            Some(_) => {
                answers.remove(key);
                Some(seen)
            }
            None => Some(seen),
        }
    }

    /// Notes the answer to a write.
    pub(crate) fn answered(&self, key: &ObjectKey, answer: Seen) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), answer);
    }
}

/// Versions are compared as numbers where they are numbers. Where they are not, the watch is believed: a stale comparison
/// ends with a conflict, and that with a fresh one.
fn newer(answer: &Seen, seen: &Seen) -> bool {
    match (answer.resource_version.parse::<u64>(), seen.resource_version.parse::<u64>()) {
        (Ok(answer), Ok(seen)) => answer > seen,
        _ => false,
    }
}

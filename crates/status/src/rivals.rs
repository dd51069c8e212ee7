//! Whether another control plane claims the same controller name. Pure: times come in.
//!
//! The control plane that leads names its namespace on the GatewayClasses of its controller. Two that have the name both do,
//! so a claim that is *seen to change* to another's proves that the other one lives; one that is merely found may be left from
//! one that is gone, and stays away once it was replaced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use resources::ObjectKey;

/// Wait before a claim that was replaced is made again; doubled each time.
const FIRST: Duration = Duration::from_secs(10);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(60);
/// A rival is believed for this long after its last claim: it makes one again within twice the longest wait.
const BELIEVED: Duration = Duration::from_secs(180);

/// What was seen of the claims of all classes.
#[derive(Debug)]
pub(crate) struct Rivals {
    own: String,
    classes: BTreeMap<ObjectKey, Class>,
    /// When each rival made a claim last.
    alive: BTreeMap<String, Duration>,
}

#[derive(Debug)]
struct Class {
    claim: Option<String>,
    /// Since when it is that one.
    since: Duration,
    /// It has been ours while this process looked.
    was_ours: bool,
    /// How often ours was replaced.
    replaced: u32,
}

// === impl Rivals ===

impl Rivals {
    /// For the control plane in that namespace.
    pub(crate) fn new(own: &str) -> Self {
        Self { own: own.to_owned(), classes: BTreeMap::new(), alive: BTreeMap::new() }
    }

    /// The claim of a class as it is now.
    pub(crate) fn observe(&mut self, now: Duration, class: &ObjectKey, claim: Option<&str>) {
        let ours = claim == Some(&*self.own);
        let Some(known) = self.classes.get_mut(class) else {
            let first = Class { claim: claim.map(str::to_owned), since: now, was_ours: ours, replaced: 0 };
            self.classes.insert(class.clone(), first);
            return;
        };
        if known.claim.as_deref() == claim {
            return;
        }
        if known.claim.as_deref() == Some(&*self.own) {
            // A claim that stood for long begins anew.
            let calm = now.saturating_sub(known.since) > BELIEVED;
            known.replaced = if calm { 1 } else { known.replaced.saturating_add(1) };
        }
        known.claim = claim.map(str::to_owned);
        known.since = now;
        known.was_ours |= ours;
        if let Some(rival) = claim.filter(|_| !ours) {
            self.alive.insert(rival.to_owned(), now);
        }
    }

    /// Forgets the classes that are not there any more.
    pub(crate) fn keep(&mut self, classes: &BTreeSet<ObjectKey>) {
        self.classes.retain(|class, _| classes.contains(class));
    }

    /// When the class is to be claimed by who leads; never while the claim is ours.
    pub(crate) fn due(&self, class: &ObjectKey) -> Option<Duration> {
        let known = self.classes.get(class)?;
        if known.claim.as_deref() == Some(&*self.own) {
            return None;
        }
        if !known.was_ours {
            return Some(known.since);
        }
        let doubled = FIRST.saturating_mul(2u32.saturating_pow(known.replaced.saturating_sub(1).min(8)));
        Some(known.since + doubled.min(LONGEST))
    }

    /// Namespaces of the others that are alive.
    pub(crate) fn alive(&mut self, now: Duration) -> BTreeSet<String> {
        self.alive.retain(|_, last| now.saturating_sub(*last) <= BELIEVED);
        self.alive.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use resources::Kind;

    use super::*;

    fn class() -> ObjectKey {
        ObjectKey::new(Kind::GatewayClass, "", "eg")
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn a_claim_that_is_found_proves_nothing_and_is_replaced_at_once() {
        let mut b = Rivals::new("b");
        b.observe(seconds(5), &class(), Some("gone"));
        assert_eq!(b.due(&class()), Some(seconds(5)));
        b.observe(seconds(6), &class(), Some("b"));
        assert_eq!((b.due(&class()), b.alive(seconds(600))), (None, BTreeSet::new()));
        let mut fresh = Rivals::new("b");
        fresh.observe(seconds(0), &class(), None);
        assert_eq!(fresh.due(&class()), Some(seconds(0)));
    }

    #[test]
    fn a_claim_that_somebody_takes_away_is_made_again_and_proves_nothing() {
        let mut a = Rivals::new("a");
        a.observe(seconds(0), &class(), Some("a"));
        a.observe(seconds(1), &class(), None);
        assert_eq!((a.due(&class()), a.alive(seconds(1)).len()), (Some(seconds(11)), 0));
    }

    #[test]
    fn a_class_that_is_made_anew_is_claimed_at_once() {
        let mut a = Rivals::new("a");
        a.observe(seconds(0), &class(), Some("a"));
        a.keep(&BTreeSet::new());
        a.observe(seconds(9), &class(), None);
        assert_eq!(a.due(&class()), Some(seconds(9)));
    }

    /// Both look every second, and write when it is due; `b` begins at 100 s and ends at 1000 s.
    #[test]
    fn two_that_claim_one_name_know_within_a_minute_and_write_ever_more_seldom() {
        let (mut a, mut b) = (Rivals::new("a"), Rivals::new("b"));
        let mut claim: Option<String> = None;
        let (mut writes, mut known) = (Vec::new(), [None, None]);
        for t in 0..2000 {
            let now = seconds(t);
            for (i, (of, from, to)) in [(&mut a, 0, 2000), (&mut b, 100, 1000)].into_iter().enumerate() {
                if t < from || t >= to {
                    continue;
                }
                of.observe(now, &class(), claim.as_deref());
                if of.due(&class()).is_some_and(|due| due <= now) {
                    claim = Some(of.own.clone());
                    of.observe(now, &class(), claim.as_deref());
                    writes.push(t);
                }
                let rival = !of.alive(now).is_empty();
                if rival && known[i].is_none() {
                    known[i] = Some(t);
                }
                // From then on for good, until one is gone.
                assert!(rival == known[i].is_some() || t > 1000, "{i} at {t} s");
            }
            if t == 1000 + 60 + 180 {
                assert!(a.alive(now).is_empty(), "it is gone");
            }
        }
        assert!(known.iter().all(|k| k.is_some_and(|k| k <= 130)), "{known:?}");
        assert!(writes.len() < 25, "{writes:?}");
        assert!(writes.iter().filter(|t| **t > 1100).count() == 0, "at rest once alone: {writes:?}");
        assert_eq!(claim.as_deref(), Some("a"));
    }
}

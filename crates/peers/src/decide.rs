//! Whether a replica hands its proxies over. Pure: times come in.

use std::time::Duration;

/// When a replica hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Out of touch for longer than this: it may hand over. Default 6 s.
    pub out_of_touch: Duration,
    /// In touch: no older than this. Less than half of `out_of_touch`, so that one that is in touch now cannot be out of it
    /// before its next report. Default 2.5 s.
    pub in_touch: Duration,
    /// In touch for so long without a break: it takes proxies again. Also the least time between ending and beginning again.
    /// Default 5 s.
    pub steady: Duration,
}

/// A peer as it is known now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Time since it was in touch, at most; none: it never was.
    pub age: Option<Duration>,
    /// It takes proxies.
    pub serving: bool,
}

/// Decides again and again. Times are counted from the start of the replica.
#[derive(Clone, Debug)]
pub struct Decider {
    rule: Rule,
    handing_over: bool,
    /// Since when it has been in touch without a break.
    in_touch_since: Option<Duration>,
    /// It does not begin before this.
    not_before: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            out_of_touch: Duration::from_secs(6),
            in_touch: Duration::from_millis(2500),
            steady: Duration::from_secs(5),
        }
    }
}

// === impl Decider ===

impl Decider {
    /// A replica that takes proxies.
    #[must_use]
    pub fn new(rule: Rule) -> Self {
        Self { rule, handing_over: false, in_touch_since: None, not_before: Duration::ZERO }
    }

    /// It hands over now.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        self.handing_over
    }

    /// Decides: `own` is the time since this replica was in touch (none: never), `peers` are those that are believed.
    pub fn decide(&mut self, now: Duration, own: Option<Duration>, peers: impl IntoIterator<Item = Peer>) -> bool {
        let rule = self.rule;
        let is_in_touch = |age: Option<Duration>| age.is_some_and(|a| a <= rule.in_touch);
        // The freshest of those that take proxies.
        let best = peers.into_iter().filter(|p| p.serving).filter_map(|p| p.age).min();
        if is_in_touch(own) {
            self.in_touch_since.get_or_insert(now);
        } else {
            self.in_touch_since = None;
        }
        if !self.handing_over {
            // One that was never in touch may have just begun: it has as long as others to get there.
            let out_of_touch = own.unwrap_or(now) > rule.out_of_touch;
            self.handing_over = out_of_touch && is_in_touch(best) && now >= self.not_before;
            return self.handing_over;
        }
        let steady = self.in_touch_since.is_some_and(|since| now.saturating_sub(since) >= rule.steady);
        // On its way back it waits only while another one is in touch; else it is a matter of who knows more. Half the
        // margin of the beginning, so that the uncertainty of ages ends nothing.
        let fresher = match (own, best) {
            _ if is_in_touch(own) => is_in_touch(best),
            (Some(own), Some(best)) => best + rule.in_touch / 2 <= own,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if steady || !fresher {
            self.handing_over = false;
            self.not_before = now + rule.steady;
        }
        self.handing_over
    }
}

//! Which object made Envoy refuse a resource, and what follows from it.
//!
//! Envoy's refusal of a route table names neither the route nor the object, and keeps everything else of the table from
//! being served. [`Refusals`] remembers what was accepted last; what is refused now and was not there then is suspect.
//! Suspects are left out at once, so that everything else goes on, and tried again in halves until the culprit stands alone:
//! only it stays left out ([`Change::Exclude`]) until it changes.
//!
//! Contract: pure values; facts in, changes out. What is left out becomes an input of the translation, so that the
//! translation stays a function of its inputs. One trial at a time.
//!
//! Limits: a resource of which nothing was ever accepted (a proxy's first configuration) has all its objects under
//! suspicion: they are left out one by one instead, so that no more than one object at a time is without service.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use ir::{Name, Origin, RouteTable, VirtualHost, XdsKey, XdsValue};
use resources::{Change, Kind, ObjectKey};

/// A resource of a group.
pub type At = (Name, XdsKey);

/// What is known about acceptance and refusal, and the trial under way.
#[derive(Debug, Default)]
pub struct Refusals {
    /// The value sent last, with its version.
    sent: BTreeMap<At, (Arc<str>, XdsValue)>,
    /// The value accepted last.
    accepted: BTreeMap<At, XdsValue>,
    trial: Option<Trial>,
}

#[derive(Debug)]
struct Trial {
    at: At,
    /// Envoy's words at the first refusal.
    detail: Arc<str>,
    /// Sets of suspects that have not been tried.
    queue: VecDeque<BTreeSet<ObjectKey>>,
    /// The set that is being tried.
    now: BTreeSet<ObjectKey>,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The set is in, other suspects are out: acceptance clears the set.
    In,
    /// The set (one object) is out, all else is in: acceptance convicts it.
    Out,
}

/// Objects that a value comes from.
#[must_use]
pub fn origins(value: &XdsValue) -> BTreeSet<ObjectKey> {
    match value {
        XdsValue::RouteTable(t) => {
            t.virtual_hosts.iter().flat_map(|h| &h.routes).filter_map(|r| key(&r.origin)).collect()
        }
        XdsValue::Cluster(c) => c.origin.as_ref().and_then(key).into_iter().collect(),
        XdsValue::Listener(l) => key(&l.origin).into_iter().collect(),
        XdsValue::Endpoints(_) | XdsValue::Secret(_) | XdsValue::Ready(_) => BTreeSet::new(),
    }
}

/// A table for each route object in it, with its routes alone: to see which of them cannot be encoded.
#[must_use]
pub fn alone(table: &RouteTable) -> Vec<(ObjectKey, RouteTable)> {
    let objects: BTreeSet<ObjectKey> = origins(&XdsValue::RouteTable(Arc::new(table.clone())));
    let only = |object: &ObjectKey| {
        let hosts = table.virtual_hosts.iter().map(|h| {
            let routes = h.routes.iter().filter(|r| key(&r.origin).as_ref() == Some(object)).cloned().collect();
            Arc::new(VirtualHost { routes, ..(**h).clone() })
        });
        RouteTable { virtual_hosts: hosts.collect(), ..table.clone() }
    };
    objects
        .into_iter()
        .map(|o| {
            let table = only(&o);
            (o, table)
        })
        .collect()
}

fn key(origin: &Origin) -> Option<ObjectKey> {
    let kind = Kind::ALL.iter().copied().find(|k| k.as_str() == origin.kind)?;
    Some(ObjectKey::new(kind, &origin.namespace, &origin.name))
}

// === impl Refusals ===

impl Refusals {
    /// Nothing is known yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A value is on its way to the proxies, or is no longer.
    pub fn sent(&mut self, at: At, value: Option<(Arc<str>, XdsValue)>) {
        match value {
            Some(value) => {
                self.sent.insert(at, value);
            }
            None => {
                self.sent.remove(&at);
                self.accepted.remove(&at);
            }
        }
    }

    /// A group is gone.
    pub fn forget(&mut self, group: &Name) {
        self.sent.retain(|(g, _), _| g != group);
        self.accepted.retain(|(g, _), _| g != group);
        if self.trial.as_ref().is_some_and(|t| t.at.0 == *group) {
            self.trial = None;
        }
    }

    /// A trial waits for a verdict.
    #[must_use]
    pub fn on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// A proxy accepted this version.
    pub fn accepted(&mut self, at: &At, version: &str) -> Vec<Change> {
        let Some((current, value)) = self.sent.get(at) else { return Vec::new() };
        if **current != *version {
            return Vec::new();
        }
        self.accepted.insert(at.clone(), value.clone());
        match self.trial.take_if(|t| t.at == *at) {
            None => Vec::new(),
            Some(trial) => trial.cleared().map_or_else(Vec::new, |(trial, changes)| {
                self.trial = trial;
                changes
            }),
        }
    }

    /// A proxy refused this version, with these words.
    pub fn refused(&mut self, at: &At, version: &str, detail: &str) -> Vec<Change> {
        let Some((current, value)) = self.sent.get(at) else { return Vec::new() };
        if **current != *version {
            return Vec::new();
        }
        if let Some(trial) = self.trial.take() {
            if trial.at != *at {
                // One at a time; this refusal is told again when it is sent again.
                self.trial = Some(trial);
                return Vec::new();
            }
            let (trial, changes) = trial.convicted(detail);
            self.trial = trial;
            return changes;
        }
        let (suspects, how) = match self.accepted.get(at) {
            Some(before) => (suspects(before, value), How::In),
            None => (origins(value), How::Out),
        };
        let (trial, changes) = Trial::open(at.clone(), detail.into(), suspects, how);
        self.trial = trial;
        changes
    }

    /// No verdict came in time: the set that is being tried counts as innocent.
    pub fn no_verdict(&mut self) -> Vec<Change> {
        let Some(trial) = self.trial.take() else { return Vec::new() };
        let (trial, changes) = match trial.how {
            How::In => trial.next(Vec::new()),
            How::Out => {
                let back = trial.now.iter().cloned().map(Change::Readmit).collect();
                trial.next(back)
            }
        };
        self.trial = trial;
        changes
    }
}

/// Objects with something in `now` that is not the same in `before`.
fn suspects(before: &XdsValue, now: &XdsValue) -> BTreeSet<ObjectKey> {
    let (XdsValue::RouteTable(before), XdsValue::RouteTable(now)) = (before, now) else { return origins(now) };
    let known: BTreeMap<&str, &Arc<VirtualHost>> = before.virtual_hosts.iter().map(|h| (&*h.name, h)).collect();
    let mut out = BTreeSet::new();
    for host in &now.virtual_hosts {
        let old = known.get(&*host.name);
        if old.is_some_and(|o| Arc::ptr_eq(o, host)) {
            continue;
        }
        let same: BTreeMap<&str, _> = old.iter().flat_map(|h| &h.routes).map(|r| (&*r.name, r)).collect();
        out.extend(host.routes.iter().filter(|r| same.get(&*r.name) != Some(r)).filter_map(|r| key(&r.origin)));
    }
    out
}

// === impl Trial ===

type Step = (Option<Trial>, Vec<Change>);

impl Trial {
    fn open(at: At, detail: Arc<str>, suspects: BTreeSet<ObjectKey>, how: How) -> Step {
        let exclude = |o: &ObjectKey| Change::Exclude(o.clone(), detail.clone());
        match suspects.len() {
            0 => (None, Vec::new()),
            1 => (None, suspects.iter().map(exclude).collect()),
            _ => {
                let out = if how == How::In { suspects.iter().map(exclude).collect() } else { Vec::new() };
                let queue = match how {
                    How::In => halves(suspects),
                    How::Out => suspects.into_iter().map(|o| BTreeSet::from([o])).collect(),
                };
                Self { at, detail, queue, now: BTreeSet::new(), how }.next(out)
            }
        }
    }

    /// Tries the next set.
    fn next(mut self, mut changes: Vec<Change>) -> Step {
        let Some(now) = self.queue.pop_front() else { return (None, changes) };
        changes.extend(now.iter().map(|o| match self.how {
            How::In => Change::Readmit(o.clone()),
            How::Out => Change::Exclude(o.clone(), self.detail.clone()),
        }));
        self.now = now;
        (Some(self), changes)
    }

    /// The proxy accepted the table while the set was tried.
    fn cleared(self) -> Option<Step> {
        match self.how {
            How::In => Some(self.next(Vec::new())),
            // Without this object all is well: it stays out.
            How::Out => None,
        }
    }

    /// The proxy refused the table while the set was tried.
    fn convicted(mut self, detail: &str) -> Step {
        match self.how {
            How::Out => {
                let back = self.now.iter().cloned().map(Change::Readmit).collect();
                self.next(back)
            }
            How::In => {
                let words: Arc<str> = detail.into();
                let out = self.now.iter().map(|o| Change::Exclude(o.clone(), words.clone())).collect();
                if self.now.len() > 1 {
                    for half in halves(std::mem::take(&mut self.now)).into_iter().rev() {
                        self.queue.push_front(half);
                    }
                }
                self.next(out)
            }
        }
    }
}

fn halves(set: BTreeSet<ObjectKey>) -> VecDeque<BTreeSet<ObjectKey>> {
    let mut all: Vec<ObjectKey> = set.into_iter().collect();
    let second = all.split_off(all.len() / 2);
    [all, second].into_iter().filter(|h| !h.is_empty()).map(|h| h.into_iter().collect()).collect()
}

#[cfg(test)]
mod tests;

//! The engine: takes changes in, tells what they change.

use std::{collections::BTreeMap, sync::Arc};

use ir::{Full, RouteTable, Translation, VirtualHost, XdsValue};
use resources::{Change, Store};

use crate::{Config, assemble};

/// Holds the latest state of the cluster and what follows from it.
///
/// Every call of [`Engine::apply`] yields the differences to what was told before, so that the sum of all of them is the
/// state. Until all that was there at the start has been told ([`Change::Synced`]) nothing is said: half a state would
/// take configuration away from proxies that run.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    store: Store,
    state: Full,
    synced: bool,
}

// === impl Engine ===

impl Engine {
    /// An engine that knows nothing yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self { config, store: Store::new(), state: Full::default(), synced: false }
    }

    /// Takes a batch in as one: no one sees half of it. Tells what it changes.
    pub fn apply(&mut self, batch: Vec<Change>) -> Translation {
        let mut dirty = false;
        for change in batch {
            if matches!(change, Change::Synced) && !self.synced {
                self.synced = true;
                dirty = true;
            }
            dirty |= self.store.apply(change);
        }
        if dirty { self.compute() } else { Translation::default() }
    }

    /// Takes other settings, or another time for the expiry of certificates ([`Config::now`]). Tells what they change.
    pub fn reconfigure(&mut self, config: Config) -> Translation {
        if self.config == config {
            return Translation::default();
        }
        self.config = config;
        self.compute()
    }

    fn compute(&mut self) -> Translation {
        if !self.synced {
            return Translation::default();
        }
        let mut new = assemble::full(&self.store, &self.config);
        share(&self.state, &mut new);
        let delta = Translation::between(&self.state, &new);
        self.state = new;
        delta
    }

    /// All that was told so far.
    #[must_use]
    pub fn state(&self) -> &Full {
        &self.state
    }

    /// The objects.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// Keeps values that did not change where they are: who holds one finds it again by its address, and a virtual host is
/// encoded once and not again when its neighbour changes.
fn share(old: &Full, new: &mut Full) {
    for (name, group) in &mut new.groups {
        let Some(before) = old.groups.get(name) else { continue };
        for (key, value) in &mut group.resources {
            match before.resources.get(key) {
                Some(old) if old == value => *value = old.clone(),
                Some(XdsValue::RouteTable(old)) => {
                    if let XdsValue::RouteTable(table) = value {
                        share_hosts(old, Arc::make_mut(table));
                    }
                }
                _ => {}
            }
        }
    }
    for (key, status) in &mut new.statuses {
        if let Some(old) = old.statuses.get(key).filter(|o| *o == status) {
            *status = old.clone();
        }
    }
}

fn share_hosts(old: &RouteTable, new: &mut RouteTable) {
    let before: BTreeMap<&str, &Arc<VirtualHost>> = old.virtual_hosts.iter().map(|h| (&*h.name, h)).collect();
    for host in &mut new.virtual_hosts {
        if let Some(old) = before.get(&*host.name).filter(|o| **o == host) {
            *host = Arc::clone(old);
        }
    }
}

/// Translates a state of the cluster from scratch. The order of the changes plays no part but for those of one object.
pub fn translate(changes: impl IntoIterator<Item = Change>, config: &Config) -> Full {
    let mut store = Store::new();
    for change in changes {
        store.apply(change);
    }
    assemble::full(&store, config)
}

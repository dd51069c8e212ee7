//! What is known of the fleet behind a Gateway: where it is reached, and whether it runs. It comes from whoever runs the
//! proxies and becomes part of the Gateway's status.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ir::{ConditionStatus, Status};
use reconcile::Wanted;
use resources::ObjectKey;

/// Addresses of a Gateway and its condition `Programmed`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetFacts {
    /// Addresses at which clients reach it.
    pub addresses: Vec<Address>,
    /// Truth of `Programmed`.
    pub status: ConditionStatus,
    /// Its reason: `Programmed`, `AddressNotAssigned`, `NoResources`, `Invalid` …
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// An address of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// `IPAddress` or `Hostname`.
    pub kind: &'static str,
    /// The address.
    pub value: String,
}

/// The latest facts of each Gateway. Cloning shares. A Gateway of which nothing was ever told keeps what its status says:
/// a process that has just started does not take an address away.
#[derive(Clone, Debug)]
pub struct Facts(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<BTreeMap<ObjectKey, FleetFacts>>,
    /// GatewayClasses that others claim too, and what is said of it.
    contests: Mutex<BTreeMap<ObjectKey, String>>,
    statuses: Wanted<ObjectKey, Arc<Status>>,
    beside: bool,
}

// === impl Facts ===

impl Facts {
    /// No facts yet. New ones have the statuses in that table looked at again.
    #[must_use]
    pub fn new(statuses: Wanted<ObjectKey, Arc<Status>>) -> Self {
        Self::in_mode(statuses, false)
    }

    /// The same; `beside`: fleets live in the namespaces of their Gateways, where more features hold.
    #[must_use]
    pub fn in_mode(statuses: Wanted<ObjectKey, Arc<Status>>, beside: bool) -> Self {
        Self(Arc::new(Shared { table: Mutex::default(), contests: Mutex::default(), statuses, beside }))
    }

    pub(crate) fn beside(&self) -> bool {
        self.0.beside
    }

    /// Replaces the facts of a Gateway; `None` forgets them.
    pub fn publish(&self, gateway: ObjectKey, facts: Option<FleetFacts>) {
        {
            let mut table = self.lock();
            if table.get(&gateway) == facts.as_ref() {
                return;
            }
            match facts {
                Some(facts) => table.insert(gateway.clone(), facts),
                None => table.remove(&gateway),
            };
        }
        self.0.statuses.recheck([&gateway]);
    }

    /// Tells that other control planes claim a GatewayClass, in these words; `None`: none does.
    pub fn contest(&self, class: &ObjectKey, message: Option<&str>) {
        {
            let mut contests = self.0.contests.lock().unwrap_or_else(PoisonError::into_inner);
            if contests.get(class).map(String::as_str) == message {
                return;
            }
            match message {
                Some(message) => contests.insert(class.clone(), message.to_owned()),
                None => contests.remove(class),
            };
        }
        self.0.statuses.recheck([class]);
    }

    /// What is said of others that claim a GatewayClass.
    #[must_use]
    pub fn contested(&self, class: &ObjectKey) -> Option<String> {
        self.0.contests.lock().unwrap_or_else(PoisonError::into_inner).get(class).cloned()
    }

    /// The facts of a Gateway.
    #[must_use]
    pub fn get(&self, gateway: &ObjectKey) -> Option<FleetFacts> {
        self.lock().get(gateway).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, FleetFacts>> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Tells how fleets are, whenever that may have changed.

use std::{collections::BTreeMap, sync::Arc};

use ir::Proxy;
use reconcile::Wanted;
use resources::ObjectKey;
use tokio::sync::watch;

use super::{
    facts::{Facts, facts},
    names::FleetKey,
    observed::Fleets,
    writer::Troubles,
};

/// Tells the facts of every Gateway that has a fleet, whenever they may have changed, and `None` when it has one no longer.
/// Fleets whose objects changed are looked at again by the writer. `changed` moves when `wanted` does. Runs for ever; nothing
/// is told before everything has been listed.
pub async fn tell(
    fleets: Fleets,
    wanted: Wanted<String, Arc<Proxy>>,
    mut changed: watch::Receiver<u64>,
    troubles: Troubles,
    publish: impl Fn(ObjectKey, Option<Facts>),
) {
    fleets.synced().await;
    let mut troubles = troubles.watch();
    let mut told: BTreeMap<ObjectKey, Facts> = BTreeMap::new();
    loop {
        let now = round(&fleets, &wanted.values(), &troubles.borrow_and_update());
        for gone in told.keys().filter(|k| !now.contains_key(*k)) {
            publish(gone.clone(), None);
        }
        for (gateway, facts) in &now {
            if told.get(gateway) != Some(facts) {
                publish(gateway.clone(), Some(facts.clone()));
            }
        }
        told = now;
        tokio::select! {
            touched = fleets.touched() => {
                let all = wanted.values().into_keys();
                let due: Vec<String> = all.filter(|group| match &touched {
                    Some(touched) => touched.contains(&FleetKey::of_group(group)),
                    // Addresses of nodes are no object of a fleet.
                    None => false,
                }).collect();
                wanted.recheck(&due);
            }
            moved = changed.changed() => if moved.is_err() { std::future::pending::<()>().await },
            moved = troubles.changed() => if moved.is_err() { std::future::pending::<()>().await },
        }
    }
}

fn round(
    fleets: &Fleets,
    wanted: &BTreeMap<String, Arc<Proxy>>,
    troubles: &BTreeMap<FleetKey, super::facts::Trouble>,
) -> BTreeMap<ObjectKey, Facts> {
    let nodes = fleets.node_addresses();
    let mut out = BTreeMap::new();
    for (group, proxy) in wanted {
        let key = FleetKey::of_group(group);
        let facts = facts(proxy, &fleets.of(&key), &nodes, troubles.get(&key));
        out.extend(proxy.gateways.iter().map(|gateway| (gateway.clone(), facts.clone())));
    }
    out
}

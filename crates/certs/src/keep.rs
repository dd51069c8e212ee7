//! Renewal while the process runs.

use crate::{Spec, Store, UnixTime};
use std::time::Duration;

/// Looks at the files every `every` and renews what is due; never returns. Failures are logged and tried again at the
/// next look: the certificates in use stay good for a long time after their renewal is due. `clock` gives calendar
/// time: [`now`](crate::now) outside of tests.
pub async fn keep(store: Store, spec: Spec, every: Duration, clock: impl Fn() -> UnixTime) {
    let mut tick = tokio::time::interval(every);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if let Err(error) = store.ensure(&spec, clock(), false) {
            tracing::warn!(%error, "cannot check or renew the certificates, will try again");
        }
    }
}

//! Thousands of statuses that are due at once.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep};

use super::{
    outage::{create, delete},
    stage::{RENEW_DEADLINE, SHOP, Stage},
    table::Outcome,
};
use crate::audit::{late, now, seconds};

/// Longest time until all are written.
const PATIENCE: Duration = Duration::from_secs(300);

/// `count` routes wait for a Gateway; it comes, and each is due a status. Measured: the time until the last one is written.
///
/// # Errors
/// When something cannot be done or does not happen at all.
pub async fn crowd(stage: &Stage, count: usize) -> Result<Outcome> {
    stage.settled().await?;
    let routes: Vec<Value> = (0..count)
        .map(|n| super::stage::routed(&format!("many-{n}"), &format!("many-{n}.example.test"), "crowd"))
        .collect();
    create(stage, &routes).await?;
    let leader = stage.leader().await?;
    let before = stage.replicas().await?;
    let mark = stage.audit.mark()?;
    let load = stage.requests().await?;
    let gateway = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "crowd", "namespace": SHOP},
        "spec": {"gatewayClassName": "eg", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}});
    let (at, from) = (now(), Instant::now());
    stage.objects("Gateway").create(&PostParams::default(), &serde_json::from_value(gateway)?).await?;
    let last = loop {
        let calls = stage.audit.since(mark)?;
        let due: Vec<_> = calls.iter().filter(|c| c.is_status() && c.object.starts_with("shop/many-")).collect();
        let objects: BTreeSet<&str> = due.iter().map(|c| c.object.as_str()).collect();
        if objects.len() == count {
            break due.iter().map(|c| c.at).max().unwrap_or(at);
        }
        ensure!(from.elapsed() < PATIENCE, "only {} of {count} statuses were written", objects.len());
        sleep(Duration::from_secs(1)).await;
    };
    let tally = load.stop().await;
    let calls = stage.audit.since(mark)?;
    let leaders: BTreeSet<&str> = calls.iter().filter_map(|c| c.holder.as_deref()).collect();
    let renewals: Vec<i64> = calls.iter().filter(|c| c.is_renewal()).map(|c| c.at).collect();
    let gap = renewals.windows(2).map(|w| seconds(w[0], w[1])).fold(0.0, f64::max);
    let mut outcome = Outcome::new(seconds(at, last), "all written");
    outcome.say(format!("leadership unchanged, longest time between two renewals {gap:.2} s, {} requests", tally.sent));
    outcome.must(leaders.len() == 1 && leaders.iter().all(|l| l.starts_with(&leader.name)), format!("{leaders:?} led"));
    outcome.none(tally.complaint());
    outcome.none(late(&calls, &leader.name, RENEW_DEADLINE));
    for (name, now) in stage.replicas().await? {
        let same = before.get(&name).is_some_and(|p| p.restarts == now.restarts);
        outcome.must(same, format!("{name} was restarted"));
    }
    stage.objects("Gateway").delete("crowd", &DeleteParams::default()).await?;
    delete(stage, &routes).await?;
    Ok(outcome)
}

//! Events that concern the leader: it ends, is killed, loses the API server, sleeps.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    stage::{BOUND, LEASE, PROGRAM, RENEW_DEADLINE, SYSTEM, Stage, Watch, answers, route, until},
    table::Outcome,
};
use crate::{
    audit::{Call, late, longest_pause, now, of, overtaken, seconds},
    faults::{Fault, How},
    inside::Pod,
    processes::{Signal, signal},
};

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its pod is deleted: SIGTERM.
    Asked,
    /// SIGKILL.
    Killed,
}

/// A process that is stopped until this is dropped.
struct Stopped<'a>(&'a Pod);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = signal(&self.0.uid, PROGRAM, Signal::SIGCONT);
    }
}

/// The leader ends; the time until the first status that its successor writes.
///
/// # Errors
/// When something cannot be done or does not happen at all.
pub async fn ended(stage: &Stage, end: End) -> Result<Outcome> {
    stage.settled().await?;
    let leader = stage.leader().await?;
    let holder = stage.see.holder(SYSTEM, LEASE).await?.context("nobody leads")?;
    let mark = stage.audit.mark()?;
    let traffic = stage.traffic().await?;
    let from = now();
    match end {
        End::Asked => {
            stage.run.kubectl(&["-n", SYSTEM, "delete", "pod", &leader.name, "--wait=false"]).await?;
        }
        End::Killed => signal(&leader.uid, PROGRAM, Signal::SIGKILL)?,
    }
    // The next leader may be in the same pod: the kubelet starts a killed one again.
    let next = |c: &Call| c.is_renewal() && c.holder.as_deref() != Some(&holder);
    let renewed = stage.call(mark, "a new leader", next).await?;
    let wrote = stage.call(mark, "its first status", |c| c.is_status() && c.at > renewed.at).await?;
    let (sent, complaint) = traffic.stop().await?;
    let mut outcome = Outcome::new(seconds(from, wrote.at), "first status of the next leader");
    outcome.say(format!("it leads after {:.2} s, {sent} requests", seconds(from, renewed.at)));
    outcome.none(complaint);
    let calls = stage.audit.since(mark)?;
    outcome.none(late(&calls, &leader.name, RENEW_DEADLINE));
    if end == End::Asked {
        outcome.none(overtaken(&calls, &leader.name));
    }
    Ok(outcome)
}

/// All replicas are replaced, while statuses are due all the time: the longest pause between two of them.
///
/// # Errors
/// As [`ended`].
pub async fn rollout(stage: &Stage) -> Result<Outcome> {
    stage.settled().await?;
    let leader = stage.leader().await?;
    let before = stage.see.fleet("front").await?;
    let mark = stage.audit.mark()?;
    let traffic = stage.traffic().await?;
    stage.run.kubectl(&["-n", SYSTEM, "rollout", "restart", "deployment/envoy-gateway"]).await?;
    stage.settled().await?;
    let after = now();
    stage.call(mark, "a status after the rollout", |c| c.is_status() && c.at > after).await?;
    let (sent, complaint) = traffic.stop().await?;
    let calls = stage.audit.since(mark)?;
    let (pause, statuses) = longest_pause(&calls);
    let leaders: std::collections::BTreeSet<&str> =
        calls.iter().filter(|c| c.is_renewal()).map(|c| c.pod.as_str()).collect();
    let mut outcome = Outcome::new(pause, "longest pause between two statuses");
    outcome.say(format!("{statuses} statuses, {} leaders, {sent} requests", leaders.len()));
    outcome.must(leaders.len() > 1, "nobody else led");
    outcome.none(complaint);
    outcome.none(late(&calls, &leader.name, RENEW_DEADLINE));
    outcome.none(before.changes(&stage.see.fleet("front").await?));
    Ok(outcome)
}

/// The leader, and only it, loses the API server; the time until a proxy of it has a route that was made right after.
///
/// # Errors
/// As [`ended`].
pub async fn lost(stage: &Stage, how: How, length: Duration) -> Result<Outcome> {
    stage.settled().await?;
    let leader = stage.leader().await?;
    let envoy = stage.envoy_of(&leader).await?;
    let before = stage.again(&leader).await?;
    let mark = stage.audit.mark()?;
    let traffic = stage.traffic().await?;
    // A renewal, so that the log has one to judge by.
    stage.call(mark, "a renewal", |c| c.pod == leader.name && c.is_renewal()).await?;
    let health = Watch::start([&leader], "/healthz");

    let (at, from) = (now(), Instant::now());
    let fault = Fault::api_server(leader.network()?, how)?;
    let host = format!("{how:?}.example.test").to_lowercase();
    stage.run.apply(&route("fresh", &host)).await?;
    let target = stage.through(&envoy, &host);
    let served = async {
        answers(&target).await?;
        anyhow::Ok(from.elapsed().as_secs_f64())
    };
    let wrote = stage.call(mark, "a status of the next leader", |c| c.pod != leader.name && c.is_status() && c.at > at);
    let (served, wrote) = tokio::try_join!(served, wrote)?;
    sleep_until(from + length).await;
    let unwell = health.stop().await;
    fault.heal()?;

    // It knows its successor and takes proxies again.
    let successor = stage.leader().await?;
    until("it follows", async || {
        let Ok((200, ready)) = leader.health("/readyz").await else { return Ok(false) };
        let known = &ready["leadership"];
        Ok(known["role"] == "follower" && known["holder"].as_str().is_some_and(|h| of(h) == successor.name))
    })
    .await?;
    // What it may have had in its sockets has arrived when the successor has written some more.
    let back = now();
    let enough = i64::try_from(Duration::from_secs(3).as_micros())?;
    stage.call(mark, "a status after the return", |c| c.is_status() && c.at > back + enough).await?;
    let after = stage.again(&leader).await.context("the leader that was cut")?;
    let calls = stage.audit.since(mark)?;
    let candidate = candidate(stage, &leader).await?;
    let (sent, complaint) = traffic.stop().await?;

    let mut outcome = Outcome::new(served, "new route at its proxy");
    let last = calls.iter().filter(|c| c.pod == leader.name && c.mutates()).map(|c| c.at).max();
    let renewal = calls.iter().filter(|c| c.pod == leader.name && c.is_renewal() && c.at < back).map(|c| c.at).max();
    let since_renewal = last.zip(renewal).map_or(0.0, |(last, renewal)| seconds(renewal.min(last), last));
    outcome.say(format!(
        "last write {since_renewal:.2} s after its last renewal, first status of the next after {:.2} s, {} restarts, leads \
         again {candidate:.2} s after it could, {sent} requests",
        seconds(at, wrote.at),
        after.restarts - before.restarts
    ));
    outcome.must(after.restarts == before.restarts, "it was restarted");
    outcome.none(unwell);
    outcome.none(complaint);
    outcome.none(late(&calls, &leader.name, RENEW_DEADLINE));
    outcome.none(overtaken(&calls, &leader.name));
    Ok(outcome)
}

/// The Deployment is scaled down to this replica, so that the others are asked to end; how long until it leads.
async fn candidate(stage: &Stage, replica: &Pod) -> Result<f64> {
    until("the kubelet has it ready", async || Ok(stage.again(replica).await?.ready_since.is_some())).await?;
    let cost = "controller.kubernetes.io/pod-deletion-cost=1000";
    stage.run.kubectl(&["-n", SYSTEM, "annotate", "--overwrite", "pod", &replica.name, cost]).await?;
    let old = stage.see.holder(SYSTEM, LEASE).await?.context("nobody leads")?;
    let scale = ["-n", SYSTEM, "scale", "deployment/envoy-gateway"];
    let from = Instant::now();
    stage.run.kubectl(&[&scale[..], &["--replicas=1"]].concat()).await?;
    let next = stage.see.next_holder(SYSTEM, LEASE, &old, BOUND).await;
    let took = from.elapsed().as_secs_f64();
    stage.run.kubectl(&[&scale[..], &["--replicas=3"]].concat()).await?;
    let (next, _) = next?;
    ensure!(of(&next) == replica.name, "no candidate again: {next} leads");
    Ok(took)
}

/// The leader sleeps and wakes up; the time until the first status that its successor writes.
///
/// # Errors
/// As [`ended`].
pub async fn slept(stage: &Stage, length: Duration) -> Result<Outcome> {
    stage.settled().await?;
    let leader = stage.leader().await?;
    let before = stage.again(&leader).await?;
    let mark = stage.audit.mark()?;
    let traffic = stage.traffic().await?;
    stage.call(mark, "a status", |c| c.pod == leader.name && c.is_status()).await?;

    let (at, from) = (now(), Instant::now());
    signal(&leader.uid, PROGRAM, Signal::SIGSTOP)?;
    let stopped = Stopped(&leader);
    let wrote =
        stage.call(mark, "a status of the next leader", |c| c.pod != leader.name && c.is_status() && c.at > at).await?;
    sleep_until(from + length).await;
    let woke = now();
    drop(stopped);
    let successor = stage.leader().await?;
    until("it follows", async || {
        let Ok((200, ready)) = leader.health("/readyz").await else { return Ok(false) };
        let known = &ready["leadership"];
        Ok(known["role"] == "follower" && known["holder"].as_str().is_some_and(|h| of(h) == successor.name))
    })
    .await?;
    // Everything that it was about to do has been tried by now.
    sleep(Duration::from_secs(3)).await;
    let (sent, complaint) = traffic.stop().await?;
    let calls = stage.audit.since(mark)?;
    let after = stage.again(&leader).await?;
    let woken: Vec<_> = calls.iter().filter(|c| c.pod == leader.name && c.mutates() && c.at >= woke).collect();
    let mut outcome = Outcome::new(seconds(at, wrote.at), "first status of the next leader");
    outcome.say(format!(
        "{} calls of the old one after it woke, {} accepted, {} restarts, {sent} requests",
        woken.len(),
        woken.iter().filter(|c| c.accepted).count(),
        after.restarts - before.restarts
    ));
    outcome.none(woken.iter().filter(|c| c.accepted).map(|c| format!("accepted after it woke: {c:?}")));
    outcome.none(overtaken(&calls, &leader.name));
    outcome.none(complaint);
    outcome.must(after.restarts == before.restarts, "it was restarted");
    Ok(outcome)
}

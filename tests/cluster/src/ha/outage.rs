//! No replica has an API server, for a while.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::{api::core::v1::Pod as PodObject, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    stage::{BOUND, LEASE, PROGRAM, RENEW_DEADLINE, SHOP, SYSTEM, Stage, Watch, routed, until},
    table::Outcome,
};
use crate::{
    audit::{Call, late, now, seconds},
    faults::{Fault, How},
    inside::{Held, Pod},
    observe::{OWNER, has},
    processes,
};

/// Routes that are made while nobody can write their statuses.
const DUE: usize = 20;
/// After so long nobody leads.
const NOBODY: Duration = Duration::from_secs(12);
/// All statuses that are due are written so long after somebody leads again.
const DUE_WITHIN: f64 = 5.0;
/// A new proxy has everything so long after it started.
const SERVED_WITHIN: f64 = 5.0;

/// The rows of an outage: it as a whole, and the replica that was started again in it.
#[derive(Debug)]
pub struct Outage {
    /// The outage.
    pub whole: Result<Outcome>,
    /// The replica.
    pub restarted: Result<Outcome>,
}

/// What was seen while nobody had an API server.
struct Seen {
    /// A new proxy and how long it took until it had everything.
    served: f64,
    /// The time until the restarted replica was ready.
    ready: f64,
    /// The same of a proxy of the restarted replica.
    served_by_restarted: f64,
    /// What the restarted replica said of its state.
    state: Value,
    /// What was wrong.
    wrong: Vec<String>,
}

/// All replicas lose the API server for `length` at least. A new proxy starts; a replica is killed, and a proxy that knows only
/// that replica starts. Measured: the time from the return until one leads.
///
/// # Errors
/// As rows, when something cannot be done or does not happen at all.
pub async fn outage(stage: &Stage, length: Duration, slack: f64) -> Outage {
    match all(stage, length, slack).await {
        Ok((whole, restarted)) => Outage { whole: Ok(whole), restarted: Ok(restarted) },
        Err(e) => Outage { restarted: Err(anyhow::anyhow!("the outage failed")), whole: Err(e) },
    }
}

async fn all(stage: &Stage, length: Duration, slack: f64) -> Result<(Outcome, Outcome)> {
    stage.settled().await?;
    let before = stage.replicas().await?;
    let leader = stage.leader().await?;
    // One that was not started again yet is started at once by the kubelet.
    let victim = before.values().filter(|p| p.name != leader.name).min_by_key(|p| p.restarts).context("followers")?;
    saved(stage, victim).await?;
    let envoys = stage.envoys().await?;
    let envoy = envoys.values().next().context("proxies")?;
    let held = envoy.held().await?;
    let transitions = lease(stage).await?;
    let mark = stage.audit.mark()?;
    stage.call(mark, "a renewal", |c| c.pod == leader.name && c.is_renewal()).await?;

    let from = Instant::now();
    let faults: Vec<Fault> =
        before.values().map(|p| Fault::api_server(p.network()?, How::BlackHoled)).collect::<Result<_>>()?;
    let traffic = stage.traffic().await?;
    let seen = away(stage, from, victim, envoy, &held).await?;
    let routes: Vec<Value> =
        (0..DUE).map(|n| routed(&format!("due-{n}"), &format!("due-{n}.example.test"), "front")).collect();
    create(stage, &routes).await?;
    sleep_until(from + length).await;
    let away_for = from.elapsed().as_secs_f64();
    let at = now();
    faults.into_iter().try_for_each(Fault::heal)?;

    let first = stage.call(mark, "a leader after the return", |c| c.at >= at && c.is_renewal()).await?;
    let names: BTreeSet<String> = (0..DUE).map(|n| format!("{SHOP}/due-{n}")).collect();
    let mut written = 0;
    until("all due statuses are written", async || {
        let calls = stage.audit.since(mark)?;
        let due: Vec<&Call> = calls.iter().filter(|c| c.is_status() && names.contains(&c.object)).collect();
        written = due.iter().map(|c| c.at).max().unwrap_or(at);
        Ok(due.iter().map(|c| c.object.as_str()).collect::<BTreeSet<_>>().len() == DUE)
    })
    .await?;
    stage.settled().await?;
    let (sent, complaint) = traffic.stop().await?;
    let calls = stage.audit.since(mark)?;
    let after = stage.replicas().await?;
    let leaders: BTreeSet<&str> =
        calls.iter().filter(|c| c.at >= at && c.is_renewal()).map(|c| c.pod.as_str()).collect();

    let mut whole = Outcome::new(seconds(at, first.at), "one leader after the return");
    let due = seconds(first.at, written);
    whole.say(format!(
        "away for {away_for:.0} s: 0 restarts and ready throughout, a new proxy has everything {:.2} s after its start, \
         {DUE} due statuses {due:.2} s after the leader, {sent} requests",
        seen.served
    ));
    whole.must(
        seen.served < SERVED_WITHIN * slack,
        format!("a new proxy had everything only after {:.2} s", seen.served),
    );
    whole.must(due < DUE_WITHIN * slack, format!("due statuses only {due:.2} s after the leader"));
    whole.must(leaders.len() == 1, format!("leaders after the return: {leaders:?}"));
    let now = lease(stage).await?;
    whole.must(now - transitions <= 1, format!("the lease changed hands {} times", now - transitions));
    whole.none(seen.wrong);
    whole.none(complaint);
    whole.none(late(&calls, &leader.name, RENEW_DEADLINE));
    for (name, old) in before.iter().filter(|(n, _)| **n != victim.name) {
        let same = after.get(name).is_some_and(|p| p.restarts == old.restarts && p.ready_since == old.ready_since);
        whole.must(same, format!("{name} was restarted or not ready: {:?}", after.get(name)));
    }

    let mut restarted = Outcome::new(seen.served_by_restarted, "a new proxy of it has everything");
    restarted.say(format!("ready {:.2} s after its process was killed, {}", seen.ready, words(&seen.state)));
    let writes = calls.iter().filter(|c| c.pod == victim.name && c.mutates()).count();
    let led = leaders.contains(victim.name.as_str());
    restarted.say(format!("{writes} writes{}", if led { " when it led after the return" } else { "" }));
    restarted.must(seen.state["origin"] == "stale", format!("its state is {}", seen.state));
    restarted.must(led || writes == 0, "it wrote and did not lead");
    let again = after.get(&victim.name).map(|p| p.restarts);
    restarted.must(again == Some(victim.restarts + 1), format!("restarts: {} and then {again:?}", victim.restarts));

    delete(stage, &routes).await?;
    Ok((whole, restarted))
}

fn words(state: &Value) -> String {
    let since = state["staleSince"].as_str().unwrap_or("never");
    format!("stale since {since}")
}

/// What happens while they are away.
async fn away(stage: &Stage, from: Instant, victim: &Pod, envoy: &Pod, held: &Held) -> Result<Seen> {
    let before = stage.replicas().await?;
    let all_ready = Watch::start(before.values(), "/readyz");
    let served = newcomer(stage, envoy, "newcomer", None, held).await?;
    sleep_until(from + NOBODY).await;
    let mut wrong = all_ready.stop().await;
    for (name, now) in stage.replicas().await? {
        let same = before.get(&name).is_some_and(|p| p.restarts == now.restarts && p.ready_since == now.ready_since);
        if !same {
            wrong.push(format!("{name} was restarted or not ready: {now:?}"));
        }
    }

    let others_ready = Watch::start(before.values().filter(|p| p.name != victim.name), "/readyz");
    let killed = Instant::now();
    processes::kill(&victim.uid, PROGRAM)?;
    let mut state = Value::Null;
    until("the killed replica serves again", async || {
        let Ok((200, ready)) = victim.health("/readyz").await else { return Ok(false) };
        state = ready["state"].clone();
        Ok(true)
    })
    .await?;
    let ready = killed.elapsed().as_secs_f64();
    let served_by_restarted = newcomer(stage, envoy, "newcomer-of-restarted", Some(victim), held).await?;
    wrong.extend(others_ready.stop().await);
    Ok(Seen { served, ready, served_by_restarted, state, wrong })
}

/// Starts a proxy beside the fleet, as a copy of one of it, and removes it again; the time from the start of its process
/// until it holds what that one held and answers a request. With `of`, it knows no other replica.
async fn newcomer(stage: &Stage, like: &Pod, name: &str, of: Option<&Pod>, held: &Held) -> Result<f64> {
    let pods = stage.pods();
    pods.create(&PostParams::default(), &copy(&pods.get(&like.name).await?, name, of)?).await?;
    let outcome = started(stage, name, held).await;
    pods.delete(name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await?;
    outcome
}

async fn started(stage: &Stage, name: &str, held: &Held) -> Result<f64> {
    let pods = stage.pods();
    let mut started = None;
    let from = Instant::now();
    let mut last = Held::new();
    while started.is_none_or(|s: Instant| s.elapsed() < Duration::from_secs(60)) {
        ensure!(from.elapsed() < BOUND, "the proxy {name} does not start");
        sleep(Duration::from_millis(20)).await;
        if started.is_none() {
            let uid = pods.get(name).await?.metadata.uid.context("a UID")?;
            started = (!processes::of(&uid, "envoy")?.is_empty()).then(Instant::now);
            continue;
        }
        let object = pods.get(name).await?;
        let ip = object.status.and_then(|s| s.pod_ip).and_then(|ip| ip.parse().ok());
        let (Some(ip), Some(uid)) = (ip, object.metadata.uid) else { continue };
        let pod = Pod { name: name.to_owned(), uid, ip, restarts: 0, ready_since: None };
        let Ok(now) = pod.held().await else { continue };
        let answers = stage.through(&pod, "shop.example.test").get().await;
        if now == *held && answers.is_ok_and(|a| a.status == 200) {
            return Ok(started.map_or(0.0, |s| s.elapsed().as_secs_f64()));
        }
        last = now;
    }
    let differs: Vec<_> = held.symmetric_difference(&last).take(4).collect();
    anyhow::bail!("the proxy {name} has not everything after 60 s; it differs in {differs:?}")
}

/// A pod like this one, but of no fleet; with `of`, the name of the control plane means that replica.
fn copy(like: &PodObject, name: &str, of: Option<&Pod>) -> Result<PodObject> {
    let mut spec = serde_json::to_value(&like.spec)?;
    let token = |v: &Value| v["name"].as_str().is_some_and(|n| n.starts_with("kube-api-access"));
    let keep = |list: &mut Value| {
        if let Value::Array(list) = list {
            list.retain(|v| !token(v));
        }
    };
    keep(&mut spec["volumes"]);
    for kind in ["containers", "initContainers"] {
        for container in spec[kind].as_array_mut().into_iter().flatten() {
            keep(&mut container["volumeMounts"]);
        }
    }
    if let Some(of) = of {
        let names = [format!("envoy-gateway.{SYSTEM}.svc.cluster.local"), format!("envoy-gateway.{SYSTEM}.svc")];
        spec["hostAliases"] = json!([{"ip": of.ip.to_string(), "hostnames": names}]);
    }
    if let Value::Object(spec) = &mut spec {
        spec.retain(|k, v| !v.is_null() && k != "nodeName");
    }
    let labels = json!({"app": name, "of": OWNER.split('/').next()});
    Ok(serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}, "spec": spec}))?)
}

/// Waits until the replica has saved a state that is newer than all changes.
async fn saved(stage: &Stage, replica: &Pod) -> Result<()> {
    let from = Timestamp::now();
    stage.run.apply(&routed("saved", "saved.example.test", "front").to_string()).await?;
    let accepted = |r: &Value| has(&r["status"]["parents"][0]["conditions"], "Accepted", "True");
    stage.see.until("HTTPRoute", SHOP, "saved", BOUND, accepted).await?;
    let mut written = Timestamp::now().max(from);
    until("the state is saved", async || {
        let (_, ready) = replica.health("/readyz").await?;
        let state = &ready["state"];
        ensure!(state["saveError"].is_null(), "not saved: {state}");
        let at = state["saved"].as_str().and_then(|t| t.parse::<Timestamp>().ok());
        // Saves may be without fractions of a second.
        written = written.min(Timestamp::now());
        Ok(at.is_some_and(|at| at.as_second() >= written.as_second()))
    })
    .await
}

async fn lease(stage: &Stage) -> Result<i32> {
    let leases: Api<k8s_openapi::api::coordination::v1::Lease> = Api::namespaced(stage.client(), SYSTEM);
    Ok(leases.get(LEASE).await?.spec.and_then(|s| s.lease_transitions).unwrap_or(0))
}

/// Creates routes, several at a time.
///
/// # Errors
/// When one is refused.
pub async fn create(stage: &Stage, routes: &[Value]) -> Result<()> {
    let api = stage.objects("HTTPRoute");
    let all = stream::iter(routes.iter().cloned()).map(|route| {
        let api = api.clone();
        async move {
            api.create(&PostParams::default(), &serde_json::from_value(route)?).await?;
            anyhow::Ok(())
        }
    });
    all.buffer_unordered(16).try_collect().await
}

/// Deletes routes, several at a time.
///
/// # Errors
/// When one cannot be deleted.
pub async fn delete(stage: &Stage, routes: &[Value]) -> Result<()> {
    let api = stage.objects("HTTPRoute");
    let names = routes.iter().filter_map(|r| r["metadata"]["name"].as_str()).map(str::to_owned);
    let all = stream::iter(names.collect::<Vec<_>>()).map(|name| {
        let api = api.clone();
        async move {
            api.delete(&name, &DeleteParams::default()).await?;
            anyhow::Ok(())
        }
    });
    all.buffer_unordered(16).try_collect().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_of_no_fleet_and_knows_one_replica() {
        let like = json!({"metadata": {"name": "envoy-1", "labels": {OWNER: "front"}},
            "spec": {"nodeName": "n", "volumes": [{"name": "kube-api-access-x"}, {"name": "certs"}],
                "containers": [{"name": "envoy", "volumeMounts":
                    [{"name": "kube-api-access-x", "mountPath": "/t"}, {"name": "certs", "mountPath": "/c"}]}]}});
        let of =
            Pod { name: "r".into(), uid: "u".into(), ip: "10.0.0.1".parse().unwrap(), restarts: 0, ready_since: None };
        let copy = copy(&serde_json::from_value(like).unwrap(), "new", Some(&of)).unwrap();
        let spec = copy.spec.unwrap();
        assert_eq!(spec.node_name, None);
        assert_eq!(spec.volumes.unwrap().len(), 1);
        assert_eq!(spec.containers[0].volume_mounts.as_ref().unwrap().len(), 1);
        assert_eq!(spec.host_aliases.unwrap()[0].ip, "10.0.0.1");
        assert!(!copy.metadata.labels.unwrap().contains_key(OWNER));
    }
}

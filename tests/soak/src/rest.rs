//! What must be so once all faults are over and nothing changes any more.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use apiserver::{
    ensemble::LEASE,
    envoy::{asked, served_certificate},
    reigns,
    world::until,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    churn::{Churn, GATEWAY, GATEWAYS, SECURE, host, target},
    faults::Scene,
};

/// How long it may take until everything is right: a Lease that is held must run out, and what was held back must come.
const LIMIT: Duration = Duration::from_secs(90);
/// Nothing is written for so long at rest.
const QUIET: Duration = Duration::from_secs(4);

/// Waits until everything is right; returns what is not.
pub(crate) async fn violations(scene: &mut Scene, churn: &Churn) -> Vec<String> {
    let mut all = Vec::new();
    let from = Instant::now();
    if let Err(e) = scene.replicas.alive() {
        all.push(format!("{e:#}"));
        return all;
    }
    match scene.replicas.at_rest(LIMIT).await {
        Ok(digest) => {
            println!("replicas: all serve {digest} {:.1} s after the last fault", from.elapsed().as_secs_f64())
        }
        Err(e) => all.push(format!("{e:#}")),
    }
    for seat in &scene.replicas.seats {
        if seat.server.metric("replicas_disagreeing").await > 0.5 {
            all.push(format!(
                "{} tells that others make something else of the same: {}",
                seat.user,
                seat.server.log_tail()
            ));
        }
    }
    let wrong = settle(async || statuses(scene, churn).await).await;
    println!("statuses: {} wrong of {} routes and {} Gateways", wrong.len(), churn.routes.len(), GATEWAYS.len());
    all.extend(wrong);
    let wrong = settle(async || proxies(scene, churn).await).await;
    println!(
        "proxies: {} answers or resources wrong {:.1} s after the last fault",
        wrong.len(),
        from.elapsed().as_secs_f64()
    );
    all.extend(wrong);
    if let Err(e) = quiet(scene).await {
        all.push(format!("{e:#}"));
    }
    all
}

/// Looks until nothing is wrong, or for [`LIMIT`].
async fn settle(look: impl AsyncFn() -> Result<Vec<String>>) -> Vec<String> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let wrong = look().await.unwrap_or_else(|e| vec![format!("{e:#}")]);
        if wrong.is_empty() || Instant::now() > deadline {
            return wrong;
        }
        sleep(Duration::from_millis(250)).await;
    }
}

/// No replica writes any more.
async fn quiet(scene: &Scene) -> Result<()> {
    let path = scene.world.server.audit_path();
    let mut seen = std::fs::metadata(&path)?.len();
    let mut since = Instant::now();
    until(LIMIT, "no replica writes at rest", async || {
        let text = std::fs::read_to_string(&path)?;
        let new = text.get(usize::try_from(seen)?..).context("the audit log only grows")?;
        let verdict = reigns::judge(&reigns::read(new)?, &users(scene), LEASE, i64::MAX / 2, &reigns::Held::new());
        if verdict.writes > 0 {
            since = Instant::now();
        }
        // A line that is half-written is read again.
        seen += new.rfind('\n').map_or(0, |end| end as u64 + 1);
        sleep(Duration::from_millis(500)).await;
        Ok(since.elapsed() > QUIET)
    })
    .await
}

/// Names of the replicas' users.
pub(crate) fn users(scene: &Scene) -> Vec<String> {
    scene.replicas.seats.iter().map(|s| s.user.clone()).collect()
}

/// The audit log so far.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn audit(scene: &Scene) -> Result<Vec<reigns::Line>> {
    reigns::read(&std::fs::read_to_string(scene.world.server.audit_path())?)
}

/// What is wrong with the statuses.
pub(crate) async fn statuses(scene: &Scene, churn: &Churn) -> Result<Vec<String>> {
    let routes = list(scene, "httproutes").await?;
    let gateways = list(scene, "gateways").await?;
    let mut wrong = Vec::new();
    let names: BTreeSet<&str> = routes.keys().map(String::as_str).collect();
    ensure!(names == churn.routes.keys().map(String::as_str).collect(), "there are other routes: {names:?}");
    for (name, route) in &churn.routes {
        let object = &routes[name];
        let parents = object["status"]["parents"].as_array().cloned().unwrap_or_default();
        let of: BTreeSet<&str> = parents.iter().filter_map(|p| p["parentRef"]["name"].as_str()).collect();
        if parents.len() != GATEWAYS.len() || of != GATEWAYS.into() {
            wrong.push(format!("{name}: parents {of:?}"));
        }
        let resolved = if route.service.is_some() { "True" } else { "False" };
        for parent in &parents {
            conditions(
                name,
                object,
                &parent["conditions"],
                &[("Accepted", "True"), ("ResolvedRefs", resolved)],
                &mut wrong,
            );
        }
    }
    for name in GATEWAYS {
        let object = gateways.get(name).context("a Gateway")?;
        conditions(name, object, &object["status"]["conditions"], &[("Accepted", "True")], &mut wrong);
        let listeners = object["status"]["listeners"].as_array().cloned().unwrap_or_default();
        let wanted = object["spec"]["listeners"].as_array().context("listeners")?;
        if listeners.len() != wanted.len() {
            wrong.push(format!("{name}: {} listeners", listeners.len()));
        }
        for listener in &listeners {
            let at = format!("{name}/{}", listener["name"].as_str().unwrap_or_default());
            let attached = if listener["name"] == "http" { churn.routes.len() } else { 0 };
            if listener["attachedRoutes"] != attached {
                wrong.push(format!("{at}: {} attached, not {attached}", listener["attachedRoutes"]));
            }
            conditions(
                &at,
                object,
                &listener["conditions"],
                &[("Accepted", "True"), ("ResolvedRefs", "True")],
                &mut wrong,
            );
        }
    }
    Ok(wrong)
}

/// All conditions are of the object's generation, and these are there.
fn conditions(at: &str, object: &Value, conditions: &Value, wanted: &[(&str, &str)], wrong: &mut Vec<String>) {
    let all = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    for c in all.iter().filter(|c| c["observedGeneration"] != object["metadata"]["generation"]) {
        wrong.push(format!(
            "{at}: {} is of generation {}, not {}",
            c["type"], c["observedGeneration"], object["metadata"]["generation"]
        ));
    }
    for (kind, status) in wanted {
        match all.iter().find(|c| c["type"] == *kind) {
            Some(c) if c["status"] == *status => {}
            other => wrong.push(format!("{at}: {kind} is {:?}, not {status}", other.map(|c| &c["status"]))),
        }
    }
}

async fn list(scene: &Scene, plural: &str) -> Result<BTreeMap<String, Value>> {
    let request = http::Request::get(format!("/apis/{GATEWAY}/{plural}")).body(Vec::new())?;
    let list: Value = scene.world.client().request(request).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.into_iter().map(|i| (i["metadata"]["name"].as_str().unwrap_or_default().to_owned(), i)).collect())
}

/// What is wrong with what proxies have and answer.
pub(crate) async fn proxies(scene: &Scene, churn: &Churn) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    let told = scene.replicas.seats[0].server.admin("/api/xds").await?;
    for (i, proxy) in scene.proxies.iter().enumerate() {
        let group = format!("infra/{}", GATEWAYS[i]);
        for (name, route) in &churn.routes {
            let answer = asked(churn.ports[i], &host(name), "/").await.unwrap_or_default();
            let wanted = format!("http://{}", target(route));
            if !answer.location.as_ref().is_some_and(|l| l.starts_with(&wanted)) {
                wrong.push(format!("{group}: {name} answers {} {:?}, not {wanted}", answer.status, answer.location));
            }
        }
        let clusters: Value = serde_json::from_str(&proxy.admin("/clusters?format=json").await?)?;
        wrong.extend(endpoints(&group, &clusters, churn));
        let has = proxy.versions().await?;
        let types = told[&group]["resources"].as_object().context("the group's resources")?;
        // Envoy does not tell versions of endpoints; those are looked at above.
        let types = types.iter().filter(|(kind, _)| !kind.ends_with(".ClusterLoadAssignment"));
        let all = types.flat_map(|(kind, list)| list.as_array().into_iter().flatten().map(move |r| (kind, r)));
        for (kind, r) in all {
            let wanted = format!(
                "{kind} {} {}",
                r["name"].as_str().unwrap_or_default(),
                r["version"].as_str().unwrap_or_default()
            );
            if !has.contains(&wanted) {
                wrong.push(format!("{group}: it does not have {wanted}"));
            }
        }
    }
    if served_certificate(churn.tls_port, SECURE).await.ok().as_ref() != Some(&churn.certificate) {
        wrong.push("another certificate is served".to_owned());
    }
    Ok(wrong)
}

/// Each route's own cluster has the endpoints of its Service. Clusters of routes that are gone may be there for a while.
fn endpoints(group: &str, clusters: &Value, churn: &Churn) -> Vec<String> {
    let mut by_cluster: Vec<(&str, BTreeSet<String>)> = Vec::new();
    for cluster in clusters["cluster_statuses"].as_array().into_iter().flatten() {
        let hosts = cluster["host_statuses"].as_array().into_iter().flatten();
        let addresses = hosts.filter_map(|h| h["address"]["socket_address"]["address"].as_str()).map(str::to_owned);
        by_cluster.push((cluster["name"].as_str().unwrap_or_default(), addresses.collect()));
    }
    let mut wrong = Vec::new();
    for (name, route) in &churn.routes {
        let Some(service) = route.service else { continue };
        let own = format!("httproute/team-a/{name}/rule/0");
        let of: Vec<_> = by_cluster.iter().filter(|(n, _)| *n == own || n.starts_with(&format!("{own}/"))).collect();
        if !of.iter().any(|(_, addresses)| *addresses == churn.endpoints[service]) {
            wrong.push(format!("{group}: {own} has {of:?}, not {:?}", churn.endpoints[service]));
        }
    }
    wrong
}

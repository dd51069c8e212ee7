//! Leadership on a real API server: each row is a fault with its measured time; the audit log judges all of them.
//!
//! `LEADERSHIP_STEADY_SECONDS` (60; 600 in the long run) is how long the rows about an unchanged leadership last.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::{future::Future, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    replica::Replica,
    stage::{Seat, Stage, now, roles, users},
};
use k8s_openapi::api::{coordination::v1::Lease, rbac::v1::RoleBinding};
use kube::{Api, api::DeleteParams};
use nix::sys::signal::Signal;
use testkit::{
    apiserver::{ApiServer, Options, kube_bin},
    proxy::{Answers, Network},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

const RENEW: Duration = Duration::from_secs(10);
/// Upper bound for a take-over from a leader that says nothing: lease duration 15 s + jittered retry of 2 s + an attempt.
const TAKE_OVER: Duration = Duration::from_secs(19);
const START: Duration = Duration::from_secs(25);

type Row = (&'static str, usize, fn(Arc<ApiServer>) -> Pin<Box<dyn Future<Output = Result<String>> + Send>>);

fn steady() -> Duration {
    Duration::from_secs(std::env::var("LEADERSHIP_STEADY_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_holds_whatever_happens() {
    let Some(bin) = kube_bin() else { return };
    let rows: Vec<Row> = vec![
        ("sigterm", 3, |s| Box::pin(sigterm(s))),
        ("sigkill", 3, |s| Box::pin(sigkill(s))),
        ("cut", 3, |s| Box::pin(network(s, "cut", Network::Cut, 30))),
        ("lost-answers", 3, |s| Box::pin(network(s, "lost-answers", Network::LoseAnswers, 30))),
        ("black-hole", 3, |s| Box::pin(network(s, "black-hole", Network::Stall, 60))),
        ("sigstop", 3, |s| Box::pin(sigstop(s))),
        ("deleted", 3, |s| Box::pin(deleted(s))),
        ("rbac", 3, |s| Box::pin(rbac(s))),
        ("slow", 3, |s| Box::pin(slow(s))),
        ("throttled", 3, |s| Box::pin(throttled(s))),
        ("errors", 3, |s| Box::pin(errors(s))),
        ("saturated", 3, |s| Box::pin(saturated(s))),
        ("away-for-all", 3, |s| Box::pin(away(s))),
        ("exit", 2, |s| Box::pin(exit(s))),
        ("max-recovery", 1, |s| Box::pin(max_recovery(s))),
        ("disabled", 1, |s| Box::pin(disabled(s))),
        ("fast", 3, |s| Box::pin(fast(s))),
        ("client-go", 2, |s| Box::pin(client_go(s))),
    ];
    let only = std::env::var("LEADERSHIP_ROW").ok();
    let everybody = rows.iter().flat_map(|(name, n, _)| users(name, *n + 1)).collect();
    let server =
        Arc::new(ApiServer::start(Options { bin, users: everybody, logs: None, bodies: false }).await.unwrap());
    roles(server.admin().unwrap()).await.unwrap();
    let mut tasks = JoinSet::new();
    for (name, _, row) in rows {
        if only.as_deref().is_some_and(|o| o != name) {
            continue;
        }
        let server = server.clone();
        tasks.spawn(async move { (name, row(server).await) });
    }
    let mut lines = Vec::new();
    let mut failed = 0;
    while let Some(done) = tasks.join_next().await {
        let (name, outcome) = done.unwrap();
        lines.push(match outcome {
            Ok(text) => format!("ok     {name:14} {text}"),
            Err(e) => {
                failed += 1;
                format!("FAILED {name:14} {e:#}")
            }
        });
    }
    lines.sort();
    let table = lines.join("\n");
    println!("{table}\nleadership: {} rows, {failed} failed", lines.len());
    assert_eq!(failed, 0, "\n{table}");
}

fn seconds(from: i64, to: i64) -> f64 {
    std::time::Duration::from_micros(u64::try_from(to - from).unwrap_or(0)).as_secs_f64()
}

async fn sigterm(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "sigterm", 3, &[]).await?;
    let old = stage.leader(START).await?;
    stage.wrote(&server, old, 0, Duration::from_secs(10)).await?;
    let at = now();
    stage.replicas[old].replica.signal(Signal::SIGTERM)?;
    let new = stage.leader_but(Some(old), Duration::from_secs(10)).await?;
    let took = seconds(at, stage.began(new)?);
    stage.wrote(&server, new, at, Duration::from_secs(10)).await?;
    let code = stage.replicas[old].replica.ended(Duration::from_secs(10)).await?;
    ensure!(code == Some(0), "exit code {code:?}");
    ensure!(took < 1.0, "next leader after {took:.2} s, goal < 1 s");
    let n = stage.verdict(&server, RENEW, &[old])?;
    Ok(format!("next leader after {took:.2} s (goal < 1 s), {n} writes"))
}

async fn sigkill(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "sigkill", 3, &[]).await?;
    let old = stage.leader(START).await?;
    stage.wrote(&server, old, 0, Duration::from_secs(10)).await?;
    let at = now();
    stage.replicas[old].replica.signal(Signal::SIGKILL)?;
    let new = stage.leader_but(Some(old), TAKE_OVER + RENEW).await?;
    let took = seconds(at, stage.began(new)?);
    stage.wrote(&server, new, at, Duration::from_secs(10)).await?;
    ensure!(took < TAKE_OVER.as_secs_f64(), "next leader after {took:.1} s");
    let n = stage.verdict(&server, RENEW, &[old])?;
    Ok(format!("next leader after {took:.1} s (bound 19 s), {n} writes"))
}

/// The leader's own way to the server fails: it demotes by its own clock, another takes over, it comes back as a candidate.
async fn network(server: Arc<ApiServer>, row: &str, fault: Network, lasts: u64) -> Result<String> {
    let mut stage = Stage::set(&server, row, 3, &[]).await?;
    let old = stage.leader(START).await?;
    stage.wrote(&server, old, 0, Duration::from_secs(10)).await?;
    let (at, from) = (now(), Instant::now());
    stage.replicas[old].network.set(fault);
    let new = stage.leader_but(Some(old), TAKE_OVER + RENEW).await?;
    let took = seconds(at, stage.began(new)?);
    stage.wrote(&server, new, at, Duration::from_secs(10)).await?;
    ensure!(took < TAKE_OVER.as_secs_f64() + 1.0, "next leader after {took:.1} s");
    let told = stage.replicas[old].replica.told();
    let demoted = told.iter().rev().find(|t| t.event == "following" && t.at > at).context("it did not demote")?;
    let demoted = seconds(at, demoted.at);
    ensure!(demoted <= RENEW.as_secs_f64() + 0.5, "demoted after {demoted:.1} s");
    sleep(Duration::from_secs(lasts).saturating_sub(from.elapsed())).await;
    stage.replicas[old].network.set(Network::Open);
    // Candidate again: it leads once the present leader goes.
    let back = now();
    stage.replicas[new].replica.signal(Signal::SIGTERM)?;
    let third = (0..3).find(|i| *i != old && *i != new).context("third")?;
    stage.replicas[third].network.set(Network::Cut);
    let again = stage.leader_but(Some(new), Duration::from_secs(40)).await?;
    ensure!(again == old, "{again} leads where only {old} can");
    stage.wrote(&server, old, back, Duration::from_secs(10)).await?;
    let n = stage.verdict(&server, RENEW, &[new])?;
    Ok(format!("demoted after {demoted:.1} s, next leader after {took:.1} s, candidate again, {n} writes"))
}

async fn sigstop(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "sigstop", 3, &[]).await?;
    let old = stage.leader(START).await?;
    stage.wrote(&server, old, 0, Duration::from_secs(10)).await?;
    let (at, from) = (now(), Instant::now());
    stage.replicas[old].replica.signal(Signal::SIGSTOP)?;
    let new = stage.leader_but(Some(old), TAKE_OVER + RENEW).await?;
    let took = seconds(at, stage.began(new)?);
    sleep(Duration::from_secs(40).saturating_sub(from.elapsed())).await;
    let woken = now();
    stage.replicas[old].replica.signal(Signal::SIGCONT)?;
    stage.replicas[old]
        .replica
        .until(Duration::from_secs(5), |t| t.iter().any(|t| t.event == "following" && t.at >= woken))
        .await?;
    sleep(Duration::from_secs(5)).await;
    let user = stage.replicas[old].replica.name.clone();
    let late = stage
        .writes(&server)?
        .iter()
        .filter(|w| w.user == user && w.resource == "configmaps" && w.accepted && w.at > at + 1_000_000)
        .count();
    ensure!(late == 0, "{late} writes of the old leader were accepted after it woke up");
    ensure!(stage.replicas[new].replica.leads(), "the new leader lost it");
    let n = stage.verdict(&server, RENEW, &[])?;
    Ok(format!("next leader after {took:.1} s, 0 writes of the old one after SIGCONT, {n} writes"))
}

async fn deleted(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "deleted", 3, &[]).await?;
    let old = stage.leader(START).await?;
    stage.wrote(&server, old, 0, Duration::from_secs(10)).await?;
    let before = stage.writes(&server)?.iter().filter_map(|w| w.term).max();
    let at = now();
    Api::<Lease>::namespaced(server.admin()?, "deleted").delete("lease", &DeleteParams::default()).await?;
    // Whoever leads next, writes go on under a term that is not older.
    let deadline = Instant::now() + Duration::from_secs(45);
    loop {
        let later: Vec<_> = stage
            .writes(&server)?
            .into_iter()
            .filter(|w| w.resource == "configmaps" && w.accepted && w.at > at + 12_000_000)
            .collect();
        if let Some(w) = later.first() {
            ensure!(w.term >= before, "term {:?} after {before:?}", w.term);
            break;
        }
        ensure!(Instant::now() < deadline, "nobody wrote within 45 s of the deletion");
        sleep(Duration::from_millis(500)).await;
    }
    let leader = stage.leader(Duration::from_secs(30)).await?;
    let n = stage.verdict(&server, RENEW, &[])?;
    Ok(format!("leader {} after the deletion (before: {old}), terms never went back, {n} writes", leader))
}

async fn rbac(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "rbac", 3, &[]).await?;
    let old = stage.leader(START).await?;
    let admin = server.admin()?;
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "rbac");
    let at = now();
    bindings.delete("leases", &DeleteParams::default()).await?;
    stage.replicas[old]
        .replica
        .until(Duration::from_secs(15), |t| t.iter().any(|t| t.event == "following" && t.at > at))
        .await?;
    sleep(Duration::from_secs(10)).await;
    ensure!(stage.replicas.iter().all(|s| !s.replica.leads()), "somebody leads without being allowed to");
    let back = now();
    stage.bind(&admin, "leases").await?;
    let new = stage.leader(Duration::from_secs(20)).await?;
    let took = seconds(back, stage.began(new)?);
    stage.wrote(&server, new, back, Duration::from_secs(10)).await?;
    let n = stage.verdict(&server, RENEW, &[])?;
    Ok(format!("demoted, nobody led; leader {took:.1} s after the right came back, {n} writes"))
}

/// The leadership does not change for a while.
async fn unchanged(server: &ApiServer, mut stage: Stage, leader: usize, lasts: Duration) -> Result<String> {
    let before: Vec<usize> = stage.replicas.iter().map(|s| s.replica.told().len()).collect();
    sleep(lasts).await;
    let after: Vec<usize> = stage.replicas.iter().map(|s| s.replica.told().len()).collect();
    ensure!(
        before == after,
        "roles changed: {:?}",
        stage.replicas.iter().map(|s| s.replica.told()).collect::<Vec<_>>()
    );
    ensure!(stage.replicas[leader].replica.leads(), "it does not lead any more");
    let n = stage.verdict(server, RENEW, &[])?;
    Ok(format!("leadership unchanged for {} s, {n} writes", lasts.as_secs()))
}

async fn slow(server: Arc<ApiServer>) -> Result<String> {
    let stage = Stage::set(&server, "slow", 3, &[]).await?;
    let leader = stage.leader(START).await?;
    for seat in &stage.replicas {
        seat.network.set(Network::Slow(Duration::from_millis(600)));
    }
    unchanged(&server, stage, leader, steady()).await
}

async fn throttled(server: Arc<ApiServer>) -> Result<String> {
    bursts(server, "throttled", 429).await
}

async fn errors(server: Arc<ApiServer>) -> Result<String> {
    bursts(server, "errors", 503).await
}

/// Four seconds of nothing but this status, four seconds of grace, again and again: within the renew budget of 10 s.
async fn bursts(server: Arc<ApiServer>, row: &str, code: u16) -> Result<String> {
    let stage = Stage::set(&server, row, 3, &[]).await?;
    let leader = stage.leader(START).await?;
    let (lasts, from) = (steady(), Instant::now());
    let before: Vec<usize> = stage.replicas.iter().map(|s| s.replica.told().len()).collect();
    while from.elapsed() < lasts {
        for answers in [Answers::Status { code, every: 1 }, Answers::Pass] {
            stage.replicas.iter().for_each(|seat| seat.http.set(answers));
            sleep(Duration::from_secs(4)).await;
        }
    }
    let after: Vec<usize> = stage.replicas.iter().map(|s| s.replica.told().len()).collect();
    ensure!(
        before == after,
        "roles changed: {:?}",
        stage.replicas.iter().map(|s| s.replica.told()).collect::<Vec<_>>()
    );
    unchanged(&server, stage, leader, Duration::from_secs(4)).await?;
    Ok(format!("leadership unchanged for {} s of {code} half the time", lasts.as_secs()))
}

async fn saturated(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "saturated", 3, &[]).await?;
    let leader = stage.leader(START).await?;
    let before: Vec<usize> = stage.replicas.iter().map(|s| s.replica.told().len()).collect();
    let at = Instant::now();
    stage.replicas[leader].replica.tell("due 5000").await?;
    stage.replicas[leader]
        .replica
        .until(Duration::from_secs(300), |t| t.iter().any(|t| t.event == "wrote-due"))
        .await?;
    let took = at.elapsed().as_secs_f64();
    for (i, seat) in stage.replicas.iter().enumerate() {
        let more = usize::from(i == leader);
        ensure!(seat.replica.told().len() == before[i] + more, "roles changed: {:?}", seat.replica.told());
    }
    let n = stage.verdict(&server, RENEW, &[])?;
    ensure!(n >= 5000, "only {n} writes");
    Ok(format!("5,000 due writes in {took:.0} s, leadership unchanged, {n} writes"))
}

async fn away(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "away-for-all", 3, &[]).await?;
    let old = stage.leader(START).await?;
    stage.wrote(&server, old, 0, Duration::from_secs(10)).await?;
    for seat in &stage.replicas {
        seat.network.set(Network::Cut);
    }
    sleep(Duration::from_secs(30)).await;
    ensure!(stage.replicas.iter().all(|s| !s.replica.leads()), "somebody leads without the API server");
    let back = now();
    for seat in &stage.replicas {
        seat.network.set(Network::Open);
    }
    let new = stage.leader(Duration::from_secs(25)).await?;
    let took = seconds(back, stage.began(new)?);
    stage.wrote(&server, new, back, Duration::from_secs(10)).await?;
    ensure!(took <= 20.0, "leader {took:.1} s after the return");
    let n = stage.verdict(&server, RENEW, &[])?;
    Ok(format!("nobody led meanwhile; one leader {took:.1} s after the return (bound 20 s), {n} writes"))
}

async fn exit(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "exit", 2, &["--exit-on-loss"]).await?;
    let old = stage.leader(START).await?;
    let at = now();
    stage.replicas[old].network.set(Network::Cut);
    let code = stage.replicas[old].replica.ended(Duration::from_secs(15)).await?;
    let took = seconds(at, now());
    ensure!(code == Some(3), "exit code {code:?}");
    ensure!(took <= 12.5, "ended after {took:.1} s: at most renewDeadline + 2 s");
    let new = stage.leader_but(Some(old), TAKE_OVER + RENEW).await?;
    stage.verdict(&server, RENEW, &[old])?;
    Ok(format!("exit code 3 {took:.1} s after the cut (10 s + 2 s), {new} took over"))
}

async fn max_recovery(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "max-recovery", 1, &["--max-recovery", "15"]).await?;
    stage.leader(START).await?;
    let at = now();
    stage.replicas[0].network.set(Network::Cut);
    let code = stage.replicas[0].replica.ended(Duration::from_secs(60)).await?;
    let took = seconds(at, now());
    ensure!(code == Some(4), "exit code {code:?}");
    ensure!(took >= 15.0, "gave up after {took:.1} s already");
    stage.verdict(&server, RENEW, &[0])?;
    Ok(format!("exit code 4 {took:.1} s after the cut (maxRecoveryDuration 15 s)"))
}

async fn disabled(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "disabled", 1, &["--disable"]).await?;
    stage.wrote(&server, 0, 0, Duration::from_secs(10)).await?;
    ensure!(stage.writes(&server)?.iter().all(|w| w.resource != "leases"), "it touched a Lease");
    ensure!(stage.replicas[0].replica.is_alive(), "it ended");
    Ok("writes at once, no Lease".into())
}

async fn fast(server: Arc<ApiServer>) -> Result<String> {
    let mut stage = Stage::set(&server, "fast", 3, &["--fast"]).await?;
    let old = stage.leader(START).await?;
    let at = now();
    stage.replicas[old].replica.signal(Signal::SIGKILL)?;
    let new = stage.leader_but(Some(old), TAKE_OVER).await?;
    let took = seconds(at, stage.began(new)?);
    ensure!(took < 11.0, "next leader after {took:.1} s with preset Fast");
    stage.verdict(&server, Duration::from_secs(4), &[old])?;
    Ok(format!("preset Fast: next leader {took:.1} s after SIGKILL"))
}

/// 50 hand-overs, in both directions, with a candidate that uses client-go.
async fn client_go(server: Arc<ApiServer>) -> Result<String> {
    let Some(bin) = std::env::var_os("CLIENT_GO_ELECTOR").map(PathBuf::from) else {
        println!("skipped: CLIENT_GO_ELECTOR is not set (tests/tools/client-go.sh prints the path)");
        return Ok("skipped".into());
    };
    let mut stage = Stage::set(&server, "client-go", 1, &[]).await?;
    stage.leader(START).await?;
    let theirs = stage.kubeconfig(&server, "client-go-1", &server.url())?;
    let ours = stage.kubeconfig(&server, "client-go-0", &server.url())?;
    let (our_log, their_log) = (stage.log("client-go-0"), stage.log("client-go-1"));
    let start = |ours_next: bool| -> Result<Replica> {
        if ours_next {
            Replica::start("client-go-0", &ours, "client-go", &[], &our_log)
        } else {
            Replica::client_go(&bin, "client-go-1", &theirs, "client-go", &their_log)
        }
    };
    // Leading intervals of both; a client-go leader has ended when it is told to, its message comes after the release.
    let mut intervals: Vec<(i64, i64, bool)> = Vec::new();
    let mut slowest = [0.0_f64; 2];
    // Its proxies stay: it talks through them.
    let Seat { replica: first, network: _network, http: _http } = stage.replicas.pop().context("first")?;
    let mut leader = (first, true);
    for hand_over in 0..50 {
        let mut next = (start(!leader.1)?, !leader.1);
        // The next one is a candidate once it has looked at the lease; it must not lead while the other does.
        sleep(Duration::from_millis(300)).await;
        ensure!(!next.0.leads(), "both lead at hand-over {hand_over}");
        let told = now();
        let began = leader.0.told().iter().rev().find(|t| t.event == "leading").context("never led")?.at;
        leader.0.signal(Signal::SIGTERM)?;
        leader.0.ended(Duration::from_secs(15)).await?;
        let stopped = leader.0.told().iter().rev().find(|t| t.event == "following").map_or(told, |t| t.at);
        intervals.push((began, if leader.1 { stopped } else { told }, leader.1));
        next.0.until(Duration::from_secs(25), |t| t.iter().any(|t| t.event == "leading")).await?;
        let took = seconds(told, next.0.told().iter().find(|t| t.event == "leading").context("leads")?.at);
        let side = usize::from(next.1);
        slowest[side] = slowest[side].max(took);
        leader = next;
    }
    intervals.sort_unstable();
    for pair in intervals.windows(2) {
        ensure!(pair[0].1 <= pair[1].0, "both led: {pair:?}");
    }
    Ok(format!("50 hand-overs, never both; slowest to ours {:.1} s, to client-go {:.1} s", slowest[1], slowest[0]))
}

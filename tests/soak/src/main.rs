//! Replicas of the real control plane on a real API server, with real proxies, under churn and random faults.
//!
//! The last line is `soak: T s, C changes, F faults, W writes, V violations`; the exit code is 0 only if V is 0 and planted
//! mistakes are seen. See README.md.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it says what happens and what came of it")]

mod churn;
mod faults;
mod memory;
mod rest;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, Result, ensure};
use apiserver::{
    ensemble::{self, Ensemble, LEASE, SYSTEM},
    envoy::envoy_bin,
    reigns,
    server::Server,
    world::{World, until},
};
use clap::Parser;
use rand::{SeedableRng, rngs::StdRng};
use serde_json::json;
use testkit::apiserver::{kube_bin, stable_port};
use tokio::time::Instant;

use crate::{
    churn::Churn,
    faults::{Faults, Scene},
};

const REPLICAS: usize = 3;
/// No write of a leader is later than this after its last renewal, in microseconds.
const RENEW_DEADLINE: i64 = 10_000_000;
/// Violations that are printed.
const SHOWN: usize = 40;

/// Replicas under churn and random faults.
#[derive(Debug, Parser)]
struct Args {
    /// Seconds of churn and faults
    #[arg(default_value_t = 150)]
    seconds: u64,
    /// Which changes and faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the logs of replicas are left
    #[arg(long)]
    logs: Option<PathBuf>,
}

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<bool> {
    let (Some(bin), Some(envoy)) = (kube_bin(), envoy_bin()) else { return Ok(true) };
    let from = Instant::now();
    let random = |n: u64| StdRng::seed_from_u64(args.seed.wrapping_mul(1_000).wrapping_add(n));
    let (mut scene, mut churn) = set(bin, envoy, random(0)).await?;
    println!("set: {REPLICAS} replicas, 2 proxies after {:.1} s; seed {}", from.elapsed().as_secs_f64(), args.seed);

    let longest = Duration::from_secs(if args.seconds < 600 { 20 } else { 40 });
    let mut faults = Faults::new(random(1), longest);
    let until = Instant::now() + Duration::from_secs(args.seconds);
    let (changed, broken) = tokio::join!(churn.run(until), faults.run(&mut scene, until));
    let ended = changed.and(broken);
    let mut violations = match ended {
        Ok(()) => rest::violations(&mut scene, &churn).await,
        Err(e) => vec![format!("{e:#}")],
    };
    let verdict = reigns::judge(&rest::audit(&scene)?, &rest::users(&scene), LEASE, RENEW_DEADLINE, &faults.held);
    violations.extend(verdict.violations);
    violations.extend(faults.lives.iter().filter_map(memory::Life::violation));

    println!("changes: {:?}", churn.changes);
    println!("faults: {:?}", faults.counts);
    println!(
        "writes: {} in {} reigns; {} came late because the network had held them back",
        verdict.writes, verdict.reigns, verdict.held
    );
    for life in &faults.lives {
        if let (Some((early, late)), Some(last)) = (life.quarters(), life.samples.last()) {
            let lived = last.0 - life.samples[0].0;
            println!("memory: {} over {lived} s: {early} KiB in the second quarter, {late} KiB in the last", life.user);
        }
    }
    for violation in violations.iter().take(SHOWN) {
        println!("VIOLATION {violation}");
    }
    if let Some(logs) = &args.logs {
        std::fs::create_dir_all(logs)?;
        for seat in &scene.replicas.seats {
            std::fs::copy(seat.server.scratch().join("log"), logs.join(format!("{}.log", seat.user)))?;
        }
        std::fs::copy(scene.world.server.audit_path(), logs.join("audit.log"))?;
    }
    let mut seen = true;
    if violations.is_empty() {
        match planted(&scene, &mut churn, &faults).await {
            Ok(()) => println!("planted: a second writer, a lost status and an old answer are seen"),
            Err(e) => {
                println!("planted: {e:#}");
                seen = false;
            }
        }
    }
    println!(
        "soak: {} s, {} changes, {} faults, {} writes, {} violations",
        args.seconds,
        churn.changes.values().sum::<usize>(),
        faults.counts.values().sum::<usize>(),
        verdict.writes,
        violations.len()
    );
    Ok(violations.is_empty() && seen)
}

async fn set(bin: PathBuf, envoy: PathBuf, random: StdRng) -> Result<(Scene, Churn)> {
    let users = ensemble::users(REPLICAS);
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    let world = World::start_with(bin, &names, &[], true).await?;
    world.define(|_| true).await?;
    for ns in [SYSTEM, "infra", "team-a"] {
        world.namespace(ns, json!({})).await?;
    }
    ensemble::free_lease(&world).await?;
    let mut churn = Churn::new(world.client(), random, [stable_port()?, stable_port()?], stable_port()?);
    churn.set().await?;
    let replicas = Ensemble::start(&world, &users).await?;
    let mut scene = Scene { world, replicas, proxies: Vec::new(), envoy };
    for i in 0..churn::GATEWAYS.len() {
        scene.proxies.push(scene.proxy(i)?);
    }
    let wrong = rest::violations(&mut scene, &churn).await;
    ensure!(wrong.is_empty(), "before any fault: {wrong:?}");
    Ok((scene, churn))
}

/// What must not be is made to be: the judges have to see it.
async fn planted(scene: &Scene, churn: &mut Churn, faults: &Faults) -> Result<()> {
    // The model is told of a change that nobody made.
    let name = churn.routes.keys().next().context("a route")?.clone();
    let original = churn.routes[&name].clone();
    if let Some(route) = churn.routes.get_mut(&name) {
        route.marker += 1_000_000;
        route.service = if route.service.is_some() { None } else { Some(0) };
    }
    ensure!(!rest::statuses(scene, churn).await?.is_empty(), "a status that is not as wanted is not seen");
    ensure!(!rest::proxies(scene, churn).await?.is_empty(), "an answer that is not as wanted is not seen");
    churn.routes.insert(name, original);

    // A process that writes without being elected, as a user of one that does not lead.
    let leader = scene.replicas.leader(Duration::from_secs(30)).await?;
    let follower = &scene.replicas.seats[(leader + 1) % scene.replicas.seats.len()];
    let kubeconfig = scene.world.server.kubeconfig(&follower.user, &scene.world.server.url());
    let config = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider:\n  type: Kubernetes\n  \
                  kubernetes:\n    leaderElection: { disable: true }\n";
    let rogue = Server::start_with(&kubeconfig, config, &[]).await?;
    let users = rest::users(scene);
    until(Duration::from_secs(60), "a second writer is seen", async || {
        churn.change().await?;
        let verdict = reigns::judge(&rest::audit(scene)?, &users, LEASE, RENEW_DEADLINE, &faults.held);
        Ok(verdict.violations.iter().any(|v| v.starts_with(&follower.user)))
    })
    .await
    .with_context(|| rogue.log_tail())
}

// === impl Scene ===

impl Scene {
    /// A new proxy of a Gateway: of the first one through what stands for the Service, of the second one to one replica only.
    fn proxy(&self, i: usize) -> Result<apiserver::envoy::Envoy> {
        let port = if i == 0 { self.replicas.service.port() } else { self.replicas.seats[faults::KEPT].place.xds };
        let group = format!("infra/{}", churn::GATEWAYS[i]);
        apiserver::envoy::Envoy::connected(
            &self.envoy,
            &self.replicas.certificates(),
            port,
            &group,
            &format!("proxy-{i}"),
        )
    }
}

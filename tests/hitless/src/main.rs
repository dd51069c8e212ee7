//! Changes a running gateway a thousand times under steady load and counts what it costs: nothing, or the run fails.
//!
//! `hitless [CHANGES] [--seed N] [--rate N] [--pace-ms N] [--plant routes-first|removals-first]`
//!
//! The gateway is the real binary with a real Envoy (`ENVOY_BIN`); backends and clients are in this process. The last
//! line is `hitless: C changes, R requests, F failed, N nacks, E early 5xx`. The exit code is 0 only if all changes were
//! made and seen, at least 200 requests a second were sent, and F, N and E are 0. With `--plant` the control plane's
//! order of updates is broken on the wire ([`relay`]), and the exit code is 0 only if the run noticed.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for the terminal")]

mod client;
mod expect;
mod listeners;
mod load;
mod manifest;
mod pki;
mod relay;
mod report;
mod routes;
mod target;

use std::{net::TcpListener, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use e2e::Gateway;
use testkit::echo::{Config, Echo, tls_from_pem};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    client::Client,
    listeners::{ListenerLane, Ports},
    load::Context,
    manifest::{BACKEND_HOST, Backend, Pools},
    pki::Authority,
    relay::{Fault, Relay},
    routes::RouteLane,
};

/// Lanes that change routes, at the same time.
const ROUTE_LANES: usize = 3;
/// Changes among which there are some of every kind.
const MANY: u64 = 200;
/// Requests a second that a run must reach.
const LEAST_RATE: f64 = 200.0;

/// What was asked for.
#[derive(Clone, Debug)]
struct Options {
    changes: u64,
    seed: u64,
    rate: f64,
    pace: Duration,
    plant: Option<(&'static str, Fault)>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(e) => {
            eprintln!(
                "{e}\nusage: hitless [CHANGES] [--seed N] [--rate N] [--pace-ms N] [--plant routes-first|removals-first]"
            );
            return ExitCode::from(2);
        }
    };
    match run(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("hitless: {e:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(options: &Options) -> Result<bool> {
    let envoy = e2e::gateway::envoy_bin().context("a run without Envoy proves nothing")?;
    let (backends, servers) = (Authority::new("backends")?, Authority::new("servers")?);
    let (pools, echoes) = start_backends(&backends).await?;
    let echoes = Arc::new(echoes);
    let names: Vec<String> = pools.plain.iter().chain(&pools.tls).map(|b| b.name.clone()).collect();
    let pools = Arc::new(pools);

    let scratch = tempfile::TempDir::new()?;
    let relay = match options.plant {
        Some((_, fault)) => Some(Relay::bind(fault).await?),
        None => None,
    };
    let program = relay.as_ref().map(|r| r.wrap(scratch.path(), &envoy)).transpose()?.unwrap_or(envoy);
    let base = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": manifest::base(&backends.pem())});
    let mut gateway = Gateway::start(&program, &[("base.json", &base.to_string())]).await?;
    let mut tasks = JoinSet::new();
    if let Some(relay) = relay {
        let xds = gateway.address("xds").and_then(|a| a.rsplit(':').next()?.parse().ok()).context("no xDS address")?;
        let home = gateway.scratch().join("home");
        tasks.spawn(async move { relay.run(&home, xds).await });
    }

    let (context, extra) = Context::new(Client::new(&servers.pem())?, gateway.resources());
    let context = Arc::new(context);
    let ports = free_ports()?;
    let http = ports.http;
    let seed = |n: usize| options.seed.wrapping_mul(1000).wrapping_add(n as u64);
    let first = (&pools.plain[0], Arc::clone(&echoes));
    let listeners = ListenerLane::new(ROUTE_LANES, seed(ROUTE_LANES), Arc::clone(&context), servers, ports, first)?;
    listeners.ready().await?;

    let (stop, stopped) = watch::channel(false);
    let begin = Instant::now();
    let load = load::run(Arc::clone(&context), options.rate, seed(99), extra, stopped.clone());
    tasks.spawn(async move {
        load.await;
        Ok(())
    });
    let (enough, over) = watch::channel(false);
    let mut lanes = JoinSet::new();
    lanes.spawn(listeners.run(options.pace, over.clone()));
    for n in 0..ROUTE_LANES {
        let lane = RouteLane::new(n, seed(n), Arc::clone(&context), Arc::clone(&pools), http);
        lanes.spawn(lane.run(options.pace, over.clone()));
    }
    watch_changes(&context, options.changes, &enough, &mut lanes).await;
    let took = begin.elapsed();
    let rate = context.report.requests() as f64 / took.as_secs_f64();
    stop.send_replace(true);
    // Ends when the requests under way are answered; the relay goes on until then.
    if let Some(ended) = tasks.join_next().await {
        ended?.context("a part of the run ended early")?;
    }

    let (_, metrics) = gateway.get("metrics", "/metrics").await?;
    let (nacks, went_on) = (sum(&metrics, "xds_nack"), sum(&metrics, "xds_updates_went_on"));
    let probes = |kind: &str| {
        echoes.iter().zip(&names).filter(|(_, n)| n.starts_with(kind)).map(|(e, _)| e.probes()).sum::<u64>()
    };
    for kind in ["plain", "tls"] {
        // Without its policies the run would not show what it is to show.
        if options.plant.is_none() && options.changes >= MANY && probes(kind) == 0 {
            context.report.wrong(&format!("no {kind} backend was asked for its health"));
        }
    }
    if sum(&metrics, "resource_problems") > 0 {
        context.report.wrong("the gateway finds fault with a resource file");
    }
    context.report.details(gateway.scratch());
    let reopened = context.client.reopened.load(std::sync::atomic::Ordering::Relaxed);
    println!(
        "{:.1} s, {rate:.0} requests/s; {reopened} kept connections found closed before use; {went_on} updates went on \
         without an acknowledgement; backends: {} requests, {} of them health checks",
        took.as_secs_f64(),
        echoes.iter().map(Echo::requests).sum::<u64>(),
        echoes.iter().map(Echo::probes).sum::<u64>()
    );
    if nacks > 0 {
        gateway.log().lines().filter(|l| l.contains("refused by the proxy")).take(5).for_each(|l| println!("{l}"));
    }
    context.client.leave_all();
    gateway.stop().await?;

    let figures = context.report.figures(nacks);
    if let Some((name, _)) = options.plant {
        let caught = figures.failed > 0;
        let verdict = if caught { "caught" } else { "NOT CAUGHT" };
        println!("planted {name}: {verdict}: {figures}");
        return Ok(caught);
    }
    let good = figures.changes >= options.changes && figures.failed == 0 && figures.nacks == 0 && figures.early == 0;
    if rate < LEAST_RATE {
        println!("failed: only {rate:.0} requests/s, fewer than {LEAST_RATE}");
    }
    println!("{figures}");
    Ok(good && rate >= LEAST_RATE)
}

/// Waits until there were enough changes or a lane failed, then until all lanes ended.
async fn watch_changes(context: &Context, wanted: u64, enough: &watch::Sender<bool>, lanes: &mut JoinSet<Result<()>>) {
    let mut look = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            _ = look.tick(), if !*enough.borrow() => {
                if context.report.changes() >= wanted {
                    enough.send_replace(true);
                }
            }
            ended = lanes.join_next() => match ended {
                None => return,
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(e))) => {
                    context.report.wrong(&format!("{e:#}"));
                    enough.send_replace(true);
                }
                Some(Err(e)) => std::panic::resume_unwind(e.into_panic()),
            }
        }
    }
}

async fn start_backends(authority: &Authority) -> Result<(Pools, Vec<Echo>)> {
    let mut echoes = Vec::new();
    let mut pools = Pools { plain: Vec::new(), tls: Vec::new() };
    for n in 0..6 {
        let name = format!("plain-{n}");
        let echo = Echo::start(name.as_str()).await?;
        pools.plain.push(Backend { name, port: echo.addr().port() });
        echoes.push(echo);
    }
    let leaf = authority.leaf(BACKEND_HOST)?;
    let tls = tls_from_pem(&leaf.certificate, &leaf.key)?;
    for n in 0..4 {
        let name = format!("tls-{n}");
        let config = Config { tls: Some(Arc::clone(&tls)), ..Config::named(name.as_str()) };
        let echo = Echo::start_with(([127, 0, 0, 1], 0).into(), config).await?;
        pools.tls.push(Backend { name, port: echo.addr().port() });
        echoes.push(echo);
    }
    Ok((pools, echoes))
}

/// Ports below those that the system gives away by itself.
fn free_ports() -> Result<Ports> {
    let begin = 12_000 + u16::try_from(std::process::id() % 800)? * 10;
    let mut free = (begin..begin + 2000).filter(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok());
    let mut next = || free.next().context("no port is free");
    Ok(Ports { http: next()?, https: next()?, extras: [next()?, next()?, next()?] })
}

/// The sum of a counter over its labels.
fn sum(metrics: &str, name: &str) -> u64 {
    let lines = metrics.lines().filter(|l| !l.starts_with('#') && l.contains(name));
    lines.filter_map(|l| l.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as u64
}

// === impl Options ===

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { changes: 1000, seed: 1, rate: 250.0, pace: Duration::from_millis(400), plant: None };
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--seed" => options.seed = value()?.parse().context("--seed")?,
                "--rate" => options.rate = value()?.parse().context("--rate")?,
                "--pace-ms" => options.pace = Duration::from_millis(value()?.parse().context("--pace-ms")?),
                "--plant" => {
                    let name = value()?;
                    let found = Fault::ALL.into_iter().find(|(n, _)| *n == name);
                    options.plant = Some(found.with_context(|| format!("there is no bug {name} to plant"))?);
                }
                number if !number.starts_with('-') => options.changes = number.parse().context("CHANGES")?,
                _ => bail!("there is no option {arg}"),
            }
        }
        Ok(options)
    }
}

//! One replica: elects, and as leader writes ConfigMaps through the gate, stamped with its term.
//!
//! Standard output: one JSON object a line, `{"at": unix micros, "event": "leading"|"following"|"wrote-due", …}`.
//! Standard input: `due N` makes N more objects due at once. SIGTERM ends it in order.

#![allow(clippy::print_stdout, reason = "the protocol with the test")]

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use clap::Parser;
use election::{
    Elector, Identity, OnLostLease, Outcome, Permit, Policy, Preset, RoleWatch, TimingsConfig, WriteError,
    kubernetes::{KubernetesLease, PermitLayer, gated_client},
};
use k8s_openapi::{api::core::v1::ConfigMap, jiff::Timestamp};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use reconcile::{Backoff, Gated, Wanted};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::JoinSet,
    time::interval,
};

#[derive(Debug, Parser)]
struct Flags {
    #[arg(long)]
    kubeconfig: PathBuf,
    #[arg(long)]
    namespace: String,
    #[arg(long, default_value = "lease")]
    lease: String,
    #[arg(long)]
    name: String,
    /// Leads without an election.
    #[arg(long)]
    disable: bool,
    /// Ends with exit code 3 when the leadership is lost.
    #[arg(long)]
    exit_on_loss: bool,
    /// Ends with exit code 4 when the API server is away for so many seconds.
    #[arg(long)]
    max_recovery: Option<u64>,
    /// Timings `Fast` instead of the defaults.
    #[arg(long)]
    fast: bool,
}

fn say(event: &str, detail: serde_json::Value) {
    println!("{}", serde_json::json!({"at": Timestamp::now().as_microsecond(), "event": event, "detail": detail}));
}

fn main() -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(run());
    // A read of standard input cannot be cut off; it is not waited for.
    runtime.shutdown_background();
    code
}

async fn run() -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let flags = Flags::parse();
    let file = Kubeconfig::read_from(&flags.kubeconfig)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let timings = TimingsConfig { preset: flags.fast.then_some(Preset::Fast), ..TimingsConfig::default() }.resolve()?;
    let layer = PermitLayer::new(timings.write_timeout);
    let client = gated_client(config.clone(), &layer)?;

    let (role, mut elector) = if flags.disable {
        (RoleWatch::always_leader(), None)
    } else {
        let store = KubernetesLease::new(config, &flags.namespace, &flags.lease)?;
        let (elector, role) = Elector::new(store, Identity::unique(&flags.name)?, timings)?;
        let policy = Policy {
            on_lost_lease: if flags.exit_on_loss { OnLostLease::Exit } else { OnLostLease::Demote },
            max_recovery: flags.max_recovery.map(Duration::from_secs),
        };
        let elector = elector.with_policy(policy).with_observer(|t| {
            let event = if t.leads { "leading" } else { "following" };
            say(event, serde_json::json!({"term": t.term.0, "reason": t.reason.to_string()}));
        });
        (role, Some(elector.spawn_thread()?))
    };
    if flags.disable {
        say("leading", serde_json::json!({"term": 0, "reason": "election disabled"}));
    }

    let wanted: Wanted<String, String> = Wanted::new();
    wanted.complete();
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let end = |mut stopped: watch::Receiver<bool>| async move { drop(stopped.wait_for(|s| *s).await) };
    let writer = Writer { client, namespace: flags.namespace.clone().into() };
    let gate = Gated::new(writer, wanted.clone(), role, Backoff::default()).with_concurrency(8);
    tasks.spawn(gate.run(end(stopped)));

    let mut beat = interval(Duration::from_millis(250));
    let mut beats = 0_u64;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut due = false;
    let mut term = signal(SignalKind::terminate())?;
    let outcome = loop {
        tokio::select! {
            _ = term.recv() => break None,
            _ = beat.tick() => {
                beats += 1;
                wanted.publish([("beat".to_owned(), Some(beats.to_string()))]);
                if due && wanted.pending() <= 1 {
                    due = false;
                    say("wrote-due", serde_json::Value::Null);
                }
            }
            Ok(Some(line)) = lines.next_line() => {
                let n: usize = line.trim_start_matches("due ").parse().context("due N")?;
                wanted.publish((0..n).map(|i| (format!("due-{i}"), Some("1".to_owned()))));
                due = true;
            }
            ended = async { match &mut elector { Some(e) => e.ended().await, None => std::future::pending().await } } => break Some(ended?),
        }
    };
    if let Some(outcome) = outcome {
        say("ended", serde_json::json!(format!("{outcome:?}")));
        return Ok(ExitCode::from(match outcome {
            Outcome::Lost { .. } => 3,
            Outcome::Unreachable { .. } => 4,
            _ => 1,
        }));
    }
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
    if let Some(elector) = elector {
        say("ended", serde_json::json!(format!("{:?}", elector.stop().await?)));
    }
    Ok(ExitCode::SUCCESS)
}

struct Writer {
    client: Client,
    namespace: Arc<str>,
}

impl reconcile::Sync for Writer {
    type Key = String;
    type Value = String;
    type Error = kube::Error;

    /// Compare, then write with the uid and resourceVersion of what it was compared with.
    async fn sync(
        &self,
        permit: Permit<'_>,
        key: &String,
        want: Option<&String>,
    ) -> Result<(), WriteError<kube::Error>> {
        let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(want) = want else { return Ok(()) };
        let term = permit.term().0.to_string();
        let second = permit.another()?;
        let found = permit.run(api.get_opt(key)).await?;
        let data = [("value".to_owned(), want.clone()), ("term".to_owned(), term)].into();
        let params = PostParams::default();
        match found {
            None => {
                let mut object = ConfigMap::default();
                object.metadata.name = Some(key.clone());
                object.data = Some(data);
                second.run(api.create(&params, &object)).await?;
            }
            Some(mut object) if object.data.as_ref() != Some(&data) => {
                object.data = Some(data);
                second.run(api.replace(key, &params, &object)).await?;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

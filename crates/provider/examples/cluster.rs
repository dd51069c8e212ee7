//! Prints the changes of a cluster's objects as the gateway sees them, until Ctrl-C; then figures of the watches.

#![allow(clippy::print_stdout, reason = "an example prints")]

use kube::{Client, Config};
use provider::{
    Source,
    cluster::{ClusterOptions, ClusterSource},
};
use resources::Change;
use tokio::{sync::mpsc, task::JoinSet};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The kubeconfig of the environment, or the service account of the pod.
    let client = Client::try_from(Config::infer().await?)?;
    let (source, handle) = ClusterSource::new(client, ClusterOptions::default());
    let (tx, mut rx) = mpsc::channel(16);
    let mut tasks = JoinSet::new();
    tasks.spawn(source.run(tx));
    loop {
        let batch = tokio::select! {
            batch = rx.recv() => batch.unwrap_or_default(),
            _ = tokio::signal::ctrl_c() => break,
        };
        println!("batch of {}", batch.len());
        for change in batch {
            match change {
                Change::Upsert(key, _) => println!("+ {key}"),
                Change::Remove(key) => println!("- {key}"),
                Change::Synced => println!("  all told"),
                Change::Exclude(..) | Change::Readmit(_) => {}
            }
        }
    }
    let figures = handle.figures();
    for (kind, of) in &figures.kinds {
        println!("{kind}: {} lists, {} events, {} errors, {} fetched", of.lists, of.events, of.errors, of.fetched);
    }
    println!("not there: {:?}; cannot be read: {:?}", figures.absent, figures.broken);
    Ok(())
}

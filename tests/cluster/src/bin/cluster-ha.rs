//! `cluster-ha` with the test cluster up and the environment that `tests/tools/ha.sh` makes: a table of what happens when
//! replicas end, die, sleep and lose the API server. The last line is `ha: R rows, P passed, F failed`.
//!
//! `HA_CUT`, `HA_STOP`, `HA_OUTAGE` are seconds that faults last (60, 40, 60), `HA_STATUSES` is how many statuses are due at
//! once (5000), `HA_SLACK` is by how much times may be longer that a busy machine stretches (1); `HA_ROWS` is a comma-separated choice of rows
//! (`term,rollout,kill,cut,stalled,black-holed,stop,outage,crowd`), all by default.

#![allow(clippy::print_stderr, reason = "a program for the terminal")]

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use cluster::{
    faults::How,
    ha::{
        crowd::crowd,
        leaders::{End, ended, lost, rollout, slept},
        outage::outage,
        stage::Stage,
        table::{Bound, Outcome, Table},
    },
};
use tokio::time::Instant;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> ExitCode {
    match all().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("ha: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// A number from the environment.
fn number(name: &str, default: u64) -> Result<u64> {
    std::env::var(name).map_or(Ok(default), |v| v.parse()).with_context(|| name.to_owned())
}

async fn all() -> Result<bool> {
    let [cut, stop, away] =
        [number("HA_CUT", 60)?, number("HA_STOP", 40)?, number("HA_OUTAGE", 60)?].map(Duration::from_secs);
    let slack = f64::from(u32::try_from(number("HA_SLACK", 1)?)?);
    let statuses = usize::try_from(number("HA_STATUSES", 5000)?)?;
    let chosen = std::env::var("HA_ROWS").unwrap_or_default();
    let wanted = |row: &str| chosen.is_empty() || chosen.split(',').any(|c| c == row);
    let stage = Stage::from_env().await?;
    stage.install().await.context("installation")?;
    let mut table = Table::new();
    for row in ["term", "rollout", "kill", "cut", "stalled", "black-holed", "stop"] {
        if !wanted(row) {
            continue;
        }
        let (event, seconds, peer) = match row {
            "term" => ("leader SIGTERM", 3.0 * slack, "15.2-19.2 s"),
            "rollout" => ("rollout", 3.0 * slack, "15.2-19.2 s"),
            "kill" => ("leader SIGKILL", 19.0, "14.6-19.2 s"),
            "cut" => ("leader cut", 15.0, "63 s"),
            "stalled" => ("leader stalled", 15.0, "-"),
            "black-holed" => ("leader black-holed", 15.0, "63 s"),
            _ => ("leader SIGSTOP, SIGCONT", 19.0, "-"),
        };
        let from = Instant::now();
        let outcome: Result<Outcome> = match row {
            "term" => ended(&stage, End::Asked).await,
            "rollout" => rollout(&stage).await,
            "kill" => ended(&stage, End::Killed).await,
            "cut" => lost(&stage, How::Cut, cut).await,
            "stalled" => lost(&stage, How::Stalled, cut).await,
            "black-holed" => lost(&stage, How::BlackHoled, cut).await,
            _ => slept(&stage, stop).await,
        };
        table.row(&Bound { event, seconds, peer }, from, outcome);
    }
    if wanted("outage") {
        let from = Instant::now();
        let rows = outage(&stage, away, slack).await;
        table.row(&Bound { event: "API away for all", seconds: 20.0, peer: "17-19 s" }, from, rows.whole);
        table.row(
            &Bound { event: "replica restarted meanwhile", seconds: 5.0 * slack, peer: "-" },
            from,
            rows.restarted,
        );
    }
    if wanted("crowd") {
        let from = Instant::now();
        let event = format!("{statuses} statuses due at once");
        table.row(&Bound { event: &event, seconds: 240.0, peer: "-" }, from, crowd(&stage, statuses).await);
    }
    stage.run.keep_objects().await;
    let removed = stage.uninstall().await.context("removal");
    if let Err(e) = &removed {
        eprintln!("ha: {e:#}");
    }
    Ok(table.end() && removed.is_ok())
}

//! What runs beside Envoy in its pods.

use std::{net::Ipv4Addr, process::ExitCode};

use anyhow::{Context, Result};
use infra::shutdown::{self, Drain, Manager};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::cli::EnvoyCommand;

/// Runs the command of a pod.
pub(crate) fn run(command: &EnvoyCommand) -> Result<ExitCode> {
    // One line per event on standard error; the process of the container shows what both write.
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no async runtime")?;
    runtime.block_on(async {
        match *command {
            EnvoyCommand::ShutdownManager { ready_timeout } => {
                let mut term = signal(SignalKind::terminate())?;
                let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, shutdown::PORT))
                    .await
                    .with_context(|| format!("the shutdown manager cannot listen on port {}", shutdown::PORT))?;
                let manager = Manager { ready_timeout, ..Manager::default() };
                let stop = async move {
                    let _ = term.recv().await;
                };
                shutdown::manager(listener, manager, stop).await?;
            }
            EnvoyCommand::Shutdown {
                drain_timeout,
                min_drain_duration,
                health_check_failure_delay,
                exit_at_connections,
            } => {
                let drain = Drain {
                    timeout: drain_timeout,
                    least: min_drain_duration,
                    delay: health_check_failure_delay,
                    exit_at: exit_at_connections,
                    ..Drain::default()
                };
                shutdown::drain(&drain).await.context("the end of the drain cannot be told")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

//! The control plane: flags, configuration, wiring, supervision. Whatever is worth a unit test lives in a crate.

#![allow(clippy::print_stdout, reason = "commands answer on standard output")]

mod admin;
mod certgen;
mod cli;
mod cluster;
mod compose;
mod convert;
mod counted;
mod engine;
mod fleets;
mod homes;
mod leader;
mod local;
mod logging;
mod metrics;
mod pod;
mod replicas;
mod shared;
mod tokens;
mod topology;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::cli::{Cli, Command, Output};

fn main() -> ExitCode {
    // As the parent-tied launcher of Envoy, this executable does nothing else.
    infra::local::launcher::run_if_asked();
    // The one provider of cryptography; that it is there already can only mean the same one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            // Before logging is up, and for those who look at the terminal only.
            eprint_error(&error);
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr, reason = "the last words of a process that cannot go on")]
fn eprint_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Server(args) => {
            let loaded = settings::read(args.config_path.as_deref(), std::env::vars())?;
            compose::run(loaded, args.config_path, args.common)
        }
        Command::Standalone(args) => {
            let loaded = settings::standalone(&args.resources, std::env::vars())?;
            compose::run(loaded, None, args.common)
        }
        Command::Certgen(args) => certgen::run(&args),
        Command::Envoy(command) => pod::run(&command),
        Command::Version { output } => version(output),
    }
}

fn version(output: Output) -> Result<ExitCode> {
    let facts = serde_json::json!({
        "envoyGatewayVersion": env!("CARGO_PKG_VERSION"),
        "gatewayAPIVersion": convert::GATEWAY_API_VERSION,
        "envoyProxyVersion": convert::ENVOY_VERSION,
    });
    match output {
        Output::Json => println!("{facts:#}"),
        Output::Yaml => print!("{}", serde_saphyr::to_string(&facts)?),
        Output::Text => {
            for (name, value) in facts.as_object().into_iter().flatten() {
                println!("{name}: {}", value.as_str().unwrap_or_default());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

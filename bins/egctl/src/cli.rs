//! Commands and flags.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{output::Format, status, translate, validate, version};

/// Works with resources of a gateway without a cluster.
#[derive(Debug, Parser)]
#[command(name = "egctl", disable_version_flag = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Shows what proxies and objects would be told for resources in files.
    Translate(Translate),
    /// Checks resources in files as an API server would.
    Validate(Validate),
    /// Shows conditions of the objects of a gateway that runs.
    Status(Status),
    /// Shows the version.
    Version(Version),
    /// The same commands under the name that they have while they may still change.
    #[command(alias = "x")]
    Experimental {
        /// What to do.
        #[command(subcommand)]
        command: Experimental,
    },
}

/// Commands under `experimental`.
#[derive(Debug, Subcommand)]
pub enum Experimental {
    /// Shows what proxies and objects would be told for resources in files.
    Translate(Translate),
    /// Checks resources in files as an API server would.
    Validate(Validate),
    /// Shows conditions of the objects of a gateway that runs.
    Status(Status),
}

/// Flags of `translate`.
#[derive(Debug, Args)]
pub struct Translate {
    /// Kind of the input.
    #[arg(long, value_enum, default_value_t = From::GatewayApi)]
    pub from: From,
    /// Kinds of the output, with commas between.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [To::Xds])]
    pub to: Vec<To>,
    /// Files and folders with resources; `-` for standard input.
    #[arg(long = "file", short, required = true)]
    pub files: Vec<PathBuf>,
    /// The EnvoyGateway file; without it, the defaults with all optional APIs on.
    #[arg(long)]
    pub config: Option<PathBuf>,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Yaml)]
    pub output: Format,
    /// Types of the xDS resources that are shown.
    #[arg(long = "type", short, visible_alias = "resource-type", value_enum, value_delimiter = ',', default_values_t = [ResourceType::All])]
    pub types: Vec<ResourceType>,
    /// DNS domain of the cluster.
    #[arg(long, default_value = "cluster.local")]
    pub dns_domain: String,
}

/// Kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum From {
    /// Objects of Gateway API, of the gateway's own API and of Kubernetes.
    GatewayApi,
}

/// Kind of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum To {
    /// What proxies are told, by group of proxies.
    Xds,
    /// Statuses of the objects.
    Status,
}

/// Type of xDS resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResourceType {
    /// All types.
    All,
    /// Clusters.
    Cluster,
    /// Endpoints of clusters.
    Endpoint,
    /// Listeners.
    Listener,
    /// Route tables.
    Route,
    /// Certificates and CAs.
    Secret,
}

/// Flags of `validate`.
#[derive(Debug, Args)]
pub struct Validate {
    /// Files and folders with resources; `-` for standard input.
    #[arg(long = "file", short, required = true)]
    pub files: Vec<PathBuf>,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Kind of the objects (`httproute`, `hr`), `xroute` for all routes, `xpolicy` for all policies, or `all`.
    #[arg(default_value = "all")]
    pub kind: String,
    /// Only objects of this namespace.
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// Objects of all namespaces, as without `--namespace`.
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only the last condition of each part.
    #[arg(long, short)]
    pub quiet: bool,
    /// Messages too.
    #[arg(long, short)]
    pub verbose: bool,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t = StatusFormat::Table)]
    pub output: StatusFormat,
    /// Admin address of the gateway.
    #[arg(long, default_value = "127.0.0.1:19000")]
    pub admin: String,
}

/// Form of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StatusFormat {
    /// One row per condition.
    Table,
    /// YAML documents.
    Yaml,
    /// A JSON list.
    Json,
}

/// Flags of `version`.
#[derive(Debug, Args)]
pub struct Version {
    /// Form of the output; text without it.
    #[arg(long, short, value_enum)]
    pub output: Option<Format>,
}

/// Where a command reads and writes.
#[expect(missing_debug_implementations, reason = "streams have none")]
pub struct Streams<'a> {
    /// Standard input.
    pub input: &'a mut dyn Read,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// Runs a command.
pub fn run(cli: Cli, mut streams: Streams<'_>) -> ExitCode {
    let outcome = match cli.command {
        Command::Translate(args) | Command::Experimental { command: Experimental::Translate(args) } => {
            translate::run(&args, &mut streams)
        }
        Command::Validate(args) | Command::Experimental { command: Experimental::Validate(args) } => {
            validate::run(&args, &mut streams)
        }
        Command::Status(args) | Command::Experimental { command: Experimental::Status(args) } => {
            status::run(&args, &mut streams)
        }
        Command::Version(args) => version::run(&args, &mut streams),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            // Nowhere is left to tell that standard error is gone.
            let _ = writeln!(streams.err, "egctl: {e:#}");
            ExitCode::FAILURE
        }
    }
}

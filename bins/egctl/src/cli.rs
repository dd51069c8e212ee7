//! Commands and flags.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{cluster::Reach, config, output::Format, status, translate, validate, version};

/// Looks at a gateway: in a cluster, on this machine, or in files only.
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
    /// Shows conditions of objects, in a cluster or of a gateway on this machine.
    Status(Status),
    /// Shows what proxies or the control plane of a cluster hold now.
    Config {
        /// Whose.
        #[command(subcommand)]
        target: ConfigTarget,
    },
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
    /// Shows conditions of objects, in a cluster or of a gateway on this machine.
    Status(Status),
}

/// Whose configuration `config` shows.
#[derive(Debug, Subcommand)]
pub enum ConfigTarget {
    /// Of proxies, as their admin servers tell it.
    #[command(alias = "proxy")]
    EnvoyProxy(ProxyConfig),
    /// Of the control plane: the objects that it holds; of Secrets the names of the keys only.
    #[command(alias = "gateway")]
    EnvoyGateway(GatewayConfig),
}

/// Flags of `config envoy-proxy`.
#[derive(Debug, Args)]
pub struct ProxyConfig {
    /// Which part.
    #[arg(value_enum)]
    pub part: ProxyPart,
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Json)]
    pub output: Format,
    /// Port of the proxy's admin server.
    #[arg(long, default_value_t = 19000)]
    pub admin_port: u16,
}

/// Part of a proxy's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProxyPart {
    /// All of it.
    All,
    /// What it started with.
    Bootstrap,
    /// Clusters.
    Cluster,
    /// Endpoints of clusters.
    Endpoint,
    /// Listeners.
    Listener,
    /// Route tables.
    Route,
}

/// Flags of `config envoy-gateway`.
#[derive(Debug, Args)]
pub struct GatewayConfig {
    /// Kind of the objects (`httproute`, `hr`), or `all`.
    #[arg(default_value = "all")]
    pub kind: String,
    /// Which pods.
    #[command(flatten)]
    pub pods: Pods,
    /// Form of the output.
    #[arg(long, short, value_enum, default_value_t = Format::Json)]
    pub output: Format,
    /// Port of the control plane's admin server.
    #[arg(long, default_value_t = 19000)]
    pub admin_port: u16,
}

/// Pods of a cluster.
#[derive(Debug, Args)]
pub struct Pods {
    /// Name of the pod; without it, all that the labels choose.
    pub pod: Option<String>,
    /// Namespace of the pods.
    #[arg(long, short, default_value = "envoy-gateway-system")]
    pub namespace: String,
    /// Pods of all namespaces.
    #[arg(long, short = 'A', conflicts_with_all = ["namespace", "pod"])]
    pub all_namespaces: bool,
    /// Labels of the pods; without them, those of the proxies or of the control plane.
    #[arg(long, short, conflicts_with = "pod")]
    pub labels: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub reach: Reach,
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
    /// Namespace of objects that name none.
    #[arg(long, short, default_value = "default")]
    pub namespace: String,
    /// Puts in Services that routes refer to and that are not in the input, with the address 1.2.3.4.
    #[arg(long)]
    pub add_missing_resources: bool,
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
    /// Only objects of this namespace; without it, that of the kubeconfig's context (with `--admin`: all).
    #[arg(long, short)]
    pub namespace: Option<String>,
    /// Objects of all namespaces.
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
    /// Asks the gateway with this admin address, such as 127.0.0.1:19000, in place of a cluster.
    #[arg(long)]
    pub admin: Option<String>,
    /// Which cluster.
    #[command(flatten)]
    pub reach: Reach,
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
    /// The versions of the control plane's replicas too.
    #[arg(long, short)]
    pub remote: bool,
    /// Which replicas.
    #[command(flatten)]
    pub pods: Pods,
    /// Port of the control plane's admin server.
    #[arg(long, default_value_t = 19000)]
    pub admin_port: u16,
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
            waited(status::run(&args, &mut streams))
        }
        Command::Config { target } => waited(config::run(&target, &mut streams)),
        Command::Version(args) => waited(version::run(&args, &mut streams)),
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

/// Runs what talks to servers.
fn waited(command: impl Future<Output = anyhow::Result<bool>>) -> anyhow::Result<bool> {
    // The one provider of cryptography; that it is there already can only mean the same one.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}

//! What people type.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};

/// A Kubernetes Gateway API control plane for the Envoy proxy.
#[derive(Debug, Parser)]
#[command(name = "envoy-gateway", version, about, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs the control plane as its EnvoyGateway file says
    #[command(alias = "serve")]
    Server(ServerArgs),
    /// Runs a gateway on this machine: resources from files, Envoy as local processes
    Standalone(StandaloneArgs),
    /// Makes the certificates of the control plane and its proxies
    Certgen(CertgenArgs),
    /// What runs beside Envoy in its pods
    #[command(subcommand)]
    Envoy(EnvoyCommand),
    /// Says which version this is
    Version {
        /// Form of the answer
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
}

/// What pods of proxies run.
#[derive(Debug, Subcommand)]
pub(crate) enum EnvoyCommand {
    /// Tells Kubernetes when Envoy may stop: once `shutdown` has drained it
    ShutdownManager {
        /// Envoy may stop after this long in any case
        #[arg(long, default_value = "610s", value_parser = duration)]
        ready_timeout: Duration,
    },
    /// Drains Envoy: fails its health checks, asks clients to leave and waits until they have
    Shutdown {
        /// Longest drain
        #[arg(long, default_value = "60s", value_parser = duration)]
        drain_timeout: Duration,
        /// Shortest drain, so that endpoints are withdrawn first
        #[arg(long, default_value = "10s", value_parser = duration)]
        min_drain_duration: Duration,
        /// Wait before health checks fail, while listeners drain
        #[arg(long, default_value = "0s", value_parser = duration)]
        health_check_failure_delay: Duration,
        /// So many open connections count as none
        #[arg(long, default_value_t = 0)]
        exit_at_connections: u64,
    },
}

fn duration(text: &str) -> Result<Duration, String> {
    api::envoygateway::Duration::from(text).get().map_err(|e| e.to_string())
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines for people.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Flags of `server`.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The EnvoyGateway file; without it the defaults hold
    #[arg(short, long)]
    pub(crate) config_path: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Flags of `standalone`.
#[derive(Debug, Args)]
pub(crate) struct StandaloneArgs {
    /// File or folder with resources; may be given several times
    #[arg(short, long, required = true)]
    pub(crate) resources: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
}

/// Flags of both. Ports: 0 picks a free one.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommonArgs {
    /// Envoy to use; without it, the pinned version is fetched once
    #[arg(long)]
    pub(crate) envoy_path: Option<PathBuf>,
    /// Folder for certificates, Envoy binaries, logs and run files, in place of the XDG folders
    #[arg(long)]
    pub(crate) home: Option<PathBuf>,
    /// Folder with ca.crt, tls.crt and tls.key of the xDS server, read again when they change [default: /certs in a pod,
    /// certificates of its own elsewhere]
    #[arg(long)]
    pub(crate) certs_dir: Option<PathBuf>,
    /// Port of the xDS server [default: 18000]
    #[arg(long)]
    pub(crate) xds_port: Option<u16>,
    /// Port of the admin server [default: admin.address.port of the file, 19000]
    #[arg(long)]
    pub(crate) admin_port: Option<u16>,
    /// Port of /metrics [default: 19001]
    #[arg(long)]
    pub(crate) metrics_port: Option<u16>,
    /// Port of /healthz and /readyz [default: 8081]
    #[arg(long)]
    pub(crate) health_port: Option<u16>,
    /// Port of the topology injector's webhook [default: 9443 in a pod, none elsewhere]
    #[arg(long)]
    pub(crate) webhook_port: Option<u16>,
    /// Port on which replicas tell each other how fresh they are [default: 18003 in a pod, none elsewhere]
    #[arg(long)]
    pub(crate) peer_port: Option<u16>,
    /// Address (IP:PORT) of another replica; may be given several times [default: the endpoints of the Service
    /// envoy-gateway]
    #[arg(long)]
    pub(crate) peer: Vec<std::net::SocketAddr>,
    /// Writes the addresses of all servers to this file (JSON) once they listen
    #[arg(long)]
    pub(crate) addresses_file: Option<PathBuf>,
    /// Kubeconfig; without it, the cluster that this runs in
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Flags of `certgen`.
#[derive(Debug, Args)]
pub(crate) struct CertgenArgs {
    /// Writes files instead of Kubernetes Secrets
    #[arg(short, long)]
    pub(crate) local: bool,
    /// Folder that the files go under (`certs/` in it)
    #[arg(long)]
    pub(crate) config_home: Option<PathBuf>,
    /// Replaces good certificates too
    #[arg(short, long)]
    pub(crate) overwrite: bool,
    /// Leaves the CA bundle of the topology injector's webhook as it is
    #[arg(long)]
    pub(crate) disable_topology_injector: bool,
    /// Kubeconfig; without it, the cluster that this runs in
    #[arg(long, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

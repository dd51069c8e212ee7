//! What is told about a proxy.

use crate::local::AdminAddress;
use serde::{Serialize, Serializer};

/// Where a proxy is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Phase {
    /// A process runs that is not ready yet: it waits for its first configuration.
    #[default]
    Starting,
    /// A ready process serves.
    Running,
    /// A ready process serves while another is being started to replace it.
    Replacing,
    /// No process runs; the next try is due after a delay.
    BackingOff,
    /// The proxy is no longer wanted and serves what is left.
    Draining,
}

/// A proxy as it is. `Serialize` for the admin page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Where it is in its life.
    pub phase: Phase,
    /// The process that serves, or is to serve.
    pub pid: Option<u32>,
    /// Where that process's admin interface listens, once it does.
    #[serde(serialize_with = "address")]
    pub admin: Option<AdminAddress>,
    /// How many processes there have been, this one included.
    pub generation: u64,
    /// How many times a process ended that should not have.
    pub crashes: u64,
    /// How and why the last of these ended.
    pub last_crash: Option<String>,
    /// Why what is wanted is not what runs; gone when it is.
    pub problem: Option<String>,
    /// Whether a replaced process is still finishing.
    pub old_process: Option<u32>,
    /// Envoy's own log.
    pub log: String,
    /// Envoy's standard output: its access log.
    pub access_log: String,
}

fn address<S: Serializer>(address: &Option<AdminAddress>, serializer: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_none(),
    }
}

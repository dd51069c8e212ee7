//! Envoy as local processes, one per Gateway (or per class of merged Gateways).
//!
//! # Contract
//!
//! * [`Local`] is the writer behind the leader's gate: key = the proxy's node group, value = [`Proxy`]. It only hands
//!   over the latest wanted value, so a slow proxy holds nobody up. [`Runner::run`] does the rest and is one task for the
//!   supervisor in `main`.
//! * A proxy that dies is started again, after a delay that doubles up to a cap; why it died is in the log and in its
//!   [`Status`].
//! * A proxy whose command line or bootstrap changes is replaced by Envoy's hot restart: the new process takes over the
//!   listening sockets themselves, so no connection in their queues is lost, and the old one finishes what it has. The
//!   new bootstrap is validated first; one that Envoy refuses leaves the running proxy alone and is told.
//!   One replacement at a time: a change that arrives while an old process still drains waits for it.
//! * A proxy that is no longer wanted is drained: health checks fail, clients are asked to leave, then SIGTERM once they
//!   have left or the time is over, then SIGKILL.
//! * Processes never outlive this one, not even when it is killed ([`launcher`]).
//! * Several instances run on one host: base ids are dynamic, ports can be chosen ([`Ports`]) or left to the system and
//!   read from [`Status::admin`], directories are locked.
//! * Envoy's log and its standard output, where access logs go, are files of their own, bounded in size.
//!
//! # Limits
//!
//! Linux only. A request that takes longer than [`Drain::timeout`] is cut by a replacement or a stop. A replacement that
//! also lowers [`Proxy::concurrency`] can lose connections in the queues of the workers that are no more. An Envoy binary
//! with file capabilities loses the tie to this process (the kernel clears it).
//!
//! Source: Envoy's documentation of hot restart, draining, command-line options and the administration interface;
//! prctl(2) for the tie.
//!
//! # Example
//!
//! ```no_run
//! # async fn example(roles: election::RoleWatch) -> Result<(), Box<dyn std::error::Error>> {
//! use infra::local::{self, EnvoyBinary, Options, Proxy};
//!
//! let envoy = EnvoyBinary::locate(None, "cache".into()).await?;
//! let (local, runner) = local::new(Options::new(envoy.path, "state", "run"))?;
//! let wanted = reconcile::Wanted::new();
//! wanted.publish([("default/web".to_owned(), Some(Proxy::new(std::fs::read("bootstrap.yaml")?)))]);
//! let gate = reconcile::Gated::new(local, wanted, roles, reconcile::Backoff::default());
//! tokio::join!(gate.run(std::future::pending()), runner.run(std::future::pending()));
//! # Ok(())
//! # }
//! ```

mod admin;
mod backoff;
mod binary;
mod directories;
mod generation;
pub mod launcher;
mod logs;
mod ports;
mod process;
mod proxy;
mod runner;
mod shared_memory;
mod status;
mod supervisor;

pub use admin::{AdminAddress, AdminError};
pub use backoff::Backoff;
pub use binary::{EnvoyBinary, EnvoyBinaryError, Origin};
pub use launcher::Launcher;
pub use ports::Ports;
pub use proxy::{Drain, Options, Proxy};
pub use runner::{Local, Runner, RunnerGone, new};
pub use status::{Phase, Status};

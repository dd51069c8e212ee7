//! The gateway where its users run it: a real API server, scheduler, kubelet and pods, and requests from outside.
//!
//! `tests/tools/cluster.sh up` brings the cluster up. The programs here are what stands in for a cloud ([`pool`], run by
//! `cluster-lb`) and the suite that drives the gateway as its users do (`cluster-suite`): helm and kubectl as commands,
//! requests through the address of the load balancer, and a look at objects only where a command cannot tell. `cluster-ha` runs
//! the events of [`ha`], each a row of a table.

pub mod audit;
pub mod faults;
pub mod ha;
pub mod inside;
pub mod load;
pub mod observe;
pub mod pool;
pub mod processes;
pub mod run;

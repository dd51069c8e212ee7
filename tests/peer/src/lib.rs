//! Compares what the gateway makes of recorded input with what Envoy Gateway made of it.
//!
//! A case is a folder: `in.yaml` (objects), `config.yaml` (EnvoyGateway), and what the other made of them, `xds.yaml` and
//! `status.yaml`. Each case is judged on
//!
//! * *names*: the groups of proxies, and type and name of each resource;
//! * *xds*: every resource equal, after the rules of [`normal`];
//! * *status*: every object with the same conditions and reasons, after the rules of [`status`];
//! * *infra*: the Kubernetes objects of the fleets, where they are recorded, after the rules of [`infra`];
//! * *refused*: for objects that an API server refuses, that they are refused here with the field named.
//!
//! What is not supported counts as not equal. A ratchet ([`ratchet`]) keeps what was reached.

pub mod case;
pub mod diff;
pub mod infra;
pub mod normal;
pub mod ratchet;
pub mod report;
pub mod status;
pub mod verdict;

//! Losing the API server is not an accident: three replicas, real Envoys, one event after another, the audit log as judge.
//!
//! [`stage`] installs and looks, [`leaders`], [`outage`] and [`crowd`] are the events, [`table`] is what comes out.

pub mod crowd;
pub mod leaders;
pub mod outage;
pub mod stage;
pub mod table;

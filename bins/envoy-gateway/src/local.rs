//! Fleets as local processes: what a fleet needs becomes a process.

use std::sync::Arc;

use election::{Permit, WriteError};
use infra::local::{Local, Proxy, RunnerGone};

/// The writer behind the gate: hands the process over.
#[derive(Debug)]
pub(crate) struct LocalFleets {
    /// Runs the processes.
    pub(crate) local: Local,
    /// The bootstrap, the same for all: node and cluster are arguments.
    pub(crate) bootstrap: Vec<u8>,
}

impl reconcile::Sync for LocalFleets {
    type Key = String;
    type Value = Arc<ir::Proxy>;
    type Error = RunnerGone;

    async fn sync(
        &self,
        permit: Permit<'_>,
        key: &String,
        want: Option<&Arc<ir::Proxy>>,
    ) -> Result<(), WriteError<RunnerGone>> {
        let proxy = want.map(|_| self.process(key));
        self.local.sync(permit, key, proxy.as_ref()).await
    }
}

impl LocalFleets {
    fn process(&self, group: &str) -> Proxy {
        let mut proxy = Proxy::new(self.bootstrap.clone());
        proxy.service_cluster = Some(group.to_owned());
        proxy.service_node = Some(format!("{}-{}", group.replace('/', "-"), std::process::id()));
        proxy
    }
}

//! For tests of this crate: the launcher as an executable, and `infra-launcher run ENVOY BOOTSTRAP DIR`, which runs one
//! proxy until SIGTERM. `envoy-gateway` itself does both otherwise.

use infra::local::{self, Options, Proxy};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    local::launcher::run_if_asked();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [run, envoy, bootstrap, dir] = arguments.as_slice() else { return Err("run ENVOY BOOTSTRAP DIR".into()) };
    if run != "run" {
        return Err(format!("unknown command {run}").into());
    }
    let proxy = Proxy::new(std::fs::read(bootstrap)?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let (local, runner) = local::new(Options::new(envoy, format!("{dir}/state"), format!("{dir}/run")))?;
        let wanted = reconcile::Wanted::new();
        wanted.publish([("test/proxy".to_owned(), Some(proxy))]);
        let roles = election::RoleWatch::always_leader();
        let gate = reconcile::Gated::new(local, wanted, roles, reconcile::Backoff::default());
        tokio::select! {
            () = gate.run(std::future::pending()) => {}
            () = runner.run(async { terminate.recv().await.unwrap_or_default() }) => {}
        }
        Ok(())
    })
}

//! Runs Envoy with a bootstrap file until Ctrl-C, and replaces it when the file changes (Enter reads it again):
//! `cargo run -p infra --example run -- BOOTSTRAP.yaml [ENVOY]`

#![allow(clippy::print_stdout)]

use infra::local::{self, EnvoyBinary, Options, Proxy};
use std::error::Error;
use tokio::io::AsyncBufReadExt;

fn main() -> Result<(), Box<dyn Error>> {
    local::launcher::run_if_asked(); // first of all: child processes begin here
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    tokio::runtime::Runtime::new()?.block_on(run())
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let bootstrap = arguments.next().ok_or("give a bootstrap file")?;
    let home = std::env::temp_dir().join(format!("infra-example-{}", std::process::id()));
    let envoy = EnvoyBinary::locate(arguments.next().map(Into::into), home.join("cache")).await?;
    println!("{envoy}; logs in {}", home.join("state").display());

    let (local, runner) = local::new(Options::new(envoy.path, home.join("state"), home.join("run")))?;
    let wanted = reconcile::Wanted::new();
    let publish = || -> std::io::Result<()> {
        wanted.publish([("example/proxy".to_owned(), Some(Proxy::new(std::fs::read(&bootstrap)?)))]);
        Ok(())
    };
    publish()?;

    let mut statuses = local.statuses();
    let roles = election::RoleWatch::always_leader();
    let gate = reconcile::Gated::new(local, wanted.clone(), roles, reconcile::Backoff::default());
    let gate = gate.run(std::future::pending());
    let runner = runner.run(async { drop(tokio::signal::ctrl_c().await) });
    tokio::pin!(gate, runner);
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let mut reading = true;
    loop {
        tokio::select! {
            () = &mut gate => break,
            () = &mut runner => break,
            line = lines.next_line(), if reading => match line? {
                Some(_) => publish()?,
                None => reading = false,
            },
            Ok(()) = statuses.changed() => {
                for (proxy, status) in statuses.borrow_and_update().iter() {
                    println!("{proxy}: {}", serde_json::to_string(status)?);
                }
            }
        }
    }
    Ok(())
}

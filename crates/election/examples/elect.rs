//! Takes part in the election of a Lease of any cluster and shows what happens; Ctrl-C releases it.
//!
//! `cargo run -p election --example elect -- NAMESPACE NAME`, in several terminals. Needs a kubeconfig whose user may get,
//! create, update and watch Leases and create Events in the namespace.
#![expect(clippy::print_stdout, reason = "it shows")]

use election::{Elector, Identity, Role, Timings, kubernetes::KubernetesLease};
use std::time::Duration;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let mut args = std::env::args().skip(1);
    let (Some(namespace), Some(name)) = (args.next(), args.next()) else {
        anyhow::bail!("usage: elect NAMESPACE NAME")
    };
    let lease = KubernetesLease::new(kube::Config::infer().await?, &namespace, &name)?;
    let identity = Identity::unique("example")?;
    println!("I am {identity}");
    let (elector, role) = Elector::new(lease, identity, Timings::default())?;
    let mut elector = elector.spawn_thread()?;
    let stopper = elector.stopper();
    loop {
        tokio::select! {
            outcome = elector.ended() => {
                let outcome = outcome?;
                println!("{outcome}");
                std::process::exit(outcome.exit_code().into());
            }
            signal = tokio::signal::ctrl_c() => {
                signal?;
                stopper.stop();
            }
            () = tokio::time::sleep(Duration::from_secs(1)) => match role.current() {
                Role::Leader(leadership) => println!("leader, term {}, {:.1?} left", leadership.term().0, leadership.time_left()),
                Role::Follower { leader } => println!("follower of {}", leader.as_deref().unwrap_or("nobody")),
            },
        }
    }
}

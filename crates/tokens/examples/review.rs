//! Judges a token that nobody can vouch for: the API server is away, and its keys are not known.

#![allow(clippy::print_stdout, reason = "an example")]

use tokens::{Account, Claim, Reviewer};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Nothing listens there.
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:9".parse()?))?;
    let reviewer = Reviewer::new(client, "envoy-gateway.envoy-gateway-system.svc.cluster.local", || 0);
    let account = Account { namespace: "shop".into(), name: "front".into() };
    let refused = reviewer.check("no token", Claim { account: &account, pod: "front-1" }).await;
    println!("{}: {refused:?}", account.user());
    Ok(())
}

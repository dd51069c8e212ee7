//! Makes certificates in a directory, or says that those that are there are good:
//! `cargo run -p certs --example ensure -- ./certs`

#![allow(clippy::print_stdout)]

fn main() -> Result<(), certs::Error> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "certs".to_owned());
    let store = certs::Store::new(dir);
    let spec = certs::Spec::new("envoy-gateway-system", "cluster.local");
    let done = store.ensure(&spec, certs::now(), false)?;
    if done.replaced.is_empty() {
        println!("{}: all certificates are good", store.root().display());
    }
    for what in done.replaced {
        println!("{what}");
    }
    Ok(())
}

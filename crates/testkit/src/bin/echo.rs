//! An echo backend as a process: `cargo run -p testkit --bin echo -- --port 0 --name web-1`.
//! See `testkit::echo` for what a request can ask for.

#![allow(clippy::print_stdout)]

use clap::Parser;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use testkit::echo::{self, Config};

/// Answers every HTTP request with a JSON description of it.
#[derive(Debug, Parser)]
struct Flags {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// Port to listen on; 0 picks a free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Name in the answers.
    #[arg(long, default_value = "echo")]
    name: String,
    /// PEM certificate chain: serve TLS.
    #[arg(long, requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM private key.
    #[arg(long, requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Milliseconds added before every answer.
    #[arg(long, default_value_t = 0)]
    delay_ms: u64,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let flags = Flags::parse();
    let tls = match (&flags.tls_cert, &flags.tls_key) {
        (Some(cert), Some(key)) => {
            Some(echo::tls_from_pem(&std::fs::read_to_string(cert)?, &std::fs::read_to_string(key)?)?)
        }
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let listener = tokio::net::TcpListener::bind(SocketAddr::new(flags.address, flags.port)).await?;
    println!("backend {} listens on {scheme}://{}", flags.name, listener.local_addr()?);
    let config = Config { name: flags.name, tls, delay: Duration::from_millis(flags.delay_ms) };
    tokio::select! {
        end = echo::serve(listener, config, Arc::new(echo::Counts::default())) => end,
        signal = tokio::signal::ctrl_c() => signal,
    }
}

//! The user's command line.

use std::{
    io::{self, BufWriter, Write as _},
    process::ExitCode,
};

use clap::Parser as _;
use egctl::cli::{Cli, Streams};

fn main() -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut err = io::stderr().lock();
    let code = egctl::cli::run(Cli::parse(), Streams { input: &mut io::stdin().lock(), out: &mut out, err: &mut err });
    match out.flush() {
        Ok(()) => code,
        // The reader has seen enough (`| head`).
        Err(_) => ExitCode::FAILURE,
    }
}

//! `peer --cases DIR [--set FILE]`: compares with recorded output of Envoy Gateway.

use std::{
    collections::BTreeSet,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Result;
use clap::Parser;
use peer::{case, ratchet, report, verdict::Judge};

/// Compares what the gateway makes of recorded input with what Envoy Gateway made of it.
#[derive(Debug, Parser)]
struct Args {
    /// Folder of the cases.
    #[arg(long)]
    cases: PathBuf,
    /// File with the names of the cases to go through; all without it.
    #[arg(long)]
    set: Option<PathBuf>,
    /// Only cases whose name contains this text.
    #[arg(long)]
    case: Option<String>,
    /// Differences of all cases that fail, not of the first few.
    #[arg(long)]
    verbose: bool,
    /// Differences told per level of a case.
    #[arg(long, default_value_t = 5)]
    differences: usize,
    /// Tells differences of messages too, where nothing else of the statuses differs.
    #[arg(long)]
    messages: bool,
    /// Writes down the names that pass; without it, one that was written down and does not pass fails the run.
    #[arg(long)]
    update_ratchet: bool,
    /// Folder of the ratchet.
    #[arg(long, default_value_os_t = Path::new(env!("CARGO_MANIFEST_DIR")).join("ratchet"))]
    ratchet: PathBuf,
}

/// Cases per set whose differences are told without `--verbose`.
const FEW: usize = 5;

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let mut sets = case::find(&args.cases, args.set.as_deref())?;
    if let Some(text) = &args.case {
        sets.iter_mut().for_each(|s| s.cases.retain(|c| c.name.contains(text)));
        sets.retain(|s| !s.cases.is_empty());
    }
    let outcomes = report::run(sets, &Judge::new(args.differences, args.messages));
    let mut out = io::stdout().lock();
    out.write_all(report::differences(&outcomes, if args.verbose { usize::MAX } else { FEW }).as_bytes())?;

    let judged: Vec<_> = outcomes.iter().flat_map(|o| &o.cases).map(|(c, v)| (c.name.as_str(), v)).collect();
    let now = ratchet::passing(judged.iter().copied());
    let before = ratchet::read(&args.ratchet)?;
    let names: BTreeSet<&str> = judged.iter().map(|(n, _)| *n).collect();
    let lost = ratchet::lost(&before, &now, &names);
    let mut code = ExitCode::SUCCESS;
    if args.update_ratchet {
        // What was not judged this time stays as it was.
        let mut merged = now;
        for (level, before) in before {
            let kept = before.into_iter().filter(|n| !names.contains(n.as_str()));
            merged.entry(level).or_default().extend(kept);
        }
        ratchet::write(&args.ratchet, &merged)?;
    } else if !lost.is_empty() {
        for (level, name) in &lost {
            writeln!(out, "lost: {name} ({})", level.name())?;
        }
        code = ExitCode::FAILURE;
    }
    out.write_all(report::summary(&outcomes).as_bytes())?;
    Ok(code)
}

//! `egctl version`.

use anyhow::Result;
use serde_json::json;

use crate::{
    cli::{Streams, Version},
    output,
};

pub(crate) fn run(args: &Version, streams: &mut Streams<'_>) -> Result<bool> {
    let version = env!("CARGO_PKG_VERSION");
    let text = match args.output {
        None => format!("egctl {version}\n"),
        Some(format) => output::one(&json!({"client": {"egctlVersion": version}}), format)?,
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(true)
}

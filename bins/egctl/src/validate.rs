//! `egctl validate`.

use admission::Admission;
use anyhow::Result;

use crate::{
    cli::{Streams, Validate},
    input,
};

/// Tells whether an API server would take all.
pub(crate) fn run(args: &Validate, streams: &mut Streams<'_>) -> Result<bool> {
    let objects = input::read(&args.files, streams.input, &Admission::new(), None)?;
    for kind in &objects.ignored {
        writeln!(streams.err, "not checked: {kind}")?;
    }
    for refusal in &objects.refused {
        writeln!(streams.out, "{}", refusal.message)?;
    }
    if objects.refused.is_empty() {
        writeln!(streams.out, "{} objects are valid", objects.changes.len())?;
    }
    Ok(objects.refused.is_empty())
}

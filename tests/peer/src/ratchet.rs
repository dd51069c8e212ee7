//! What was reached stays: per level, the names of the cases that pass, in files that are committed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};

use crate::verdict::{Level, Verdict};

/// Names of the cases that pass, by level.
pub type Passing = BTreeMap<Level, BTreeSet<String>>;

/// The names that pass in a run.
pub fn passing<'a>(verdicts: impl IntoIterator<Item = (&'a str, &'a Verdict)>) -> Passing {
    let mut out: Passing = Level::ALL.into_iter().map(|l| (l, BTreeSet::new())).collect();
    for (name, verdict) in verdicts {
        for level in &verdict.passed {
            out.entry(*level).or_default().insert(name.to_owned());
        }
    }
    out
}

/// Reads the files in `folder`; one that is not there is empty.
///
/// # Errors
/// When a file cannot be read.
pub fn read(folder: &Path) -> Result<Passing> {
    let mut out = Passing::new();
    for level in Level::ALL {
        let file = folder.join(format!("{}.txt", level.name()));
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e).with_context(|| format!("reading {}", file.display())),
        };
        out.insert(level, text.lines().map(str::to_owned).collect());
    }
    Ok(out)
}

/// Writes the files.
///
/// # Errors
/// When a file cannot be written.
pub fn write(folder: &Path, passing: &Passing) -> Result<()> {
    fs::create_dir_all(folder)?;
    for (level, names) in passing {
        let text: String = names.iter().map(|n| format!("{n}\n")).collect();
        let file = folder.join(format!("{}.txt", level.name()));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Names that passed and do not now, of those that were judged.
#[must_use]
pub fn lost(before: &Passing, now: &Passing, judged: &BTreeSet<&str>) -> Vec<(Level, String)> {
    let mut out = Vec::new();
    for (level, names) in before {
        let passing = now.get(level);
        let gone = names.iter().filter(|n| judged.contains(n.as_str()) && !passing.is_some_and(|p| p.contains(*n)));
        out.extend(gone.map(|n| (*level, n.clone())));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(level: Level, names: &[&str]) -> Passing {
        [(level, names.iter().map(|n| (*n).to_owned()).collect())].into()
    }

    #[test]
    fn a_name_that_no_longer_passes_is_told_if_it_was_judged() {
        let before = of(Level::Xds, &["a", "b", "c"]);
        let now = of(Level::Xds, &["a", "d"]);
        assert_eq!(lost(&before, &now, &["a", "b", "d"].into()), [(Level::Xds, "b".to_owned())]);
        assert!(lost(&before, &before, &["a", "b", "c"].into()).is_empty());
    }

    #[test]
    fn a_verdict_counts_on_the_levels_that_it_passes() {
        let verdict = Verdict { passed: [Level::Names, Level::Status].into(), ..Verdict::default() };
        let passing = passing([("x", &verdict)]);
        assert!(passing[&Level::Names].contains("x") && passing[&Level::Status].contains("x"));
        assert!(passing[&Level::Xds].is_empty() && passing[&Level::Refused].is_empty());
    }
}

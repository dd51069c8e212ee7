//! Documents that are right, to begin with.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use e2e::{Surroundings, rows};
use serde_json::Value;

/// A set of objects that belong together.
pub type Seed = Vec<Value>;

/// The example, the objects of `tests/e2e/rows`, and those of `seeds/`. Recorded cases beside the repository, if there
/// are any, come after them.
///
/// # Errors
/// When a file cannot be read.
pub fn all() -> Result<Vec<Seed>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let surroundings = Surroundings::default();
    let mut seeds = vec![whole(&top.join("deploy/standalone"), &surroundings)?];
    seeds.push(whole(&Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds"), &surroundings)?);
    let rows = top.join("tests/e2e/rows");
    let base = rows::File::read(&std::fs::read_to_string(rows.join("base.yaml"))?, &surroundings)?.resources;
    for path in files(&rows, "yaml")? {
        let file = rows::File::read(&std::fs::read_to_string(&path)?, &surroundings);
        seeds.push([base.clone(), file.with_context(|| path.display().to_string())?.resources].concat());
    }
    let cases = top.join("../shared/peer-data/cases");
    if cases.is_dir() {
        for dir in files(&cases, "")? {
            // What is no YAML there is meant not to be.
            let documents = std::fs::read_to_string(dir.join("in.yaml")).ok().and_then(|t| provider::parse(&t).ok());
            seeds.extend(documents.map(|d| d.into_iter().map(|d| d.value).collect::<Seed>()));
        }
    } else {
        println!("skipped: no peer data, fewer seeds");
    }
    seeds.retain(|s| !s.is_empty());
    Ok(seeds)
}

fn whole(dir: &Path, surroundings: &Surroundings) -> Result<Seed> {
    let mut out = Seed::new();
    for path in files(dir, "yaml")? {
        let text = surroundings.fill(&std::fs::read_to_string(&path)?)?;
        let documents = provider::parse(&text).map_err(|e| anyhow::anyhow!("{}: {e:?}", path.display()))?;
        out.extend(documents.into_iter().map(|d| d.value));
    }
    Ok(out)
}

fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let list = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths: Vec<PathBuf> = list.map(|e| Ok(e?.path())).collect::<Result<_>>()?;
    paths.retain(|p| extension.is_empty() || p.extension().is_some_and(|e| e == extension));
    paths.sort();
    Ok(paths)
}

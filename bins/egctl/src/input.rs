//! Resources from files, folders and standard input.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use admission::Admission;
use anyhow::{Context as _, Result};

use crate::offline::Objects;

/// Reads all that `paths` name, in their order; `-` is standard input. Of a folder, all `*.yaml`, `*.yml` and `*.json`
/// files count, in order of their names.
///
/// # Errors
/// When something cannot be read or is no YAML.
pub fn read(paths: &[PathBuf], stdin: &mut dyn Read, admission: &Admission) -> Result<Objects> {
    let mut objects = Objects::default();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            stdin.read_to_string(&mut text).context("reading standard input")?;
            add(&mut objects, "standard input", &text, admission)?;
            continue;
        }
        for file in files(path)? {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            add(&mut objects, &file.display().to_string(), &text, admission)?;
        }
    }
    Ok(objects)
}

fn add(objects: &mut Objects, source: &str, text: &str, admission: &Admission) -> Result<()> {
    let documents = provider::parse(text).map_err(|e| anyhow::anyhow!("{source}:{}: {}", e.line, e.message))?;
    for document in documents {
        let line = |field: &str| document.line_of(field);
        objects.add(document.value.clone(), admission, &|field| format!("{source}:{}: ", line(field)));
    }
    Ok(())
}

fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut out = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("reading {}", path.display()))? {
        let file = entry?.path();
        let hidden = file.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if !hidden && file.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|x| e == *x)) {
            out.push(file);
        }
    }
    out.sort();
    Ok(out)
}

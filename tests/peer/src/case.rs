//! Reading a case.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// How a case is judged, by the set that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judged {
    /// Names, xDS and statuses.
    Fully,
    /// Statuses only: the other published nothing.
    ByStatus,
    /// At least one object has to be refused.
    ByRefusal,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the folder.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// How it is judged.
    pub judged: Judged,
}

/// A set of cases by name.
#[derive(Clone, Debug)]
pub struct Set {
    /// Name of the set.
    pub name: String,
    /// Its cases that are there.
    pub cases: Vec<Case>,
}

/// Finds the cases in `folder`, put into the sets of `../sets`; with `only`, the cases that this file lists.
///
/// # Errors
/// When the folder cannot be read.
pub fn find(folder: &Path, only: Option<&Path>) -> Result<Vec<Set>> {
    let mut names: BTreeSet<String> = fs::read_dir(folder)
        .with_context(|| format!("reading {}", folder.display()))?
        .filter_map(|e| e.ok())
        .filter(|e| e.path().join("in.yaml").is_file())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    if let Some(only) = only {
        let listed = lines(only)?;
        names.retain(|n| listed.contains(n));
    }
    let mut sets = Vec::new();
    let sets_folder = folder.join("../sets");
    let mut files: Vec<PathBuf> = match fs::read_dir(&sets_folder) {
        Ok(entries) => entries.filter_map(|e| e.ok()).map(|e| e.path()).collect(),
        Err(_) => Vec::new(),
    };
    files.sort();
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "txt")) {
        let name = file.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        let listed = lines(file)?;
        let mine: Vec<String> = names.iter().filter(|n| listed.contains(*n)).cloned().collect();
        names.retain(|n| !listed.contains(n));
        sets.push(set(&name, folder, mine));
    }
    // Cases of no set: judged by what is recorded for them.
    sets.push(set("other", folder, names.into_iter().collect()));
    sets.retain(|s| !s.cases.is_empty());
    Ok(sets)
}

fn set(name: &str, folder: &Path, names: Vec<String>) -> Set {
    let case = |case: String| {
        let path = folder.join(&case);
        let judged = match name {
            "refused" => Judged::ByRefusal,
            "unpublished" => Judged::ByStatus,
            _ if !path.join("xds.yaml").is_file() => Judged::ByStatus,
            _ => Judged::Fully,
        };
        Case { name: case, folder: path, judged }
    };
    Set { name: name.to_owned(), cases: names.into_iter().map(case).collect() }
}

fn lines(file: &Path) -> Result<BTreeSet<String>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    Ok(text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned).collect())
}

// === impl Case ===

impl Case {
    /// The documents of a file of the case; none when it is not there.
    ///
    /// # Errors
    /// When the file is no YAML.
    pub fn documents(&self, file: &str) -> Result<Vec<Value>> {
        let Some(text) = self.text(file)? else { return Ok(Vec::new()) };
        let documents = provider::parse(&text).map_err(|e| anyhow::anyhow!("{file}:{}: {}", e.line, e.message))?;
        Ok(documents.into_iter().map(|d| d.value).collect())
    }

    /// The text of a file of the case, if it is there.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn text(&self, file: &str) -> Result<Option<String>> {
        let path = self.folder.join(file);
        if !path.is_file() {
            return Ok(None);
        }
        fs::read_to_string(&path).map(Some).with_context(|| format!("reading {}", path.display()))
    }

    /// Recorded xDS: by group, by list (`clusters` …), the resources.
    ///
    /// # Errors
    /// When the file is not as it should be.
    pub fn xds(&self) -> Result<BTreeMap<String, Value>> {
        let Some(document) = self.documents("xds.yaml")?.into_iter().next() else { return Ok(BTreeMap::new()) };
        let Value::Object(groups) = document else { anyhow::bail!("xds.yaml is no map") };
        Ok(groups.into_iter().collect())
    }
}

//! Resources from files, folders and standard input.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use admission::Admission;
use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::offline::Objects;

/// Reads all that `paths` name, in their order; `-` is standard input. Objects that name no namespace are put into
/// `namespace`, or stay as they are without one. Of a folder, all `*.yaml`, `*.yml` and `*.json`
/// files count, in order of their names.
///
/// # Errors
/// When something cannot be read or is no YAML.
pub fn read(
    paths: &[PathBuf],
    stdin: &mut dyn Read,
    admission: &Admission,
    namespace: Option<&str>,
) -> Result<Objects> {
    let mut objects = Objects::default();
    for path in paths {
        if path == Path::new("-") {
            let mut text = String::new();
            stdin.read_to_string(&mut text).context("reading standard input")?;
            add(&mut objects, "standard input", &text, admission, namespace)?;
            continue;
        }
        for file in files(path)? {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            add(&mut objects, &file.display().to_string(), &text, admission, namespace)?;
        }
    }
    Ok(objects)
}

fn add(objects: &mut Objects, source: &str, text: &str, admission: &Admission, namespace: Option<&str>) -> Result<()> {
    let documents = provider::parse(text).map_err(|e| anyhow::anyhow!("{source}:{}: {}", e.line, e.message))?;
    for document in documents {
        let line = |field: &str| document.line_of(field);
        let mut value = document.value.clone();
        if let Some(namespace) = namespace {
            put_into(&mut value, namespace);
        }
        objects.add(value, admission, &|field| format!("{source}:{}: ", line(field)));
    }
    Ok(())
}

/// Gives an object, or the items of a list, a namespace if its kind wants one and none is named.
fn put_into(value: &mut Value, namespace: &str) {
    for item in value.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        put_into(item, namespace);
    }
    let text = |field: &str| value[field].as_str().unwrap_or_default();
    let kind = resources::Kind::find(text("apiVersion"), text("kind"));
    let named = value.pointer("/metadata/namespace").is_some_and(|n| !n.is_null());
    if kind.is_some_and(resources::Kind::is_namespaced)
        && !named
        && let Some(Value::Object(metadata)) = value.get_mut("metadata")
    {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
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

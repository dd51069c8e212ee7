//! Objects from files and folders: what is there now, against what was told before.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use admission::Admission;
use resources::{Change, Kind, Object, ObjectKey};
use serde_json::json;

use crate::{
    Problem,
    document::{Document, parse},
};

/// Reads files and folders and keeps the last good version of each file and of each object.
#[derive(Debug)]
pub struct Files {
    paths: Vec<PathBuf>,
    admission: Arc<Admission>,
    files: BTreeMap<PathBuf, File>,
    told: BTreeMap<ObjectKey, Object>,
}

/// Outcome of one look at the files.
#[derive(Debug, Default)]
pub struct Scan {
    /// Differences to what was told before.
    pub changes: Vec<Change>,
    /// All that is wrong now, by file and line.
    pub problems: Vec<Problem>,
    /// A file was emptied or is half-written: look again soon.
    pub unsettled: bool,
}

#[derive(Debug, Default)]
struct File {
    text: String,
    objects: Vec<(ObjectKey, Object, u64)>,
    problems: Vec<Problem>,
    /// Emptied since the last look; the objects stay until the next look finds it still empty.
    emptied: bool,
}

/// Reads paths once: all objects, with what is wrong.
#[must_use]
pub fn load(paths: &[PathBuf], admission: Arc<Admission>) -> Scan {
    Files::new(paths.to_vec(), admission).scan()
}

// === impl Files ===

impl Files {
    /// Files, or folders of which all `*.yaml`, `*.yml` and `*.json` files count (hidden ones do not).
    #[must_use]
    pub fn new(paths: Vec<PathBuf>, admission: Arc<Admission>) -> Self {
        Self { paths, admission, files: BTreeMap::new(), told: BTreeMap::new() }
    }

    /// The paths that are read.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Looks at the files and tells the differences to the last look.
    pub fn scan(&mut self) -> Scan {
        let mut scan = Scan::default();
        let (found, kept) = self.list(&mut scan);
        self.files.retain(|path, _| found.contains(path) || kept.iter().any(|k| path.starts_with(k)));
        for path in found {
            self.read(path, &mut scan);
        }
        self.merge(&mut scan);
        scan.problems.sort();
        scan
    }

    /// Files that are there, and folders that could not be listed (what was read from them stays).
    fn list(&self, scan: &mut Scan) -> (BTreeSet<PathBuf>, Vec<PathBuf>) {
        let (mut found, mut kept) = (BTreeSet::new(), Vec::new());
        for path in &self.paths {
            match fs::metadata(path) {
                Ok(m) if m.is_dir() => walk(path, &mut found, &mut |dir, e| {
                    scan.problems.push(io_problem(dir, &e));
                    kept.push(dir.to_owned());
                }),
                Ok(_) => {
                    found.insert(path.clone());
                }
                Err(e) => {
                    scan.problems.push(io_problem(path, &e));
                    if e.kind() != io::ErrorKind::NotFound {
                        kept.push(path.clone());
                    }
                }
            }
        }
        (found, kept)
    }

    fn read(&mut self, path: PathBuf, scan: &mut Scan) {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            // Gone since it was listed: the next look sees that.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                scan.unsettled = true;
                return;
            }
            Err(e) => {
                scan.problems.push(io_problem(&path, &e));
                return;
            }
        };
        let file = self.files.entry(path.clone()).or_default();
        if text.trim().is_empty() && !file.objects.is_empty() && !file.emptied {
            // Editors truncate before they write.
            file.emptied = true;
            scan.unsettled = true;
            return;
        }
        file.emptied = false;
        if text == file.text {
            return;
        }
        match parse(&text) {
            Ok(documents) => {
                let last: BTreeMap<ObjectKey, Object> = file.objects.drain(..).map(|(k, o, _)| (k, o)).collect();
                file.problems.clear();
                for document in documents.iter().flat_map(expand) {
                    admit(&self.admission, &path, &document, &last, file);
                }
            }
            Err(e) => {
                let keeps = !file.objects.is_empty();
                file.problems = vec![Problem {
                    file: path,
                    line: e.line,
                    object: None,
                    field: None,
                    message: e.message,
                    keeps_last_good: keeps,
                }];
            }
        }
        file.text = text;
    }

    fn merge(&mut self, scan: &mut Scan) {
        let mut wanted: BTreeMap<ObjectKey, (&Object, &Path, u64)> = BTreeMap::new();
        for (path, file) in &self.files {
            scan.problems.extend(file.problems.iter().cloned());
            for (key, object, line) in &file.objects {
                match wanted.get(key) {
                    Some((_, first, first_line)) => scan.problems.push(Problem {
                        file: path.clone(),
                        line: *line,
                        object: Some(key.to_string()),
                        field: Some("metadata.name".into()),
                        message: format!(
                            "is there already, from {}:{first_line}, which stays in force: rename one or remove it",
                            first.display()
                        ),
                        keeps_last_good: false,
                    }),
                    None => {
                        wanted.insert(key.clone(), (object, path, *line));
                    }
                }
            }
        }
        let mut next: BTreeMap<ObjectKey, Object> = wanted.into_iter().map(|(k, (o, ..))| (k, o.clone())).collect();
        add_namespaces(&mut next);
        for (key, object) in &next {
            if self.told.get(key) != Some(object) {
                scan.changes.push(Change::Upsert(key.clone(), object.clone()));
            }
        }
        scan.changes.extend(self.told.keys().filter(|k| !next.contains_key(*k)).cloned().map(Change::Remove));
        self.told = next;
    }
}

/// A `List` document stands for its items.
fn expand(document: &Document) -> Vec<Document> {
    match (document.value.get("kind").and_then(|k| k.as_str()), document.value.get("items").and_then(|i| i.as_array()))
    {
        (Some(kind), Some(items)) if kind.ends_with("List") => items
            .iter()
            .enumerate()
            .map(|(i, item)| {
                let mut one = document.clone();
                one.line = document.line_of(&format!("items[{i}]"));
                one.value = item.clone();
                one
            })
            .collect(),
        _ => vec![document.clone()],
    }
}

fn admit(admission: &Admission, path: &Path, document: &Document, last: &BTreeMap<ObjectKey, Object>, file: &mut File) {
    let named = |value: &serde_json::Value| {
        let text = |at: &str| value.pointer(at).and_then(|v| v.as_str()).unwrap_or("?").to_owned();
        match value.pointer("/metadata/namespace").and_then(|v| v.as_str()) {
            Some(ns) => format!("{} {ns}/{}", text("/kind"), text("/metadata/name")),
            None => format!("{} {}", text("/kind"), text("/metadata/name")),
        }
    };
    let object = named(&document.value);
    let problem = |line, field: Option<String>, message, keeps_last_good| Problem {
        file: path.to_owned(),
        line,
        object: Some(object.clone()),
        field,
        message,
        keeps_last_good,
    };
    // The key without the content, so that a refused object can keep its last good version.
    let keep = |value: &serde_json::Value| {
        let kind = Kind::find(value.pointer("/apiVersion")?.as_str()?, value.pointer("/kind")?.as_str()?)?;
        let name = value.pointer("/metadata/name")?.as_str()?;
        let namespace = value.pointer("/metadata/namespace").and_then(|v| v.as_str()).unwrap_or("default");
        let key = ObjectKey::new(kind, if kind.is_namespaced() { namespace } else { "" }, name);
        last.get(&key).map(|o| (key.clone(), o.clone()))
    };
    let version = document.value.pointer("/apiVersion").and_then(|v| v.as_str());
    let kind = document.value.pointer("/kind").and_then(|v| v.as_str());
    if let (Some(version), Some(kind)) = (version, kind)
        && Kind::find(version, kind).is_none()
    {
        file.problems.push(problem(
            document.line_of("kind"),
            Some("kind".into()),
            format!("{kind} of {version} is not read by the gateway and is left out"),
            false,
        ));
        return;
    }
    match admission.admit(document.value.clone()) {
        Ok(value) => match Object::from_value(value) {
            Ok((key, object)) => file.objects.push((key, object, document.line)),
            Err(e) => {
                let kept = keep(&document.value);
                file.problems.push(problem(document.line, None, e.to_string(), kept.is_some()));
                file.objects.extend(kept.map(|(k, o)| (k, o, document.line)));
            }
        },
        Err(refused) => {
            let kept = keep(&document.value);
            for error in refused.errors {
                let line = document.line_of(&error.path);
                let text = error.to_string();
                let message = text.strip_prefix(&format!("{}: ", error.path)).unwrap_or(&text).to_owned();
                file.problems.push(problem(line, Some(error.path), message, kept.is_some()));
            }
            file.objects.extend(kept.map(|(k, o)| (k, o, document.line)));
        }
    }
}

/// Namespaces that objects live in exist, as they do in a cluster, with the label that every namespace bears.
fn add_namespaces(objects: &mut BTreeMap<ObjectKey, Object>) {
    let missing: BTreeSet<Arc<str>> = objects
        .keys()
        .filter(|k| !k.namespace.is_empty())
        .map(|k| k.namespace.clone())
        .filter(|ns| !objects.contains_key(&ObjectKey::new(Kind::Namespace, "", ns)))
        .collect();
    for name in missing {
        let value = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": &*name, "labels": {"kubernetes.io/metadata.name": &*name}}});
        if let Ok((key, object)) = Object::from_value(value) {
            objects.insert(key, object);
        }
    }
}

fn walk(dir: &Path, found: &mut BTreeSet<PathBuf>, failed: &mut impl FnMut(&Path, io::Error)) {
    let entries = match fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
        Ok(entries) => entries,
        Err(e) => return failed(dir, e),
    };
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if path.is_dir() {
            walk(&path, found, failed);
        } else if matches!(path.extension().and_then(|e| e.to_str()), Some("yaml" | "yml" | "json")) {
            found.insert(path);
        }
    }
}

fn io_problem(path: &Path, e: &io::Error) -> Problem {
    let message = match e.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder: create it or correct the path".to_owned(),
        io::ErrorKind::PermissionDenied => "may not be read: give this user the right to read it".to_owned(),
        io::ErrorKind::InvalidData => "is not UTF-8 text".to_owned(),
        _ => e.to_string(),
    };
    Problem {
        file: path.to_owned(),
        line: 0,
        object: None,
        field: None,
        message,
        keeps_last_good: e.kind() != io::ErrorKind::NotFound,
    }
}

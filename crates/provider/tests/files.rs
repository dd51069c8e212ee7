//! What files say, and what is kept when they are broken.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use admission::Admission;
use provider::{FileSource, Files, Source};
use resources::Change;
use tempfile::TempDir;
use tokio::{sync::mpsc, task::JoinSet, time::timeout};

fn route(name: &str, path: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata:\n  name: {name}\nspec:\n  parentRefs:\n  - name: gw\n  \
         rules:\n  - matches:\n    - path:\n        type: PathPrefix\n        value: {path}\n"
    )
}

fn told(changes: &[Change]) -> Vec<String> {
    let mut out: Vec<_> = changes
        .iter()
        .map(|c| match c {
            Change::Upsert(k, _) => format!("+{k}"),
            Change::Remove(k) => format!("-{k}"),
            Change::Synced => "synced".to_owned(),
            other => format!("{other:?}"),
        })
        .filter(|t| !t.contains("Namespace"))
        .collect();
    out.sort();
    out
}

fn files(dir: &Path) -> Files {
    Files::new(vec![dir.to_owned()], Arc::new(Admission::new()))
}

fn put(dir: &TempDir, name: &str, text: &str) -> PathBuf {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn folders_with_many_documents_in_any_order() {
    let dir = TempDir::new().unwrap();
    put(&dir, "z.yaml", &format!("{}---\n{}", route("b", "/b"), route("a", "/a")));
    put(
        &dir,
        "sub/a.json",
        r#"{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}"#,
    );
    put(&dir, ".hidden.yaml", &route("hidden", "/"));
    put(&dir, "notes.txt", "no yaml: [");
    let mut files = files(dir.path());
    let scan = files.scan();
    assert_eq!(scan.problems, []);
    assert_eq!(told(&scan.changes), ["+HTTPRoute default/a", "+HTTPRoute default/b", "+Secret default/s"]);
    let namespaces: Vec<_> = scan
        .changes
        .iter()
        .filter(|c| matches!(c, Change::Upsert(k, _) if k.kind == resources::Kind::Namespace))
        .collect();
    assert_eq!(namespaces.len(), 1, "the namespace that they live in exists");
    assert_eq!(told(&files.scan().changes), Vec::<String>::new(), "nothing changed");
    fs::remove_file(dir.path().join("sub/a.json")).unwrap();
    assert_eq!(told(&files.scan().changes), ["-Secret default/s"]);
}

#[test]
fn a_broken_file_keeps_its_last_good_version_and_says_where() {
    let dir = TempDir::new().unwrap();
    let broken = put(&dir, "a.yaml", &route("a", "/a"));
    put(&dir, "b.yaml", &route("b", "/b"));
    let mut files = files(dir.path());
    files.scan();
    put(&dir, "a.yaml", &format!("{}---\nkind: [\n", route("a", "/changed")));
    put(&dir, "b.yaml", &route("b", "/changed"));
    let scan = files.scan();
    assert_eq!(told(&scan.changes), ["+HTTPRoute default/b"], "the other file goes on");
    let problem = &scan.problems[0];
    assert_eq!((problem.file.as_path(), problem.keeps_last_good), (broken.as_path(), true));
    assert!(problem.line >= 13, "line of the file, not of the document: {problem}");
    put(&dir, "a.yaml", &route("a", "/good"));
    let scan = files.scan();
    assert_eq!(told(&scan.changes), ["+HTTPRoute default/a"]);
    assert_eq!(scan.problems, []);
}

#[test]
fn a_refused_object_keeps_its_last_good_version_and_its_neighbours_go_on() {
    let dir = TempDir::new().unwrap();
    put(&dir, "a.yaml", &format!("{}---\n{}", route("a", "/a"), route("b", "/b")));
    let mut files = files(dir.path());
    files.scan();
    put(&dir, "a.yaml", &format!("{}---\n{}", route("a", "no-slash"), route("b", "/b2")));
    let scan = files.scan();
    assert_eq!(told(&scan.changes), ["+HTTPRoute default/b"], "a keeps what it had");
    let text = scan.problems[0].to_string();
    for part in ["a.yaml:11", "HTTPRoute a", "spec.rules[0].matches[0].path", "last good version"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    // Never good: left out, and said.
    put(&dir, "c.yaml", &route("c", "no-slash"));
    let scan = files.scan();
    assert_eq!(told(&scan.changes), Vec::<String>::new());
    assert!(scan.problems.iter().any(|p| p.file.ends_with("c.yaml") && !p.keeps_last_good));
}

#[test]
fn an_emptied_file_is_believed_at_the_second_look_only() {
    let dir = TempDir::new().unwrap();
    put(&dir, "a.yaml", &route("a", "/a"));
    let mut files = files(dir.path());
    files.scan();
    put(&dir, "a.yaml", "");
    let scan = files.scan();
    assert!(scan.unsettled);
    assert_eq!(told(&scan.changes), Vec::<String>::new(), "an editor may be about to write");
    assert_eq!(told(&files.scan().changes), ["-HTTPRoute default/a"]);
}

#[test]
fn one_object_in_two_files_is_said_and_the_first_file_wins() {
    let dir = TempDir::new().unwrap();
    put(&dir, "a.yaml", &route("x", "/first"));
    put(&dir, "b.yaml", &route("x", "/second"));
    let mut files = files(dir.path());
    let scan = files.scan();
    assert_eq!(scan.problems.len(), 1);
    assert!(scan.problems[0].to_string().contains("a.yaml:1"), "{}", scan.problems[0]);
    fs::remove_file(dir.path().join("a.yaml")).unwrap();
    let scan = files.scan();
    assert_eq!(told(&scan.changes), ["+HTTPRoute default/x"], "the second takes over");
    assert_eq!(scan.problems, []);
}

#[test]
fn a_missing_path_and_an_unknown_kind_are_said_and_nothing_else_is_lost() {
    let dir = TempDir::new().unwrap();
    put(
        &dir,
        "a.yaml",
        &format!("apiVersion: example.test/v1\nkind: Thing\nmetadata: {{name: t}}\n---\n{}", route("a", "/a")),
    );
    let mut files = Files::new(vec![dir.path().to_owned(), dir.path().join("absent")], Arc::new(Admission::new()));
    let scan = files.scan();
    assert_eq!(told(&scan.changes), ["+HTTPRoute default/a"]);
    assert_eq!(scan.problems.len(), 2);
    assert!(scan.problems.iter().any(|p| p.message.contains("Thing of example.test/v1")));
    assert!(scan.problems.iter().any(|p| p.file.ends_with("absent")));
}

#[tokio::test]
async fn changes_are_told_as_they_happen() {
    let dir = TempDir::new().unwrap();
    put(&dir, "a.yaml", &route("a", "/a"));
    let (source, mut problems) = FileSource::new(vec![dir.path().to_owned()], Arc::new(Admission::new()));
    let (tx, mut rx) = mpsc::channel(8);
    let mut tasks = JoinSet::new();
    tasks.spawn(source.run(tx));
    let limit = Duration::from_secs(20);
    let first = timeout(limit, rx.recv()).await.unwrap().unwrap();
    assert_eq!(told(&first), ["+HTTPRoute default/a", "synced"]);
    put(&dir, "b.yaml", &route("b", "/b"));
    assert_eq!(told(&timeout(limit, rx.recv()).await.unwrap().unwrap()), ["+HTTPRoute default/b"]);
    put(&dir, "b.yaml", "kind: [");
    timeout(limit, problems.wait_for(|p| !p.is_empty())).await.unwrap().unwrap();
    put(&dir, "b.yaml", &route("c", "/c"));
    assert_eq!(
        told(&timeout(limit, rx.recv()).await.unwrap().unwrap()),
        ["+HTTPRoute default/c", "-HTTPRoute default/b"]
    );
    drop(rx);
    timeout(limit, tasks.join_next()).await.expect("ends with its receiver");
}

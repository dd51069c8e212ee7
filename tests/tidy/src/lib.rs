//! Keeps the house in order: which crate may depend on which, how long a file and a crate may be, what no file says.
//!
//! The table in [`ALLOWED_EDGES`] is the one of `ARCHITECTURE.md`; change both together, and say why in an ADR.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

/// Workspace crates that each crate may depend on (dev-dependencies apart). Crates under `bins/` and `tests/` may use all.
pub const ALLOWED_EDGES: &[(&str, &[&str])] = &[
    ("gateway-api", &[]),
    ("api", &["gateway-api"]),
    ("admission", &["api"]),
    ("settings", &["api", "admission"]),
    ("resources", &["api"]),
    ("ir", &["resources", "api"]),
    ("refusal", &["ir", "resources"]),
    ("re2", &[]),
    ("policy", &["resources", "ir", "api", "re2"]),
    ("election", &[]),
    ("reconcile", &["election"]),
    ("provider", &["resources", "api", "admission"]),
    ("translator", &["resources", "ir", "api", "re2", "policy"]),
    ("envoy", &["ir"]),
    ("xds", &[]),
    ("infra", &["ir", "resources", "api", "reconcile", "election"]),
    ("status", &["ir", "resources", "api", "reconcile", "election"]),
    ("certs", &[]),
    ("peers", &[]),
    ("tokens", &[]),
];

/// Lines that a hand-written file may have.
pub const FILE_LIMIT: usize = 800;
/// Lines that a crate's sources may have.
pub const CRATE_LIMIT: usize = 8_000;

/// Root of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Edges between workspace crates as `cargo metadata` reports them: crate → (dependency, is a dev-dependency).
#[must_use]
pub fn edges() -> BTreeMap<String, BTreeSet<(String, bool)>> {
    let out = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&out.stderr));
    let meta: serde_json::Value = serde_json::from_slice(&out.stdout).expect("cargo metadata prints JSON");
    let packages = meta["packages"].as_array().expect("packages");
    let members: BTreeSet<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    packages
        .iter()
        .map(|p| {
            let deps = p["dependencies"].as_array().expect("dependencies").iter().filter_map(|d| {
                let name = d["name"].as_str()?;
                (members.contains(name) && d["path"].is_string()).then(|| (name.to_owned(), d["kind"] == "dev"))
            });
            (p["name"].as_str().expect("name").to_owned(), deps.collect())
        })
        .collect()
}

/// Edges of shipped crates that the table does not allow.
#[must_use]
pub fn forbidden(edges: &BTreeMap<String, BTreeSet<(String, bool)>>, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut out = Vec::new();
    for (name, allowed) in table {
        for (to, dev) in edges.get(*name).into_iter().flatten() {
            if !dev && !allowed.contains(&to.as_str()) {
                out.push(format!("{name} -> {to}"));
            }
        }
    }
    out
}

/// Files that git tracks or would track, with the given ending.
#[must_use]
pub fn files(ending: &str) -> Vec<PathBuf> {
    let out = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|l| l.ends_with(ending))
        .map(|l| root().join(l))
        .filter(|p| p.is_file())
        .collect()
}

/// Lines of a file.
#[must_use]
pub fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |t| t.lines().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_edges() {
        let edges = edges();
        assert_eq!(forbidden(&edges, ALLOWED_EDGES), Vec::<String>::new());
        let crates: BTreeSet<String> = std::fs::read_dir(root().join("crates"))
            .expect("crates/")
            .filter_map(|e| e.ok()?.file_name().into_string().ok())
            .filter(|n| n != "testkit")
            .collect();
        let known: BTreeSet<String> = ALLOWED_EDGES.iter().map(|(n, _)| (*n).to_owned()).collect();
        let unknown: Vec<_> = crates.difference(&known).collect();
        assert!(unknown.is_empty(), "crates without a row in ALLOWED_EDGES: {unknown:?}");
        for (name, deps) in &edges {
            let ships =
                ALLOWED_EDGES.iter().any(|(n, _)| n == name) || matches!(name.as_str(), "envoy-gateway" | "egctl");
            assert!(!ships || !deps.contains(&("testkit".to_owned(), false)), "{name} would ship testkit");
        }
    }

    #[test]
    fn a_forbidden_edge_is_seen() {
        let edges = BTreeMap::from([(
            "xds".to_owned(),
            BTreeSet::from([("ir".to_owned(), false), ("testkit".to_owned(), true)]),
        )]);
        assert_eq!(forbidden(&edges, ALLOWED_EDGES), ["xds -> ir"]);
    }

    #[test]
    fn files_and_crates_stay_small() {
        let mut crates: BTreeMap<String, usize> = BTreeMap::new();
        let mut long = Vec::new();
        for path in files(".rs") {
            let n = lines(&path);
            let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            if n > FILE_LIMIT {
                long.push(format!("{name}: {n}"));
            }
            let mut parts = name.split('/');
            if let (Some(top @ ("crates" | "bins" | "tests")), Some(member)) = (parts.next(), parts.next()) {
                *crates.entry(format!("{top}/{member}")).or_default() += n;
            }
        }
        assert_eq!(long, Vec::<String>::new(), "files over {FILE_LIMIT} lines");
        let big: Vec<_> = crates.iter().filter(|(_, n)| **n > CRATE_LIMIT).collect();
        assert!(big.is_empty(), "crates over {CRATE_LIMIT} lines: {big:?}");
    }

    #[test]
    fn every_crate_says_what_it_is() {
        let mut missing = Vec::new();
        for (name, _) in ALLOWED_EDGES {
            let dir = root().join("crates").join(name);
            if !dir.exists() {
                continue;
            }
            if !dir.join("README.md").exists() {
                missing.push(format!("crates/{name}/README.md"));
            }
            if std::fs::read_dir(dir.join("examples")).map_or(0, Iterator::count) == 0 {
                missing.push(format!("crates/{name}/examples/*"));
            }
        }
        assert_eq!(missing, Vec::<String>::new(), "each crate has a README and an example");
    }

    #[test]
    fn pure_crates_hold_no_hash_maps_and_no_clocks() {
        let mut found = Vec::new();
        for path in files(".rs") {
            let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
            if !(["ir", "policy", "re2", "translator"].iter().any(|c| name.starts_with(&format!("crates/{c}/src")))) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            for word in ["HashMap", "HashSet", "SystemTime", "Instant::now", "Timestamp::now", ".await"] {
                for (i, line) in
                    text.lines().enumerate().filter(|(_, l)| l.contains(word) && !l.trim_start().starts_with("//"))
                {
                    found.push(format!("{name}:{}: {word}: {}", i + 1, line.trim()));
                }
            }
        }
        assert_eq!(found, Vec::<String>::new(), "ir and translator are values and pure functions");
    }
}

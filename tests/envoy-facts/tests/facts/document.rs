//! The table of `docs/envoy-facts.md` and these tests tell the same.

use std::{collections::BTreeSet, fs, path::Path};

/// Names in the last column of the document's tables.
fn told() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/envoy-facts.md");
    let text = fs::read_to_string(path).expect("docs/envoy-facts.md");
    let rows = text.lines().filter(|line| line.starts_with('|') && line.contains('`'));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let last = cells.last().copied().unwrap_or_default();
        last.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    })
    .collect()
}

/// Names of the tests in a folder.
fn tests(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut names = BTreeSet::new();
    for file in fs::read_dir(folder).expect("a folder of tests") {
        let path = file.expect("an entry").path();
        if path.is_dir() || path.ends_with("document.rs") {
            continue;
        }
        let text = fs::read_to_string(path).expect("a text");
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("#[tokio::test") {
                let name = lines.next().and_then(|line| line.strip_prefix("async fn "));
                names.extend(name.and_then(|name| name.split('(').next()).map(str::to_owned));
            }
        }
    }
    names
}

#[test]
fn every_row_names_its_test_and_every_fact_has_a_row() {
    let (told, facts, product) = (told(), tests("tests/facts"), tests("tests/facts/product"));
    assert!(facts.len() > 40 && product.len() > 20, "{facts:?} {product:?}");
    let unknown: Vec<_> = told.iter().filter(|name| !facts.contains(*name) && !product.contains(*name)).collect();
    assert_eq!(unknown, Vec::<&String>::new(), "rows without a test");
    assert_eq!(facts.difference(&told).collect::<Vec<_>>(), Vec::<&String>::new(), "facts without a row");
}

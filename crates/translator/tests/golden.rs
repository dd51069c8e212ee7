//! Golden cases: `golden/CASE/in.yaml` (joined with the fixture) and what follows from it, `golden/CASE/out.txt`.
//! `UPDATE_EXPECT=1 cargo test -p translator --test golden` writes the latter anew; read the difference before it is kept.

mod common;

use std::{fs, path::Path};

#[test]
fn every_case_translates_as_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut names: Vec<_> = fs::read_dir(&root)
        .expect("the folder of cases")
        .map(|e| e.expect("an entry").file_name().into_string().expect("a plain name"))
        .collect();
    names.sort();
    assert!(names.len() >= 25, "{} cases", names.len());
    let update = std::env::var_os("UPDATE_EXPECT").is_some();
    let mut wrong = Vec::new();
    for name in names {
        let input = fs::read_to_string(root.join(&name).join("in.yaml")).expect("in.yaml");
        let picture = common::picture::of(&common::full(&input));
        let file = root.join(&name).join("out.txt");
        if update {
            fs::write(&file, picture).expect("out.txt is written");
        } else if fs::read_to_string(&file).unwrap_or_default() != picture {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "not as recorded: {wrong:?}; run with UPDATE_EXPECT=1 and read the difference");
}

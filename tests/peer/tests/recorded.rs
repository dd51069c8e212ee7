//! The recorded cases, where they are at hand.
#![expect(clippy::print_stdout, reason = "tells why a test had nothing to do")]

use std::{collections::BTreeSet, path::Path};

use peer::{
    case::{self, Judged},
    normal, ratchet, report,
    verdict::Judge,
};

fn cases() -> Option<std::path::PathBuf> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/cases");
    if !cases.is_dir() {
        println!("skipped: no peer data");
        return None;
    }
    Some(cases)
}

/// Every recorded resource is read as a typed message and levelled without loss of a name.
#[test]
fn recorded_resources_are_typed() {
    let Some(cases) = cases() else { return };
    let mut resources = 0;
    // What an API server refuses may be anything.
    let sets = case::find(&cases, None).unwrap();
    for case in sets.iter().flat_map(|s| &s.cases).filter(|c| c.judged == Judged::Fully) {
        for (name, tree) in case.xds().unwrap() {
            let group = normal::group(&tree).unwrap_or_else(|e| panic!("{} {name}: {e}", case.name));
            let listed: BTreeSet<_> = normal::LISTS
                .iter()
                .flat_map(|(list, _, key)| {
                    tree[*list].as_array().into_iter().flatten().map(move |r| (*list, r[*key].to_string()))
                })
                .collect();
            assert_eq!(group.len(), listed.len(), "{} {name}", case.name);
            resources += listed.len();
        }
    }
    assert!(resources > 0);
}

/// What passed once passes.
#[test]
fn nothing_is_lost() {
    let Some(cases) = cases() else { return };
    let outcomes = report::run(case::find(&cases, None).unwrap(), &Judge::new(5, false));
    let judged: Vec<_> = outcomes.iter().flat_map(|o| &o.cases).map(|(c, v)| (c.name.as_str(), v)).collect();
    let now = ratchet::passing(judged.iter().copied());
    let before = ratchet::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("ratchet")).unwrap();
    let names: BTreeSet<&str> = judged.iter().map(|(n, _)| *n).collect();
    let lost = ratchet::lost(&before, &now, &names);
    println!("{}", report::summary(&outcomes));
    assert!(lost.is_empty(), "no longer equal: {lost:?}\n{}", report::differences(&outcomes, 20));
}

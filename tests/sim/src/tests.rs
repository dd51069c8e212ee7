//! The simulation itself: repeatable, wide enough, and not part of what ships.

use crate::{
    history::{run, seed_of},
    plan::{Plan, SECOND},
    world::Coverage,
};
use election::Mutant;
use std::path::Path;

#[test]
fn the_same_seed_gives_the_same_history() {
    for number in 0..5 {
        let seed = seed_of(3, number);
        let (one, two) = (run(seed, None, true), run(seed, None, true));
        assert!(one.trace.len() > 100);
        assert_eq!(one.trace, two.trace);
    }
    assert_ne!(run(1, None, true).trace, run(2, None, true).trace);
}

#[test]
fn rule_04_no_write_of_an_older_term_comes_after_a_newer_one() {
    let mut seen = Coverage::default();
    for number in 0..150 {
        let verdict = run(seed_of(4, number), None, false);
        assert_eq!(verdict.violations, Vec::<String>::new(), "seed {}", verdict.seed);
        seen.add(&verdict.coverage);
    }
    for what in [
        "object writes",
        "takeovers",
        "lost answers",
        "lost requests",
        "late requests",
        "conflicts",
        "pauses",
        "crashes",
        "stops",
        "deletions",
        "partitions",
        "API away",
        "releases",
        "liveness checks",
        "put back",
        "taken",
        "expired",
    ] {
        assert!(seen.get(what) > 0, "no {what} in {seen:?}");
    }
    let (low, high) = seen.rates.unwrap();
    assert!(low <= 901_000 && high >= 1_099_000, "clock rates {low} to {high}");
}

#[test]
fn plans_are_as_wide_as_promised() {
    for number in 0..500 {
        let plan = Plan::draw(seed_of(5, number));
        assert!((2..=5).contains(&plan.candidates.len()) && plan.end >= 300 * SECOND);
        let mut kinds: Vec<_> = plan.faults.iter().map(|f| f.kind).collect();
        kinds.sort();
        kinds.dedup();
        assert!(kinds.len() >= 3, "{kinds:?}");
        assert!(
            plan.candidates.iter().all(|c| c.timings.validate().is_ok() && (900_000..=1_100_000).contains(&c.rate))
        );
        assert!(plan.faults.iter().all(|f| f.to <= plan.end - plan.bound), "a calm end");
    }
}

#[test]
fn planted_bugs_are_caught() {
    for bug in [
        Mutant::OwnClockIgnored,
        Mutant::WallClockTrusted,
        Mutant::MissingReRead,
        Mutant::RenewalsUnseen,
        Mutant::LeavesOnError,
    ] {
        let caught = (0..200).any(|number| !run(seed_of(6, number), Some(bug), false).violations.is_empty());
        assert!(caught, "{bug:?}");
    }
}

#[test]
fn nothing_that_ships_enables_the_planted_bugs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut read = 0;
    for folder in ["crates", "bins"] {
        for member in std::fs::read_dir(root.join(folder)).unwrap() {
            let manifest = member.unwrap().path().join("Cargo.toml");
            let Ok(text) = std::fs::read_to_string(&manifest) else { continue };
            read += 1;
            let mentions =
                text.lines().filter(|l| l.contains("mutants") && !l.starts_with('#') && *l != "mutants = []").count();
            assert_eq!(mentions, 0, "{}", manifest.display());
        }
    }
    assert!(read > 5);
    let workspace = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    assert!(!workspace.contains("mutants"));
}

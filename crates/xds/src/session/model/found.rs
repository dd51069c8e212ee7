//! Histories that once went wrong, as random search found them.

use super::{
    histories::{Op, run},
    *,
};

const PLAIN: ClusterSpec = ClusterSpec { revision: 0, warms: false, eds: false, fault: Fault::None };
const WARMS: ClusterSpec = ClusterSpec { warms: true, ..PLAIN };
const EDS: ClusterSpec = ClusterSpec { eds: true, ..PLAIN };
const WARMS_EDS: ClusterSpec = ClusterSpec { warms: true, ..EDS };
const BAD: ClusterSpec = ClusterSpec { fault: Fault::Bad, ..PLAIN };
const BAD_WARMS: ClusterSpec = ClusterSpec { fault: Fault::Bad, ..WARMS };
const STUCK: ClusterSpec = ClusterSpec { fault: Fault::Stuck, ..WARMS };

/// Clusters, and listeners with their tables; the tables are empty.
fn world(clusters: &[(u8, ClusterSpec)], listeners: &[(u8, u8)]) -> World {
    World {
        clusters: clusters.iter().copied().collect(),
        endpoints: BTreeMap::new(),
        tables: (0..3).map(|at| (at, (0, BTreeSet::new(), false))).collect(),
        listeners: listeners.iter().map(|(at, table)| (*at, (0, *table))).collect(),
    }
}

fn to(clusters: &[(u8, ClusterSpec)], listeners: &[(u8, u8)]) -> Vec<Op> {
    vec![Op::Update(world(clusters, listeners))]
}

/// `s`: the server reads a request; `p`: the proxy reads a response; `|`: the stream is cut.
fn steps(of: &str) -> Vec<Op> {
    let step = |c| match c {
        's' => Op::Serve,
        'p' => Op::Deliver,
        '|' => Op::Cut,
        other => panic!("no step {other}"),
    };
    of.chars().map(step).collect()
}

/// A starting proxy acknowledges a cluster that never gets warm, which is then replaced by a good version in a response that is refused
/// for another cluster: that it asks for listeners is the merit of the good one.
#[test]
fn a_cold_version_that_was_replaced_in_a_refused_response_is_not_put_back() {
    let ops = [
        to(&[(3, STUCK)], &[(0, 0)]),
        steps("s"),
        to(&[(0, BAD_WARMS), (1, PLAIN), (3, WARMS)], &[(0, 0)]),
        to(&[(0, PLAIN)], &[(0, 0)]),
    ];
    let last = world(&[(0, WARMS), (2, WARMS), (3, BAD_WARMS)], &[(0, 0)]);
    run(Mode::Delta, ops.concat(), last, false);
}

/// A version that never gets warm is acknowledged together with the one that took its place. Putting it back after a refusal keeps all
/// others from being acknowledged, and one of these is blamed.
#[test]
fn an_undo_that_never_gets_warm_is_undone_and_others_that_were_blamed_for_it_come_back() {
    let ops = [
        steps("s"),
        to(&[(0, PLAIN)], &[(0, 0)]),
        to(&[(2, STUCK)], &[(0, 0)]),
        to(&[(0, BAD), (2, PLAIN)], &[(0, 0)]),
    ];
    run(Mode::Delta, ops.concat(), world(&[(0, WARMS), (2, BAD)], &[(0, 0)]), false);
}

/// A cluster whose first health check takes longer than an acknowledgement is waited for gets another chance.
#[test]
fn a_slow_cluster_that_was_taken_out_comes_back() {
    for mode in [Mode::Delta, Mode::StateOfTheWorld] {
        let ops = [
            to(&[(1, EDS)], &[(0, 0)]),
            steps("spsp"),
            to(&[(1, WARMS_EDS)], &[(0, 0)]),
            steps("sspsps"),
            vec![Op::Tick(19_996)],
        ];
        run(mode, ops.concat(), world(&[(1, WARMS_EDS)], &[(0, 0)]), false);
    }
}

/// The same, of a cluster that is new and was removed.
#[test]
fn a_slow_new_cluster_that_was_removed_comes_back() {
    let ops = [
        to(&[(0, BAD)], &[(0, 0)]),
        steps("sp|"),
        to(&[(3, WARMS)], &[(0, 0)]),
        steps("ssppss"),
        vec![Op::Tick(19_997)],
    ];
    run(Mode::Delta, ops.concat(), world(&[(3, WARMS)], &[(0, 0)]), false);
}

/// A proxy reads a change as part of a response that it refuses, and is cut off before it reads that the change was taken back: it then
/// names the version that it acknowledged, and has the other.
#[test]
fn a_change_that_was_taken_back_just_before_a_cut_is_in_doubt() {
    let changed = ClusterSpec { revision: 2, ..WARMS_EDS };
    let ops = [
        to(&[(0, changed)], &[(0, 0)]),
        steps("ssspp"),
        to(&[(0, PLAIN), (1, BAD)], &[(0, 0)]),
        steps("p"),
        to(&[(0, changed)], &[(0, 0)]),
        steps("ss|"),
    ];
    run(Mode::Delta, ops.concat(), world(&[(0, changed)], &[(0, 0)]), false);
}

/// A proxy that was cut off while a cluster warmed up asks for listeners first. One that came and went meanwhile is kept for a while, as
/// nobody knows that the proxy never had it; its table must not come along before the clusters that the table names by now.
#[test]
fn a_listener_that_is_about_to_go_brings_no_table_ahead_of_its_cluster() {
    let mut last = world(&[(1, PLAIN)], &[]);
    last.tables.insert(0, (0, BTreeSet::from([1]), false));
    let ops = [
        to(&[(0, PLAIN)], &[(0, 1)]),
        steps("spss"),
        to(&[(2, PLAIN)], &[]),
        steps("s"),
        steps("pp"),
        to(&[(2, WARMS)], &[]),
        to(&[(0, PLAIN)], &[]),
        steps("p|"),
        to(&[(0, PLAIN)], &[(2, 0)]),
        to(&[(0, PLAIN)], &[(0, 2)]),
        steps("ss"),
        vec![Op::Warm(0)],
    ];
    run(Mode::StateOfTheWorld, ops.concat(), last, true);
}

/// A state-of-the-world proxy comes back with exactly the wanted state, and what it has of some clusters is in doubt: no response leaves
/// one of these out.
#[test]
fn a_cluster_in_doubt_stays_in_every_response_that_holds_the_whole_state() {
    let changed = ClusterSpec { revision: 1, ..PLAIN };
    let mut busy = world(&[(0, WARMS), (1, changed), (4, WARMS)], &[]);
    busy.tables.insert(2, (0, BTreeSet::from([4]), false));
    let ops = [
        steps("s"),
        to(&[(1, PLAIN)], &[]),
        to(&[(4, EDS)], &[(0, 2)]),
        steps("pppss"),
        vec![Op::Update(busy)],
        steps("ppssp"),
        vec![Op::Warm(0)],
        steps("|s"),
        vec![Op::Warm(0)],
        steps("ss"),
    ];
    run(Mode::StateOfTheWorld, ops.concat(), world(&[(0, PLAIN)], &[]), true);
}

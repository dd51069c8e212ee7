//! What is taken away waits for connections that drain and for requests under way.

use super::*;

const DRAIN: Duration = Duration::from_secs(60);

/// As [`Peer::running`], with a server that waits for the drain time.
fn running() -> Peer {
    let mut peer = Peer::running();
    peer.session.waits.drain = DRAIN;
    peer
}

fn tcp(body: &str, cluster: &str) -> Resource {
    let hints = Hints::Listener { routes: list(&[]), secrets: list(&[]), clusters: list(&[cluster]) };
    Resource::new(body.to_owned(), hints)
}

#[test]
fn table_and_clusters_of_a_removed_listener_stay_for_the_drain_time() {
    let mut peer = running();
    peer.set([(LDS, "l", None), (RDS, "r", None), (CDS, "a", None), (EDS, "a", None)]);
    peer.accept(LDS, &[], &["l"]);
    peer.nothing();
    assert_eq!(peer.session.next_timer(), Some(peer.now + DRAIN));
    // Other updates go on meanwhile.
    peer.set([
        (CDS, "b", Some(cluster("b", "b1"))),
        (LDS, "m", Some(listener("m1", &["q"]))),
        (RDS, "q", Some(table("q1", &["b"]))),
    ]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    peer.accept(LDS, &["m"], &[]);
    peer.accept(RDS, &["q"], &[]);
    peer.ask(RDS, &["q"]);
    peer.accept(RDS, &["q"], &[]);
    peer.pass(DRAIN - Duration::from_millis(1));
    peer.nothing();
    peer.pass(Duration::from_millis(1));
    peer.accept(RDS, &[], &["r"]);
    peer.leave(RDS, &["r"]);
    let removal = peer.expect(CDS, &[], &["a"]);
    peer.leave(EDS, &["a"]);
    peer.ack(&removal);
    peer.nothing();
    assert_eq!(peer.session.next_timer(), None);
}

#[test]
fn a_proxy_that_leaves_the_table_earlier_is_done_with_it() {
    let mut peer = running();
    peer.set([(LDS, "l", None), (RDS, "r", None), (CDS, "a", None)]);
    peer.accept(LDS, &[], &["l"]);
    peer.nothing();
    peer.pass(Duration::from_secs(10));
    peer.leave(RDS, &["r"]);
    peer.accept(CDS, &[], &["a"]);
}

#[test]
fn a_cluster_that_a_table_has_left_stays_for_the_drain_time() {
    let mut peer = running();
    peer.set([(CDS, "b", Some(cluster("b", "b1"))), (RDS, "r", Some(table("r2", &["b"]))), (CDS, "a", None)]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    peer.accept(RDS, &["r"], &[]);
    peer.nothing();
    peer.pass(DRAIN);
    peer.accept(CDS, &[], &["a"]);
}

#[test]
fn a_cluster_that_comes_back_in_another_form_is_waited_for() {
    for busy in [false, true] {
        let mut peer = running();
        peer.set([(CDS, "b", Some(cluster("b", "b1"))), (RDS, "r", Some(table("r2", &["a", "b"])))]);
        peer.accept(CDS, &["b"], &[]);
        peer.accept(EDS, &["b"], &[]);
        peer.accept(RDS, &["r"], &[]);
        peer.set([(CDS, "b", None), (RDS, "r", Some(table("r1", &["a"])))]);
        peer.accept(RDS, &["r"], &[]);
        peer.nothing();
        // It is still there for what drains. What leads to it now must not meet what it was.
        let warming = busy.then(|| {
            peer.set([(CDS, "other", Some(slow("other", "1", &[])))]);
            let warming = peer.expect(CDS, &["other"], &[]);
            peer.expect(EDS, &["other"], &[]);
            warming
        });
        peer.set([(CDS, "b", Some(slow("b", "b2", &[]))), (RDS, "r", Some(table("r3", &["a", "b"])))]);
        if let Some(warming) = warming {
            peer.nothing();
            peer.ack(&warming);
        }
        let back = peer.expect(CDS, &["b"], &[]);
        peer.expect(EDS, &["b"], &[]);
        peer.nothing();
        peer.ack(&back);
        peer.accept(RDS, &["r"], &[]);
        peer.nothing();
    }
}

#[test]
fn a_cluster_that_a_former_listener_names_itself_stays_for_the_drain_time() {
    let mut peer = running();
    peer.set([(LDS, "t", Some(tcp("t1", "b"))), (CDS, "b", Some(cluster("b", "b1")))]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    peer.accept(LDS, &["t"], &[]);
    peer.set([(LDS, "t", Some(tcp("t2", "a"))), (CDS, "b", None)]);
    peer.accept(LDS, &["t"], &[]);
    peer.nothing();
    peer.pass(Duration::from_secs(40));
    // Used once more and left once more: the time begins anew.
    peer.set([(LDS, "t", Some(tcp("t3", "b"))), (CDS, "b", Some(cluster("b", "b1")))]);
    peer.accept(LDS, &["t"], &[]);
    peer.set([(LDS, "t", Some(tcp("t4", "a"))), (CDS, "b", None)]);
    peer.accept(LDS, &["t"], &[]);
    peer.pass(Duration::from_secs(40));
    peer.nothing();
    peer.pass(Duration::from_secs(20));
    peer.accept(CDS, &[], &["b"]);
}

#[test]
fn a_change_of_a_cluster_in_use_does_not_hold_up_its_table() {
    let mut peer = running();
    peer.set([(CDS, "a", Some(slow("a", "a2", &[]))), (RDS, "r", Some(table("r2", &["a"])))]);
    peer.expect(CDS, &["a"], &[]);
    peer.accept(EDS, &["a"], &[]);
    peer.accept(RDS, &["r"], &[]);
}

#[test]
fn a_cluster_that_holds_back_acknowledgements_is_removed_though_others_linger() {
    let mut peer = running();
    let (a, ea) = (cluster("a", "a1"), leaf("ea"));
    peer.session = Session::new(Mode::Delta, None, Waits { drain: DRAIN, ..WAITS });
    peer.back(CDS, &[], &[("a", &a), ("old", &cluster("old", "1"))]);
    peer.back(EDS, &["a"], &[("a", &ea)]);
    peer.back(LDS, &[], &[("l", &listener("l1", &["r"]))]);
    peer.back(RDS, &["r"], &[("r", &table("r1", &["a"]))]);
    peer.set([(CDS, "old", Some(slow("old", "2", &[])))]);
    let stuck = peer.expect(CDS, &["old"], &[]);
    let endpoints = peer.expect(EDS, &["old"], &[]);
    peer.set([(CDS, "old", None)]);
    peer.pass(Duration::from_secs(1));
    peer.ack(&endpoints);
    peer.nothing();
    // It cannot be undone, as nobody knows what it was, and holds back all others.
    peer.pass(WAITS.ack);
    let removal = peer.expect(CDS, &[], &["old"]);
    peer.ack(&stuck);
    peer.ack(&removal);
    peer.nothing();
}

#[test]
fn nothing_is_taken_from_a_proxy_that_comes_back_before_the_drain_time() {
    let (a, ea) = (cluster("a", "a1"), leaf("ea"));
    let mut peer = Peer::running();
    peer.session = Session::new(Mode::Delta, None, Waits { drain: DRAIN, ..WAITS });
    peer.set([(CDS, "old", None)]);
    peer.back(CDS, &[], &[("a", &a), ("old", &cluster("old", "1"))]);
    peer.back(EDS, &["a"], &[("a", &ea)]);
    peer.back(LDS, &[], &[("l", &listener("l1", &["r"]))]);
    peer.back(RDS, &["r"], &[("r", &table("r1", &["a"]))]);
    peer.pass(WAITS.settle);
    peer.nothing();
    peer.pass(DRAIN - WAITS.settle);
    peer.accept(CDS, &[], &["old"]);
}

#[test]
fn what_lingers_is_forgotten_when_its_time_is_over() {
    let mut peer = running();
    for round in 0..200 {
        let name = format!("c{round}");
        let changes = [
            ((CDS, Name::from(name.as_str())), Some(cluster(&name, "1"))),
            ((RDS, "r".into()), Some(table(&format!("r-{round}"), &[&name]))),
        ];
        let gone = (round > 0).then(|| ((CDS, Name::from(format!("c{}", round - 1))), None));
        peer.snapshot.apply(changes.into_iter().chain(gone).collect());
        peer.session.changed(&peer.snapshot, peer.now);
        while let Some(response) = peer.session.pop_response() {
            peer.ack(&response);
        }
        peer.pass(Duration::from_secs(1));
    }
    let lingering = peer.session.uses.lingering();
    assert!((50..=70).contains(&lingering), "{lingering}");
    assert!(peer.session.lane(CDS).entries.len() < 70);
    for _ in 0..200 {
        peer.pass(Duration::from_secs(1));
        while let Some(response) = peer.session.pop_response() {
            peer.ack(&response);
        }
    }
    assert_eq!(peer.session.uses.lingering(), 0);
    assert_eq!(peer.session.lane(CDS).entries.len(), 2, "`a` and the last one");
    assert!(peer.session.lane(EDS).entries.len() <= 2);
    assert_eq!(peer.session.next_timer(), None);
}

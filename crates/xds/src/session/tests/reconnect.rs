//! Clients that come back.

use super::*;

#[test]
fn a_client_that_comes_back_is_told_the_difference_only() {
    let mut peer = Peer::running();
    let (a, ea) = (cluster("a", "a1"), leaf("ea"));
    let (l, r) = (listener("l1", &["r"]), table("r1", &["a"]));
    peer.reconnect();
    peer.back(CDS, &[], &[("a", &a)]);
    peer.back(EDS, &["a"], &[("a", &ea)]);
    peer.back(LDS, &[], &[("l", &l)]);
    peer.back(RDS, &["r"], &[("r", &r)]);
    peer.nothing();
    peer.set([(EDS, "a", Some(leaf("ea2")))]);
    peer.accept(EDS, &["a"], &[]);
    peer.reconnect();
    peer.set([(RDS, "r", Some(table("r2", &["a"])))]);
    peer.back(CDS, &[], &[("a", &a)]);
    peer.back(EDS, &["a"], &[("a", &leaf("ea2"))]);
    peer.back(LDS, &[], &[("l", &l)]);
    peer.back(RDS, &["r"], &[("r", &r)]);
    peer.accept(RDS, &["r"], &[]);
    peer.nothing();
}

#[test]
fn a_client_that_comes_back_loses_nothing_before_its_routes_are_known() {
    let mut peer = Peer::running();
    let (a, ea) = (cluster("a", "a1"), leaf("ea"));
    let (l, r) = (listener("l1", &["r"]), table("r1", &["a"]));
    peer.reconnect();
    peer.set([
        (CDS, "b", Some(cluster("b", "b1"))),
        (RDS, "r", Some(table("r2", &["b"]))),
        (CDS, "a", None),
        (EDS, "a", None),
    ]);
    peer.back(CDS, &[], &[("a", &a)]);
    peer.accept(CDS, &["b"], &[]);
    peer.back(EDS, &["a"], &[("a", &ea)]);
    peer.ask(EDS, &["b"]);
    peer.accept(EDS, &["b"], &[]);
    peer.back(LDS, &[], &[("l", &l)]);
    peer.nothing();
    peer.back(RDS, &["r"], &[("r", &r)]);
    peer.accept(RDS, &["r"], &[]);
    peer.accept(CDS, &[], &["a"]);
}

#[test]
fn a_client_that_never_asks_for_listeners_keeps_removed_clusters_only_for_a_while() {
    let mut peer = Peer::new(Mode::Delta);
    peer.set([]);
    peer.back(CDS, &[], &[("old", &cluster("old", "1"))]);
    peer.nothing();
    assert_eq!(peer.session.next_timer(), Some(peer.now + WAITS.settle));
    peer.pass(WAITS.settle);
    peer.accept(CDS, &[], &["old"]);
    assert_eq!(peer.session.next_timer(), None);
}

#[test]
fn a_cut_while_clusters_warm_up_is_mended() {
    let mut peer = Peer::running();
    let (a, ea) = (cluster("a", "a1"), leaf("ea"));
    let (l, r) = (listener("l1", &["r"]), table("r1", &["a"]));
    peer.set([(CDS, "b", Some(slow("b", "b1", &[]))), (RDS, "r", Some(table("r2", &["a", "b"])))]);
    peer.expect(CDS, &["b"], &[]);
    peer.expect(EDS, &["b"], &[]);
    peer.reconnect();
    // Clusters are not asked for while one is warming up; endpoints are sent whole, as it may need them again.
    peer.back(EDS, &["a", "b"], &[("a", &ea)]);
    peer.accept(EDS, &["a", "b"], &[]);
    peer.back(LDS, &[], &[("l", &l)]);
    peer.back(RDS, &["r"], &[("r", &r)]);
    peer.nothing();
    peer.back(CDS, &[], &[("a", &a), ("b", &slow("b", "b1", &[]))]);
    peer.accept(RDS, &["r"], &[]);
    peer.nothing();
}

#[test]
fn what_a_refused_response_left_behind_is_removed_after_a_reconnect() {
    let mut peer = Peer::running();
    let a = cluster("a", "a1");
    peer.set([(CDS, "b", Some(cluster("b", "b1"))), (CDS, "bad", Some(cluster("bad", "1")))]);
    let both = peer.expect(CDS, &["b", "bad"], &[]);
    peer.nack(&both);
    peer.reconnect();
    peer.set([(CDS, "b", None), (CDS, "bad", None)]);
    peer.back(CDS, &[], &[("a", &a)]);
    peer.back(LDS, &[], &[("l", &listener("l1", &["r"]))]);
    peer.back(RDS, &["r"], &[("r", &table("r1", &["a"]))]);
    peer.accept(CDS, &[], &["b", "bad"]);
    peer.nothing();
}

#[test]
fn a_state_of_the_world_client_keeps_a_cluster_until_its_routes_have_left_it() {
    let mut peer = Peer::new(Mode::StateOfTheWorld);
    let ask = |peer: &mut Peer, kind, names: &[&str], of: Option<&Response>| {
        let names = names.iter().map(ToString::to_string).collect();
        let (version, nonce) = of.map(|of| (of.version.to_string(), of.nonce.to_string())).unwrap_or_default();
        let ask = SotwAsk { names, version, nonce, error: None };
        peer.session.ask_sotw(&peer.snapshot, peer.now, kind, ask).unwrap();
    };
    peer.set([
        (CDS, "a", Some(cluster("a", "a1"))),
        (LDS, "l", Some(listener("l1", &["r"]))),
        (RDS, "r", Some(table("r1", &["a"]))),
    ]);
    ask(&mut peer, CDS, &[], None);
    let first = peer.expect(CDS, &["a"], &[]);
    ask(&mut peer, CDS, &[], Some(&first));
    ask(&mut peer, LDS, &[], None);
    let listeners = peer.expect(LDS, &["l"], &[]);
    ask(&mut peer, LDS, &[], Some(&listeners));
    ask(&mut peer, RDS, &["r"], None);
    let routes = peer.expect(RDS, &["r"], &[]);
    ask(&mut peer, RDS, &["r"], Some(&routes));
    peer.nothing();
    peer.set([(CDS, "b", Some(cluster("b", "b1"))), (CDS, "a", None), (RDS, "r", Some(table("r2", &["b"])))]);
    let both = peer.expect(CDS, &["a", "b"], &[]);
    assert!(both.version.contains('~'), "the client does not have the whole state yet");
    peer.nothing();
    ask(&mut peer, CDS, &[], Some(&both));
    let routes = peer.expect(RDS, &["r"], &[]);
    peer.nothing();
    ask(&mut peer, RDS, &["r"], Some(&routes));
    let last = peer.expect(CDS, &["b"], &[]);
    ask(&mut peer, CDS, &[], Some(&last));
    peer.nothing();
    // It comes back with what it has and is told nothing.
    peer.session = Session::new(Mode::StateOfTheWorld, None, WAITS);
    let back = |of: &Response| Response { nonce: 0, ..of.clone() };
    let again = |peer: &mut Peer, kind, names: &[&str], of: &Response| {
        let names = names.iter().map(ToString::to_string).collect();
        let ask = SotwAsk { names, version: back(of).version.to_string(), ..Default::default() };
        peer.session.ask_sotw(&peer.snapshot, peer.now, kind, ask).unwrap();
    };
    again(&mut peer, CDS, &[], &last);
    again(&mut peer, LDS, &[], &listeners);
    again(&mut peer, RDS, &["r"], &routes);
    peer.nothing();
    // It comes back after a change: what it may still use stays in the first response.
    peer.session = Session::new(Mode::StateOfTheWorld, None, WAITS);
    peer.set([(CDS, "c", Some(cluster("c", "1"))), (CDS, "b", None), (RDS, "r", Some(table("r3", &["c"])))]);
    again(&mut peer, CDS, &[], &last);
    let all = peer.expect(CDS, &["a", "b", "c"], &[]);
    again(&mut peer, LDS, &[], &listeners);
    again(&mut peer, RDS, &["r"], &routes);
    ask(&mut peer, CDS, &[], Some(&all));
    let routes = peer.expect(RDS, &["r"], &[]);
    peer.nothing();
    ask(&mut peer, RDS, &["r"], Some(&routes));
    peer.expect(CDS, &["c"], &[]);
}

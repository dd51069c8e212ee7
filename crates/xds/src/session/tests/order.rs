//! The order of an update.

use super::*;

#[test]
fn a_new_cluster_is_warm_before_a_route_names_it() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "b", Some(cluster("b", "b1"))),
        (EDS, "b", Some(leaf("eb"))),
        (RDS, "r", Some(table("r2", &["a", "b"]))),
    ]);
    let clusters = peer.expect(CDS, &["b"], &[]);
    // The endpoints follow at once, asked for or not.
    let endpoints = peer.expect(EDS, &["b"], &[]);
    peer.nothing();
    peer.ack(&endpoints);
    peer.nothing();
    peer.ack(&clusters);
    peer.accept(RDS, &["r"], &[]);
    peer.nothing();
}

#[test]
fn a_changed_cluster_gets_its_unchanged_endpoints_again() {
    let mut peer = Peer::running();
    peer.set([(CDS, "a", Some(cluster("a", "a2")))]);
    peer.accept(CDS, &["a"], &[]);
    peer.accept(EDS, &["a"], &[]);
    peer.nothing();
}

#[test]
fn an_eds_cluster_without_endpoints_gets_an_empty_assignment() {
    let mut peer = Peer::running();
    peer.set([(EDS, "a", None)]);
    let response = peer.accept(EDS, &["a"], &[]);
    assert_eq!(response.resources[0].1.body().as_ref(), b"\n\x01a");
    peer.set([(EDS, "a", Some(leaf("ea")))]);
    peer.accept(EDS, &["a"], &[]);
    peer.nothing();
}

#[test]
fn endpoints_of_a_cluster_that_is_to_go_stay_until_no_route_uses_it() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "b", Some(cluster("b", "b1"))),
        (RDS, "r", Some(table("r2", &["b"]))),
        (CDS, "a", None),
        (EDS, "a", None),
    ]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    let routes = peer.expect(RDS, &["r"], &[]);
    peer.nothing();
    peer.ack(&routes);
    let removal = peer.expect(CDS, &[], &["a"]);
    peer.nothing();
    peer.leave(EDS, &["a"]);
    peer.ack(&removal);
    peer.nothing();
}

#[test]
fn every_route_table_and_every_secret_has_a_response_of_its_own() {
    let mut peer = Peer::running();
    peer.ask(SDS, &["s1", "s2"]);
    peer.set([(SDS, "s1", Some(leaf("1"))), (SDS, "s2", Some(leaf("2"))), (RDS, "r", Some(table("r2", &["a"])))]);
    peer.accept(SDS, &["s1"], &[]);
    peer.accept(SDS, &["s2"], &[]);
    peer.accept(RDS, &["r"], &[]);
    peer.nothing();
}

#[test]
fn subscriptions_are_answered_while_an_acknowledgement_is_awaited() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(slow("b", "b1", &["s"]))), (SDS, "s", Some(leaf("s1")))]);
    peer.expect(CDS, &["b"], &[]);
    peer.expect(EDS, &["b"], &[]);
    peer.expect(SDS, &["s"], &[]);
    peer.ask(EDS, &["b"]);
    peer.expect(EDS, &["b"], &[]);
    peer.ask(SDS, &["s"]);
    peer.expect(SDS, &["s"], &[]);
    peer.ask(RDS, &["r"]);
    peer.expect(RDS, &["r"], &[]);
    peer.nothing();
}

#[test]
fn plain_clusters_do_not_wait_for_one_that_warms_up() {
    let mut peer = Peer::running();
    peer.set([(CDS, "slow", Some(slow("slow", "1", &[])))]);
    let warming = peer.expect(CDS, &["slow"], &[]);
    peer.expect(EDS, &["slow"], &[]);
    peer.set([(CDS, "b", Some(cluster("b", "b1"))), (RDS, "r", Some(table("r2", &["a", "b"])))]);
    peer.expect(CDS, &["b"], &[]);
    let endpoints = peer.expect(EDS, &["b"], &[]);
    peer.nothing();
    // No acknowledgement of clusters can come while one is warming up; that of the endpoints is enough for a plain one.
    peer.ask(EDS, &["b"]);
    let again = peer.expect(EDS, &["b"], &[]);
    peer.ack(&endpoints);
    peer.ack(&again);
    peer.accept(RDS, &["r"], &[]);
    peer.ack(&warming);
    peer.nothing();
}

#[test]
fn clusters_that_warm_up_go_alone_and_one_response_after_another() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "plain", Some(cluster("plain", "1"))),
        (CDS, "slow1", Some(slow("slow1", "1", &[]))),
        (CDS, "slow2", Some(slow("slow2", "1", &[]))),
    ]);
    peer.expect(CDS, &["plain"], &[]);
    let first = peer.expect(CDS, &["slow1", "slow2"], &[]);
    peer.expect(EDS, &["plain", "slow1", "slow2"], &[]);
    peer.set([(CDS, "slow3", Some(slow("slow3", "1", &[])))]);
    peer.nothing();
    peer.ack(&first);
    peer.expect(CDS, &["slow3"], &[]);
}

#[test]
fn a_newer_update_replaces_one_that_waits() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(slow("b", "b1", &[]))), (RDS, "r", Some(table("r2", &["b"])))]);
    let clusters = peer.expect(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    peer.set([(RDS, "r", Some(table("r3", &["a", "b"])))]);
    peer.set([(RDS, "r", Some(table("r4", &["b"]))), (CDS, "a", None)]);
    peer.nothing();
    peer.ack(&clusters);
    let routes = peer.expect(RDS, &["r"], &[]);
    assert_eq!(routes.resources[0].1.body().as_ref(), b"r4");
    peer.nothing();
    peer.ack(&routes);
    peer.expect(CDS, &[], &["a"]);
}

#[test]
fn a_new_listener_waits_for_the_clusters_of_its_table() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "b", Some(cluster("b", "b1"))),
        (LDS, "m", Some(listener("m1", &["q"]))),
        (RDS, "q", Some(table("q1", &["b"]))),
        (LDS, "l", None),
        (RDS, "r", None),
        (CDS, "a", None),
    ]);
    let clusters = peer.expect(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    peer.nothing();
    peer.ack(&clusters);
    let added = peer.expect(LDS, &["m"], &[]);
    let routes = peer.expect(RDS, &["q"], &[]);
    peer.nothing();
    peer.ask(RDS, &["q"]);
    let asked = peer.expect(RDS, &["q"], &[]);
    peer.ack(&routes);
    peer.ack(&added);
    peer.nothing();
    // What replaces the old listener stands: it may go, and then what it used.
    peer.ack(&asked);
    peer.accept(LDS, &[], &["l"]);
    peer.accept(RDS, &[], &["r"]);
    peer.leave(RDS, &["r"]);
    peer.accept(CDS, &[], &["a"]);
}

#[test]
fn a_table_does_not_run_ahead_of_a_listener_that_waits() {
    let mut peer = Peer::running();
    let guarded =
        Resource::new("l2", Hints::Listener { routes: list(&["r"]), secrets: list(&[]), clusters: list(&["auth"]) });
    peer.set([
        (CDS, "auth", Some(slow("auth", "1", &[]))),
        (LDS, "l", Some(guarded)),
        (RDS, "r", Some(table("r2", &["a"]))),
    ]);
    let clusters = peer.expect(CDS, &["auth"], &[]);
    peer.accept(EDS, &["auth"], &[]);
    peer.nothing();
    peer.ack(&clusters);
    peer.expect(LDS, &["l"], &[]);
    peer.expect(RDS, &["r"], &[]);
}

#[test]
fn without_hints_everything_waits_for_everything() {
    let mut peer = Peer::new(Mode::Delta);
    peer.set([(CDS, "a", Some(leaf("a1"))), (LDS, "l", Some(leaf("l1"))), (RDS, "r", Some(leaf("r1")))]);
    peer.ask(CDS, &[]);
    peer.accept(CDS, &["a"], &[]);
    peer.ask(LDS, &[]);
    peer.accept(LDS, &["l"], &[]);
    peer.ask(RDS, &["r"]);
    peer.accept(RDS, &["r"], &[]);
    peer.set([(CDS, "b", Some(leaf("b1"))), (CDS, "a", None), (RDS, "r", Some(leaf("r2")))]);
    let clusters = peer.expect(CDS, &["b"], &[]);
    peer.nothing();
    peer.ack(&clusters);
    let routes = peer.expect(RDS, &["r"], &[]);
    peer.nothing();
    peer.ack(&routes);
    peer.accept(CDS, &[], &["a"]);
}

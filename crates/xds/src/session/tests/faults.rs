//! Resources that are refused, and clusters that never get warm.

use super::*;

#[test]
fn a_cluster_stays_while_the_client_refuses_to_stop_using_it() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(cluster("b", "b1"))), (RDS, "r", Some(table("r2", &["b"]))), (CDS, "a", None)]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    let routes = peer.expect(RDS, &["r"], &[]);
    peer.nack(&routes);
    peer.pass(Duration::from_secs(100));
    peer.nothing();
    peer.set([(RDS, "r", Some(table("r3", &["b"])))]);
    peer.accept(RDS, &["r"], &[]);
    peer.expect(CDS, &[], &["a"]);
}

#[test]
fn an_update_goes_on_when_its_cluster_does_not_warm_up_and_the_suspect_is_taken_out() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(slow("b", "b1", &[]))), (RDS, "r", Some(table("r2", &["b"])))]);
    peer.expect(CDS, &["b"], &[]);
    let endpoints = peer.expect(EDS, &["b"], &[]);
    peer.pass(Duration::from_secs(1));
    peer.ack(&endpoints);
    assert_eq!(peer.session.next_timer(), Some(peer.now + Duration::from_secs(19)));
    peer.facts();
    peer.pass(Duration::from_secs(19));
    peer.accept(CDS, &[], &["b"]);
    peer.expect(RDS, &["r"], &[]);
    let facts = peer.facts();
    assert!(matches!(&facts[0], Fact::TimedOut { kind: CDS, suspects } if &*suspects[0].0 == "b"), "{facts:?}");
    // It may have been slow: it gets another chance, later and later, and then none until it is another one.
    for wait in [20, 80, 320] {
        peer.pass(Duration::from_secs(wait - 1));
        peer.nothing();
        peer.pass(Duration::from_secs(1));
        peer.expect(CDS, &["b"], &[]);
        peer.accept(EDS, &["b"], &[]);
        peer.pass(Duration::from_secs(20));
        peer.accept(CDS, &[], &["b"]);
    }
    peer.pass(Duration::from_secs(100_000));
    peer.nothing();
    peer.set([(CDS, "b", Some(slow("b", "b2", &[])))]);
    peer.expect(CDS, &["b"], &[]);
}

#[test]
fn a_suspect_among_others_is_found_by_halving() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "s1", Some(slow("s1", "1", &[]))),
        (CDS, "s2", Some(slow("s2", "1", &[]))),
        (CDS, "s3", Some(slow("s3", "1", &[]))),
    ]);
    peer.expect(CDS, &["s1", "s2", "s3"], &[]);
    let endpoints = peer.expect(EDS, &["s1", "s2", "s3"], &[]);
    peer.pass(Duration::from_secs(1));
    peer.ack(&endpoints);
    peer.pass(Duration::from_secs(20));
    let removal = peer.expect(CDS, &[], &["s1", "s2", "s3"]);
    peer.ack(&removal);
    let first = peer.expect(CDS, &["s1", "s2"], &[]);
    peer.accept(EDS, &["s1", "s2"], &[]);
    peer.nothing();
    peer.ack(&first);
    peer.expect(CDS, &["s3"], &[]);
    let endpoints = peer.expect(EDS, &["s3"], &[]);
    peer.pass(Duration::from_secs(1));
    peer.ack(&endpoints);
    peer.pass(Duration::from_secs(20));
    peer.accept(CDS, &[], &["s3"]);
    peer.nothing();
}

#[test]
fn a_changed_cluster_that_does_not_warm_up_gets_its_former_content() {
    let mut peer = Peer::running();
    peer.set([(CDS, "a", Some(slow("a", "a2", &[])))]);
    peer.expect(CDS, &["a"], &[]);
    let endpoints = peer.expect(EDS, &["a"], &[]);
    peer.pass(Duration::from_secs(1));
    peer.ack(&endpoints);
    peer.pass(Duration::from_secs(20));
    let restored = peer.expect(CDS, &["a"], &[]);
    assert_eq!(restored.resources[0].1.body().as_ref(), b"a1");
    peer.accept(EDS, &["a"], &[]);
    peer.ack(&restored);
    peer.nothing();
}

#[test]
fn a_client_that_says_nothing_is_not_judged() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(slow("b", "b1", &[])))]);
    let clusters = peer.expect(CDS, &["b"], &[]);
    peer.expect(EDS, &["b"], &[]);
    peer.pass(Duration::from_secs(20));
    peer.pass(Duration::from_secs(20));
    peer.nothing();
    peer.ack(&clusters);
    peer.nothing();
}

#[test]
fn a_refused_batch_is_halved_until_the_culprit_stands_alone() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "b", Some(cluster("b", "1"))),
        (CDS, "c", Some(cluster("c", "1"))),
        (CDS, "d", Some(cluster("d", "1"))),
    ]);
    let all = peer.expect(CDS, &["b", "c", "d"], &[]);
    peer.accept(EDS, &["b", "c", "d"], &[]);
    peer.nack(&all);
    peer.accept(CDS, &["b", "c"], &[]);
    peer.expect(EDS, &["b", "c"], &[]);
    let last = peer.expect(CDS, &["d"], &[]);
    peer.expect(EDS, &["d"], &[]);
    peer.facts();
    peer.nack(&last);
    let facts = peer.facts();
    let alone =
        |fact: &Fact| matches!(fact, Fact::Nacked { resources, detail, .. } if resources.len() == 1 && detail == "??");
    assert!(facts.iter().any(alone), "{facts:?}");
    // Envoy may have kept it as one that warms up.
    peer.accept(CDS, &[], &["d"]);
    peer.nothing();
    // Others go on, and a new version is tried.
    peer.set([(CDS, "e", Some(cluster("e", "1")))]);
    peer.accept(CDS, &["e"], &[]);
    peer.expect(EDS, &["e"], &[]);
    peer.set([(CDS, "d", Some(cluster("d", "2")))]);
    peer.expect(CDS, &["d"], &[]);
}

#[test]
fn a_startup_that_a_cluster_holds_up_goes_on_without_it() {
    let mut peer = Peer::new(Mode::Delta);
    peer.session.introduce(true, Vec::new());
    peer.set([
        (CDS, "a", Some(cluster("a", "1"))),
        (CDS, "stuck", Some(slow("stuck", "1", &[]))),
        (LDS, "l", Some(listener("l1", &[]))),
    ]);
    peer.ask(CDS, &[]);
    // One response for all: Envoy opens no listener before its first clusters are warm.
    peer.accept(CDS, &["a", "stuck"], &[]);
    peer.ask(EDS, &["a", "stuck"]);
    peer.accept(EDS, &["a", "stuck"], &[]);
    peer.pass(WAITS.ack);
    // Nothing is served yet, so nothing is lost when all are taken out and come back in parts.
    peer.accept(CDS, &[], &["a", "stuck"]);
    peer.nothing();
    peer.ask(LDS, &[]);
    peer.accept(CDS, &["a"], &[]);
    peer.accept(EDS, &["a"], &[]);
    peer.accept(LDS, &["l"], &[]);
    peer.expect(CDS, &["stuck"], &[]);
    peer.expect(EDS, &["stuck"], &[]);
    peer.nothing();
}

#[test]
fn endpoints_sent_ahead_for_a_refused_cluster_are_let_go() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(cluster("b", "1"))), (EDS, "b", Some(leaf("eb"))), (CDS, "c", Some(cluster("c", "1")))]);
    let both = peer.expect(CDS, &["b", "c"], &[]);
    let endpoints = peer.expect(EDS, &["b", "c"], &[]);
    let fixed = Resource::new("2", Hints::Cluster { warms: false, endpoints: None, secrets: list(&[]) });
    peer.set([(CDS, "b", Some(fixed)), (EDS, "b", None), (CDS, "c", None)]);
    let fixed = peer.expect(CDS, &["b"], &[]);
    peer.nack(&both);
    peer.ack(&endpoints);
    peer.ack(&fixed);
    while let Some(response) = peer.session.pop_response() {
        peer.ack(&response);
    }
    let lane = peer.session.lane(EDS);
    assert!(lane.dirty.is_empty() && !lane.entries.contains_key("b"), "{:?} {:?}", lane.dirty, lane.entries);
}

#[test]
fn a_refusal_that_names_the_culprit_is_believed_first() {
    let mut peer = Peer::running();
    peer.set([
        (CDS, "b", Some(cluster("b", "1"))),
        (CDS, "culprit", Some(cluster("culprit", "1"))),
        (CDS, "d", Some(cluster("d", "1"))),
    ]);
    let all = peer.expect(CDS, &["b", "culprit", "d"], &[]);
    peer.expect(EDS, &["b", "culprit", "d"], &[]);
    let error = Some("?: culprit: ?".to_owned());
    peer.send(CDS, DeltaAsk { nonce: all.nonce.to_string(), error, ..Default::default() });
    let alone = peer.expect(CDS, &["culprit"], &[]);
    peer.expect(EDS, &["culprit"], &[]);
    peer.nack(&alone);
    peer.accept(CDS, &[], &["culprit"]);
    peer.expect(CDS, &["b", "d"], &[]);
}

#[test]
fn what_a_client_may_have_gone_on_to_is_put_back() {
    let mut peer = Peer::running();
    peer.set([(CDS, "a", Some(cluster("a", "a2"))), (CDS, "bad", Some(cluster("bad", "1")))]);
    let both = peer.expect(CDS, &["a", "bad"], &[]);
    peer.accept(EDS, &["a", "bad"], &[]);
    peer.set([(CDS, "a", None), (CDS, "bad", None)]);
    peer.nack(&both);
    peer.accept(CDS, &[], &["bad"]);
    // What it acknowledged is wanted again, but it may have kept the good part of what it refused.
    peer.set([(CDS, "a", Some(cluster("a", "a1")))]);
    peer.accept(CDS, &["a"], &[]);
    peer.accept(EDS, &["a"], &[]);
    peer.nothing();
}

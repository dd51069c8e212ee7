//! Subscriptions, silence and nonsense.

use super::*;

#[test]
fn a_group_without_a_configuration_is_met_with_silence() {
    let mut peer = Peer::new(Mode::Delta);
    peer.ask(CDS, &[]);
    peer.ask(LDS, &[]);
    peer.nothing();
    peer.set([]);
    peer.accept(CDS, &[], &[]);
    peer.accept(LDS, &[], &[]);
    peer.nothing();
}

#[test]
fn wildcards_and_names_follow_the_protocol() {
    let mut peer = Peer::running();
    peer.set([(CDS, "b", Some(cluster("b", "1")))]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    // A name under a wildcard is answered, and told again when the name is let go.
    peer.ask(CDS, &["b"]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    peer.leave(CDS, &["b"]);
    peer.accept(CDS, &["b"], &[]);
    peer.accept(EDS, &["b"], &[]);
    // Something that does not exist is told so.
    peer.ask(CDS, &["nowhere"]);
    peer.accept(CDS, &[], &["nowhere"]);
    peer.leave(CDS, &["nowhere", "never asked for"]);
    peer.nothing();
    peer.leave(CDS, &["*"]);
    peer.set([(CDS, "b", Some(cluster("b", "2")))]);
    peer.nothing();
    peer.ask(CDS, &["*"]);
    peer.accept(CDS, &["a", "b"], &[]);
    peer.accept(EDS, &["a", "b"], &[]);
    peer.nothing();
}

#[test]
fn answers_to_what_was_never_sent_are_ignored() {
    let mut peer = Peer::running();
    for nonce in ["", "0", "99999", "-1", "18446744073709551616", "abc", "\u{0}"] {
        let error = Some("no good".to_owned());
        peer.send(CDS, DeltaAsk { nonce: nonce.into(), error, ..Default::default() });
    }
    peer.nothing();
    assert!(peer.facts().iter().all(|fact| !matches!(fact, Fact::Nacked { .. })));
    peer.set([(CDS, "b", Some(cluster("b", "1")))]);
    peer.expect(CDS, &["b"], &[]);
}

#[test]
fn streams_that_misbehave_are_ended() {
    let mut peer = Peer::running();
    let names: Vec<String> = (0..=MAX_NAMES).map(|at| at.to_string()).collect();
    let ask = DeltaAsk { subscribe: names, ..Default::default() };
    assert_eq!(peer.session.ask_delta(&peer.snapshot, peer.now, RDS, ask), Err(Abuse::Names));
    let mut peer = Peer::running();
    let mut ask = || {
        let ask = DeltaAsk { subscribe: vec!["r".into()], ..Default::default() };
        peer.session.ask_delta(&peer.snapshot, peer.now, RDS, ask)
    };
    let ended = (0..2 * MAX_INFLIGHT).find_map(|_| ask().err());
    assert_eq!(ended, Some(Abuse::Unanswered));
}

/// A client with so many route tables, and the least time that one changed table costs: others may need the machine too.
fn time_of_one_change(tables: usize) -> Duration {
    let mut peer = Peer::new(Mode::Delta);
    let names: Vec<String> = (0..tables).map(|at| format!("r{at:05}")).collect();
    let all = names.iter().map(|name| ((RDS, Name::from(name.as_str())), Some(table(name, &[])))).collect();
    peer.snapshot.apply(all);
    peer.ask(CDS, &[]);
    peer.accept(CDS, &[], &[]);
    peer.send(RDS, DeltaAsk { subscribe: names.clone(), ..Default::default() });
    while let Some(response) = peer.session.pop_response() {
        peer.ack(&response);
        peer.session.facts.clear();
    }
    // What the session looks at is what is dirty: nothing at rest.
    assert!(peer.session.lane(RDS).is_in_sync());
    let mut least = Duration::MAX;
    for round in 0..300 {
        let begun = Instant::now();
        let name = &names[round * 7 % tables];
        let seen = peer.snapshot.revision();
        peer.set([(RDS, name, Some(table(&format!("new {round}"), &[])))]);
        assert_eq!(peer.snapshot.changes_since(seen).count(), 1);
        let response = peer.accept(RDS, &[name], &[]);
        assert_eq!(response.resources.len(), 1);
        peer.nothing();
        peer.session.facts.clear();
        least = least.min(begun.elapsed());
    }
    least
}

#[test]
fn one_change_among_many_costs_one_change() {
    let (few, many) = (time_of_one_change(50), time_of_one_change(5_000));
    println!("one changed route table: {few:?} among 50, {many:?} among 5,000");
    // A hundred times as many: a cost that grew with them would show clearly.
    assert!(many < few * 20, "{few:?} among 50, {many:?} among 5,000");
}

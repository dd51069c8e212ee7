//! The rules of the order, one by one, against a client in the test's hand.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::*;
use crate::Hints;
use TypeUrl::{
    Cluster as CDS, ClusterLoadAssignment as EDS, Listener as LDS, RouteConfiguration as RDS, Secret as SDS,
};

const WAITS: Waits = Waits { ack: Duration::from_secs(20), settle: Duration::from_secs(5) };

struct Peer {
    snapshot: Snapshot,
    session: Session,
    now: Instant,
}

fn list(names: &[&str]) -> Arc<[Name]> {
    names.iter().map(|name| Name::from(*name)).collect()
}

fn cluster(name: &str, body: &str) -> Resource {
    Resource::new(body.to_owned(), Hints::Cluster { warms: false, endpoints: Some(name.into()), secrets: list(&[]) })
}

fn slow(name: &str, body: &str, secrets: &[&str]) -> Resource {
    Resource::new(body.to_owned(), Hints::Cluster { warms: true, endpoints: Some(name.into()), secrets: list(secrets) })
}

fn table(body: &str, clusters: &[&str]) -> Resource {
    Resource::new(body.to_owned(), Hints::RouteConfiguration { clusters: list(clusters) })
}

fn listener(body: &str, routes: &[&str]) -> Resource {
    Resource::new(body.to_owned(), Hints::Listener { routes: list(routes), secrets: list(&[]), clusters: list(&[]) })
}

fn leaf(body: &str) -> Resource {
    Resource::new(body.to_owned(), Hints::Unknown)
}

type Change<'a> = (TypeUrl, &'a str, Option<Resource>);

impl Peer {
    fn new(mode: Mode) -> Self {
        Self { snapshot: Snapshot::default(), session: Session::new(mode, None, WAITS), now: Instant::now() }
    }

    /// A client that has cluster `a`, listener `l` and its table `r`, all acknowledged.
    fn running() -> Self {
        let mut peer = Self::new(Mode::Delta);
        peer.set([
            (CDS, "a", Some(cluster("a", "a1"))),
            (EDS, "a", Some(leaf("ea"))),
            (LDS, "l", Some(listener("l1", &["r"]))),
            (RDS, "r", Some(table("r1", &["a"]))),
        ]);
        peer.ask(CDS, &[]);
        peer.accept(CDS, &["a"], &[]);
        peer.ask(EDS, &["a"]);
        peer.accept(EDS, &["a"], &[]);
        peer.ask(SDS, &["none"]);
        peer.ask(LDS, &[]);
        peer.accept(LDS, &["l"], &[]);
        peer.ask(RDS, &["r"]);
        peer.accept(RDS, &["r"], &[]);
        peer.nothing();
        peer
    }

    fn set<const N: usize>(&mut self, changes: [Change<'_>; N]) {
        let changes: BTreeMap<(TypeUrl, Name), Option<Resource>> =
            changes.into_iter().map(|(kind, name, of)| ((kind, name.into()), of)).collect();
        self.snapshot.apply(changes);
        self.session.changed(&self.snapshot, self.now);
    }

    fn send(&mut self, kind: TypeUrl, ask: DeltaAsk) {
        self.session.ask_delta(&self.snapshot, self.now, kind, ask).unwrap();
    }

    fn ask(&mut self, kind: TypeUrl, names: &[&str]) {
        let subscribe = names.iter().map(ToString::to_string).collect();
        self.send(kind, DeltaAsk { subscribe, ..Default::default() });
    }

    fn leave(&mut self, kind: TypeUrl, names: &[&str]) {
        let unsubscribe = names.iter().map(ToString::to_string).collect();
        self.send(kind, DeltaAsk { unsubscribe, ..Default::default() });
    }

    /// A first request after a stream was cut.
    fn back(&mut self, kind: TypeUrl, names: &[&str], has: &[(&str, &Resource)]) {
        let initial = has.iter().map(|(name, of)| (name.to_string(), of.version().to_string())).collect();
        let subscribe = names.iter().map(ToString::to_string).collect();
        self.send(kind, DeltaAsk { subscribe, initial, ..Default::default() });
    }

    fn reconnect(&mut self) {
        let doubts = self.session.doubts();
        self.session = Session::new(Mode::Delta, None, WAITS);
        self.session.introduce(true, doubts);
    }

    /// The next response, which must be of this type and content.
    #[track_caller]
    fn expect(&mut self, kind: TypeUrl, names: &[&str], removed: &[&str]) -> Response {
        let response = self
            .session
            .pop_response()
            .unwrap_or_else(|| panic!("no response, expected {kind:?} {names:?} -{removed:?}"));
        let has: Vec<&str> = response.resources.iter().map(|(name, _)| &**name).collect();
        let gone: Vec<&str> = response.removed.iter().map(|name| &**name).collect();
        assert_eq!((response.kind, has.as_slice(), gone.as_slice()), (kind, names, removed));
        response
    }

    #[track_caller]
    fn accept(&mut self, kind: TypeUrl, names: &[&str], removed: &[&str]) -> Response {
        let response = self.expect(kind, names, removed);
        self.ack(&response);
        response
    }

    fn ack(&mut self, response: &Response) {
        self.send(response.kind, DeltaAsk { nonce: response.nonce.to_string(), ..Default::default() });
    }

    fn nack(&mut self, response: &Response) {
        let error = Some("??".to_owned());
        self.send(response.kind, DeltaAsk { nonce: response.nonce.to_string(), error, ..Default::default() });
    }

    #[track_caller]
    fn nothing(&mut self) {
        if let Some(response) = self.session.pop_response() {
            panic!("unexpected {response:?}");
        }
    }

    fn pass(&mut self, by: Duration) {
        self.now += by;
        self.session.timer(&self.snapshot, self.now);
    }

    fn facts(&mut self) -> Vec<Fact> {
        std::iter::from_fn(|| self.session.pop_fact()).collect()
    }
}

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
    peer.expect(CDS, &[], &["b"]);
    peer.expect(RDS, &["r"], &[]);
    let facts = peer.facts();
    assert!(matches!(&facts[0], Fact::TimedOut { kind: CDS, suspects } if &*suspects[0].0 == "b"), "{facts:?}");
    // It is not tried again until it is another one.
    peer.pass(Duration::from_secs(100));
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

#[test]
fn one_change_among_many_costs_one_change() {
    let mut peer = Peer::new(Mode::Delta);
    let name = |at: usize| format!("r{at:05}");
    let names: Vec<String> = (0..5_000).map(name).collect();
    let all = names.iter().map(|name| ((RDS, Name::from(name.as_str())), Some(table(name, &[])))).collect();
    peer.snapshot.apply(all);
    peer.ask(CDS, &[]);
    peer.accept(CDS, &[], &[]);
    let subscribe = names.clone();
    peer.send(RDS, DeltaAsk { subscribe, ..Default::default() });
    while let Some(response) = peer.session.pop_response() {
        peer.ack(&response);
        peer.session.facts.clear();
    }
    // What the session looks at is what is dirty: nothing at rest, one name after one change.
    assert!(peer.session.lane(RDS).dirty.is_empty());
    let seen = peer.snapshot.revision();
    peer.set([(RDS, "r02500", Some(table("new", &[])))]);
    assert_eq!(peer.snapshot.changes_since(seen).count(), 1);
    let response = peer.accept(RDS, &["r02500"], &[]);
    assert_eq!(response.resources.len(), 1);
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

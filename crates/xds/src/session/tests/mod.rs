//! The rules of the order, one by one, against a client in the test's hand.

mod drains;
mod faults;
mod order;
mod protocol;
mod reconnect;

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

const WAITS: Waits = Waits { ack: Duration::from_secs(20), settle: Duration::from_secs(5), drain: Duration::ZERO };

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

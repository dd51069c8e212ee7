use ir::{Action, HeaderMutation, PathMatch, Route, RouteMatch, XdsKind};

use super::*;

/// A proxy that refuses tables with routes of some objects, and the engine around it.
struct World {
    refusals: Refusals,
    objects: BTreeMap<String, u32>,
    excluded: BTreeSet<String>,
    bad: BTreeSet<String>,
    sent: u64,
    /// Tables that the proxy was sent, refused ones included.
    attempts: usize,
}

fn origin(name: &str) -> Origin {
    Origin { kind: "HTTPRoute", namespace: "ns".into(), name: name.into(), section: None, annotations: Vec::new() }
}

fn route(name: &str, revision: u32) -> Route {
    Route {
        name: format!("{name}/{revision}").into(),
        origin: origin(name),
        matches: RouteMatch {
            path: PathMatch::Prefix("/".into()),
            method: None,
            headers: Vec::new(),
            query: Vec::new(),
        },
        action: Action::Respond { status: 200, body: None },
        request_headers: HeaderMutation::default(),
        response_headers: HeaderMutation::default(),
        cors: None,
        session: None,
        deny_loopback: false,
        policies: Vec::new(),
        features: Vec::new(),
        stat_prefix: None,
    }
}

impl World {
    fn new(objects: &[&str], bad: &[&str]) -> Self {
        Self {
            refusals: Refusals::new(),
            objects: objects.iter().map(|o| ((*o).to_owned(), 0)).collect(),
            excluded: BTreeSet::new(),
            bad: bad.iter().map(|o| (*o).to_owned()).collect(),
            sent: 0,
            attempts: 0,
        }
    }

    fn at() -> At {
        ("ns/gw".into(), (XdsKind::RouteTable, "t".into()))
    }

    fn table(&self) -> XdsValue {
        let routes =
            self.objects.iter().filter(|(o, _)| !self.excluded.contains(*o)).map(|(o, r)| route(o, *r)).collect();
        let host = VirtualHost { name: "h".into(), domains: vec!["*".into()], routes, origin: origin("gw") };
        XdsValue::RouteTable(Arc::new(RouteTable {
            name: "t".into(),
            ignore_port_in_host: true,
            virtual_hosts: vec![Arc::new(host)],
        }))
    }

    /// Sends the table until there is nothing more to do.
    fn settle(&mut self) {
        for _ in 0..200 {
            self.sent += 1;
            let version: Arc<str> = self.sent.to_string().into();
            let table = self.table();
            let refuse = origins(&table).iter().any(|o| self.bad.contains(&*o.name));
            self.refusals.sent(Self::at(), Some((version.clone(), table)));
            self.attempts += 1;
            let changes = if refuse {
                self.refusals.refused(&Self::at(), &version, "bad")
            } else {
                self.refusals.accepted(&Self::at(), &version)
            };
            if changes.is_empty() {
                return;
            }
            for change in changes {
                match change {
                    Change::Exclude(o, _) => self.excluded.insert(o.name.to_string()),
                    Change::Readmit(o) => self.excluded.remove(&*o.name),
                    _ => unreachable!(),
                };
            }
        }
        panic!("never settles");
    }

    fn out(&self) -> Vec<&str> {
        self.excluded.iter().map(String::as_str).collect()
    }
}

#[test]
fn one_changed_object_is_the_culprit_at_once() {
    let mut w = World::new(&["a", "b", "c"], &[]);
    w.settle();
    w.objects.insert("d".into(), 0);
    w.bad.insert("d".into());
    w.settle();
    assert_eq!(w.out(), ["d"]);
    assert!(!w.refusals.on_trial());
    assert_eq!(w.attempts, 3, "accepted, refused, accepted without it");
}

#[test]
fn of_many_changed_objects_only_the_culprits_stay_out() {
    let mut w = World::new(&["a", "b", "c"], &[]);
    w.settle();
    for i in 0..40 {
        w.objects.insert(format!("n{i:02}"), 0);
    }
    w.bad = ["n07".into(), "n31".into()].into();
    w.settle();
    assert_eq!(w.out(), ["n07", "n31"]);
    assert!(!w.refusals.on_trial());
    assert!(w.attempts < 40, "{} attempts", w.attempts);
}

#[test]
fn objects_that_did_not_change_are_never_suspects() {
    let mut w = World::new(&["a", "b"], &[]);
    w.settle();
    w.objects.insert("a".into(), 1);
    w.objects.insert("c".into(), 0);
    w.bad.insert("a".into());
    w.settle();
    assert_eq!(w.out(), ["a"]);
}

#[test]
fn a_first_configuration_loses_one_object_at_a_time() {
    let mut w = World::new(&["a", "b", "c", "d"], &["c"]);
    w.settle();
    assert_eq!(w.out(), ["c"]);
    assert!(!w.refusals.on_trial());
}

#[test]
fn answers_to_older_versions_say_nothing() {
    let mut w = World::new(&["a"], &[]);
    w.settle();
    assert!(w.refusals.refused(&World::at(), "0", "late").is_empty());
    assert!(w.refusals.accepted(&World::at(), "0").is_empty());
}

#[test]
fn silence_is_no_verdict() {
    let mut w = World::new(&["a"], &[]);
    w.settle();
    for o in ["b", "c"] {
        w.objects.insert(o.into(), 0);
    }
    w.refusals.sent(World::at(), Some(("x".into(), w.table())));
    let changes = w.refusals.refused(&World::at(), "x", "bad");
    assert_eq!(changes.len(), 3, "both out, one in again: {changes:?}");
    let changes = w.refusals.no_verdict();
    assert!(matches!(&changes[..], [Change::Readmit(o)] if &*o.name == "c"));
    assert!(w.refusals.no_verdict().is_empty());
    assert!(!w.refusals.on_trial());
}

#[test]
fn a_table_of_each_object_alone() {
    let w = World::new(&["a", "b"], &[]);
    let XdsValue::RouteTable(table) = w.table() else { unreachable!() };
    let parts = alone(&table);
    assert_eq!(parts.len(), 2);
    for (object, part) in parts {
        assert_eq!(origins(&XdsValue::RouteTable(Arc::new(part))), BTreeSet::from([object]));
    }
}

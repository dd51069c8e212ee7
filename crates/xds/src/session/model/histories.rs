//! Random histories against the model.

use super::*;

/// A server session and a proxy, with everything in between in the test's hand.
struct Run {
    snapshot: Snapshot,
    session: Session,
    mode: Mode,
    waits: Waits,
    proxy: Proxy,
    to_proxy: VecDeque<Response>,
    now: Instant,
    strict: bool,
    /// How long the history lets time pass without regard to what is to be read.
    stalled: Duration,
    log: Vec<String>,
}

impl Run {
    fn new(mode: Mode, strict: bool, waits: Waits) -> Self {
        let proxy = Proxy { sotw: mode == Mode::StateOfTheWorld, ..Proxy::default() };
        let mut run = Self {
            snapshot: Snapshot::default(),
            session: Session::new(mode, None, waits),
            mode,
            waits,
            proxy,
            to_proxy: VecDeque::new(),
            now: Instant::now(),
            strict,
            stalled: Duration::ZERO,
            log: Vec::new(),
        };
        run.session.introduce(true, Vec::new());
        run.proxy.connect();
        run
    }

    fn update(&mut self, world: &World) {
        let wanted = world.resources();
        self.log.push(format!("update: {world:?}"));
        let mut changes: BTreeMap<(TypeUrl, Name), Option<Resource>> = KINDS
            .into_iter()
            .flat_map(|kind| self.snapshot.iter(kind).map(move |(name, _)| ((kind, name.clone()), None)))
            .collect();
        changes.extend(wanted.into_iter().map(|(key, of)| (key, Some(of))));
        self.snapshot.apply(changes);
        self.session.changed(&self.snapshot, self.now);
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(response) = self.session.pop_response() {
            self.log.push(format!(
                "→ {:?} {} {:?} -{:?}",
                response.kind,
                response.nonce,
                response.resources.iter().map(|(name, of)| format!("{name}={:?}", of.body())).collect::<Vec<_>>(),
                response.removed
            ));
            self.to_proxy.push_back(response);
        }
        while self.session.pop_fact().is_some() {}
    }

    fn serve(&mut self) -> bool {
        let Some(ask) = self.proxy.out.pop_front() else { return false };
        self.log.push(format!("← {ask:?}"));
        self.now += Duration::from_millis(1);
        match ask {
            Ask::Delta(kind, ask) => self.session.ask_delta(&self.snapshot, self.now, kind, ask).unwrap(),
            Ask::Sotw(kind, ask) => self.session.ask_sotw(&self.snapshot, self.now, kind, ask).unwrap(),
        }
        self.collect();
        true
    }

    fn deliver(&mut self) -> bool {
        let Some(response) = self.to_proxy.pop_front() else { return false };
        self.log.push(format!("proxy reads {:?} {}", response.kind, response.nonce));
        self.proxy.pass(self.now);
        self.proxy.read(&response);
        self.check();
        true
    }

    fn check(&mut self) {
        if let Some(what) = self.proxy.broken.take()
            && self.strict
        {
            panic!("{what}\n{}", self.log.join("\n"));
        }
    }

    fn tick(&mut self, by: Duration) {
        self.stalled += by;
        if self.stalled > Duration::from_secs(55) {
            // The connection's keepalive would have failed.
            return;
        }
        self.now += by;
        self.proxy.pass(self.now);
        self.session.timer(&self.snapshot, self.now);
        self.collect();
    }

    fn cut(&mut self) {
        self.log.push("cut".into());
        if self.proxy.clusters.values().any(|of| of.stuck && of.is_warming()) {
            // It would never ask for clusters again.
            self.proxy = Proxy { sotw: self.proxy.sotw, ..Proxy::default() };
        }
        let doubts = self.session.doubts();
        self.session = Session::new(self.mode, None, self.waits);
        self.session.introduce(true, doubts);
        self.to_proxy.clear();
        self.proxy.connect();
    }

    fn restart(&mut self) {
        self.log.push("restart".into());
        self.proxy = Proxy { sotw: self.proxy.sotw, ..Proxy::default() };
        self.cut();
    }

    /// Lets everything that can happen happen.
    fn settle(&mut self) {
        for _ in 0..2_000 {
            if self.serve() || self.deliver() {
                continue;
            }
            let before = self.proxy.out.len();
            let warming = self.proxy.clusters.values().filter(|of| of.is_warming() && !of.stuck).count();
            self.proxy.warm(0);
            let still = self.proxy.clusters.values().filter(|of| of.is_warming() && !of.stuck).count();
            if self.proxy.out.len() != before || still != warming {
                continue;
            }
            match self.session.next_timer() {
                Some(at) => {
                    self.log.push(format!("time passes: {:?}", at.saturating_duration_since(self.now)));
                    if !self.strict && at >= self.now + Duration::from_secs(15) {
                        // Envoy's own limit for the first endpoints of a cluster.
                        for cluster in self.proxy.clusters.values_mut().filter(|of| of.waits_for_endpoints) {
                            cluster.waits_for_endpoints = false;
                            cluster.active |= !cluster.is_warming();
                        }
                        self.proxy.ask_when_warm();
                    }
                    self.now = self.now.max(at);
                    self.proxy.pass(self.now);
                    self.session.timer(&self.snapshot, self.now);
                    self.collect();
                }
                None => match self.proxy.draining.iter().map(|(until, _)| *until).max() {
                    Some(drained) => {
                        self.now = self.now.max(drained);
                        self.proxy.pass(self.now);
                    }
                    None => return,
                },
            }
        }
        panic!("never comes to rest\n{}", self.log[self.log.len() - 60..].join("\n"));
    }

    /// The proxy has what it is to have, but for what it refuses.
    fn assert_converged(&self, world: &World) {
        let fail = |what: String| panic!("{what}\n{:#?}\n{}", self.proxy, self.log.join("\n"));
        let mut faulty = false;
        for (at, of) in &world.clusters {
            let name = format!("c{at}");
            if of.fault != Fault::None {
                faulty = true;
                continue;
            }
            let wanted = self.snapshot.get(TypeUrl::Cluster, &name).unwrap();
            match self.proxy.clusters.get(&name) {
                Some(has) if has.version.as_bytes() == wanted.body() && has.active => {}
                other => fail(format!("cluster {name} is {other:?}, wanted {wanted:?} {:?}", wanted.body())),
            }
            if of.eds {
                let wanted = self.snapshot.wanted(TypeUrl::ClusterLoadAssignment, &name).unwrap();
                let has = self.proxy.endpoints.get(&name).map(String::as_bytes);
                if has != Some(wanted.body()) {
                    fail(format!("endpoints {name}: {has:?}"));
                }
            }
        }
        let bad_tables: BTreeSet<String> =
            world.tables.iter().filter(|(_, of)| of.2).map(|(at, _)| format!("r{at}")).collect();
        if bad_tables.is_empty() {
            for name in self.proxy.clusters.keys() {
                if self.snapshot.get(TypeUrl::Cluster, name).is_none() {
                    fail(format!("cluster {name} was not removed"));
                }
            }
        }
        for (at, (_, table)) in &world.listeners {
            let name = format!("l{at}");
            let wanted = self.snapshot.get(TypeUrl::Listener, &name).unwrap();
            if self.proxy.listeners.get(&name).is_none_or(|has| has.0.as_bytes() != wanted.body()) {
                fail(format!("listener {name}"));
            }
            let table = format!("r{table}");
            if bad_tables.contains(&table) {
                continue;
            }
            let wanted = self.snapshot.get(TypeUrl::RouteConfiguration, &table).unwrap();
            if self.proxy.tables.get(&table).is_none_or(|has| has.0.as_bytes() != wanted.body()) {
                fail(format!("table {table}"));
            }
        }
        for name in self.proxy.listeners.keys() {
            if self.snapshot.get(TypeUrl::Listener, name).is_none() {
                fail(format!("listener {name} was not removed"));
            }
        }
        if !faulty && bad_tables.is_empty() {
            for kind in KINDS {
                let lane = self.session.lane(kind);
                if !lane.dirty.is_empty() || !lane.blocked.is_empty() {
                    fail(format!("{kind} is not at rest: {:?} {:?} {:?}", lane.dirty, lane.blocked, lane.entries));
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    Update(World),
    Serve,
    Deliver,
    Warm(usize),
    Tick(u64),
    Cut,
    Restart,
}

/// Which faults a history may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Faults {
    None,
    Refused,
    Stuck,
    Both,
}

fn fault(faults: Faults) -> BoxedStrategy<Fault> {
    let (bad, stuck) = match faults {
        Faults::None => return Just(Fault::None).boxed(),
        Faults::Refused => (Fault::Bad, Fault::Bad),
        Faults::Stuck => (Fault::Stuck, Fault::Stuck),
        Faults::Both => (Fault::Bad, Fault::Stuck),
    };
    prop_oneof![8 => Just(Fault::None), 1 => Just(bad), 1 => Just(stuck)].boxed()
}

fn worlds(faults: Faults) -> impl Strategy<Value = World> {
    let cluster = (0..3_u8, any::<bool>(), any::<bool>(), fault(faults)).prop_map(|(revision, warms, eds, fault)| {
        ClusterSpec { revision, warms: warms || fault == Fault::Stuck, eds, fault }
    });
    let clusters = prop::collection::btree_map(0..5_u8, cluster, 1..5);
    let tables = prop::collection::vec((0..4_u8, prop::collection::btree_set(0..5_u8, 0..4), 0..10_u8), 3);
    let listeners = prop::collection::btree_map(0..3_u8, (0..2_u8, 0..3_u8), usize::from(faults != Faults::None)..3);
    let endpoints = prop::collection::btree_map(0..5_u8, 0..3_u8, 0..5);
    (clusters, tables, listeners, endpoints).prop_map(move |(clusters, tables, listeners, endpoints)| {
        let of = tables.into_iter().enumerate().map(|(at, (revision, uses, bad))| {
            let uses = uses.into_iter().filter(|of| clusters.contains_key(of)).collect();
            (at as u8, (revision, uses, matches!(faults, Faults::Refused | Faults::Both) && bad == 0))
        });
        World { tables: of.collect(), clusters: clusters.clone(), listeners, endpoints }
    })
}

fn ops(faults: Faults) -> impl Strategy<Value = Vec<Op>> {
    let tick: u64 = if faults == Faults::None { 300 } else { 30_000 };
    let op = prop_oneof![
        3 => worlds(faults).prop_map(Op::Update),
        8 => Just(Op::Serve),
        8 => Just(Op::Deliver),
        3 => any::<usize>().prop_map(Op::Warm),
        1 => (0..tick).prop_map(Op::Tick),
        1 => Just(Op::Cut),
        1 => Just(Op::Restart),
    ];
    prop::collection::vec(op, 1..60)
}

pub(super) fn run(mode: Mode, ops: Vec<Op>, last: World, strict: bool) {
    run_with(WAITS, mode, ops, last, strict);
}

fn run_with(waits: Waits, mode: Mode, ops: Vec<Op>, last: World, strict: bool) {
    let mut run = Run::new(mode, strict, waits);
    for op in ops {
        match op {
            Op::Update(world) => run.update(&world),
            Op::Serve => {
                run.serve();
            }
            Op::Deliver => {
                run.deliver();
            }
            Op::Warm(pick) => run.proxy.warm(pick),
            Op::Tick(time) => run.tick(Duration::from_millis(time)),
            Op::Cut => run.cut(),
            Op::Restart => run.restart(),
        }
    }
    run.update(&last);
    run.settle();
    run.assert_converged(&last);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, max_shrink_iters: 5_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_delta_history_breaks_a_route(ops in ops(Faults::None), last in worlds(Faults::None)) {
        run(Mode::Delta, ops, last, true);
    }

    #[test]
    fn no_state_of_the_world_history_breaks_a_route(ops in ops(Faults::None), last in worlds(Faults::None)) {
        run(Mode::StateOfTheWorld, ops, last, true);
    }

    #[test]
    fn faulty_resources_keep_nothing_else_back(ops in ops(Faults::Both), last in worlds(Faults::Both)) {
        run(Mode::Delta, ops, last, false);
    }

    #[test]
    fn refused_resources_keep_nothing_else_back_state_of_the_world(
        ops in ops(Faults::Refused),
        last in worlds(Faults::Refused),
    ) {
        run(Mode::StateOfTheWorld, ops, last, false);
    }

    #[test]
    fn stuck_clusters_keep_nothing_else_back_state_of_the_world(
        ops in ops(Faults::Stuck),
        last in worlds(Faults::Stuck),
    ) {
        run(Mode::StateOfTheWorld, ops, last, false);
    }
}

/// The model notices a server that takes clusters and tables from connections that drain and requests under way.
#[test]
fn a_server_that_does_not_wait_for_the_drain_time_is_caught() {
    let config = ProptestConfig { cases: 2_000, max_shrink_iters: 0, failure_persistence: None, ..Default::default() };
    for mode in [Mode::Delta, Mode::StateOfTheWorld] {
        let mut runner = proptest::test_runner::TestRunner::new(config.clone());
        let hasty = Waits { drain: Duration::ZERO, ..WAITS };
        let caught = runner.run(&(ops(Faults::None), worlds(Faults::None)), |(ops, last)| {
            run_with(hasty, mode, ops, last, true);
            Ok(())
        });
        let told = caught.expect_err("the model looks away").to_string();
        assert!(told.contains("was taken from"), "{told}");
    }
}

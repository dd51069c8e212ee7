use std::{
    cell::Cell,
    collections::BTreeSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use proptest::{prelude::*, test_runner::TestRunner};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::aws_lc_rs, server::WebPkiClientVerifier};
use rustls_pki_types::{PrivateKeyDer, ServerName};
use tokio::{
    io::AsyncWriteExt,
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{exchange::Options, *};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn peer(age: u64, serving: bool) -> Peer {
    Peer { age: Some(ms(age)), serving }
}

#[test]
fn when_to_begin() {
    let never = Peer { age: None, serving: true };
    for (own, peers, begins) in [
        (Some(0), vec![peer(0, true)], false),
        (Some(6000), vec![peer(0, true)], false),
        (Some(6001), vec![peer(2500, true)], true),
        // Nobody is in touch, or nobody who is takes proxies.
        (Some(60_000), vec![], false),
        (Some(60_000), vec![peer(2501, true)], false),
        (Some(60_000), vec![peer(0, false), never], false),
        (Some(60_000), vec![peer(0, false), peer(1000, true)], true),
        // Never in touch, though it has been there for long enough: it knows less than one that is.
        (None, vec![peer(1000, true)], true),
        (None, vec![never], false),
    ] {
        let mut decider = Decider::new(Rule::default());
        assert_eq!(decider.decide(ms(6001), own.map(ms), peers.clone()), begins, "{own:?} {peers:?}");
        assert_eq!(decider.hands_over(), begins);
    }
    // One that has just begun is not in touch yet; it does not send its first proxies away for that.
    assert!(!Decider::new(Rule::default()).decide(ms(6000), None, [peer(0, true)]));
}

#[test]
fn when_to_end() {
    let begun = || {
        let mut decider = Decider::new(Rule::default());
        assert!(decider.decide(ms(0), Some(ms(10_000)), [peer(0, true)]));
        decider
    };
    // The peer is gone, or hands over itself, or knows no more than we do.
    for peers in [vec![], vec![peer(100, false)], vec![peer(10_000, true)]] {
        assert!(!begun().decide(ms(100), Some(ms(10_100)), peers));
    }
    // The peer is out of touch too, but was in touch later than we were.
    assert!(begun().decide(ms(30_000), Some(ms(40_000)), [peer(30_000, true)]));
    // In touch again: only when that lasts, and a break begins it anew.
    let mut decider = begun();
    assert!(decider.decide(ms(1000), Some(ms(0)), [peer(0, true)]));
    assert!(decider.decide(ms(5900), Some(ms(500)), [peer(0, true)]));
    assert!(decider.decide(ms(5950), Some(ms(2600)), [peer(0, true)]), "a break");
    assert!(decider.decide(ms(6000), Some(ms(0)), [peer(0, true)]));
    assert!(decider.decide(ms(10_900), Some(ms(0)), [peer(0, true)]));
    assert!(!decider.decide(ms(11_000), Some(ms(0)), [peer(0, true)]));
    // In touch again and nobody else is: at once.
    assert!(!begun().decide(ms(1000), Some(ms(0)), [peer(3000, true)]));
    // It does not begin again at once.
    let mut decider = begun();
    assert!(!decider.decide(ms(100), Some(ms(10_100)), []));
    assert!(!decider.decide(ms(5000), Some(ms(15_000)), [peer(0, true)]));
    assert!(decider.decide(ms(5100), Some(ms(15_100)), [peer(0, true)]));
}

#[test]
fn what_is_known_of_peers_grows_old_and_is_forgotten() {
    let report = |replica: &str, age: u64| Report {
        replica: replica.into(),
        age_millis: Some(age),
        serving: true,
        ..Report::default()
    };
    let mut table = Table::new("me");
    table.take(ms(0), report("me", 0));
    table.take(ms(1000), report("a", 500));
    table.take(ms(900), report("a", 0));
    assert_eq!(table.peers(ms(1000)).collect::<Vec<_>>(), [peer(500, true)], "not ourselves, not an older one");
    assert_eq!(table.peers(ms(3000)).collect::<Vec<_>>(), [peer(2500, true)]);
    assert_eq!(table.peers(ms(5001)).count(), 0, "it may have died");
    for i in 0..100 {
        table.take(ms(5000), report(&i.to_string(), 0));
    }
    assert_eq!(table.peers(ms(5000)).count(), MOST_PEERS);
    table.forget(ms(20_000));
    table.take(ms(20_000), report("b", 0));
    assert_eq!(table.reports(ms(20_000)).map(|r| r.replica.clone()).collect::<Vec<_>>(), ["b"]);
}

fn refusal(name: &str, detail: &str) -> Refusal {
    Refusal {
        kind: "HTTPRoute".into(),
        namespace: "ns".into(),
        name: name.into(),
        uid: "u".into(),
        generation: 3,
        detail: detail.into(),
    }
}

#[test]
fn reports_are_bounded_and_read_whole_or_not_at_all() {
    let report = Report {
        replica: "r".into(),
        age_millis: Some(7),
        serving: true,
        digest: "d".into(),
        refusals: (0..100).rev().map(|i| refusal(&format!("{i:03}"), &"é".repeat(2000))).collect(),
        views: (0..20).map(|i| View { seen: i.to_string(), digest: "x".into() }).collect(),
    };
    let bytes = report.clone().encode();
    assert!(bytes.len() <= LARGEST, "{}", bytes.len());
    let read = Report::decode(&bytes).unwrap();
    assert_eq!(read.refusals.len(), MOST_REFUSALS);
    assert_eq!((read.views.len(), &*read.views[0].seen), (MOST_VIEWS, "12"), "the latest");
    assert_eq!((&*read.refusals[0].name, read.refusals[0].detail.len()), ("000", 512));
    assert_eq!(read, report.bounded());
    for length in 0..bytes.len() {
        assert!(Report::decode(&bytes[..length]).is_err());
    }
    let text = |change: &dyn Fn(&mut Report)| {
        let mut report = Report { replica: "r".into(), ..Report::default() };
        change(&mut report);
        Report::decode(&serde_json::to_vec(&report).unwrap())
    };
    assert!(text(&|_| {}).is_ok());
    assert!(matches!(text(&|r| r.replica.clear()), Err(InvalidReport::Nobody)));
    assert!(matches!(text(&|r| r.digest = "x".repeat(513)), Err(InvalidReport::Bound("a name"))));
    assert!(matches!(text(&|r| r.refusals = vec![refusal("x", &"y".repeat(513))]), Err(InvalidReport::Bound(_))));
    assert!(matches!(text(&|r| r.refusals = vec![refusal("x", ""); 33]), Err(InvalidReport::Bound(_))));
    assert!(matches!(Report::decode(&vec![b' '; LARGEST + 1]), Err(InvalidReport::TooLong)));
}

/// One replica of the model.
struct Replica {
    last: Option<u64>,
    decider: Decider,
    table: Table,
    starts: Vec<u64>,
    /// Since when it runs.
    since: u64,
}

/// What there is in a span of the history: who reaches the API server, who hears whom, who runs.
#[derive(Clone, Debug)]
struct Span {
    lasts: u64,
    api: [bool; 5],
    heard: [[bool; 5]; 5],
    runs: [bool; 5],
}

fn span(deaths: bool) -> impl Strategy<Value = Span> {
    let mostly = || prop::bool::weighted(0.7);
    let runs = prop::array::uniform5(prop::bool::weighted(if deaths { 0.85 } else { 1.0 }));
    (1u64..300, prop::array::uniform5(any::<bool>()), prop::array::uniform5(prop::array::uniform5(mostly())), runs)
        .prop_map(|(tenths, api, heard, runs)| Span { lasts: tenths * 100, api, heard, runs })
}

/// Runs a history with replicas that follow the rule `theirs`; returns what was violated of what the default promises.
fn run(n: usize, spans: &[Span], delays: &[u64], theirs: Rule) -> Result<(), TestCaseError> {
    const STEP: u64 = 100;
    let rule = Rule::default();
    let name = |i: usize| format!("replica-{i}");
    let new = |i: usize, since| Replica {
        last: None,
        decider: Decider::new(theirs),
        table: Table::new(&name(i)),
        starts: Vec::new(),
        since,
    };
    let mut replicas: Vec<Option<Replica>> = (0..n).map(|i| Some(new(i, 0))).collect();
    // What was told, and is on its way: when it was asked for and arrives, from whom to whom.
    let mut under_way: Vec<(u64, u64, usize, Report)> = Vec::new();
    let (mut now, mut draw, mut died) = (0u64, 0usize, 0u64);
    // How long each has been out of touch while it heard one that was in touch and took proxies.
    let mut due = vec![0u64; n];
    for span in spans {
        let end = now + span.lasts;
        while now < end {
            for (i, replica) in replicas.iter_mut().enumerate() {
                match (span.runs[i], replica.is_some()) {
                    (true, false) => *replica = Some(new(i, now)),
                    (false, true) => {
                        *replica = None;
                        died = now;
                    }
                    _ => {}
                }
            }
            let age = |r: &Replica, now: u64| r.last.map(|at| ms(now - at));
            for (i, replica) in replicas.iter_mut().enumerate() {
                if let Some(r) = replica
                    && span.api[i]
                    && (now + i as u64 * STEP).is_multiple_of(1000)
                {
                    r.last = Some(now);
                }
            }
            for to in 0..n {
                // Each at its own tenth of the second.
                if !(now + to as u64 * 3 * STEP).is_multiple_of(1000) || replicas[to].is_none() {
                    continue;
                }
                for from in (0..n).filter(|f| *f != to && span.heard[to][*f]) {
                    let Some(r) = &replicas[from] else { continue };
                    let report = Report {
                        replica: name(from),
                        age_millis: age(r, now).map(|a| a.as_millis() as u64),
                        serving: !r.decider.hands_over(),
                        ..Report::default()
                    };
                    draw += 1;
                    under_way.push((now, now + delays[draw % delays.len()], to, report));
                }
            }
            let (arrived, rest): (Vec<_>, Vec<_>) = under_way.drain(..).partition(|(_, at, ..)| *at <= now);
            under_way = rest;
            for (asked, _, to, report) in arrived {
                if let Some(r) = &mut replicas[to] {
                    r.table.take(ms(asked), report);
                }
            }
            let in_touch: Vec<bool> = (0..n)
                .map(|i| {
                    let Some(r) = &replicas[i] else { return false };
                    // With what may be added to it on the way to a peer.
                    age(r, now).is_some_and(|a| a <= ms(1000)) && !r.decider.hands_over()
                })
                .collect();
            for i in 0..n {
                let Some(r) = &mut replicas[i] else {
                    due[i] = 0;
                    continue;
                };
                let (was, own) = (r.decider.hands_over(), age(r, now));
                r.table.forget(ms(now));
                let hands = r.decider.decide(ms(now - r.since), own, r.table.peers(ms(now)).collect::<Vec<_>>());
                if hands && !was {
                    prop_assert!(own.is_none_or(|a| a > rule.out_of_touch), "{i} is in touch and begins at {now}");
                    if let Some(last) = r.starts.last() {
                        prop_assert!(now - last >= rule.steady.as_millis() as u64, "{i} flaps at {now}");
                    }
                    r.starts.push(now);
                }
                let out = own.is_none_or(|a| a > rule.out_of_touch);
                let hears = (0..n).any(|from| from != i && in_touch[from] && span.heard[i][from] && span.runs[from]);
                due[i] = if out && hears { due[i] + STEP } else { 0 };
                // A report each second, on its way for half of one, and the pause after the last time.
                let bound = rule.steady.as_millis() as u64 + 2000;
                prop_assert!(hands || due[i] <= bound, "{i} keeps its proxies at {now} though another is fresher");
            }
            let running: Vec<&Replica> = replicas.iter().flatten().collect();
            let all = !running.is_empty() && running.iter().all(|r| r.decider.hands_over());
            // One that was relied on may have died: the others learn of it when its report is not believed any more.
            let learning = died > 0 && now - died <= BELIEVED.as_millis() as u64 + 2 * STEP;
            prop_assert!(!all || learning, "all hand over at {now}");
            prop_assert!(running.iter().all(|r| r.since <= now));
            now += STEP;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn never_all_and_only_the_stale_and_soon_and_without_flapping(
        n in 2usize..=5,
        spans in prop::collection::vec(span(false), 1..20),
        delays in prop::collection::vec(0u64..500, 7),
    ) {
        run(n, &spans, &delays, Rule::default())?;
    }

    #[test]
    fn the_same_when_replicas_die_and_start(
        n in 2usize..=5,
        spans in prop::collection::vec(span(true), 1..20),
        delays in prop::collection::vec(0u64..500, 7),
    ) {
        run(n, &spans, &delays, Rule::default())?;
    }
}

#[test]
fn planted_mistakes_are_seen() {
    let good = Rule::default();
    for (mistake, rule) in [
        ("takes stale peers for fresh", Rule { in_touch: ms(20_000), ..good }),
        ("waits too long", Rule { out_of_touch: ms(30_000), ..good }),
        ("begins although in touch", Rule { out_of_touch: ms(500), ..good }),
        ("flaps", Rule { steady: ms(0), ..good }),
    ] {
        let config =
            ProptestConfig { cases: 10_000, max_shrink_iters: 0, failure_persistence: None, ..Default::default() };
        let histories = (2usize..=5, prop::collection::vec(span(false), 1..20), prop::collection::vec(0u64..500, 7));
        let seen = TestRunner::new(config).run(&histories, |(n, spans, delays)| run(n, &spans, &delays, rule));
        assert!(seen.is_err(), "{mistake}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_probe_counts_from_when_it_asked() {
    let freshness = Freshness::new();
    assert_eq!(freshness.age(), None);
    let (answers, seen) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let mut tasks = JoinSet::new();
    let (given, asked) = (answers.clone(), seen.clone());
    tasks.spawn(probe(freshness.clone(), async move || {
        asked.store(true, Ordering::Relaxed);
        sleep(ms(700)).await;
        given.load(Ordering::Relaxed)
    }));
    sleep(ms(750)).await;
    assert_eq!(freshness.age(), Some(ms(750)));
    answers.store(false, Ordering::Relaxed);
    sleep(ms(10_000)).await;
    assert_eq!(freshness.age(), Some(ms(10_750)), "an answer that is none does not count");
    answers.store(true, Ordering::Relaxed);
    sleep(ms(4000)).await;
    assert!(freshness.age().unwrap() <= ms(2400));
    // One that hangs is given up, and asked again.
    freshness.touch(Instant::now());
    tasks.abort_all();
    let hanging = Freshness::new();
    let first = Cell::new(true);
    let ask = async || {
        if first.replace(false) { std::future::pending().await } else { true }
    };
    let _ = timeout(PATIENCE + EVERY + ms(10), probe(hanging.clone(), ask)).await;
    assert_eq!(hanging.age(), Some(ms(10)));
}

/// A CA, and who holds a certificate of it.
struct Authority(CertifiedIssuer<'static, KeyPair>);

struct Holder {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn holder(&self, name: &str) -> Holder {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let chain = vec![params.signed_by(&key, &self.0).unwrap().der().clone()];
        let key = || PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let (roots, provider) = (Arc::new(roots), Arc::new(aws_lc_rs::default_provider()));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build().unwrap();
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), key())
            .unwrap();
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key())
            .unwrap();
        server.alpn_protocols = vec![ALPN.into()];
        client.alpn_protocols = vec![ALPN.into()];
        Holder { server: Arc::new(server), client: Arc::new(client) }
    }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("envoy-gateway").unwrap()
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[tokio::test]
async fn only_holders_of_our_certificate_are_told_and_heard() {
    let (authority, other) = (Authority::new(), Authority::new());
    let us = authority.holder("envoy-gateway");
    let report = Report { replica: "a".into(), age_millis: Some(5), serving: true, ..Report::default() };
    let (told, (listener, address)) = (report.clone(), listen().await);
    let mut tasks = JoinSet::new();
    let server = us.server.clone();
    tasks.spawn(async move {
        serve(listener, || Some(server.clone()), "envoy-gateway", || told.clone(), std::future::pending()).await;
    });
    assert_eq!(ask(address, us.client.clone(), name()).await.unwrap(), report);
    // A proxy's certificate is of the same CA; another CA's has the right name.
    for stranger in [authority.holder("*.envoy-gateway-system"), other.holder("envoy-gateway")] {
        assert!(ask(address, stranger.client, name()).await.is_err());
    }
    // A proxy that poses as a replica is not believed; nor is one that tells too much, or nothing.
    let proxy = authority.holder("*.envoy-gateway-system");
    let (listener, address) = listen().await;
    tasks.spawn(async move {
        serve(listener, || Some(proxy.server.clone()), "envoy-gateway", Report::default, std::future::pending()).await;
    });
    assert!(matches!(ask(address, us.client.clone(), name()).await, Err(AskError::Io(_))));
    for (text, wanted) in [(vec![b'x'; LARGEST * 2], "longer than"), (b"{}".to_vec(), "cannot be read")] {
        let (listener, address) = listen().await;
        let tls = tokio_rustls::TlsAcceptor::from(us.server.clone());
        tasks.spawn(async move {
            let mut stream = tls.accept(listener.accept().await.unwrap().0).await.unwrap();
            let _ = stream.write_all(&text).await;
            let _ = stream.shutdown().await;
        });
        let error = ask(address, us.client.clone(), name()).await.unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
    }
    let (listener, address) = listen().await;
    let from = Instant::now();
    let error = ask(address, us.client.clone(), name()).await.unwrap_err();
    assert!(matches!(error, AskError::Late) && from.elapsed() >= PATIENCE, "{error}");
    drop(listener);
}

#[tokio::test]
async fn a_replica_that_is_out_of_touch_hands_over_and_comes_back() {
    let authority = Authority::new();
    let rule = Rule { out_of_touch: ms(1500), in_touch: ms(1200), steady: ms(500) };
    let mut tasks = JoinSet::new();
    let (addresses, all) = watch::channel(BTreeSet::new());
    let mut replicas = Vec::new();
    let mut places = BTreeSet::new();
    for own in ["a", "b"] {
        let (holder, freshness, peers) = (authority.holder("envoy-gateway"), Freshness::new(), Peers::new(own));
        let (listener, address) = listen().await;
        places.insert(address);
        let (hand_over, age) = (peers.hand_over(), freshness.clone());
        let report = move || Report {
            replica: own.into(),
            age_millis: age.age().map(|a| a.as_millis() as u64),
            serving: !*hand_over.borrow(),
            digest: format!("digest of {own}"),
            refusals: vec![refusal("r", "no")],
            views: Vec::new(),
        };
        let server = holder.server.clone();
        tasks.spawn(async move {
            serve(listener, || Some(server.clone()), "envoy-gateway", report, std::future::pending()).await;
        });
        let client = holder.client.clone();
        tasks.spawn(peers.clone().run(Options {
            own: own.into(),
            rule,
            freshness: freshness.clone(),
            addresses: all.clone(),
            name: name(),
            tls: Box::new(move || Some(client.clone())),
        }));
        replicas.push((freshness, peers));
    }
    addresses.send_replace(places);
    let connected = Arc::new([AtomicBool::new(true), AtomicBool::new(true)]);
    for (i, (freshness, _)) in replicas.iter().enumerate() {
        let (freshness, connected) = (freshness.clone(), connected.clone());
        tasks.spawn(async move {
            loop {
                if connected[i].load(Ordering::Relaxed) {
                    freshness.touch(Instant::now());
                }
                sleep(ms(20)).await;
            }
        });
    }
    let [mut a, mut b] = [replicas[0].1.hand_over(), replicas[1].1.hand_over()];
    sleep(ms(1200)).await;
    assert!(!*a.borrow() && !*b.borrow());
    assert_eq!(replicas[0].1.reports()[0].digest, "digest of b");
    assert_eq!(replicas[0].1.refusals(), [refusal("r", "no")]);
    connected[0].store(false, Ordering::Relaxed);
    timeout(Duration::from_secs(10), a.wait_for(|h| *h)).await.expect("a hands over").unwrap();
    assert!(!*b.borrow());
    connected[0].store(true, Ordering::Relaxed);
    timeout(Duration::from_secs(10), a.wait_for(|h| !*h)).await.expect("a is back").unwrap();
    // Both cut: both stay.
    connected.iter().for_each(|c| c.store(false, Ordering::Relaxed));
    sleep(ms(4000)).await;
    assert!(!*a.borrow_and_update() && !*b.borrow_and_update());
}

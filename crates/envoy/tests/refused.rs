//! What Envoy would refuse is an error that names the resource and the place.

mod common;

use std::sync::Arc;

use common::{cluster, forward, host, http_chain, listener, locality, route, table, to, with_route};
use envoy::Invalid;
use ir::{
    Action, Cluster, Destination, Discovery, EndpointAddress, Endpoints, HeaderAdd, Listener, Millis, PathMatch,
    ReadyListener, Retry, Secret, SecretContent, WeightedCluster, XdsKind, XdsValue,
};

fn problem(value: &XdsValue) -> Invalid {
    let error = envoy::encode(value).expect_err("the value is invalid");
    let (kind, name) = value.key();
    assert_eq!((error.kind, &error.name), (kind, &name), "{error}");
    error.problem
}

fn text(value: &XdsValue) -> String {
    envoy::encode(value).expect_err("the value is invalid").to_string()
}

fn forwarding(change: impl FnOnce(&mut ir::Forward)) -> XdsValue {
    let mut f = forward("c");
    change(&mut f);
    with_route(route("bad", Action::Forward(Box::new(f))))
}

fn weighted(weights: &[u32]) -> XdsValue {
    let cluster = |(i, weight): (usize, &u32)| WeightedCluster {
        cluster: format!("c{i}").into(),
        weight: *weight,
        request_headers: Default::default(),
        response_headers: Default::default(),
        host: None,
    };
    forwarding(|f| f.to = Destination::Weighted(weights.iter().enumerate().map(cluster).collect()))
}

#[test]
fn durations() {
    let zero = XdsValue::Cluster(Arc::new(Cluster { connect_timeout: Millis(0), ..cluster("c") }));
    assert_eq!(problem(&zero), Invalid::Zero);
    let long = XdsValue::Cluster(Arc::new(Cluster { connect_timeout: Millis(u64::MAX), ..cluster("c") }));
    assert!(matches!(problem(&long), Invalid::TooLarge { .. }));
    assert!(matches!(problem(&forwarding(|f| f.timeout = Some(Millis(u64::MAX)))), Invalid::TooLarge { .. }));
    assert!(envoy::encode(&forwarding(|f| f.timeout = Some(Millis(0)))).is_ok(), "none");
    let retry = |base, max| {
        forwarding(|f| {
            f.retry = Some(Retry {
                on: vec![],
                status_codes: vec![],
                attempts: None,
                per_try_timeout: None,
                backoff_base: base,
                backoff_max: max,
                avoid_previous_hosts: false,
                attempts_per_priority: None,
            });
        })
    };
    assert_eq!(problem(&retry(Some(Millis(20)), Some(Millis(10)))), Invalid::Backoff);
    assert_eq!(problem(&retry(Some(Millis(0)), None)), Invalid::Zero);
    assert!(envoy::encode(&retry(Some(Millis(10)), Some(Millis(10)))).is_ok());
}

#[test]
fn duplicates() {
    let r = || vec![route("r", to("c"))];
    assert_eq!(problem(&table(vec![host("a", r()), host("a", r())])), Invalid::Duplicate("a".into()));
    let mut other = (*host("b", r())).clone();
    other.domains = vec!["A".into()];
    assert_eq!(
        problem(&table(vec![host("a", r()), Arc::new(other)])),
        Invalid::Duplicate("a".into()),
        "whatever the case"
    );
    let chains = |chains| XdsValue::Listener(Arc::new(listener(chains, None)));
    let chain = |name, servers: &[&str]| http_chain(name, servers, None);
    assert_eq!(problem(&chains(vec![chain("a", &["x"]), chain("a", &["y"])])), Invalid::Duplicate("a".into()));
    assert_eq!(problem(&chains(vec![chain("a", &["x"]), chain("b", &["x"])])), Invalid::Duplicate("x".into()));
    assert_eq!(problem(&chains(vec![chain("a", &[]), chain("b", &[])])), Invalid::Duplicate("any".into()));
    let l = || locality(EndpointAddress::Name("h".into(), 1));
    let twice = XdsValue::Endpoints(Arc::new(Endpoints { cluster: "c".into(), localities: vec![l(), l()] }));
    assert!(matches!(problem(&twice), Invalid::Duplicate(_)));
}

#[test]
fn weights() {
    assert_eq!(problem(&weighted(&[0, 0])), Invalid::Zero);
    assert!(matches!(problem(&weighted(&[u32::MAX, 1])), Invalid::TooLarge { .. }));
    assert!(envoy::encode(&weighted(&[0, 1])).is_ok());
    let mut l = locality(EndpointAddress::Name("h".into(), 1));
    l.endpoints[0].weight = 0;
    let zero = XdsValue::Endpoints(Arc::new(Endpoints { cluster: "c".into(), localities: vec![l] }));
    assert_eq!(problem(&zero), Invalid::Zero);
}

#[test]
fn headers() {
    let with = |name: &str, value: &str| {
        let mut r = route("bad", to("c"));
        r.request_headers.add = vec![HeaderAdd { name: name.into(), value: value.into(), overwrite: false }];
        with_route(r)
    };
    for (name, value) in [("", "v"), ("a b", "v"), ("a:", "v"), ("a", "v\r\nx: y"), ("a", "\0")] {
        assert!(matches!(problem(&with(name, value)), Invalid::Header(_)), "{name:?} {value:?}");
    }
    assert!(envoy::encode(&with("X-Ok_1", "any text: it's fine")).is_ok());
    assert!(envoy::encode(&with(":path", "/x")).is_ok());
}

#[test]
fn what_must_not_be_empty() {
    let mut r = route("bad", to("c"));
    r.matches.path = PathMatch::Exact("".into());
    assert_eq!(text(&with_route(r)), "RouteTable t: route bad: path: must not be empty");
    assert_eq!(problem(&forwarding(|f| f.to = Destination::Cluster("".into()))), Invalid::Empty);
    assert_eq!(problem(&XdsValue::Listener(Arc::new(listener(vec![], None)))), Invalid::Empty);
    assert_eq!(problem(&XdsValue::Cluster(Arc::new(cluster("")))), Invalid::Empty);
    let pipe = Discovery::SdsSocket { path: "".into() };
    assert_eq!(problem(&XdsValue::Cluster(Arc::new(Cluster { discovery: pipe, ..cluster("c") }))), Invalid::Empty);
}

#[test]
fn ports_statuses_and_pem() {
    let chain = || vec![http_chain("a", &[], None)];
    assert_eq!(problem(&XdsValue::Listener(Arc::new(Listener { port: 0, ..listener(chain(), None) }))), Invalid::Zero);
    let ready = ReadyListener { address: "0.0.0.0".into(), ipv4_compat: false, port: 0 };
    assert_eq!(problem(&XdsValue::Ready(Arc::new(ready))), Invalid::Zero);
    let answer = |status| with_route(route("r", Action::Respond { status, body: None }));
    assert!(matches!(problem(&answer(600)), Invalid::TooLarge { .. }));
    let content = SecretContent::Certificate { chain: b"no PEM".to_vec(), key: vec![], ocsp: None };
    let secret = XdsValue::Secret(Arc::new(Secret { name: "ns/s".into(), content }));
    assert_eq!(text(&secret), "Secret ns/s: certificate chain: holds no PEM block");
    assert_eq!(secret.key().0, XdsKind::Secret);
}

//! The same bytes in every process, and fast.

mod common;

use std::{process::Command, sync::Arc, time::Instant};

use common::{cluster, host, http_chain, listener, route, server_tls, table, to};
use ir::{SessionPersistence, XdsValue};

/// Resources with many maps, in maps and in `Any`.
fn resources() -> Vec<XdsValue> {
    let mut r = route("r", to("c"));
    r.origin.annotations = (0..30).map(|i| (format!("k{i}").into(), "v".into())).collect();
    r.origin.section = Some("s".into());
    r.cors = Some(Default::default());
    r.session = Some(SessionPersistence::Header { name: "h".into() });
    r.deny_loopback = true;
    let chain = http_chain("l", &["a.b"], Some(server_tls("s")));
    vec![
        table(vec![host("a", vec![r.clone(), r.clone()]), host("b", vec![r])]),
        XdsValue::Listener(Arc::new(listener(vec![chain], None))),
        XdsValue::Cluster(Arc::new(cluster("c"))),
    ]
}

fn versions() -> String {
    let version = |r| envoy::encode(r).expect("the value is valid").version.to_string();
    resources().iter().map(version).collect::<Vec<_>>().join(" ")
}

const CHILD: &str = "ENVOY_TEST_PRINTS_VERSIONS";

#[test]
fn fifty_processes_say_the_same() {
    if std::env::var_os(CHILD).is_some() {
        println!("versions: {}", versions());
        return;
    }
    let here = versions();
    let me = std::env::current_exe().unwrap();
    for _ in 0..50 {
        let done = Command::new(&me)
            .args(["--exact", "fifty_processes_say_the_same", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let text = String::from_utf8(done.stdout).unwrap();
        let there = text.lines().find_map(|l| l.split_once("versions: ")).expect("the child prints").1;
        assert_eq!(there, here);
    }
}

/// 5,000 routes: all at once in about a second even without optimisation, one changed host in a fraction of that.
#[test]
fn only_what_changed_is_encoded() {
    let hosts: Vec<_> = (0..1_000)
        .map(|i| {
            let routes = (0..5).map(|j| route(&format!("r{i}-{j}"), to(&format!("c{i}-{j}")))).collect();
            host(&format!("h{i}.example"), routes)
        })
        .collect();
    let mut encoder = envoy::Encoder::new();
    let start = Instant::now();
    let first = encoder.encode(&table(hosts.clone())).unwrap();
    let whole = start.elapsed();
    let mut changed = hosts;
    changed[500] = host("h500.example", vec![route("new", to("new"))]);
    let start = Instant::now();
    let second = encoder.encode(&table(changed.clone())).unwrap();
    let part = start.elapsed();
    assert_ne!(first.version, second.version);
    assert_eq!(second, envoy::encode(&table(changed)).unwrap());
    assert!(part * 3 < whole, "{part:?} of {whole:?}");
    assert!(whole.as_secs() < 20, "{whole:?}");
}

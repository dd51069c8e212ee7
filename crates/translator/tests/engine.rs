//! The engine against the oracle: incremental state equals translation from scratch, the deltas add up to the state, and
//! the order in which objects come plays no part.

mod common;

use std::collections::BTreeMap;

use common::{config, picture};
use ir::Full;
use resources::{Change, Object, ObjectKey};
use serde_json::json;
use translator::{Engine, translate};

/// A small generator (xorshift), so that a failing seed can be told and tried again.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let n = self.below(all.len() as u64);
        &all[usize::try_from(n).expect("small")]
    }
}

fn object(r: &mut Random) -> (ObjectKey, Object) {
    let namespaces = ["infra", "team-a", "team-b"];
    let ns = *r.pick(&namespaces);
    let value = match r.below(11) {
        0 => {
            let from = *r.pick(&["All", "Same", "Selector"]);
            let host = *r.pick(&["", "*.example.test", "a.example.test"]);
            let listeners: Vec<_> = (0..=r.below(2))
                .map(|i| {
                    let mut l = json!({"name": format!("l{i}"), "port": 80 + r.below(2), "protocol": *r.pick(&["HTTP", "HTTP", "HTTP", "HTTP", "TCP", "X"]),
                        "allowedRoutes": {"namespaces": {"from": from, "selector": {"matchLabels": {"team": "a"}}}}});
                    if !host.is_empty() && r.below(2) == 0 {
                        l["hostname"] = host.into();
                    }
                    l
                })
                .collect();
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
                "metadata": {"name": format!("gw{}", r.below(2)), "namespace": "infra", "creationTimestamp": format!("2024-01-0{}T00:00:00Z", 1 + r.below(3))},
                "spec": {"gatewayClassName": *r.pick(&["gc", "gc", "gc", "other"]), "listeners": listeners,
                    "allowedListeners": {"namespaces": {"from": *r.pick(&["All", "None"])}}}})
        }
        1 => {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{}", r.below(3)), "namespace": ns},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}]}})
        }
        2 | 3 => {
            let service = format!("web-{}", r.below(3));
            let endpoints: Vec<_> = (0..r.below(3))
                .map(|i| json!({"addresses": [format!("10.1.0.{i}")], "conditions": {"ready": r.below(3) > 0}}))
                .collect();
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": format!("{service}-{}", r.below(2)), "namespace": ns, "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4", "ports": [{"name": "p", "port": 1000 + r.below(2), "protocol": "TCP"}], "endpoints": endpoints})
        }
        4 => {
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ReferenceGrant", "metadata": {"name": "g", "namespace": ns},
            "spec": {"from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": *r.pick(&namespaces)}], "to": [{"group": "", "kind": "Service"}]}})
        }
        5 => json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "ListenerSet",
            "metadata": {"name": "ls", "namespace": ns, "creationTimestamp": format!("2024-01-0{}T00:00:00Z", 1 + r.below(3))},
            "spec": {"parentRef": {"name": format!("gw{}", r.below(2)), "namespace": "infra"},
                "listeners": [{"name": "x", "port": 80 + r.below(2), "protocol": "HTTP", "hostname": *r.pick(&["ls.test", "a.example.test"])}]}}),
        6 | 7 => {
            let (kind, name, section) = match r.below(4) {
                0 => ("Gateway", format!("gw{}", r.below(2)), None),
                1 => ("Gateway", format!("gw{}", r.below(2)), Some(format!("l{}", r.below(2)))),
                2 => ("ListenerSet", "ls".to_owned(), None),
                _ => ("HTTPRoute", format!("r{}", r.below(5)), None),
            };
            let mut target = json!({"group": "gateway.networking.k8s.io", "kind": kind, "name": name});
            if let Some(section) = section {
                target["sectionName"] = section.into();
            }
            let mut spec = json!({"targetRefs": [target]});
            if kind == "HTTPRoute" && r.below(2) == 0 {
                spec["mergeType"] = (*r.pick(&["StrategicMerge", "JSONMerge"])).into();
            }
            match r.below(4) {
                0 => spec["healthCheck"] = json!({"active": {"type": "HTTP", "http": {"path": "/h"}}}),
                1 => spec["timeout"] = json!({"http": {"requestTimeout": format!("{}s", 1 + r.below(3))}}),
                2 => spec["connection"] = json!({"bufferLimit": *r.pick(&["1Mi", "1T"])}),
                _ => spec["compressor"] = json!([{"type": *r.pick(&["Gzip", "Zstd"]), "gzip": {}, "zstd": {}}]),
            }
            json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy",
                "metadata": {"name": format!("p{}", r.below(4)), "namespace": ns, "creationTimestamp": format!("2024-01-0{}T00:00:00Z", 1 + r.below(3))},
                "spec": spec})
        }
        _ => {
            let matches =
                json!([{"path": {"type": *r.pick(&["PathPrefix", "Exact"]), "value": *r.pick(&["/", "/a", "/b"])}}]);
            let hosts: Vec<&str> =
                (0..r.below(3)).map(|_| *r.pick(&["a.example.test", "b.example.test", "*.example.test"])).collect();
            let backends: Vec<_> = (0..=r.below(2)).map(|_| json!({"name": format!("web-{}", r.below(4)), "namespace": *r.pick(&[ns, ns, "team-a"]), "port": 8080, "weight": r.below(3)})).collect();
            let parents: Vec<_> =
                (0..=r.below(1)).map(|_| json!({"name": format!("gw{}", r.below(3)), "namespace": "infra"})).collect();
            json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
                "metadata": {"name": format!("r{}", r.below(5)), "namespace": ns, "creationTimestamp": format!("2024-01-0{}T00:00:00Z", 1 + r.below(3))},
                "spec": {"parentRefs": parents, "hostnames": hosts, "rules": [{"matches": matches, "backendRefs": backends}]}})
        }
    };
    Object::from_value(value).expect("an object")
}

fn shuffle<T>(all: &mut [T], r: &mut Random) {
    for i in (1..all.len()).rev() {
        let j = usize::try_from(r.below(i as u64 + 1)).expect("small");
        all.swap(i, j);
    }
}

#[test]
fn incremental_equals_from_scratch_and_deltas_add_up() {
    for seed in 1..=150 {
        let mut r = Random(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut engine = Engine::new(config());
        let mut told = Full::default();
        let mut objects: BTreeMap<ObjectKey, Object> = BTreeMap::new();
        for change in common::changes(common::FIXTURE) {
            if let Change::Upsert(key, object) = &change {
                objects.insert(key.clone(), object.clone());
            }
            assert!(engine.apply(vec![change]).is_empty(), "nothing is said before all is known");
        }
        told.apply(&engine.apply(vec![Change::Synced]));
        for _ in 0..12 {
            let mut batch = Vec::new();
            for _ in 0..=r.below(4) {
                let (key, object) = object(&mut r);
                if r.below(4) == 0 {
                    objects.remove(&key);
                    batch.push(Change::Remove(key));
                } else {
                    objects.insert(key.clone(), object.clone());
                    batch.push(Change::Upsert(key, object));
                }
            }
            told.apply(&engine.apply(batch));
            let mut all: Vec<_> = objects.iter().map(|(k, o)| Change::Upsert(k.clone(), o.clone())).collect();
            shuffle(&mut all, &mut r);
            let oracle = translate(all, &config());
            assert_eq!(engine.state(), &oracle, "seed {seed}");
            assert_eq!(told, oracle, "seed {seed}: the sum of what was told is the state");
        }
    }
}

#[test]
fn the_order_of_arrival_plays_no_part() {
    let mut r = Random(7);
    let mut all: BTreeMap<ObjectKey, Object> = (0..600).map(|_| object(&mut r)).collect();
    for change in common::changes(common::FIXTURE) {
        if let Change::Upsert(key, object) = change {
            all.insert(key, object);
        }
    }
    let mut changes: Vec<_> = all.into_iter().map(|(k, o)| Change::Upsert(k, o)).collect();
    let first = translate(changes.clone(), &config());
    assert!(first.groups.values().any(|g| g.resources.len() > 5), "the state is not trivial");
    for _ in 0..20 {
        shuffle(&mut changes, &mut r);
        let again = translate(changes.clone(), &config());
        assert_eq!(again, first);
        assert_eq!(picture::of(&again), picture::of(&first));
    }
}

#[test]
fn what_did_not_change_is_not_told_and_stays_where_it_is() {
    let route = |path: &str| {
        let rule = json!({"matches": [{"path": {"value": path}}], "backendRefs": [{"name": "web-1", "port": 8080}]});
        common::route("r", "2024-01-01T00:00:00Z", json!({"hostnames": ["r.test"], "rules": [rule]}))
    };
    let rule = json!({"backendRefs": [{"name": "web-2", "port": 8080}]});
    let neighbour = common::route("n", "2024-01-01T00:00:00Z", json!({"hostnames": ["n.test"], "rules": [rule]}));
    let mut engine = Engine::new(config());
    let mut all = common::changes(common::FIXTURE);
    all.extend(route("/a").into_iter().chain(neighbour));
    all.push(Change::Synced);
    engine.apply(all);
    let host = |engine: &Engine| {
        common::request::table(engine.state(), "infra/gw")
            .virtual_hosts
            .iter()
            .find(|h| h.name.ends_with("n_test"))
            .cloned()
    };
    let before = host(&engine).expect("the neighbour");
    let delta = engine.apply(route("/b"));
    let changed: Vec<_> = delta.xds["infra/gw"].keys().map(|(kind, _)| *kind).collect();
    assert_eq!(changed, [ir::XdsKind::RouteTable]);
    assert!(delta.statuses.is_empty() && delta.infra.is_empty());
    assert!(
        std::sync::Arc::ptr_eq(&before, &host(&engine).expect("the neighbour")),
        "its virtual host is the same one"
    );
    assert!(engine.apply(route("/b")).is_empty(), "an equal object changes nothing");
}

#[test]
fn other_settings_are_a_change() {
    let mut engine = Engine::new(config());
    let mut all = common::changes(common::FIXTURE);
    all.push(Change::Synced);
    engine.apply(all);
    assert!(engine.reconfigure(config()).is_empty());
    let delta = engine.reconfigure(translator::Config { controller_name: "other.test/controller".into(), ..config() });
    assert_eq!(delta.gone, ["infra/gw".into()]);
    assert!(engine.state().statuses.is_empty(), "objects of others have no status from us");
}

#[test]
fn the_second_scheme_names_by_ports_and_hosts() {
    let rule = json!({"backendRefs": [{"name": "web-1", "port": 8080}]});
    let route = common::route("r", "2024-01-01T00:00:00Z", json!({"hostnames": ["r.example.test"], "rules": [rule]}));
    let config = translator::Config { xds_name_scheme_v2: true, ..config() };
    let full = translate(common::changes(common::FIXTURE).into_iter().chain(route), &config);
    let names: Vec<_> = full.groups["infra/gw"].resources.keys().map(|(_, n)| n.to_string()).collect();
    assert!(names.contains(&"tcp-80".to_owned()) && names.contains(&"http-80".to_owned()), "{names:?}");
    let table = common::request::table(&full, "infra/gw");
    assert_eq!(&*table.virtual_hosts[0].name, "r_example_test");
    let picture = picture::of(&full);
    assert!(picture.contains("http http-80 table http-80"), "{picture}");
}

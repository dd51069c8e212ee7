//! Two policies meet at one route: the one for the route holds there, the one for the Gateway everywhere else.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use policy::{BackendTraffic, Gateway, Listener, Parent, Place, Route, Topology};
use resources::{Change, Object, Store};
use serde_json::{Value, json};

fn policy(name: &str, kind: &str, target: &str) -> Value {
    json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": kind, "name": target}],
            "healthCheck": {"active": {"type": "HTTP", "http": {"path": format!("/{name}")}}}}})
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut store = Store::new();
    for value in [policy("wide", "Gateway", "edge"), policy("close", "HTTPRoute", "shop")] {
        let (key, object) = Object::from_value(value)?;
        store.apply(Change::Upsert(key, object));
    }
    let meta = |name: &str| serde_json::from_value(json!({"name": name, "namespace": "default"}));
    let (edge, shop, blog) = (meta("edge")?, meta("shop")?, meta("blog")?);
    let parent = || Parent { gateway: 0, set: None, section: None, listeners: vec![0] };
    let route = |meta| Route { kind: "HTTPRoute", meta, rules: vec![None], parents: vec![parent()] };
    let topology = Topology {
        gateways: vec![Gateway { meta: &edge, listeners: vec![Listener { name: "http", set: None }], sets: vec![] }],
        routes: vec![route(&shop), route(&blog)],
    };
    let policies = BackendTraffic::new(&store, &topology);
    for (i, name) in ["shop", "blog"].into_iter().enumerate() {
        let held = policies.at(&topology, Place { gateway: 0, listener: 0, route: i, rule: 0 });
        println!("{name}: {}", held.map_or("no policy", |h| &h.policy.name));
    }
    for (object, status) in policies.statuses(&topology, &"example.com/controller".into()) {
        println!("{object}: {}", serde_json::to_string(&*status)?);
    }
    Ok(())
}

//! What an object costs. Prints figures; the bound is loose, for unoptimised builds on busy machines.

use std::time::Instant;

use admission::Admission;
use serde_json::{Value, json};

fn route(i: usize) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": format!("route-{i}"), "namespace": "default"},
        "spec": {
            "parentRefs": [{"name": "gateway", "sectionName": "http"}],
            "hostnames": [format!("host-{i}.example.com")],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": format!("/a/{i}")},
                                 "headers": [{"name": "x-version", "value": "2"}]}],
                    "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-a", "value": "b"}]}}],
                    "backendRefs": [{"name": format!("service-{}", i % 50), "port": 8080, "weight": 9},
                                    {"name": format!("service-{}", (i + 1) % 50), "port": 8080, "weight": 1}],
                },
                {"backendRefs": [{"name": format!("service-{}", i % 50), "port": 8080}], "timeouts": {"request": "10s"}},
            ],
        },
    })
}

#[test]
fn a_thousand_routes_cost_little() {
    let admission = Admission::new();
    let first = Instant::now();
    admission.admit(route(0)).unwrap();
    let first = first.elapsed();
    let start = Instant::now();
    for i in 0..1000 {
        admission.admit(route(i)).unwrap();
    }
    let took = start.elapsed();
    println!("first route {first:?}, then 1,000 routes {took:?}, {:?} each", took / 1000);
    assert!(took.as_secs() < 10, "{took:?} for 1,000 routes");
}

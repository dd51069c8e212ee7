//! Loads YAML documents into a store and prints what it holds, which of two routes wins a conflict, and why the last
//! document is none of ours.
//!
//! `cargo run -p resources --example store`

#![allow(clippy::print_stdout, reason = "printing is what the example does")]

use std::error::Error;

use api::gateway::HTTPRoute;
use resources::{Change, Object, Precedence, Store};
use serde_json::Value;

const DOCUMENTS: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { namespace: web, name: shop, creationTimestamp: 2026-03-01T08:00:00Z }
spec: { hostnames: [shop.example.com] }
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { namespace: web, name: shop-old, creationTimestamp: 2024-03-01T08:00:00Z }
spec: { hostnames: [shop.example.com] }
---
apiVersion: v1
kind: Service
metadata: { name: shop }
spec: { ports: [{ port: 80 }] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: shop }
";

fn main() -> Result<(), Box<dyn Error>> {
    let mut store = Store::new();
    for document in serde_saphyr::from_multiple::<Value>(DOCUMENTS)? {
        match Object::from_value(document) {
            Ok((key, object)) => {
                let different = store.apply(Change::Upsert(key.clone(), object.clone()));
                let again = store.apply(Change::Upsert(key.clone(), object));
                println!("{key}: news the first time: {different}, the second time: {again}");
            }
            Err(error) => println!("left out: {error}"),
        }
    }
    println!("in order of keys: {}", store.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>().join(", "));
    let oldest = store.in_namespace::<HTTPRoute>("web").map(|route| Precedence::from(&route.metadata)).min();
    if let Some(route) = oldest {
        println!("shop.example.com goes to {}/{}, the oldest", route.namespace, route.name);
    }
    Ok(())
}

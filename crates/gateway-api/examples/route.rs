//! Reads an HTTPRoute, with a value and a field that this release does not know, and prints what came of it.
//!
//! `cargo run -p gateway-api --example route`

#![allow(clippy::print_stdout, reason = "printing is what the example does")]

use std::error::Error;

use gateway_api::{HTTPRoute, PathMatchType, shared};
use kube::ResourceExt;

const ROUTE: &str = "
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: { namespace: web, name: shop }
spec:
  parentRefs: [{ name: public, sectionName: https }]
  hostnames: [shop.example.com]
  rules:
  - matches:
    - path: { type: PathPrefix, value: /cart }
    - path: { type: Fuzzy, value: /kart, distance: 1 }
    timeouts: { request: 1m30s }
    backendRefs:
    - { name: cart, port: 8080, weight: 9 }
    - { name: cart-next, port: 8080, weight: 1 }
";

fn main() -> Result<(), Box<dyn Error>> {
    let route: HTTPRoute = serde_saphyr::from_str(ROUTE)?;
    println!("{} for {:?}", route.name_any(), route.spec.hostnames);
    for rule in &route.spec.rules {
        for path in rule.matches.iter().filter_map(|m| m.path.as_ref()) {
            let kind = path.type_.clone().unwrap_or(PathMatchType::PathPrefix);
            let known = if kind.is_known() { "" } else { " (a later release's)" };
            println!("  match {kind}{known} {}", path.value.as_deref().unwrap_or("/"));
        }
        if let Some(timeout) = rule.timeouts.as_ref().and_then(|t| t.request.as_ref()) {
            println!("  within {:?}", shared::parse_duration(timeout)?);
        }
        for backend in &rule.backend_refs {
            println!("  to {}:{:?}, weight {}", backend.name, backend.port, backend.weight.unwrap_or(1));
        }
    }
    for crd in gateway_api::definitions() {
        let versions: Vec<&str> = crd.spec.versions.iter().map(|v| v.name.as_str()).collect();
        println!("{}: {}", shared::group_kind(&crd.spec.group, &crd.spec.names.kind), versions.join(", "));
    }
    Ok(())
}

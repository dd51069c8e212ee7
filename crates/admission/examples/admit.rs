//! Judges a route from a file as a cluster would: `cargo run -p admission --example admit`.

use serde_json::json;

fn main() {
    let admission = admission::Admission::new();
    let mut route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": { "name": "shop", "namespace": "web" },
        "spec": {
            "parentRefs": [{ "name": "edge" }],
            "rules": [{
                "matches": [{ "path": { "type": "Exact", "value": "cart" } }],
                "backendRefs": [{ "name": "cart", "port": 8080 }],
            }],
        },
    });
    match admission.admit(route.clone()) {
        Ok(_) => unreachable!("the path has no slash at its start"),
        Err(refused) => show(&refused),
    }
    route["spec"]["rules"][0]["matches"][0]["path"]["value"] = json!("/cart");
    match admission.admit(route) {
        Ok(stored) => show(&format_args!("{stored:#}")),
        Err(refused) => show(&refused),
    }
}

fn show(what: &dyn std::fmt::Display) {
    use std::io::Write as _;
    // A reader that has seen enough is no fault.
    let _ = writeln!(std::io::stdout(), "{what}\n");
}

//! Renders wanted statuses as the API server would hold them, but for the times, which the writer adds.
//!
//! `cargo run -p status --example render`

#![allow(clippy::print_stdout, reason = "printing is what the example does")]

use ir::{Condition, ConditionStatus, ListenerStatus, ParentRef, ParentStatus, Status};
use resources::{Kind, ObjectKey};

fn condition(kind: &'static str, good: bool, reason: &'static str, message: &str) -> Condition {
    let status = if good { ConditionStatus::True } else { ConditionStatus::False };
    Condition { kind, status, reason, message: message.to_owned(), observed_generation: Some(2) }
}

fn main() -> Result<(), serde_json::Error> {
    let gateway = Status::Gateway {
        conditions: vec![condition("Accepted", true, "Accepted", "All parts of the Gateway are accepted")],
        listeners: vec![ListenerStatus {
            name: "https".into(),
            supported_kinds: vec![("gateway.networking.k8s.io".into(), "HTTPRoute".into())],
            attached_routes: 1,
            conditions: vec![condition(
                "ResolvedRefs",
                false,
                "InvalidCertificateRef",
                "certificateRefs[0]: Secret web/shop-tls does not exist: create it or name another one",
            )],
            port: None,
        }],
        attached_listener_sets: None,
    };
    let route = Status::Route {
        parents: vec![ParentStatus {
            parent: ParentRef {
                group: Some("gateway.networking.k8s.io".into()),
                kind: Some("Gateway".into()),
                namespace: None,
                name: "public".into(),
                section_name: Some("https".into()),
                port: None,
            },
            controller_name: "gateway.envoyproxy.io/gatewayclass-controller".into(),
            conditions: vec![condition("Accepted", true, "Accepted", "The listener takes the route")],
        }],
    };
    let statuses = [(Kind::Gateway, "public", gateway), (Kind::HttpRoute, "shop", route)];
    for (kind, name, status) in statuses {
        let key = ObjectKey::new(kind, "web", name);
        println!("{}", serde_json::to_string_pretty(&status::object(&key, &status))?);
    }
    Ok(())
}

//! Two states of the wanted configuration, what leads from the one to the other, and that it does.
//!
//! `cargo run -p ir --example differences`

#![allow(clippy::print_stdout, reason = "printing is what the example does")]

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use ir::{
    Condition, ConditionStatus, Endpoint, EndpointAddress, Endpoints, Full, Locality, Name, ParentRef, ParentStatus,
    Status, Translation, XdsValue,
};
use resources::{Kind, ObjectKey};

/// Endpoints of a cluster at these last bytes of 10.0.0.0/24.
fn endpoints(cluster: &str, hosts: &[u8]) -> XdsValue {
    let endpoint = |host: &u8| Endpoint {
        address: EndpointAddress::Socket(IpAddr::V4(Ipv4Addr::new(10, 0, 0, *host)), 8080),
        hostname: None,
        weight: 1,
        draining: false,
        tls: None,
        health_check: None,
    };
    let locality = Locality {
        region: Some(format!("{cluster}/backend/0").into()),
        zone: None,
        weight: Some(1),
        priority: 0,
        endpoints: hosts.iter().map(endpoint).collect(),
        origin: None,
    };
    XdsValue::Endpoints(Arc::new(Endpoints { cluster: cluster.into(), localities: vec![locality] }))
}

/// The status of a route that one Gateway accepted.
fn accepted(gateway: &str) -> Status {
    let parent =
        ParentRef { group: None, kind: None, namespace: None, name: gateway.into(), section_name: None, port: None };
    let condition = Condition {
        kind: "Accepted",
        status: ConditionStatus::True,
        reason: "Accepted",
        message: "Route is accepted".to_owned(),
        observed_generation: Some(1),
    };
    let controller_name = "gateway.envoyproxy.io/gatewayclass-controller".into();
    Status::Route { parents: vec![ParentStatus { parent, controller_name, conditions: vec![condition] }] }
}

fn state(groups: &[(&str, &[XdsValue])], routes: &[&str]) -> Full {
    let mut full = Full::default();
    for (name, resources) in groups {
        let group = full.groups.entry(Name::from(*name)).or_default();
        resources.iter().for_each(|resource| group.insert(resource.clone()));
    }
    for route in routes {
        full.statuses.insert(ObjectKey::new(Kind::HttpRoute, "web", route), Arc::new(accepted("public")));
    }
    full
}

fn main() {
    let cart = endpoints("httproute/web/cart/rule/0", &[1, 2]);
    let old = state(
        &[("web/public", &[cart.clone(), endpoints("httproute/web/shop/rule/0", &[3])]), ("web/internal", &[])],
        &["cart", "shop"],
    );
    let new = state(&[("web/public", &[cart, endpoints("httproute/web/shop/rule/0", &[3, 4])])], &["cart"]);

    let delta = Translation::between(&old, &new);
    for (group, resources) in &delta.xds {
        for ((kind, name), value) in resources {
            println!("{group}: {kind:?} {name} {}", if value.is_some() { "has changed" } else { "is gone" });
        }
    }
    println!("groups that are gone: {:?}", delta.gone);
    for (key, status) in &delta.statuses {
        println!("status of {key}: {}", if status.is_some() { "has changed" } else { "is no longer wanted" });
    }

    let mut reached = old;
    reached.apply(&delta);
    assert_eq!(reached, new, "the differences lead from the old state to the new one");
    println!("applied; what is left to do: {}", !Translation::between(&reached, &new).is_empty());
}

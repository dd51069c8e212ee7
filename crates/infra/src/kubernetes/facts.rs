//! How a fleet is, for the status of its Gateways.

use ir::Proxy;
use serde_json::Value;

use super::{
    object::{Live, ObjectKind, ObjectRef},
    observed::number,
};

/// A Gateway can have this many addresses.
const MOST: usize = 16;
/// A fleet that serves is not called broken before its objects could not be written that often in a row.
const PATIENCE: u32 = 3;

/// What is to be told of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Addresses at which clients reach it: `IPAddress` or `Hostname`, and the value.
    pub addresses: Vec<(&'static str, String)>,
    /// It serves at these addresses.
    pub programmed: bool,
    /// Reason of the condition `Programmed`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// What went wrong with the writing of a fleet's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What, and what to do about it.
    pub message: String,
    /// How often in a row.
    pub failures: u32,
    /// The server, or the settings, say so: asking again as it is will not help.
    pub lasting: bool,
    /// Nothing failed: what there is was left alone, as a newer control plane wrote it.
    pub withheld: bool,
}

/// The facts of a fleet: its objects as they are, the addresses of nodes, and what went wrong.
#[must_use]
pub fn facts(
    proxy: &Proxy,
    objects: &std::collections::BTreeMap<ObjectRef, Live>,
    nodes: &[String],
    trouble: Option<&Trouble>,
) -> Facts {
    let of =
        |kinds: &[ObjectKind]| objects.iter().find(|(at, _)| kinds.contains(&at.kind)).map(|(_, live)| &*live.tree);
    let service = of(&[ObjectKind::Service]);
    let addresses = service.map(|s| addresses(proxy, s, nodes)).unwrap_or_default();
    let (available, wanted) = match of(&[ObjectKind::Deployment, ObjectKind::DaemonSet]) {
        None => (0, 0),
        Some(tree) if tree["kind"] == "DaemonSet" => {
            (number(tree, "/status/numberAvailable"), number(tree, "/status/desiredNumberScheduled"))
        }
        Some(tree) => (number(tree, "/status/availableReplicas"), number(tree, "/status/replicas")),
    };
    let serves = !addresses.is_empty() && addresses.len() <= MOST && available > 0;
    let no = |reason, message: String| (false, reason, message);
    let (programmed, reason, message) = match trouble {
        Some(t) if t.lasting || !t.withheld && (!serves || t.failures >= PATIENCE) => {
            no("NoResources", t.message.clone())
        }
        _ if proxy.ports.is_empty() => no(
            "NoResources",
            "No listener is programmed, so there is nothing to serve; see the conditions of the listeners".to_owned(),
        ),
        _ if addresses.is_empty() => no("AddressNotAssigned", unassigned(service)),
        _ if addresses.len() > MOST => no(
            "Invalid",
            format!("The Service has {} addresses, a Gateway can have at most {MOST}; give it fewer", addresses.len()),
        ),
        _ if available == 0 => no("NoResources", "No Envoy replica is available yet".to_owned()),
        _ => (
            true,
            "Programmed",
            format!("Address assigned, {available}/{} Envoy replicas available", wanted.max(available)),
        ),
    };
    let message = match trouble {
        Some(t) if t.withheld && !t.lasting => format!("{message}. {}", t.message),
        _ => message,
    };
    Facts { addresses: addresses.into_iter().take(MOST).collect(), programmed, reason, message }
}

fn unassigned(service: Option<&Value>) -> String {
    match service.and_then(|s| s["spec"]["type"].as_str()) {
        None => "The Service does not exist yet".to_owned(),
        Some("LoadBalancer") => {
            "No address has been assigned to the Service yet: the cluster's load balancer does that".to_owned()
        }
        Some(kind) => format!("The Service of type {kind} has no address yet"),
    }
}

fn addresses(proxy: &Proxy, service: &Value, nodes: &[String]) -> Vec<(&'static str, String)> {
    let spec = &service["spec"];
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        items.filter(|ip| !ip.is_empty() && *ip != "None").map(str::to_owned).collect()
    };
    let (mut ips, mut names) = (Vec::new(), Vec::new());
    if !proxy.addresses.is_empty() {
        // Addresses that were asked for are those that the Service has.
        ips = texts(&spec["externalIPs"]);
        if ips.is_empty() {
            ips = texts(&spec["clusterIPs"]);
        }
    } else {
        match spec["type"].as_str() {
            Some("LoadBalancer") => {
                let ingress = service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
                for point in ingress.into_iter().flatten() {
                    match (point["ip"].as_str(), point["hostname"].as_str()) {
                        (Some(ip), _) if !ip.is_empty() => ips.push(ip.to_owned()),
                        (_, Some("localhost")) => ips.push("127.0.0.1".to_owned()),
                        (_, Some(name)) if !name.is_empty() => names.push(name.to_owned()),
                        _ => {}
                    }
                }
            }
            Some("NodePort") => ips = nodes.to_vec(),
            _ => ips = texts(&spec["clusterIPs"]),
        }
    }
    let ips = ips.into_iter().map(|ip| ("IPAddress", ip));
    let mut out: Vec<(&'static str, String)> = Vec::new();
    for address in ips.chain(names.into_iter().map(|n| ("Hostname", n))) {
        if !out.contains(&address) {
            out.push(address);
        }
    }
    out
}

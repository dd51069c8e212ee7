//! Listeners that cannot share a port.
//!
//! Among the listeners of one Gateway no one wins: all that conflict are told. A listener of a ListenerSet loses to the
//! Gateway's and to those of older sets, and only the loser is told.

use std::collections::{BTreeMap, BTreeSet};

use super::{GatewayUnit, ListenerUnit, Protocol, place};
use crate::condition::Conditions;

/// Protocols that can share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    Http,
    Tls,
    Tcp,
}

fn family(protocol: Protocol) -> Option<Family> {
    match protocol {
        Protocol::Http => Some(Family::Http),
        Protocol::Https | Protocol::TlsPassthrough | Protocol::TlsTerminate => Some(Family::Tls),
        Protocol::Tcp => Some(Family::Tcp),
        Protocol::Udp | Protocol::Unknown => None,
    }
}

/// Listener, reason, message.
type Found = (usize, &'static str, String);

pub(super) fn find(unit: &mut GatewayUnit<'_>) {
    // By port, the listeners of each owner: the Gateway first, then its ListenerSets, oldest first.
    let mut ports: BTreeMap<(bool, u16), BTreeMap<Option<usize>, Vec<usize>>> = BTreeMap::new();
    for (i, listener) in unit.listeners.iter().enumerate() {
        if listener.protocol != Protocol::Unknown {
            let port = ports.entry((listener.protocol == Protocol::Udp, listener.port)).or_default();
            port.entry(listener.set).or_default().push(i);
        }
    }
    let mut found: Vec<Found> = Vec::new();
    for ((udp, port), owners) in ports {
        let mut owners: Vec<Vec<usize>> = owners.into_values().collect();
        let mut of_port = Vec::new();
        if !udp {
            protocols(unit, port, &owners, &mut of_port);
        }
        let lost: BTreeSet<usize> = of_port.iter().map(|(i, ..)| *i).collect();
        for members in &mut owners {
            members.retain(|i| !lost.contains(i));
        }
        let single = |i: &usize| udp || unit.listeners[*i].protocol == Protocol::Tcp;
        if owners.iter().flatten().all(single) {
            alone(unit, port, udp, &owners, &mut of_port);
        } else {
            hostnames(unit, port, &owners, &mut of_port);
        }
        found.extend(of_port);
    }
    for (i, reason, message) in found {
        tell(unit, i, reason, message);
    }
}

/// TCP and UDP have nothing to tell listeners apart by: the first has the port.
fn alone(unit: &GatewayUnit<'_>, port: u16, udp: bool, owners: &[Vec<usize>], found: &mut Vec<Found>) {
    let what = if udp { "UDP" } else { "TCP" };
    let mut members = owners.iter().flatten();
    let Some(first) = members.next() else { return };
    let holder = place(unit, &unit.listeners[*first]);
    for i in members {
        let message =
            format!("port {port}: only one {what} listener can have a port, {holder} has it; choose another port");
        found.push((*i, "ProtocolConflict", message));
    }
}

fn protocols(unit: &GatewayUnit<'_>, port: u16, owners: &[Vec<usize>], found: &mut Vec<Found>) {
    let of = |i: &usize| family(unit.listeners[*i].protocol);
    let message = |others: String| {
        format!(
            "port {port}: listeners with HTTP, with TLS or HTTPS, and with TCP cannot share a port; in the way: {others}; \
             choose another port or protocol"
        )
    };
    let mut winner: Option<usize> = None;
    for members in owners {
        if members.iter().any(|i| of(i) != of(&members[0])) {
            let all: Vec<_> = members.iter().map(|i| place(unit, &unit.listeners[*i])).collect();
            // Those that agree with an older owner stay; nobody wins among equals.
            for i in members.iter().filter(|i| winner.is_none_or(|w| of(i) != of(&w))) {
                found.push((*i, "ProtocolConflict", message(all.join(", "))));
            }
            continue;
        }
        match winner {
            None => winner = members.first().copied(),
            Some(w) => {
                let lost = members.iter().filter(|i| of(i) != of(&w));
                found.extend(lost.map(|i| (*i, "ProtocolConflict", message(place(unit, &unit.listeners[w])))));
            }
        }
    }
}

fn hostnames(unit: &GatewayUnit<'_>, port: u16, owners: &[Vec<usize>], found: &mut Vec<Found>) {
    let host = |l: &ListenerUnit<'_>| l.hostname.unwrap_or("*").to_ascii_lowercase();
    let message = |name: &str, other: String| {
        format!("port {port}: hostname {name} is taken by {other}; listeners on one port need different hostnames")
    };
    let mut holders: BTreeMap<String, usize> = BTreeMap::new();
    for members in owners {
        let mut own: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for i in members {
            own.entry(host(&unit.listeners[*i])).or_default().push(*i);
        }
        for (name, equal) in own {
            if let Some(holder) = holders.get(&name) {
                let other = place(unit, &unit.listeners[*holder]);
                found.extend(equal.iter().map(|i| (*i, "HostnameConflict", message(&name, other.clone()))));
            } else if equal.len() > 1 {
                let all: Vec<_> = equal.iter().map(|i| place(unit, &unit.listeners[*i])).collect();
                found.extend(equal.iter().map(|i| (*i, "HostnameConflict", message(&name, all.join(", ")))));
            } else {
                holders.insert(name, equal[0]);
            }
        }
    }
}

fn tell(unit: &mut GatewayUnit<'_>, index: usize, reason: &'static str, message: String) {
    let set = unit.listeners[index].set;
    let make = Conditions::of(set.map_or(&unit.object.metadata, |s| &unit.sets[s].object.metadata));
    let conditions = &mut unit.listeners[index].conditions;
    conditions.push(make.yes("Conflicted", reason, message.clone()));
    if set.is_some() {
        conditions.push(make.no("Accepted", reason, message.clone()));
        conditions.push(make.no("Programmed", reason, message));
    }
}

//! Listeners that cannot share a port.
//!
//! Among the listeners of one Gateway no one wins: all that conflict are told. A listener of a ListenerSet loses to the
//! Gateway's and to those of older sets, and only the loser is told.

use std::collections::BTreeMap;

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

pub(super) fn find(unit: &mut GatewayUnit<'_>) {
    let mut ports: BTreeMap<(bool, u16), Vec<usize>> = BTreeMap::new();
    for (i, listener) in unit.listeners.iter().enumerate() {
        if listener.protocol != Protocol::Unknown {
            ports.entry((listener.protocol == Protocol::Udp, listener.port)).or_default().push(i);
        }
    }
    let mut found: Vec<(usize, &'static str, String)> = Vec::new();
    for ((udp, port), members) in ports {
        let (own, sets): (Vec<usize>, Vec<usize>) = members.iter().partition(|i| unit.listeners[**i].set.is_none());
        if !udp {
            protocols(unit, port, &own, &sets, &mut found);
        }
        let clear = |found: &[(usize, &str, String)], i: &usize| !found.iter().any(|(j, ..)| j == i);
        let own: Vec<usize> = own.into_iter().filter(|i| clear(&found, i)).collect();
        let sets: Vec<usize> = sets.into_iter().filter(|i| clear(&found, i)).collect();
        let single = |i: &usize| udp || unit.listeners[*i].protocol == Protocol::Tcp;
        if own.iter().chain(&sets).all(single) {
            let what = if udp { "UDP" } else { "TCP" };
            for i in own.iter().chain(&sets).skip(1) {
                let first =
                    own.iter().chain(&sets).next().map(|f| place(unit, &unit.listeners[*f])).unwrap_or_default();
                let message = format!(
                    "port {port}: only one {what} listener can have a port, {first} has it; choose another port"
                );
                found.push((*i, "ProtocolConflict", message));
            }
        } else {
            hostnames(unit, port, &own, &sets, &mut found);
        }
    }
    for (i, reason, message) in found {
        tell(unit, i, reason, message);
    }
}

fn protocols(
    unit: &GatewayUnit<'_>,
    port: u16,
    own: &[usize],
    sets: &[usize],
    found: &mut Vec<(usize, &'static str, String)>,
) {
    let of = |i: &usize| family(unit.listeners[*i].protocol);
    let message = |others: String| {
        format!(
            "port {port}: listeners with HTTP, with TLS or HTTPS, and with TCP cannot share a port; in the way: {others}; \
             choose another port or protocol"
        )
    };
    if own.iter().any(|i| of(i) != of(&own[0])) {
        let all: Vec<_> = own.iter().map(|i| place(unit, &unit.listeners[*i])).collect();
        found.extend(own.iter().map(|i| (*i, "ProtocolConflict", message(all.join(", ")))));
    }
    let Some(winner) = own.first().or(sets.first()) else { return };
    for i in sets.iter().filter(|i| of(i) != of(winner)) {
        found.push((*i, "ProtocolConflict", message(place(unit, &unit.listeners[*winner]))));
    }
}

fn hostnames(
    unit: &GatewayUnit<'_>,
    port: u16,
    own: &[usize],
    sets: &[usize],
    found: &mut Vec<(usize, &'static str, String)>,
) {
    let host = |l: &ListenerUnit<'_>| l.hostname.unwrap_or("*").to_ascii_lowercase();
    let mut holders: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for i in own {
        holders.entry(host(&unit.listeners[*i])).or_default().push(*i);
    }
    let message = |name: &str, other: String| {
        format!("port {port}: hostname {name} is taken by {other}; listeners on one port need different hostnames")
    };
    for (name, equal) in holders.iter().filter(|(_, equal)| equal.len() > 1) {
        let all: Vec<_> = equal.iter().map(|i| place(unit, &unit.listeners[*i])).collect();
        found.extend(equal.iter().map(|i| (*i, "HostnameConflict", message(name, all.join(", ")))));
    }
    for i in sets {
        let name = host(&unit.listeners[*i]);
        match holders.get(&name).and_then(|h| h.first()) {
            Some(first) => {
                found.push((*i, "HostnameConflict", message(&name, place(unit, &unit.listeners[*first]))));
            }
            None => {
                holders.insert(name, vec![*i]);
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

//! Gateways of a class that serves them all from one fleet: whose listener has a port, and how their parts become one.

use std::{collections::BTreeMap, sync::Arc};

use ir::{ChainKind, Group, Listener, Name, Proxy, RouteTable, XdsKind, XdsValue};

use crate::gateways::{self, GatewayUnit, Protocol};

/// What can share a port with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Http,
    Tls,
    Alone,
}

/// A port of a fleet: its group, whether it is one of UDP, and its number.
type Port = (Name, bool, u16);

/// Who has a port.
struct Holder {
    family: Family,
    place: String,
    /// By hostname.
    names: BTreeMap<String, String>,
}

fn family(protocol: Protocol) -> Family {
    match protocol {
        Protocol::Http => Family::Http,
        Protocol::Https | Protocol::TlsPassthrough | Protocol::TlsTerminate => Family::Tls,
        Protocol::Tcp | Protocol::Udp | Protocol::Unknown => Family::Alone,
    }
}

/// Finds listeners that another Gateway of the fleet is in the way of; `gateways` are in the order of their precedence, and
/// the older has the port.
pub(crate) fn conflicts(gateways: &mut [GatewayUnit<'_>]) {
    let mut held: BTreeMap<Port, Holder> = BTreeMap::new();
    for unit in gateways.iter_mut().filter(|u| u.fleet.merged && u.accepted) {
        // What this Gateway takes is in the way of younger ones only.
        let mut taken: Vec<(Port, Family, String, String)> = Vec::new();
        for i in 0..unit.listeners.len() {
            let listener = &unit.listeners[i];
            if !listener.programmed {
                continue;
            }
            let key = (unit.group.clone(), listener.protocol == Protocol::Udp, listener.port);
            let own = family(listener.protocol);
            let host = listener.hostname.unwrap_or("*").to_ascii_lowercase();
            let port = listener.port;
            let problem = held.get(&key).and_then(|holder| {
                if holder.family != own || own == Family::Alone {
                    let message =
                        format!("port {port} of the merged fleet is taken by {}; choose another port", holder.place);
                    return Some(("ProtocolConflict", message));
                }
                let other = holder.names.get(&host)?;
                let message = format!(
                    "port {port}: hostname {host} is taken by {other}; listeners on one port need different hostnames"
                );
                Some(("HostnameConflict", message))
            });
            match problem {
                Some((reason, message)) => gateways::lost(unit, i, reason, message),
                None => taken.push((key, own, host, gateways::place(unit, &unit.listeners[i]))),
            }
        }
        for (key, family, host, place) in taken {
            let holder =
                held.entry(key).or_insert_with(|| Holder { family, place: place.clone(), names: BTreeMap::new() });
            holder.names.entry(host).or_insert(place);
        }
    }
}

/// Adds what another Gateway of the fleet is served by. Listeners of one port become one.
pub(crate) fn join(into: &mut Group, from: Group) {
    let mut tables: BTreeMap<Name, Name> = BTreeMap::new();
    let mut rest = Vec::new();
    for value in from.resources.into_values() {
        let XdsValue::Listener(listener) = value else {
            rest.push(value);
            continue;
        };
        let same = |l: &&mut Arc<Listener>| {
            l.port == listener.port && l.protocol == listener.protocol && l.name != listener.name
        };
        let listeners = into.resources.values_mut().filter_map(|v| match v {
            XdsValue::Listener(l) => Some(l),
            _ => None,
        });
        match { listeners }.find(same) {
            Some(older) => add(Arc::make_mut(older), &listener, &mut tables),
            None => rest.push(XdsValue::Listener(listener)),
        }
    }
    for value in rest {
        match value {
            XdsValue::RouteTable(table) if tables.contains_key(&table.name) => {
                let key = (XdsKind::RouteTable, tables[&table.name].clone());
                if let Some(XdsValue::RouteTable(older)) = into.resources.get_mut(&key) {
                    let older: &mut RouteTable = Arc::make_mut(older);
                    older.virtual_hosts.extend(table.virtual_hosts.iter().cloned());
                }
            }
            value => into.insert(value),
        }
    }
}

/// Adds the chains of a younger listener; where both serve plain HTTP, the younger's table goes into the older's.
fn add(older: &mut Listener, younger: &Listener, tables: &mut BTreeMap<Name, Name>) {
    older.chains.extend(younger.chains.iter().cloned());
    match (&older.default_chain, &younger.default_chain) {
        (Some(a), Some(b)) => {
            if let (ChainKind::Http(a), ChainKind::Http(b)) = (&a.kind, &b.kind) {
                tables.insert(b.route_table.clone(), a.route_table.clone());
            }
        }
        (None, Some(b)) => older.default_chain = Some(b.clone()),
        _ => {}
    }
}

/// Adds what another Gateway wants of the fleet.
pub(crate) fn join_fleet(into: &mut Proxy, from: Proxy) {
    into.gateways.extend(from.gateways);
    for port in from.ports {
        if !into.ports.iter().any(|p| p.service_port == port.service_port && p.protocol == port.protocol) {
            into.ports.push(port);
        }
    }
    for address in from.addresses {
        if !into.addresses.contains(&address) {
            into.addresses.push(address);
        }
    }
}

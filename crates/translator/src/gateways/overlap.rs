//! HTTPS listeners of one port whose certificates or hostnames overlap: a browser would reuse an HTTP/2 connection of
//! one for the other and be answered by the wrong one, so HTTP/2 is not offered there.

use std::collections::{BTreeMap, BTreeSet};

use super::{Certificate, GatewayUnit, Protocol};
use crate::condition::Conditions;

pub(super) fn find(unit: &mut GatewayUnit<'_>) {
    let mut ports: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
    for (i, listener) in unit.listeners.iter().enumerate() {
        if listener.protocol == Protocol::Https && listener.programmed {
            ports.entry(listener.port).or_default().push(i);
        }
    }
    for members in ports.into_values().filter(|m| m.len() > 1) {
        let names = |i: usize| -> Vec<&str> {
            unit.listeners[i]
                .certificates
                .iter()
                .flat_map(|c| match c {
                    Certificate::Inline { names, .. } => names.iter().map(String::as_str).collect(),
                    Certificate::Sds { .. } => Vec::new(),
                })
                .collect()
        };
        let mut holders: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for &i in &members {
            for name in names(i) {
                let of_name = holders.entry(name).or_default();
                if of_name.last() != Some(&i) {
                    of_name.push(i);
                }
            }
        }
        let mut found: BTreeMap<usize, (&'static str, String)> = BTreeMap::new();
        for &i in &members {
            if unit.listeners[i].certificates.iter().any(|c| matches!(c, Certificate::Sds { .. })) {
                let message = "HTTP/2 is not offered: the names in the certificate from the SDS server are not known, and \
                               other HTTPS listeners share the port";
                found.insert(i, ("SDSCertificateOpaque", message.to_owned()));
            }
        }
        let mut told = BTreeSet::new();
        for (name, with) in &holders {
            let wildcard = name.split_once('.').map(|(_, parent)| format!("*.{parent}"));
            let general = wildcard.as_deref().filter(|w| w != name).and_then(|w| holders.get_key_value(w));
            let mut meet = |a: usize, own: &str, b: usize, other: &str| {
                if a != b {
                    found.entry(a).or_insert_with(|| {
                        let section = &unit.listeners[b].spec.name;
                        let message = format!(
                            "HTTP/2 is not offered: name {own} of the certificate overlaps with name {other} of the \
                             certificate of listener {section} on the same port"
                        );
                        ("OverlappingCertificates", message)
                    });
                }
            };
            for &a in with {
                if let Some(&b) = with.iter().find(|b| **b != a) {
                    meet(a, name, b, name);
                }
                if let Some((wide, others)) = &general
                    && let Some(&b) = others.iter().find(|b| **b != a)
                {
                    meet(a, name, b, wide);
                }
            }
            // The holders of a wildcard are told once, not for each name below it.
            if let Some((wide, others)) = general.filter(|(w, _)| !told.contains(*w)) {
                let all = others.iter().filter_map(|b| with.iter().find(|a| *a != b).map(|a| (*b, *a)));
                let pairs: Vec<_> = all.collect();
                if pairs.len() == others.len() {
                    told.insert(*wide);
                }
                pairs.into_iter().for_each(|(b, a)| meet(b, wide, a, name));
            }
        }
        for (i, (reason, message)) in found {
            let meta = unit.listeners[i].set.map_or(&unit.object.metadata, |s| &unit.sets[s].object.metadata);
            let condition = Conditions::of(meta).yes("OverlappingTLSConfig", reason, message);
            unit.listeners[i].conditions.push(condition);
            unit.listeners[i].http1_only = true;
        }
    }
}

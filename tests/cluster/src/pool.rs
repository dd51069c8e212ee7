//! Addresses for Services of type LoadBalancer, from a range that is routed to the cluster's node.
//!
//! An address that a Service asks for (`spec.loadBalancerIP`) is given if it is in the range and free; one outside the
//! range never, as with a cloud that does not own it. A freed address is the last to be given again.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Service;

/// Namespace and name of a Service.
pub type Key = (String, String);

/// Which Service has which address.
#[derive(Debug)]
pub struct Pool {
    first: u32,
    size: u32,
    last: u32,
    given: BTreeMap<Key, Ipv4Addr>,
}

/// What a Service needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To be told this address.
    Tell(Ipv4Addr),
    /// Nothing: it knows its address, asks for one that cannot be had, or is of another type.
    Nothing,
}

// === impl Pool ===

impl Pool {
    /// The hosts of a range such as `10.98.0.0/24`, without its first and last address.
    ///
    /// # Errors
    /// When it is no IPv4 range with room for a host.
    pub fn new(range: &str) -> Result<Self> {
        let (net, bits) = range.split_once('/').context("a range is ADDRESS/BITS")?;
        let (net, bits): (Ipv4Addr, u32) = (net.parse()?, bits.parse()?);
        ensure!((8..=30).contains(&bits), "8 to 30 bits, not {bits}");
        let size = (1 << (32 - bits)) - 2;
        Ok(Self { first: u32::from(net) + 1, size, last: size - 1, given: BTreeMap::new() })
    }

    /// What this Service needs, now that it is so.
    pub fn seen(&mut self, service: &Service) -> Need {
        let key = key(service);
        let spec = service.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() != Some("LoadBalancer") || service.metadata.deletion_timestamp.is_some() {
            self.given.remove(&key);
            return Need::Nothing;
        }
        if let Some(address) = told(service) {
            self.given.insert(key, address);
            return Need::Nothing;
        }
        if let Some(address) = self.given.get(&key) {
            return Need::Tell(*address);
        }
        let address = match spec.load_balancer_ip.as_deref() {
            None | Some("") => self.free(),
            Some(wanted) => wanted.parse().ok().filter(|a| self.contains(*a) && self.is_free(*a)),
        };
        let Some(address) = address else { return Need::Nothing };
        self.given.insert(key, address);
        Need::Tell(address)
    }

    /// Takes the address back.
    pub fn gone(&mut self, service: &Service) {
        self.given.remove(&key(service));
    }

    fn contains(&self, address: Ipv4Addr) -> bool {
        (self.first..self.first + self.size).contains(&u32::from(address))
    }

    fn is_free(&self, address: Ipv4Addr) -> bool {
        self.given.values().all(|a| *a != address)
    }

    fn free(&mut self) -> Option<Ipv4Addr> {
        let next =
            (1..=self.size).map(|n| (self.last + n) % self.size).find(|n| self.is_free((self.first + n).into()))?;
        self.last = next;
        Some((self.first + next).into())
    }
}

fn key(service: &Service) -> Key {
    let meta = &service.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn told(service: &Service) -> Option<Ipv4Addr> {
    let ingress = service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?;
    match ingress.first()?.ip.as_ref()?.parse().ok()? {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(name: &str, spec: Value, told: Option<&str>) -> Service {
        let mut object = json!({"metadata": {"namespace": "test", "name": name}, "spec": spec});
        if let Some(ip) = told {
            object["status"] = json!({"loadBalancer": {"ingress": [{"ip": ip}]}});
        }
        serde_json::from_value(object).unwrap()
    }

    fn balanced(name: &str) -> Service {
        service(name, json!({"type": "LoadBalancer"}), None)
    }

    fn tell(text: &str) -> Need {
        Need::Tell(text.parse().unwrap())
    }

    #[test]
    fn each_service_has_one_address_until_it_goes() {
        let mut pool = Pool::new("10.98.0.0/30").unwrap();
        assert_eq!(pool.seen(&balanced("a")), tell("10.98.0.1"));
        assert_eq!(pool.seen(&balanced("a")), tell("10.98.0.1"), "the write may have failed");
        assert_eq!(pool.seen(&balanced("b")), tell("10.98.0.2"));
        assert_eq!(pool.seen(&balanced("c")), Need::Nothing, "none is left");
        pool.gone(&balanced("a"));
        assert_eq!(pool.seen(&balanced("c")), tell("10.98.0.1"));
    }

    #[test]
    fn a_freed_address_is_the_last_to_be_given_again() {
        let mut pool = Pool::new("10.98.0.0/29").unwrap();
        pool.seen(&balanced("a"));
        pool.gone(&balanced("a"));
        assert_eq!(pool.seen(&balanced("b")), tell("10.98.0.2"));
    }

    #[test]
    fn other_types_get_none_and_lose_theirs() {
        let mut pool = Pool::new("10.98.0.0/30").unwrap();
        assert_eq!(pool.seen(&service("a", json!({"type": "ClusterIP"}), None)), Need::Nothing);
        pool.seen(&balanced("b"));
        pool.seen(&service("b", json!({"type": "NodePort"}), None));
        assert!(pool.given.is_empty());
    }

    #[test]
    fn a_wanted_address_is_given_if_it_is_ours_and_free() {
        let mut pool = Pool::new("10.98.0.0/24").unwrap();
        let wants = |name: &str, ip: &str| service(name, json!({"type": "LoadBalancer", "loadBalancerIP": ip}), None);
        assert_eq!(pool.seen(&wants("a", "10.98.0.77")), tell("10.98.0.77"));
        assert_eq!(pool.seen(&wants("b", "10.98.0.77")), Need::Nothing, "taken");
        assert_eq!(pool.seen(&wants("c", "192.0.2.1")), Need::Nothing, "not ours");
    }

    #[test]
    fn what_is_told_already_is_kept_over_a_restart() {
        let mut pool = Pool::new("10.98.0.0/24").unwrap();
        assert_eq!(pool.seen(&service("a", json!({"type": "LoadBalancer"}), Some("10.98.0.1"))), Need::Nothing);
        assert_eq!(pool.seen(&balanced("b")), tell("10.98.0.2"));
    }
}

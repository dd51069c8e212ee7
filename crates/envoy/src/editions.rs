//! Endpoints under a name of their own for each content of their cluster.
//!
//! A changed cluster warms up beside the one that it replaces, and Envoy hands endpoints to every cluster that takes them
//! under their name. Under one name, the old cluster would for a moment send requests to the new endpoints in the old way:
//! in plain text to those that expect TLS, in HTTP/1.1 to those that speak HTTP/2. On the wire a cluster `NAME` therefore
//! takes its endpoints under `NAME~DIGEST`, where the digest is that of the cluster without this name: the old cluster
//! keeps what it has until it is gone. The name is a function of the content, so it is the same on every replica and after
//! every restart. The names of clusters stay what they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ir::{Cluster, Discovery, Endpoints, Name, XdsKey, XdsKind, XdsValue};

use crate::{EncodeError, Encoded, Encoder, encode};

/// Digits of the digest in a name.
const DIGITS: usize = 8;

/// The clusters of one group of proxies and their endpoints, as they go over the wire.
#[derive(Debug, Default)]
pub struct Editions {
    clusters: BTreeMap<Name, Edition>,
    /// Clusters whose endpoints are to be told again.
    touched: BTreeSet<Name>,
    /// Names of endpoints that no cluster takes any more.
    gone: BTreeSet<Name>,
}

#[derive(Debug, Default)]
struct Edition {
    /// Name under which the cluster takes its endpoints; none before it was encoded.
    name: Option<Name>,
    endpoints: Option<Arc<Endpoints>>,
}

/// What has become of the endpoints under one name.
#[derive(Debug)]
pub struct Assignment {
    /// The name on the wire.
    pub name: Name,
    /// The endpoints; none if they are gone.
    pub resource: Option<Result<Encoded, EncodeError>>,
    /// Whose they are, for errors.
    pub value: Option<XdsValue>,
}

// === impl Editions ===

impl Editions {
    /// Encodes a cluster, its endpoints under their own name. In case of an error, what was encoded before holds.
    ///
    /// # Errors
    /// [`EncodeError`] when Envoy would refuse the cluster.
    pub fn cluster(&mut self, encoder: &mut Encoder, cluster: &Arc<Cluster>) -> Result<Encoded, EncodeError> {
        let mut encoded = encoder.encode(&XdsValue::Cluster(Arc::clone(cluster)))?;
        let mut name = None;
        if matches!(cluster.discovery, Discovery::Eds) {
            let edition: Name = format!("{}~{}", cluster.name, &encoded.version[..DIGITS]).into();
            encoded = encode::cluster_with_endpoints(cluster, &edition);
            name = Some(edition);
        }
        self.rename(&cluster.name, name);
        Ok(encoded)
    }

    /// Takes a cluster or its endpoints that are gone.
    pub fn remove(&mut self, (kind, name): &XdsKey) {
        match kind {
            XdsKind::Cluster => self.rename(name, None),
            XdsKind::Endpoints => self.set(name, None),
            _ => {}
        }
    }

    /// Takes the endpoints of a cluster.
    pub fn endpoints(&mut self, endpoints: &Arc<Endpoints>) {
        self.set(&endpoints.cluster, Some(Arc::clone(endpoints)));
    }

    /// What has become of endpoints since the last call, by their names on the wire.
    pub fn take(&mut self) -> Vec<Assignment> {
        let gone = std::mem::take(&mut self.gone);
        let mut out: Vec<Assignment> =
            gone.into_iter().map(|name| Assignment { name, resource: None, value: None }).collect();
        for cluster in std::mem::take(&mut self.touched) {
            let Some(edition) = self.clusters.get(&cluster) else { continue };
            if let Some(name) = &edition.name {
                let value = edition.endpoints.clone();
                let resource = value.as_ref().map(|e| encode::endpoints_under(e, name));
                out.push(Assignment { name: name.clone(), resource, value: value.map(XdsValue::Endpoints) });
            }
            if edition.name.is_none() && edition.endpoints.is_none() {
                self.clusters.remove(&cluster);
            }
        }
        out
    }

    fn rename(&mut self, cluster: &Name, name: Option<Name>) {
        let edition = self.clusters.entry(cluster.clone()).or_default();
        if edition.name == name {
            if name.is_none() {
                self.touched.insert(cluster.clone());
            }
            return;
        }
        if let Some(name) = &name {
            // Back to an earlier content within one update, perhaps.
            self.gone.remove(name);
        }
        self.gone.extend(std::mem::replace(&mut edition.name, name));
        self.touched.insert(cluster.clone());
    }

    fn set(&mut self, cluster: &Name, endpoints: Option<Arc<Endpoints>>) {
        self.clusters.entry(cluster.clone()).or_default().endpoints = endpoints;
        self.touched.insert(cluster.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::{DnsFamily, LoadBalancing, Millis, UpstreamProtocol};

    fn cluster(protocol: UpstreamProtocol, discovery: Discovery) -> Arc<Cluster> {
        Arc::new(Cluster {
            name: "c".into(),
            discovery,
            connect_timeout: Millis(1000),
            protocol,
            tls: None,
            tls_matches: Vec::new(),
            plain_endpoints: false,
            auto_sni: false,
            auto_san: false,
            load_balancing: LoadBalancing::LeastRequestByLocality,
            buffer_limit: 1,
            origin: None,
            dns_family: DnsFamily::V4Preferred,
            settings: ir::ClusterSettings::default(),
        })
    }

    fn some_endpoints() -> Arc<Endpoints> {
        Arc::new(Endpoints { cluster: "c".into(), localities: Vec::new() })
    }

    /// What `take` tells: names that come with endpoints, names that are gone.
    fn told(editions: &mut Editions) -> (Vec<Name>, Vec<Name>) {
        let (there, gone): (Vec<_>, Vec<_>) = editions.take().into_iter().partition(|a| a.resource.is_some());
        let names = |of: Vec<Assignment>| of.into_iter().map(|a| a.name).collect();
        (names(there), names(gone))
    }

    fn name_of(encoded: &Encoded) -> Name {
        match &encoded.hints {
            crate::Hints::Cluster { endpoints: Some(name), .. } => name.clone(),
            other => panic!("no name of endpoints: {other:?}"),
        }
    }

    #[test]
    fn endpoints_have_another_name_once_their_cluster_changed() {
        let (mut editions, mut encoder) = (Editions::default(), Encoder::new());
        let first = editions.cluster(&mut encoder, &cluster(UpstreamProtocol::Http1, Discovery::Eds)).unwrap();
        editions.endpoints(&some_endpoints());
        let one = name_of(&first);
        assert!(one.starts_with("c~"), "{one}");
        assert_eq!(first.to_value().unwrap()["edsClusterConfig"]["serviceName"], &*one);
        let assignments = editions.take();
        let [Assignment { name, resource: Some(Ok(encoded)), .. }] = &assignments[..] else {
            panic!("{assignments:?}")
        };
        assert_eq!(*name, one);
        assert_eq!((&*encoded.name, &encoded.to_value().unwrap()["clusterName"]), (&*one, &(&*one).into()));

        let second = editions.cluster(&mut encoder, &cluster(UpstreamProtocol::Http2, Discovery::Eds)).unwrap();
        let two = name_of(&second);
        assert_ne!(one, two);
        assert_eq!(told(&mut editions), (vec![two.clone()], vec![one.clone()]));

        // Endpoints alone: the same name; the same cluster again: nothing to tell.
        editions.endpoints(&some_endpoints());
        assert_eq!(told(&mut editions), (vec![two.clone()], vec![]));
        editions.cluster(&mut encoder, &cluster(UpstreamProtocol::Http2, Discovery::Eds)).unwrap();
        assert_eq!(told(&mut editions), (vec![], vec![]));

        let again = editions.cluster(&mut encoder, &cluster(UpstreamProtocol::Http1, Discovery::Eds)).unwrap();
        assert_eq!(again, first, "a function of the content");
        assert_eq!(told(&mut editions), (vec![one], vec![two]));
    }

    #[test]
    fn endpoints_wait_for_their_cluster_and_go_with_it() {
        let (mut editions, mut encoder) = (Editions::default(), Encoder::new());
        editions.endpoints(&some_endpoints());
        assert_eq!(told(&mut editions), (vec![], vec![]));
        let eds = cluster(UpstreamProtocol::Http1, Discovery::Eds);
        let name = name_of(&editions.cluster(&mut encoder, &eds).unwrap());
        assert_eq!(told(&mut editions), (vec![name.clone()], vec![]));
        editions.cluster(&mut encoder, &cluster(UpstreamProtocol::Http1, Discovery::Empty)).unwrap();
        assert_eq!(told(&mut editions), (vec![], vec![name.clone()]));
        editions.cluster(&mut encoder, &eds).unwrap();
        editions.take();
        editions.remove(&(XdsKind::Cluster, "c".into()));
        editions.remove(&(XdsKind::Endpoints, "c".into()));
        assert_eq!(told(&mut editions), (vec![], vec![name]));
        assert!(editions.clusters.is_empty(), "nothing is left of it");
    }
}

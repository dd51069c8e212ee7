//! Resources as the changes write them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    client::{HEADER, SPLIT},
    expect::Served,
    pki::{Leaf, base64},
};

const API: &str = "gateway.networking.k8s.io/v1";
const EXTENSION: &str = "gateway.envoyproxy.io";
/// Name that the certificates of encrypted backends are for.
pub(crate) const BACKEND_HOST: &str = "tls.backend.test";

/// A backend that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// Name in its answers.
    pub(crate) name: String,
    /// Port on loopback.
    pub(crate) port: u16,
}

/// How the proxy reaches the backends of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    /// A Service, HTTP/1.1.
    Plain,
    /// A Service whose port speaks HTTP/2 in plain text.
    H2c,
    /// A Service with a BackendTLSPolicy.
    Tls,
    /// A Backend with names that DNS resolves.
    Dns,
}

/// Everything about a slot that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// How backends are reached.
    pub(crate) upstream: Upstream,
    /// Weights of the slot's two Services (or Backends).
    pub(crate) weights: [u32; 2],
    /// Backends are asked for their health (see [`health_check`]).
    pub(crate) checked: bool,
    /// Mention a Service that has no weight.
    pub(crate) mention_idle: bool,
    /// Endpoints of each, as places in the pool of backends.
    pub(crate) endpoints: [BTreeSet<usize>; 2],
    /// Value of the response header.
    pub(crate) header: u32,
    /// Value of the request header set by filters of the backends; without it there are no such filters.
    pub(crate) split: Option<u32>,
}

/// Backends that run.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    /// In plain text.
    pub(crate) plain: Vec<Backend>,
    /// With TLS.
    pub(crate) tls: Vec<Backend>,
}

// === impl Pools ===

impl Pools {
    /// The backends that such an upstream leads to.
    #[must_use]
    pub(crate) fn of(&self, upstream: Upstream) -> &[Backend] {
        if upstream == Upstream::Tls { &self.tls } else { &self.plain }
    }
}

// === impl Shape ===

impl Shape {
    /// What the route is to do.
    #[must_use]
    pub(crate) fn served(&self, pools: &Pools) -> Served {
        let pool = pools.of(self.upstream);
        let used = self.endpoints.iter().zip(self.weights).filter(|(_, w)| *w > 0).flat_map(|(e, _)| e);
        Served {
            backends: used.map(|i| pool[*i].name.clone()).collect(),
            header: self.header.to_string(),
            split: self.split.map(|n| n.to_string()),
            proto: if matches!(self.upstream, Upstream::H2c | Upstream::Tls) { "HTTP/2" } else { "HTTP/1.1" },
        }
    }

    /// The slot's objects.
    #[must_use]
    pub(crate) fn objects(&self, slot: &str, host: &str, pools: &Pools) -> Vec<Value> {
        let mut out = Vec::new();
        let mut references = Vec::new();
        for (side, (name, weight)) in ["x", "y"].into_iter().zip(self.weights).enumerate() {
            let name = format!("{slot}-{name}");
            out.extend(self.backend(side, &name, pools));
            if weight > 0 || self.mention_idle {
                references.push(self.reference(&name, weight));
            }
        }
        let filters = json!([set_header(self.header)]);
        if self.checked {
            out.push(health_check(slot));
        }
        out.push(route(slot, "http", &[host], json!([{"filters": filters, "backendRefs": references}])));
        out
    }

    fn backend(&self, side: usize, name: &str, pools: &Pools) -> Vec<Value> {
        let endpoints = self.endpoints[side].iter().map(|i| &pools.of(self.upstream)[*i]);
        if self.upstream == Upstream::Dns {
            let endpoints: Vec<Value> =
                endpoints.map(|b| json!({"fqdn": {"hostname": "localhost", "port": b.port}})).collect();
            return vec![json!({"apiVersion": format!("{EXTENSION}/v1alpha1"), "kind": "Backend",
                "metadata": {"name": name, "namespace": "default"}, "spec": {"endpoints": endpoints}})];
        }
        let protocol = (self.upstream == Upstream::H2c).then_some("kubernetes.io/h2c");
        let mut out = service(name, protocol, endpoints);
        if self.upstream == Upstream::Tls {
            out.push(json!({"apiVersion": API, "kind": "BackendTLSPolicy",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": name}], "validation": {
                    "hostname": BACKEND_HOST,
                    "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "backend-ca"}]}}}));
        }
        out
    }

    fn reference(&self, name: &str, weight: u32) -> Value {
        let mut reference = match self.upstream {
            Upstream::Dns => json!({"group": EXTENSION, "kind": "Backend", "name": name, "weight": weight}),
            _ => json!({"name": name, "port": 80, "weight": weight}),
        };
        if let Some(n) = self.split {
            reference["filters"] = json!([{"type": "RequestHeaderModifier",
                "requestHeaderModifier": {"set": [{"name": SPLIT, "value": n.to_string()}]}}]);
        }
        reference
    }
}

/// A Service with an EndpointSlice for each backend.
fn service<'a>(name: &str, protocol: Option<&str>, backends: impl Iterator<Item = &'a Backend>) -> Vec<Value> {
    let mut port = json!({"name": "web", "port": 80});
    if let Some(protocol) = protocol {
        port["appProtocol"] = protocol.into();
    }
    let mut out = vec![json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"ports": [port]}})];
    out.extend(backends.map(|b| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": format!("{name}-{}", b.name), "namespace": "default",
                "labels": {"kubernetes.io/service-name": name}},
            "ports": [{"name": "web", "port": b.port}], "endpoints": [{"addresses": ["127.0.0.1"]}]})
    }));
    out
}

/// Active health checks of all backends of a route.
fn health_check(route: &str) -> Value {
    json!({"apiVersion": format!("{EXTENSION}/v1alpha1"), "kind": "BackendTrafficPolicy",
        "metadata": {"name": route, "namespace": "default"},
        "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route}],
            "healthCheck": {"active": {"type": "HTTP", "timeout": "5s", "interval": "2s",
                "http": {"path": "/healthy", "expectedStatuses": [200]}}}}})
}

fn set_header(value: u32) -> Value {
    json!({"type": "ResponseHeaderModifier",
        "responseHeaderModifier": {"set": [{"name": HEADER, "value": value.to_string()}]}})
}

fn route(name: &str, listener: &str, hosts: &[&str], rules: Value) -> Value {
    json!({"apiVersion": API, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "default"},
        "spec": {"parentRefs": [{"name": "edge", "sectionName": listener}], "hostnames": hosts, "rules": rules}})
}

/// A route of a listener with a Service of its own; what it does never changes.
#[must_use]
pub(crate) fn fixed(listener: &str, backend: &Backend) -> (Vec<Value>, Served) {
    let mut out = service(listener, None, std::iter::once(backend));
    let rules = json!([{"filters": [set_header(0)], "backendRefs": [{"name": listener, "port": 80}]}]);
    out.push(route(listener, listener, &[], rules));
    let served = Served {
        backends: BTreeSet::from([backend.name.clone()]),
        header: "0".to_owned(),
        split: None,
        proto: "HTTP/1.1",
    };
    (out, served)
}

/// The class, and the CA of the encrypted backends.
#[must_use]
pub(crate) fn base(backend_ca: &str) -> Vec<Value> {
    vec![
        json!({"apiVersion": API, "kind": "GatewayClass", "metadata": {"name": "hitless"},
            "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "backend-ca", "namespace": "default"},
            "data": {"ca.crt": backend_ca}}),
    ]
}

/// A listener in plain text.
#[must_use]
pub(crate) fn http(name: &str, port: u16) -> Value {
    json!({"name": name, "protocol": "HTTP", "port": port})
}

/// An encrypted listener, with the Secret of its name.
#[must_use]
pub(crate) fn https(name: &str, port: u16, host: &str) -> Value {
    json!({"name": name, "protocol": "HTTPS", "port": port, "hostname": host,
        "tls": {"certificateRefs": [{"name": name}]}})
}

/// The Gateway.
#[must_use]
pub(crate) fn gateway(listeners: Vec<Value>) -> Vec<Value> {
    vec![json!({"apiVersion": API, "kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "hitless", "listeners": listeners}})]
}

/// A certificate.
#[must_use]
pub(crate) fn secret(name: &str, leaf: &Leaf) -> Vec<Value> {
    vec![json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default"},
        "data": {"tls.crt": base64(&leaf.certificate), "tls.key": base64(&leaf.key)}})]
}

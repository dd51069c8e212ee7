//! What is there, and random changes of it. The model knows what is right at rest.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, Result};
use apiserver::world::collection;
use kube::Client;
use rand::{Rng, rngs::StdRng, seq::IteratorRandom};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

pub(crate) const GATEWAY: &str = "gateway.networking.k8s.io/v1";
/// Name that the HTTPS listener serves.
pub(crate) const SECURE: &str = "secure.example.test";
/// Both Gateways; each has a proxy.
pub(crate) const GATEWAYS: [&str; 2] = ["gw-a", "gw-b"];
const SERVICES: usize = 6;
const ROUTES: std::ops::Range<usize> = 12..36;
/// Pause between changes, in milliseconds.
const PAUSE: std::ops::Range<u64> = 40..260;
/// How long a change is tried again while the API server is away.
const PATIENCE: Duration = Duration::from_secs(60);

/// A route as it was written last.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// Answers redirect to a host with this number.
    pub(crate) marker: u64,
    /// Service that it refers to; none: one that does not exist.
    pub(crate) service: Option<usize>,
}

/// What is there, and who changes it.
pub(crate) struct Churn {
    client: Client,
    random: StdRng,
    /// Ports of the Gateways' HTTP listeners.
    pub(crate) ports: [u16; 2],
    /// Port of the HTTPS listener of the first Gateway.
    pub(crate) tls_port: u16,
    /// Routes by name.
    pub(crate) routes: BTreeMap<String, Route>,
    /// Addresses of the Services' endpoints.
    pub(crate) endpoints: Vec<BTreeSet<String>>,
    /// The certificate that is to be served, DER.
    pub(crate) certificate: Vec<u8>,
    /// Which listener besides the HTTP one a Gateway has.
    extra: [u64; 2],
    next: u64,
    /// Changes so far, by kind.
    pub(crate) changes: BTreeMap<&'static str, usize>,
}

// === impl Churn ===

impl Churn {
    /// Nothing is there yet.
    pub(crate) fn new(client: Client, random: StdRng, ports: [u16; 2], tls_port: u16) -> Self {
        Self {
            client,
            random,
            ports,
            tls_port,
            routes: BTreeMap::new(),
            endpoints: Vec::new(),
            certificate: Vec::new(),
            extra: [0; 2],
            next: 0,
            changes: BTreeMap::new(),
        }
    }

    /// Makes what is there at first.
    ///
    /// # Errors
    /// When the API server refuses.
    pub(crate) async fn set(&mut self) -> Result<()> {
        let class = json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "gc"},
            "spec": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"}});
        self.create(&class).await?;
        let secret = self.secret()?;
        self.create(&secret).await?;
        for i in 0..GATEWAYS.len() {
            self.create(&self.gateway(i)).await?;
        }
        for i in 0..SERVICES {
            let service = json!({"apiVersion": "v1", "kind": "Service",
                "metadata": {"name": format!("web-{i}"), "namespace": "team-a"},
                "spec": {"ports": [{"port": 8080, "targetPort": 3000}]}});
            self.create(&service).await?;
            self.endpoints.push([format!("10.{i}.0.1")].into());
            self.create(&self.slice(i)).await?;
        }
        while self.routes.len() < ROUTES.start {
            self.add_route().await?;
        }
        self.changes.clear();
        Ok(())
    }

    /// Changes something again and again until then.
    ///
    /// # Errors
    /// When the API server refuses a change, or is away for too long.
    pub(crate) async fn run(&mut self, until: Instant) -> Result<()> {
        loop {
            let next = Instant::now() + Duration::from_millis(self.random.random_range(PAUSE));
            if next > until {
                sleep_until(until).await;
                return Ok(());
            }
            sleep_until(next).await;
            self.change().await?;
        }
    }

    /// One change.
    ///
    /// # Errors
    /// As of [`Churn::run`].
    pub(crate) async fn change(&mut self) -> Result<()> {
        match self.random.random_range(0..100) {
            0..40 => self.mark().await,
            40..50 if self.routes.len() < ROUTES.end => self.add_route().await,
            50..60 if self.routes.len() > ROUTES.start => self.remove_route().await,
            60..80 => self.move_endpoints().await,
            80..84 => self.renew().await,
            84..88 => self.change_gateway().await,
            88..94 => self.break_or_mend().await,
            94..100 => self.clear_status().await,
            _ => self.mark().await,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.changes.entry(what).or_default() += 1;
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn any_route(&mut self) -> Option<String> {
        self.routes.keys().choose(&mut self.random).cloned()
    }

    async fn add_route(&mut self) -> Result<()> {
        let number = self.number();
        let service = Some(self.random.random_range(0..SERVICES));
        let (name, route) = (format!("r{number}"), Route { marker: number, service });
        self.create(&object(&name, &route)).await?;
        self.routes.insert(name, route);
        self.count("route added");
        Ok(())
    }

    async fn remove_route(&mut self) -> Result<()> {
        let Some(name) = self.any_route() else { return Ok(()) };
        let Some(route) = self.routes.remove(&name) else { return Ok(()) };
        let path = path(&object(&name, &route))?;
        self.send(http::Method::DELETE, &path, &Value::Null).await?;
        self.count("route removed");
        Ok(())
    }

    async fn mark(&mut self) -> Result<()> {
        let Some(name) = self.any_route() else { return Ok(()) };
        let marker = self.number();
        self.edit(&name, |route| route.marker = marker).await?;
        self.count("route changed");
        Ok(())
    }

    async fn break_or_mend(&mut self) -> Result<()> {
        let Some(name) = self.any_route() else { return Ok(()) };
        let service = self.random.random_range(0..SERVICES);
        let toggle = |route: &mut Route| route.service = if route.service.is_some() { None } else { Some(service) };
        self.edit(&name, toggle).await?;
        self.count("reference broken or mended");
        Ok(())
    }

    async fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Route)) -> Result<()> {
        let route = self.routes.get_mut(name).context("a route")?;
        edit(route);
        let object = object(name, route);
        self.patch(&object, "", json!({"spec": {"rules": object["spec"]["rules"]}})).await
    }

    async fn move_endpoints(&mut self) -> Result<()> {
        let i = self.random.random_range(0..SERVICES);
        let n = self.random.random_range(1..5);
        self.endpoints[i] = (0..n)
            .map(|_| format!("10.{i}.{}.{}", self.random.random_range(0..250), self.random.random_range(1..250)))
            .collect();
        let slice = self.slice(i);
        self.patch(&slice, "", json!({"endpoints": slice["endpoints"]})).await?;
        self.count("endpoints moved");
        Ok(())
    }

    async fn renew(&mut self) -> Result<()> {
        let secret = self.secret()?;
        self.patch(&secret, "", json!({"stringData": secret["stringData"]})).await?;
        self.count("certificate renewed");
        Ok(())
    }

    async fn change_gateway(&mut self) -> Result<()> {
        let i = self.random.random_range(0..GATEWAYS.len());
        self.extra[i] = self.number();
        let gateway = self.gateway(i);
        self.patch(&gateway, "", json!({"spec": gateway["spec"]})).await?;
        self.count("Gateway changed");
        Ok(())
    }

    /// Somebody else empties a status.
    async fn clear_status(&mut self) -> Result<()> {
        let Some(name) = self.any_route() else { return Ok(()) };
        let object = object(&name, &self.routes[&name]);
        self.patch(&object, "/status", json!({"status": {"parents": []}})).await?;
        self.count("status emptied by somebody");
        Ok(())
    }

    fn slice(&self, i: usize) -> Value {
        let endpoints: Vec<_> = self.endpoints[i].iter().map(|a| json!({"addresses": [a]})).collect();
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("web-{i}-1"), "namespace": "team-a", "labels": {"kubernetes.io/service-name": format!("web-{i}")}},
            "addressType": "IPv4", "ports": [{"port": 3000}], "endpoints": endpoints})
    }

    fn secret(&mut self) -> Result<Value> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![SECURE.to_owned()])?;
        params.distinguished_name.push(rcgen::DnType::CommonName, self.number().to_string());
        let certificate = params.self_signed(&key)?;
        self.certificate = certificate.der().to_vec();
        Ok(json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "cert", "namespace": "infra"},
            "stringData": {"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()}}))
    }

    /// A Gateway whose second listener and whose labels change.
    fn gateway(&self, i: usize) -> Value {
        let all = json!({"namespaces": {"from": "All"}});
        let extra = self.extra[i];
        let listener = |name: &str, hostname: Option<String>| json!({"name": name, "port": self.ports[i], "protocol": "HTTP", "hostname": hostname, "allowedRoutes": all});
        let mut listeners =
            vec![listener("http", None), listener("extra", Some(format!("extra-{extra}.example.test")))];
        if i == 0 {
            listeners.push(json!({"name": "https", "port": self.tls_port, "protocol": "HTTPS", "hostname": SECURE,
                "allowedRoutes": all, "tls": {"certificateRefs": [{"name": "cert"}]}}));
        }
        json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": GATEWAYS[i], "namespace": "infra"},
            "spec": {"gatewayClassName": "gc", "listeners": listeners,
                "infrastructure": {"labels": {"round": extra.to_string()}}}})
    }

    async fn create(&mut self, object: &Value) -> Result<()> {
        self.send(http::Method::POST, &collection(object)?, object).await
    }

    async fn patch(&mut self, object: &Value, part: &str, patch: Value) -> Result<()> {
        self.send(http::Method::PATCH, &format!("{}{part}", path(object)?), &patch).await
    }

    /// Sends a change until it is answered: what was done already counts as done.
    async fn send(&self, method: http::Method, path: &str, body: &Value) -> Result<()> {
        let kind = if method == http::Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
            let request =
                http::Request::builder().method(&method).uri(path).header("content-type", kind).body(bytes)?;
            let error = match self.client.request::<Value>(request).await {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(s)) if s.code == 409 && method == http::Method::POST => return Ok(()),
                Err(kube::Error::Api(s)) if s.code == 404 && method == http::Method::DELETE => return Ok(()),
                Err(kube::Error::Api(s)) if s.code < 500 && ![401, 403, 404, 429].contains(&s.code) => {
                    return Err(kube::Error::Api(s)).with_context(|| format!("{method} {path} {body}"));
                }
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(error).with_context(|| format!("{method} {path}"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn object(name: &str, route: &Route) -> Value {
    let parents = GATEWAYS.map(|g| json!({"name": g, "namespace": "infra"}));
    let backend = route.service.map_or_else(|| "nowhere".to_owned(), |i| format!("web-{i}"));
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"hostnames": [host(name)], "parentRefs": parents, "rules": [
            {"matches": [{"path": {"type": "PathPrefix", "value": "/web"}}], "backendRefs": [{"name": backend, "port": 8080}]},
            {"filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": target(route)}}]}]}})
}

/// Host of a route.
pub(crate) fn host(route: &str) -> String {
    format!("{route}.example.test")
}

/// Where a route redirects to.
pub(crate) fn target(route: &Route) -> String {
    format!("v{}.example.test", route.marker)
}

fn path(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    Ok(format!("{}/{name}", collection(object)?))
}

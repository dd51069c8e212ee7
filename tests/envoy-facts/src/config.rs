//! The resources that the tests give to a proxy.

use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use serde_json::{Value, json};
use xds::{Hints, Name, Resource, TypeUrl};

/// A resource with its type and name.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its type.
    pub kind: TypeUrl,
    /// Its name.
    pub name: String,
    /// Its content and what it refers to.
    pub resource: Resource,
}

impl Item {
    fn new(kind: TypeUrl, name: &str, json: &Value, hints: Hints) -> Self {
        let full_name = kind.as_str().rsplit('/').next().expect("a type URL has a name");
        let body = envoy::json::from_value(full_name, json).unwrap_or_else(|e| panic!("{name}: {e}: {json}"));
        Self { kind, name: name.to_owned(), resource: Resource::new(body, hints) }
    }

    /// The same content under another version: to be seen as changed by nothing but its version.
    #[must_use]
    pub fn reversioned(&self, version: &str) -> Self {
        let of = &self.resource;
        let resource = Resource::with_version(version.into(), of.body().clone(), of.hints().clone());
        Self { resource, ..self.clone() }
    }

    /// The same content, told to refer to other things.
    #[must_use]
    pub fn with_hints(&self, hints: Hints) -> Self {
        let of = &self.resource;
        let resource = Resource::with_version(of.version().clone(), of.body().clone(), hints);
        Self { resource, ..self.clone() }
    }
}

fn list(names: impl IntoIterator<Item = impl AsRef<str>>) -> Arc<[Name]> {
    names.into_iter().map(|name| Name::from(name.as_ref())).collect()
}

fn ads() -> Value {
    json!({ "ads": {}, "resourceApiVersion": "V3" })
}

fn address(port: u16) -> Value {
    json!({ "socketAddress": { "address": "127.0.0.1", "portValue": port } })
}

fn typed(name: &str, type_url: &str, mut config: Value) -> Value {
    config["@type"] = json!(format!("type.googleapis.com/{type_url}"));
    json!({ "name": name, "typedConfig": config })
}

/// A cluster. What is not set is as Envoy has it.
#[derive(Clone, Debug)]
pub struct Cluster {
    name: String,
    json: Value,
    warms: bool,
    endpoints: Option<String>,
    secrets: Vec<String>,
}

impl Cluster {
    /// One that takes its endpoints over EDS under its name.
    #[must_use]
    pub fn eds(name: &str) -> Self {
        let json = json!({
            "name": name,
            "type": "EDS",
            "connectTimeout": "1s",
            "edsClusterConfig": { "edsConfig": ads() },
        });
        Self { name: name.into(), json, warms: false, endpoints: Some(name.into()), secrets: Vec::new() }
    }

    /// One with a fixed endpoint.
    #[must_use]
    pub fn fixed(name: &str, port: u16) -> Self {
        let mut cluster = Self::eds(name);
        cluster.json = json!({
            "name": name,
            "type": "STATIC",
            "connectTimeout": "1s",
            "loadAssignment": assignment_json(name, &[port]),
        });
        cluster.endpoints = None;
        cluster
    }

    /// One whose endpoint is a host name, asked of a DNS server on a port of loopback.
    #[must_use]
    pub fn dns(name: &str, host: &str, port: u16, server: u16) -> Self {
        let mut cluster = Self::fixed(name, port);
        cluster.json["type"] = json!("STRICT_DNS");
        cluster.json["dnsLookupFamily"] = json!("V4_ONLY");
        let endpoint = &mut cluster.json["loadAssignment"]["endpoints"][0]["lbEndpoints"][0]["endpoint"];
        endpoint["address"]["socketAddress"]["address"] = json!(host);
        cluster.json["typedDnsResolverConfig"] = typed(
            "envoy.network.dns_resolver.cares",
            "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            json!({ "resolvers": [address(server)], "queryTimeoutSeconds": 1, "queryTries": 1 }),
        );
        cluster
    }

    /// Another content, of no other effect.
    #[must_use]
    pub fn revision(mut self, revision: u32) -> Self {
        self.json["connectTimeout"] = json!(format!("{}s", 1 + revision));
        self
    }

    /// Endpoints under another name.
    #[must_use]
    pub fn service_name(mut self, name: &str) -> Self {
        self.json["edsClusterConfig"]["serviceName"] = json!(name);
        self.endpoints = Some(name.into());
        self
    }

    /// A health check of `/health`, which the server knows about.
    #[must_use]
    pub fn checked(mut self) -> Self {
        self.json["healthChecks"] = json!([{
            "timeout": "10s",
            "interval": "0.1s",
            "noTrafficInterval": "0.1s",
            "unhealthyThreshold": 1,
            "healthyThreshold": 1,
            "httpHealthCheck": { "path": "/health" },
        }]);
        self.warms = true;
        self
    }

    /// Lets go of a removed endpoint though it is healthy.
    #[must_use]
    pub fn ignoring_health_on_removal(mut self) -> Self {
        self.json["ignoreHealthOnHostRemoval"] = json!(true);
        self
    }

    /// How long Envoy waits for the cluster's endpoints before it takes it as warm.
    #[must_use]
    pub fn fetch_timeout(mut self, of: &str) -> Self {
        self.json["edsClusterConfig"]["edsConfig"]["initialFetchTimeout"] = json!(of);
        self
    }

    /// HTTP/2 to the backend.
    #[must_use]
    pub fn http2(mut self) -> Self {
        self.json["typedExtensionProtocolOptions"] = json!({
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicitHttpConfig": { "http2ProtocolOptions": {} },
            },
        });
        self
    }

    /// TLS to the backend, whose certificate this secret over SDS vouches for.
    #[must_use]
    pub fn tls(mut self, secret: &str) -> Self {
        let context = json!({
            "sni": "test.example",
            "commonTlsContext": {
                "validationContextSdsSecretConfig": { "name": secret, "sdsConfig": ads() },
            },
        });
        let url = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
        self.json["transportSocket"] = typed("envoy.transport_sockets.tls", url, context);
        self.secrets.push(secret.into());
        self.warms = true;
        self
    }

    /// Refused by Envoy together with its whole response: a negative duration.
    #[must_use]
    pub fn invalid(mut self) -> Self {
        self.json["connectTimeout"] = json!("-1s");
        self
    }

    /// Refused by Envoy alone: its load balancer does not go with its type.
    #[must_use]
    pub fn refused(mut self) -> Self {
        self.json["lbPolicy"] = json!("CLUSTER_PROVIDED");
        self
    }

    /// Never warm: a hash ring whose least size is above its greatest.
    #[must_use]
    pub fn stuck(mut self) -> Self {
        self.json["lbPolicy"] = json!("RING_HASH");
        self.json["ringHashLbConfig"] = json!({ "minimumRingSize": 4096, "maximumRingSize": 1024 });
        self.warms = true;
        self
    }

    /// Makes the resource.
    #[must_use]
    pub fn item(&self) -> Item {
        let hints = Hints::Cluster {
            warms: self.warms,
            endpoints: self.endpoints.as_deref().map(Name::from),
            secrets: list(&self.secrets),
        };
        Item::new(TypeUrl::Cluster, &self.name, &self.json, hints)
    }
}

/// The endpoints of a cluster: ports of loopback.
#[must_use]
pub fn endpoints(name: &str, ports: &[u16]) -> Item {
    Item::new(TypeUrl::ClusterLoadAssignment, name, &assignment_json(name, ports), Hints::Unknown)
}

fn assignment_json(name: &str, ports: &[u16]) -> Value {
    let ports: Vec<Value> = ports.iter().map(|port| json!({ "endpoint": { "address": address(*port) } })).collect();
    json!({ "clusterName": name, "endpoints": [{ "lbEndpoints": ports }] })
}

/// A route table: (prefix, cluster), the first that fits.
#[must_use]
pub fn table(name: &str, routes: &[(&str, &str)]) -> Item {
    let json = table_json(name, routes);
    let hints = Hints::RouteConfiguration { clusters: list(routes.iter().map(|(_, cluster)| *cluster)) };
    Item::new(TypeUrl::RouteConfiguration, name, &json, hints)
}

/// A route table that Envoy refuses for its regular expression.
#[must_use]
pub fn refused_table(name: &str, routes: &[(&str, &str)]) -> Item {
    let mut json = table_json(name, routes);
    json["virtualHosts"][0]["routes"][0]["match"] = json!({ "safeRegex": { "regex": "*.foo" } });
    let hints = Hints::RouteConfiguration { clusters: list(routes.iter().map(|(_, cluster)| *cluster)) };
    Item::new(TypeUrl::RouteConfiguration, name, &json, hints)
}

fn table_json(name: &str, routes: &[(&str, &str)]) -> Value {
    let route = |(prefix, cluster): &(&str, &str)| {
        json!({
            "match": { "prefix": prefix },
            "route": { "cluster": cluster, "timeout": "0s", "upgradeConfigs": [{ "upgradeType": "websocket" }] },
        })
    };
    let routes: Vec<Value> = routes.iter().map(route).collect();
    json!({ "name": name, "virtualHosts": [{ "name": "all", "domains": ["*"], "routes": routes }] })
}

/// A listener on a port of loopback.
#[derive(Clone, Debug)]
pub struct Listener {
    name: String,
    json: Value,
    routes: Vec<String>,
    secrets: Vec<String>,
    clusters: Vec<String>,
}

impl Listener {
    /// One without a filter chain.
    #[must_use]
    pub fn new(name: &str, port: u16) -> Self {
        let json = json!({ "name": name, "address": address(port), "filterChains": [] });
        Self { name: name.into(), json, routes: Vec::new(), secrets: Vec::new(), clusters: Vec::new() }
    }

    /// One with a single chain for HTTP, with this table over RDS.
    #[must_use]
    pub fn http(name: &str, port: u16, table: &str) -> Self {
        Self::new(name, port).chain(table, "in")
    }

    /// A chain for HTTP; `stat` is a name in it that changes nothing.
    #[must_use]
    pub fn chain(mut self, table: &str, stat: &str) -> Self {
        let chain = json!({ "name": table, "filters": [http_manager(table, stat, &[])] });
        self.json["filterChains"].as_array_mut().expect("a list").push(chain);
        self.routes.push(table.into());
        self
    }

    /// A chain for HTTP in which every request waits before it is routed.
    #[must_use]
    pub fn chain_with_delay(mut self, table: &str, delay: &str) -> Self {
        let fault = typed(
            "envoy.filters.http.fault",
            "envoy.extensions.filters.http.fault.v3.HTTPFault",
            json!({ "delay": { "fixedDelay": delay, "percentage": { "numerator": 100 } } }),
        );
        let chain = json!({ "name": table, "filters": [http_manager(table, "in", &[fault])] });
        self.json["filterChains"].as_array_mut().expect("a list").push(chain);
        self.routes.push(table.into());
        self
    }

    /// A chain for HTTPS under a server name, with this secret over SDS.
    #[must_use]
    pub fn tls_chain(mut self, sni: &str, secret: &str, table: &str, stat: &str) -> Self {
        let context = json!({
            "commonTlsContext": { "tlsCertificateSdsSecretConfigs": [{ "name": secret, "sdsConfig": ads() }] },
        });
        let url = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
        let chain = json!({
            "name": sni,
            "filterChainMatch": { "serverNames": [sni] },
            "transportSocket": typed("envoy.transport_sockets.tls", url, context),
            "filters": [http_manager(table, stat, &[])],
        });
        self.json["filterChains"].as_array_mut().expect("a list").push(chain);
        let inspector = "envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector";
        self.json["listenerFilters"] = json!([typed("envoy.filters.listener.tls_inspector", inspector, json!({}))]);
        self.routes.push(table.into());
        self.secrets.push(secret.into());
        self
    }

    /// A chain that hands bytes on to a cluster.
    #[must_use]
    pub fn tcp_chain(mut self, cluster: &str) -> Self {
        let url = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
        let proxy = typed("envoy.filters.network.tcp_proxy", url, json!({ "statPrefix": "tcp", "cluster": cluster }));
        self.json["filterChains"].as_array_mut().expect("a list").push(json!({ "name": "tcp", "filters": [proxy] }));
        self.clusters.push(cluster.into());
        self
    }

    /// Another value of a field that belongs to the listener and to no chain.
    #[must_use]
    pub fn level(mut self, value: u32) -> Self {
        self.json["perConnectionBufferLimitBytes"] = json!(32_768 + value);
        self
    }

    /// Refused by Envoy: two chains that match the same.
    #[must_use]
    pub fn refused(mut self) -> Self {
        let mut chain = self.json["filterChains"][0].clone();
        chain["name"] = json!("again");
        self.json["filterChains"].as_array_mut().expect("a list").push(chain);
        self
    }

    /// Makes the resource.
    #[must_use]
    pub fn item(&self) -> Item {
        let hints = Hints::Listener {
            routes: list(&self.routes),
            secrets: list(&self.secrets),
            clusters: list(&self.clusters),
        };
        Item::new(TypeUrl::Listener, &self.name, &self.json, hints)
    }
}

fn http_manager(table: &str, stat: &str, filters: &[Value]) -> Value {
    let router = typed("envoy.filters.http.router", "envoy.extensions.filters.http.router.v3.Router", json!({}));
    let filters: Vec<Value> = filters.iter().cloned().chain([router]).collect();
    typed(
        "envoy.filters.network.http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "statPrefix": stat,
            "rds": { "routeConfigName": table, "configSource": ads() },
            "httpFilters": filters,
            "http2ProtocolOptions": {},
            "upgradeConfigs": [{ "upgradeType": "websocket" }],
        }),
    )
}

/// A certificate for `test.example` and the key that goes with it, new each time.
#[derive(Debug)]
pub struct Certificate {
    chain: String,
    key: String,
}

impl Certificate {
    /// Makes one.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["test.example".to_owned()]).expect("a valid name");
        let chain = params.self_signed(&key).expect("a certificate");
        Self { chain: chain.pem(), key: key.serialize_pem() }
    }

    /// The secret with which a listener serves it.
    #[must_use]
    pub fn secret(&self, name: &str) -> Item {
        let json = json!({
            "name": name,
            "tlsCertificate": {
                "certificateChain": { "inlineString": self.chain },
                "privateKey": { "inlineString": self.key },
            },
        });
        Item::new(TypeUrl::Secret, name, &json, Hints::Unknown)
    }

    /// The secret with which a cluster trusts it.
    #[must_use]
    pub fn trust(&self, name: &str) -> Item {
        let json = json!({ "name": name, "validationContext": { "trustedCa": { "inlineString": self.chain } } });
        Item::new(TypeUrl::Secret, name, &json, Hints::Unknown)
    }

    /// What a backend serves it with.
    #[must_use]
    pub fn server(&self) -> Arc<ServerConfig> {
        use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
        let chain = CertificateDer::from_pem_slice(self.chain.as_bytes()).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![chain], key);
        Arc::new(config.expect("they belong together"))
    }
}

impl Default for Certificate {
    fn default() -> Self {
        Self::new()
    }
}

/// A secret that is no certificate.
#[must_use]
pub fn garbage(name: &str) -> Item {
    let json = json!({
        "name": name,
        "tlsCertificate": {
            "certificateChain": { "inlineString": "no certificate" },
            "privateKey": { "inlineString": "no key" },
        },
    });
    Item::new(TypeUrl::Secret, name, &json, Hints::Unknown)
}

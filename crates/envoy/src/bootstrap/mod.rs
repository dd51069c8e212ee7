//! The configuration that a proxy starts with: where its configuration comes from, its own addresses and its limits.
//!
//! [`Bootstrap::render`] yields the tree that Envoy Gateway's proxies start with, spelled in the same way, as patches of
//! its users address parts of it by path. Everything that differs between installations is a parameter.

mod change;
mod fleet;
mod metrics;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use ir::{Millis, Name, StringMatch};
use serde_json::{Value, json};

pub use change::{BootstrapError, patch};
pub use ir::{MetricSink, SinkTls};
pub use metrics::{Compression, StatsListener};

/// Name of the secret with the token for the control plane.
const TOKEN: &str = "jwt-sa-bearer";

const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// What a proxy starts with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// Cluster and id of the node; without it they come from the command line (`--service-cluster`, `--service-node`).
    pub node: Option<Node>,
    /// Zone of the node; may be a variable that is filled in at the start.
    pub zone: Option<Name>,
    /// Name of the cluster that the proxies themselves make up, for routing by zones; asked for by EDS.
    pub local_cluster: Option<Name>,
    /// Admin address. Anyone who reaches it can stop the proxy and read its secrets: keep it on the loopback.
    pub admin: Socket,
    /// The control plane.
    pub xds: XdsServer,
    /// Listener for scrapes of statistics; without it, only the admin address has them.
    pub stats: Option<StatsListener>,
    /// Statistics that are kept; all when empty.
    pub stats_matches: Vec<StringMatch>,
    /// Where statistics are sent.
    pub metric_sinks: Vec<MetricSink>,
    /// Connections that clients may have open. Default: 50,000.
    pub max_connections: u64,
    /// Bytes of heap at which the proxy sheds load.
    pub max_heap_bytes: Option<u64>,
}

/// A proxy towards the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Group of the proxy: `NS/GW`, or the class when Gateways are merged.
    pub cluster: Name,
    /// Name of the proxy, one of its own.
    pub id: Name,
}

/// Host (name or IP address) and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Socket {
    /// Host.
    pub host: Name,
    /// Port.
    pub port: u16,
}

/// The control plane, as seen by a proxy: ADS over mutual TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdsServer {
    /// Address.
    pub address: Socket,
    /// File with the proxy's certificate and key, as [`sds_certificate`] makes it; watched.
    pub certificate: Name,
    /// File with the control plane's CA, as [`sds_trusted_ca`] makes it; watched.
    pub trusted_ca: Name,
    /// File with the token by which the proxy tells who it is, as [`sds_token`] makes it; watched. With one it shows no
    /// certificate.
    pub token: Option<Name>,
    /// Incremental, or state of the world. Default: incremental.
    pub protocol: Protocol,
}

/// Variant of xDS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Differences only.
    #[default]
    Delta,
    /// All resources of a type at each change.
    StateOfTheWorld,
}

/// SDS file with a certificate and its key, which Envoy loads anew when the file is replaced.
#[must_use]
pub fn sds_certificate(chain: &str, key: &str) -> Value {
    json!({"resources": [{
        "@type": format!("{TYPES}.transport_sockets.tls.v3.Secret"),
        "name": "xds_certificate",
        "tls_certificate": {"certificate_chain": {"filename": chain}, "private_key": {"filename": key}},
    }]})
}

/// SDS file with the CA of the control plane, whose certificate has to bear `dns_name`.
#[must_use]
pub fn sds_trusted_ca(ca: &str, dns_name: &str) -> Value {
    json!({"resources": [{
        "@type": format!("{TYPES}.transport_sockets.tls.v3.Secret"),
        "name": "xds_trusted_ca",
        "validation_context": {
            "trusted_ca": {"filename": ca},
            "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": dns_name}}],
        },
    }]})
}

/// SDS file with the token in that file, which Envoy loads anew when it is replaced.
#[must_use]
pub fn sds_token(path: &str) -> Value {
    json!({"resources": [{
        "@type": format!("{TYPES}.transport_sockets.tls.v3.Secret"),
        "name": TOKEN,
        "generic_secret": {"secret": {"filename": path}},
    }]})
}

// === impl Bootstrap ===

impl Bootstrap {
    /// The usual ports and limits, for a control plane.
    #[must_use]
    pub fn new(xds: XdsServer) -> Self {
        Self {
            node: None,
            zone: None,
            local_cluster: None,
            admin: Socket { host: "127.0.0.1".into(), port: 19000 },
            xds,
            stats: None,
            stats_matches: Vec::new(),
            metric_sinks: Vec::new(),
            max_connections: 50_000,
            max_heap_bytes: None,
        }
    }

    /// The configuration as a tree; as JSON text, Envoy reads it as it is.
    #[must_use]
    pub fn render(&self) -> Value {
        let mut out = json!({
            "admin": {
                "access_log": [{
                    "name": "envoy.access_loggers.file",
                    "typed_config": {
                        "@type": format!("{TYPES}.access_loggers.file.v3.FileAccessLog"),
                        "path": "/dev/null",
                    },
                }],
                "address": address(&self.admin),
            },
            "deferredStatOptions": {"enableDeferredCreationStats": true},
            "stats_config": self.stats_config(),
            "layered_runtime": {"layers": [{
                "name": "global_config",
                // Patterns are judged before they are sent; a proxy must not refuse one for its size.
                "static_layer": {
                    "re2.max_program_size.error_level": u32::MAX,
                    "re2.max_program_size.warn_level": 1000,
                },
            }]},
            "dynamic_resources": self.dynamic_resources(),
            "static_resources": {"clusters": self.clusters()},
            "overload_manager": self.overload_manager(),
        });
        if let Some(stats) = &self.stats {
            out["static_resources"]["listeners"] = json!([stats.listener()]);
        }
        if !self.metric_sinks.is_empty() {
            let sinks = self.metric_sinks.iter().enumerate().map(|(i, s)| metrics::sink(s, i));
            out["stats_sinks"] = sinks.collect();
        }
        if let Some(name) = &self.local_cluster {
            out["cluster_manager"] = json!({"local_cluster_name": &**name});
        }
        if let Some(node) = &self.node {
            out["node"] = json!({"cluster": &*node.cluster, "id": &*node.id});
        }
        if let Some(zone) = &self.zone {
            out["node"]["locality"] = json!({"zone": &**zone});
        }
        out
    }

    /// The configuration as YAML.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(&self.render()).expect("invariant: a tree of maps, lists and texts is YAML")
    }

    fn stats_config(&self) -> Value {
        // Tags that split names which hold slashes and dots of users.
        let tags = [
            (r"\.zone(\.(([^\.]+)\.))", "from_zone"),
            (r"\.zone\.[^\.]+\.(([^\.]+)\.)", "to_zone"),
            (r"^cluster(\..+\.(.+))\.total_match_count$", "socket_match_name"),
            (r"circuit_breakers\.((.+?)\.).+", "priority"),
        ];
        let mut out = json!({
            "use_all_default_tags": true,
            "stats_tags": tags.map(|(regex, name)| json!({"regex": regex, "tag_name": name})),
        });
        if !self.stats_matches.is_empty() {
            let patterns: Vec<Value> = self.stats_matches.iter().map(metrics::pattern).collect();
            out["stats_matcher"] = json!({"inclusion_list": {"patterns": patterns}});
        }
        out
    }

    fn dynamic_resources(&self) -> Value {
        let ads = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
        let api_type = match self.xds.protocol {
            Protocol::Delta => "DELTA_GRPC",
            Protocol::StateOfTheWorld => "GRPC",
        };
        json!({
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds_cluster"}}],
                "set_node_on_first_message_only": true,
            },
            "lds_config": ads,
            "cds_config": ads,
        })
    }

    fn clusters(&self) -> Vec<Value> {
        let mut out = Vec::new();
        if self.stats.is_some() {
            out.push(metrics::admin_cluster(&self.admin));
        }
        out.extend(self.metric_sinks.iter().enumerate().map(|(i, s)| metrics::sink_cluster(s, i)));
        out.extend(self.local_cluster.as_deref().map(local_cluster));
        out.push(self.xds.cluster());
        out
    }

    fn overload_manager(&self) -> Value {
        let mut monitors = vec![json!({
            "name": "envoy.resource_monitors.global_downstream_max_connections",
            "typed_config": {
                "@type": format!("{TYPES}.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"),
                "max_active_downstream_connections": self.max_connections,
            },
        })];
        let mut out = json!({"refresh_interval": "0.25s"});
        if let Some(bytes) = self.max_heap_bytes {
            const HEAP: &str = "envoy.resource_monitors.fixed_heap";
            monitors.push(json!({
                "name": HEAP,
                "typed_config": {
                    "@type": format!("{TYPES}.resource_monitors.fixed_heap.v3.FixedHeapConfig"),
                    "max_heap_size_bytes": bytes,
                },
            }));
            // Give memory back first; stop taking requests when that was not enough.
            let action = |name: &str, at: f64| {
                json!({
                    "name": format!("envoy.overload_actions.{name}"),
                    "triggers": [{"name": HEAP, "threshold": {"value": at}}],
                })
            };
            out["actions"] = json!([action("shrink_heap", 0.95), action("stop_accepting_requests", 0.98)]);
        }
        out["resource_monitors"] = monitors.into();
        out
    }
}

// === impl XdsServer ===

impl XdsServer {
    fn cluster(&self) -> Value {
        let file = |name: &str, path: &str| {
            json!({
                "name": name,
                "sds_config": {"path_config_source": {"path": path}, "resource_api_version": "V3"},
            })
        };
        // A name is looked up again and again; an address needs no DNS.
        let kind = if self.address.host.parse::<IpAddr>().is_ok() { "STATIC" } else { "STRICT_DNS" };
        let mut options = json!({
            "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
            // A control plane that is gone without a word is noticed by its silence.
            "explicit_http_config": {"http2_protocol_options": {
                "connection_keepalive": {"interval": "30s", "timeout": "5s"},
            }},
        });
        let mut tls = json!({
            "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
            "validation_context_sds_secret_config": file("xds_trusted_ca", &self.trusted_ca),
        });
        match &self.token {
            Some(token) => options["http_filters"] = bearer(file(TOKEN, token)),
            None => tls["tls_certificate_sds_secret_configs"] = json!([file("xds_certificate", &self.certificate)]),
        }
        json!({
            "name": "xds_cluster",
            "type": kind,
            "connect_timeout": "10s",
            "load_assignment": {
                "cluster_name": "xds_cluster",
                "endpoints": [{
                    "load_balancing_weight": 1,
                    "lb_endpoints": [{
                        "load_balancing_weight": 1,
                        "endpoint": {"address": address(&self.address)},
                    }],
                }],
            },
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": format!("{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext"),
                    "common_tls_context": tls,
                },
            },
        })
    }
}

/// HTTP filters that add a token to every request.
fn bearer(secret: Value) -> Value {
    json!([
        {
            "name": "envoy.filters.http.credential_injector",
            "typed_config": {
                "@type": format!("{TYPES}.filters.http.credential_injector.v3.CredentialInjector"),
                "credential": {
                    "name": "envoy.http.injected_credentials.generic",
                    "typed_config": {
                        "@type": format!("{TYPES}.http.injected_credentials.generic.v3.Generic"),
                        "credential": secret,
                    },
                },
                "overwrite": true,
            },
        },
        {
            "name": "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec",
            "typed_config": {"@type": format!("{TYPES}.filters.http.upstream_codec.v3.UpstreamCodec")},
        },
    ])
}

fn local_cluster(name: &str) -> Value {
    json!({
        "name": name,
        "type": "EDS",
        "connect_timeout": seconds(Millis(10_000)),
        "eds_cluster_config": {
            "eds_config": {"ads": {}, "resource_api_version": "V3"},
            "service_name": name,
        },
        "load_balancing_policy": {"policies": [{"typed_extension_config": {
            "name": "envoy.load_balancing_policies.least_request",
            "typed_config": {
                "@type": format!("{TYPES}.load_balancing_policies.least_request.v3.LeastRequest"),
                "locality_lb_config": {"zone_aware_lb_config": {"min_cluster_size": "1"}},
            },
        }}]},
    })
}

fn seconds(time: Millis) -> String {
    match time.0 % 1000 {
        0 => format!("{}s", time.0 / 1000),
        millis => format!("{}.{millis:03}s", time.0 / 1000),
    }
}

/// A TCP address in Envoy's form.
fn address(socket: &Socket) -> Value {
    json!({"socket_address": {"address": &*socket.host, "port_value": socket.port}})
}

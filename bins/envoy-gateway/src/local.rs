//! Fleets as local processes: what a fleet needs becomes a bootstrap and a process.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use election::{Permit, WriteError};
use infra::local::{Local, Proxy, RunnerGone};
use serde_json::{Value, json};

/// The writer behind the gate: renders the bootstrap, hands the process over.
#[derive(Debug)]
pub(crate) struct LocalFleets {
    /// Runs the processes.
    pub(crate) local: Local,
    /// What every bootstrap has in common.
    pub(crate) bootstrap: Bootstrap,
}

impl reconcile::Sync for LocalFleets {
    type Key = String;
    type Value = Arc<ir::Proxy>;
    type Error = RunnerGone;

    async fn sync(
        &self,
        permit: Permit<'_>,
        key: &String,
        want: Option<&Arc<ir::Proxy>>,
    ) -> Result<(), WriteError<RunnerGone>> {
        let proxy = want.map(|_| self.process(key));
        self.local.sync(permit, key, proxy.as_ref()).await
    }
}

impl LocalFleets {
    fn process(&self, group: &str) -> Proxy {
        let mut proxy = Proxy::new(self.bootstrap.render());
        proxy.service_cluster = Some(group.to_owned());
        proxy.service_node = Some(format!("{}-{}", group.replace('/', "-"), std::process::id()));
        proxy
    }
}

/// What the bootstraps of all local proxies have in common: how they reach this process.
#[derive(Clone, Debug)]
pub(crate) struct Bootstrap {
    /// Address of the xDS server.
    pub(crate) xds: SocketAddr,
    /// CA that the server's certificate chains to.
    pub(crate) ca: PathBuf,
    /// Certificate that the proxy shows.
    pub(crate) certificate: PathBuf,
    /// Its key.
    pub(crate) key: PathBuf,
}

// === impl Bootstrap ===

impl Bootstrap {
    /// The bootstrap. It names no port that two proxies could share: the admin page listens on a port of the system's choice.
    fn render(&self) -> Vec<u8> {
        let ads = json!({"ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s"});
        let value = json!({
            "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
            "layered_runtime": {"layers": [{"name": "global_config", "static_layer": {
                "re2.max_program_size.error_level": 4_294_967_295_u32, "re2.max_program_size.warn_level": 1000,
            }}]},
            "deferred_stat_options": {"enable_deferred_creation_stats": true},
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC", "transport_api_version": "V3", "set_node_on_first_message_only": true,
                    "grpc_services": [{"envoy_grpc": {"cluster_name": "xds_cluster"}}],
                },
                "lds_config": ads, "cds_config": ads,
            },
            "static_resources": {"clusters": [self.xds_cluster()]},
        });
        value.to_string().into_bytes()
    }

    fn xds_cluster(&self) -> Value {
        let file = |path: &PathBuf| json!({"filename": path});
        json!({
            "name": "xds_cluster", "type": "STATIC", "connect_timeout": "10s",
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {
                    "connection_keepalive": {"interval": "30s", "timeout": "5s"},
                }},
            }},
            "load_assignment": {"cluster_name": "xds_cluster", "endpoints": [{"lb_endpoints": [{"endpoint": {"address":
                {"socket_address": {"address": self.xds.ip().to_string(), "port_value": self.xds.port()}}}}]}]},
            "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                "sni": "envoy-gateway",
                "common_tls_context": {
                    "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
                    "tls_certificates": [{"certificate_chain": file(&self.certificate), "private_key": file(&self.key)}],
                    "validation_context": {
                        "trusted_ca": file(&self.ca),
                        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": "envoy-gateway"}}],
                    },
                },
            }},
        })
    }
}

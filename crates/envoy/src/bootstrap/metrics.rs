//! Statistics of a proxy: the listener for scrapes, and sinks that they are sent to.

use std::collections::BTreeMap;

use ir::{MetricSink, Name, SinkTls, StringMatch};
use serde_json::{Value, json};

use super::{Socket, TYPES, address};

/// Listener for scrapes at `/stats/prometheus`, and nothing else of the admin address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsListener {
    /// Address to bind; usually `0.0.0.0` and port 19001.
    pub address: Socket,
    /// With `::`: also accept IPv4.
    pub ipv4_compat: bool,
    /// Compression of answers for clients that take it.
    pub compression: Option<Compression>,
}

/// Compression of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Brotli.
    Brotli,
    /// gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// CAs of the proxy's system.
const SYSTEM_CAS: &str = "/etc/ssl/certs/ca-certificates.crt";

// === impl StatsListener ===

impl StatsListener {
    pub(super) fn listener(&self) -> Value {
        let mut listener = address(&self.address);
        listener["socket_address"]["protocol"] = "TCP".into();
        if self.ipv4_compat {
            listener["socket_address"]["ipv4_compat"] = true.into();
        }
        let mut host = json!({
            "name": "prometheus_stats",
            "domains": ["*"],
            "routes": [{
                "match": {
                    "path": "/stats/prometheus",
                    "headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
                },
                "route": {"cluster": "prometheus_stats"},
            }],
        });
        let mut filters = Vec::new();
        if let Some(compression) = self.compression {
            const FILTER: &str = "envoy.filters.http.compression";
            let per_route = format!("{TYPES}.filters.http.compressor.v3.CompressorPerRoute");
            host["typed_per_filter_config"] = json!({FILTER: {"@type": per_route, "disabled": true}});
            host["routes"][0]["typed_per_filter_config"] =
                json!({FILTER: {"@type": per_route, "overrides": {"response_direction_config": null}}});
            filters.push(json!({
                "name": "envoy.filters.http.compressor",
                "typed_config": {
                    "@type": format!("{TYPES}.filters.http.compressor.v3.Compressor"),
                    "compressor_library": {
                        "name": "text_optimized",
                        "typed_config": {"@type": format!("{TYPES}.compression.{}", compression.message())},
                    },
                },
            }));
        }
        filters.push(json!({
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": format!("{TYPES}.filters.http.router.v3.Router")},
        }));
        json!({
            "name": format!("envoy-gateway-proxy-stats-{}-{}", self.address.host, self.address.port),
            "address": listener,
            "bypass_overload_manager": true,
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
                    "stat_prefix": "eg-stats-http",
                    "normalize_path": true,
                    "route_config": {"name": "local_route", "virtual_hosts": [host]},
                    "http_filters": filters,
                },
            }]}],
        })
    }
}

// === impl Compression ===

impl Compression {
    fn message(self) -> &'static str {
        match self {
            Self::Brotli => "brotli.compressor.v3.Brotli",
            Self::Gzip => "gzip.compressor.v3.Gzip",
            Self::Zstd => "zstd.compressor.v3.Zstd",
        }
    }
}

/// The admin address, for the listener for scrapes.
pub(super) fn admin_cluster(admin: &Socket) -> Value {
    json!({
        "name": "prometheus_stats",
        "connect_timeout": "0.250s",
        "type": "STATIC",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {
            "cluster_name": "prometheus_stats",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(admin)}}]}],
        },
    })
}

fn cluster_name(index: usize) -> String {
    format!("otel_metric_sink_{index}")
}

pub(super) fn sink(sink: &MetricSink, index: usize) -> Value {
    let mut service = json!({"envoy_grpc": {"cluster_name": cluster_name(index)}});
    if let Some(authority) = &sink.authority {
        service["envoy_grpc"]["authority"] = (**authority).into();
    }
    if !sink.headers.is_empty() {
        let header = |(key, value): &(Name, Name)| json!({"key": &**key, "value": &**value});
        service["initial_metadata"] = sink.headers.iter().map(header).collect();
    }
    let mut config = json!({
        "@type": format!("{TYPES}.stat_sinks.open_telemetry.v3.SinkConfig"),
        "grpc_service": service,
    });
    if sink.counters_as_deltas {
        config["report_counters_as_deltas"] = true.into();
    }
    if sink.histograms_as_deltas {
        config["report_histograms_as_deltas"] = true.into();
    }
    if !sink.resource_attributes.is_empty() {
        let attributes: BTreeMap<&str, &str> = sink.resource_attributes.iter().map(|(k, v)| (&**k, &**v)).collect();
        config["resource_detectors"] = json!([{
            "name": "envoy.tracers.opentelemetry.resource_detectors.static_config",
            "typed_config": {
                "@type": format!(
                    "{TYPES}.tracers.opentelemetry.resource_detectors.v3.StaticConfigResourceDetectorConfig"
                ),
                "attributes": attributes,
            },
        }]);
    }
    json!({"name": "envoy.stat_sinks.open_telemetry", "typed_config": config})
}

pub(super) fn sink_cluster(sink: &MetricSink, index: usize) -> Value {
    let name = cluster_name(index);
    let socket = Socket { host: sink.host.clone(), port: sink.port };
    let mut out = json!({
        "name": name,
        "connect_timeout": "0.250s",
        "type": "STRICT_DNS",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
                "explicit_http_config": {"http2_protocol_options": {}},
            },
        },
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(&socket)}}]}],
        },
    });
    if let Some(tls) = &sink.tls {
        out["transport_socket"] = socket_of(tls);
    }
    out
}

fn socket_of(tls: &SinkTls) -> Value {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let ca = match &tls.ca {
        Some(pem) => json!({"inline_bytes": BASE64_STANDARD.encode(pem)}),
        None => json!({"filename": SYSTEM_CAS}),
    };
    let mut context = json!({
        "@type": format!("{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext"),
        "common_tls_context": {"validation_context": {"trusted_ca": ca}},
    });
    if let Some(sni) = &tls.sni {
        context["sni"] = (**sni).into();
    }
    json!({"name": "envoy.transport_sockets.tls", "typed_config": context})
}

/// A pattern of statistics names.
pub(super) fn pattern(m: &StringMatch) -> Value {
    match m {
        StringMatch::Exact(s) => json!({"exact": &**s}),
        StringMatch::Prefix(s) => json!({"prefix": &**s}),
        StringMatch::Suffix(s) => json!({"suffix": &**s}),
        StringMatch::Contains(s) => json!({"contains": &**s}),
        StringMatch::Regex(s) => json!({"safe_regex": {"google_re2": {}, "regex": &**s}}),
    }
}

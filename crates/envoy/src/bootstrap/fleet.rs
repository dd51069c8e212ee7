//! The bootstrap of a fleet, from what is wanted of it.

use ir::{IpFamily, Proxy, StringMatch};
use serde_json::{Value, json};

use super::{
    Bootstrap, BootstrapError, Compression, Socket, StatsListener, XdsServer,
    change::{Change, yaml},
};

/// Port of the xDS server.
const XDS_PORT: u16 = 18000;
/// Port of the listener for scrapes.
const STATS_PORT: u16 = 19001;

// === impl Bootstrap ===

impl Bootstrap {
    /// The default bootstrap of a fleet. With `zones`, the zone of each proxy is known, so that those of a fleet route by
    /// zone; cluster and id of the node are arguments of the proxy.
    #[must_use]
    pub fn of_fleet(proxy: &Proxy, xds: XdsServer, zones: bool) -> Self {
        let mut out = Self::new(xds);
        out.zone = Some("$(ENVOY_SERVICE_ZONE)".into());
        out.local_cluster = zones.then(|| proxy.group.clone());
        // A fifth of the memory is left for what is not on Envoy's heap.
        out.max_heap_bytes = proxy.memory_limit.map(|bytes| bytes / 10 * 8 + bytes % 10 * 8 / 10);
        out.metric_sinks.clone_from(&proxy.metric_sinks);
        let host = match proxy.family {
            IpFamily::V4 => "0.0.0.0",
            IpFamily::V6 | IpFamily::Dual => "::",
        };
        if proxy.family == IpFamily::V6 {
            out.admin.host = "::1".into();
        }
        let metrics = proxy.settings.telemetry.as_ref().and_then(|t| t.metrics.as_ref());
        let prometheus = metrics.and_then(|m| m.prometheus.as_ref());
        if prometheus.and_then(|p| p.disable) != Some(true) {
            let compression = prometheus.and_then(|p| p.compression.as_ref());
            out.stats = Some(StatsListener {
                address: Socket { host: host.into(), port: STATS_PORT },
                ipv4_compat: host == "::",
                compression: compression.and_then(|c| match c.type_.as_str() {
                    "Gzip" => Some(Compression::Gzip),
                    "Brotli" => Some(Compression::Brotli),
                    "Zstd" => Some(Compression::Zstd),
                    _ => None,
                }),
            });
        }
        let matches = metrics.map(|m| m.matches.as_slice()).unwrap_or_default();
        out.stats_matches = matches
            .iter()
            .map(|m| {
                let value = m.value.as_str().into();
                match m.type_.as_ref().map_or("Exact", |t| t.as_str()) {
                    "Prefix" => StringMatch::Prefix(value),
                    "Suffix" => StringMatch::Suffix(value),
                    "RegularExpression" => StringMatch::Regex(value),
                    _ => StringMatch::Exact(value),
                }
            })
            .collect();
        out
    }

    /// The bootstrap of a fleet as text, with the changes that its settings ask for.
    ///
    /// # Errors
    /// [`BootstrapError`] says what of the changes cannot be applied.
    pub fn text_of_fleet(proxy: &Proxy, xds: XdsServer, zones: bool) -> Result<String, BootstrapError> {
        let default = Self::of_fleet(proxy, xds, zones).render();
        let Some(change) = &proxy.settings.bootstrap else { return Ok(yaml(&default)) };
        let value = change.value.clone().unwrap_or_default();
        let change = match change.type_.as_ref().map_or("Replace", |t| t.as_str()) {
            "Merge" => Change::Merge(value),
            "JSONPatch" => {
                let operations = change.json_patches.iter().map(|o| {
                    if o.json_path.is_some() {
                        return Err(BootstrapError::Patch("jsonPath is not supported here; give a path".to_owned()));
                    }
                    let mut out = json!({"op": o.op.as_str(), "path": o.path.as_deref().unwrap_or_default()});
                    if let Some(from) = &o.from {
                        out["from"] = from.as_str().into();
                    }
                    if matches!(o.op.as_str(), "add" | "replace" | "test") {
                        out["value"] = o.value.clone().unwrap_or(Value::Null);
                    }
                    Ok(out)
                });
                Change::Patch(operations.collect::<Result<_, _>>()?)
            }
            _ => Change::Replace(value),
        };
        change.apply(default)
    }
}

// === impl XdsServer ===

impl XdsServer {
    /// The control plane of a cluster, for proxies whose files are where the pods of fleets have them. With `token`, proxies
    /// show the token of their service account instead of a certificate.
    #[must_use]
    pub fn in_cluster(host: &str, token: bool) -> Self {
        Self {
            address: Socket { host: format!("{host}.").into(), port: XDS_PORT },
            certificate: "/sds/xds-certificate.json".into(),
            trusted_ca: "/sds/xds-trusted-ca.json".into(),
            token: token.then(|| "/sds/xds_service_account_token.json".into()),
            protocol: super::Protocol::Delta,
        }
    }
}

use std::path::Path;

use super::*;

const BOOTSTRAP: &str = "envoy.config.bootstrap.v3.Bootstrap";

fn in_cluster() -> Bootstrap {
    Bootstrap {
        zone: Some("$(ENVOY_SERVICE_ZONE)".into()),
        local_cluster: Some("local_cluster".into()),
        stats: Some(StatsListener {
            address: Socket { host: "0.0.0.0".into(), port: 19001 },
            ipv4_compat: false,
            compression: None,
        }),
        ..Bootstrap::new(XdsServer {
            address: Socket { host: "envoy-gateway".into(), port: 18000 },
            certificate: "/sds/xds-certificate.json".into(),
            trusted_ca: "/sds/xds-trusted-ca.json".into(),
            token: None,
            protocol: Protocol::Delta,
        })
    }
}

fn compressed(compression: Compression) -> Bootstrap {
    let mut out = in_cluster();
    out.stats.as_mut().unwrap().compression = Some(compression);
    out
}

fn sink() -> MetricSink {
    MetricSink { host: "otel-collector.monitoring.svc".into(), port: 4317, ..MetricSink::default() }
}

fn with_sink(sink: MetricSink) -> Bootstrap {
    Bootstrap { stats: None, metric_sinks: vec![sink], ..in_cluster() }
}

fn tls_sink(tls: SinkTls) -> MetricSink {
    let host: Name = "otel-collector.example.com".into();
    MetricSink { host: host.clone(), port: 443, authority: Some(host), tls: Some(tls), ..MetricSink::default() }
}

/// The parameters that lead to each recorded bootstrap.
fn recorded() -> Vec<(&'static str, Bootstrap)> {
    let headers = |h: &[(&str, &str)]| h.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    let sni = || Some("otel-collector.example.com".into());
    let mut ipv6 = in_cluster();
    ipv6.admin.host = "::1".into();
    ipv6.stats.as_mut().unwrap().address.host = "::".into();
    ipv6.stats.as_mut().unwrap().ipv4_compat = true;
    let mut ports = in_cluster();
    ports.admin.port = 2222;
    ports.stats.as_mut().unwrap().address.port = 3333;
    ports.xds.address = Socket { host: "foo.bar".into(), port: 12345 };
    let without_stats = Bootstrap { stats: None, ..in_cluster() };
    vec![
        ("enable-prometheus", in_cluster()),
        ("disable-prometheus", without_stats.clone()),
        ("topology-injector-enabled", without_stats.clone()),
        ("topology-injector-disabled", Bootstrap { local_cluster: None, ..without_stats }),
        ("enable-prometheus-gzip-compression", compressed(Compression::Gzip)),
        ("enable-prometheus-brotli-compression", compressed(Compression::Brotli)),
        ("enable-prometheus-zstd-compression", compressed(Compression::Zstd)),
        ("ipv6", ipv6),
        ("custom-server-port", ports),
        ("with-max-heap-size-bytes", Bootstrap { max_heap_bytes: Some(1 << 30), ..in_cluster() }),
        (
            "custom-stats-matcher",
            Bootstrap {
                stats_matches: vec![
                    StringMatch::Exact("http.foo.bar.cluster.upstream_rq".into()),
                    StringMatch::Prefix("http".into()),
                    StringMatch::Prefix("cluster".into()),
                    StringMatch::Suffix("upstream_rq".into()),
                    StringMatch::Regex("virtual.*".into()),
                ],
                ..in_cluster()
            },
        ),
        ("otel-metrics", with_sink(sink())),
        ("otel-metrics-backendref", with_sink(sink())),
        (
            "otel-metrics-delta-temporality",
            with_sink(MetricSink { counters_as_deltas: true, histograms_as_deltas: true, ..sink() }),
        ),
        (
            "otel-metrics-headers",
            with_sink(MetricSink {
                headers: headers(&[("Authorization", "Bearer my-api-key"), ("X-Tenant-ID", "tenant-123")]),
                ..sink()
            }),
        ),
        (
            "otel-metrics-tls",
            with_sink(MetricSink {
                headers: headers(&[("Authorization", "Bearer fake")]),
                resource_attributes: [
                    ("deployment.environment".into(), "test".into()),
                    ("service.name".into(), "test-service".into()),
                    ("service.version".into(), "v1.0.0".into()),
                ]
                .into(),
                ..tls_sink(SinkTls { sni: sni(), ca: None })
            }),
        ),
        ("otel-metrics-custom-ca", with_sink(tls_sink(SinkTls { sni: sni(), ca: Some(b"CA".to_vec()) }))),
    ]
}

/// Without the content of a CA, which is test material of its own.
fn masked(mut tree: Value) -> Value {
    let clusters = tree.pointer_mut("/static_resources/clusters").and_then(Value::as_array_mut);
    for cluster in clusters.into_iter().flatten() {
        let ca = "/transport_socket/typed_config/common_tls_context/validation_context/trusted_ca/inline_bytes";
        if let Some(bytes) = cluster.pointer_mut(ca) {
            *bytes = "CA".into();
        }
    }
    tree
}

#[test]
fn the_same_tree_as_recorded() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/bootstrap-golden/render");
    if !folder.is_dir() {
        println!("skipped: no peer data");
        return;
    }
    let recorded = recorded();
    for (name, bootstrap) in &recorded {
        let text = std::fs::read_to_string(folder.join(format!("{name}.yaml"))).unwrap();
        let want: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(masked(bootstrap.render()), masked(want), "{name}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), recorded.len(), "every recorded bootstrap is compared");
}

#[test]
fn every_variant_is_a_bootstrap_to_envoy() {
    for (name, bootstrap) in recorded() {
        crate::json::from_value(BOOTSTRAP, &bootstrap.render()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let yaml: Value = serde_saphyr::from_str(&bootstrap.to_yaml()).unwrap();
        assert_eq!(yaml, bootstrap.render(), "{name}");
    }
}

#[test]
fn a_proxy_outside_of_a_cluster() {
    let bootstrap = Bootstrap {
        node: Some(Node { cluster: "default/web".into(), id: "web-1".into() }),
        admin: Socket { host: "127.0.0.1".into(), port: 0 },
        ..Bootstrap::new(XdsServer {
            address: Socket { host: "127.0.0.1".into(), port: 4242 },
            certificate: "c.json".into(),
            trusted_ca: "ca.json".into(),
            token: None,
            protocol: Protocol::StateOfTheWorld,
        })
    };
    let tree = bootstrap.render();
    assert_eq!(tree["node"], json!({"cluster": "default/web", "id": "web-1"}));
    assert_eq!(tree["dynamic_resources"]["ads_config"]["api_type"], "GRPC");
    let xds = &tree["static_resources"]["clusters"][0];
    assert_eq!(xds["type"], "STATIC", "an address needs no DNS");
    assert_eq!(
        xds["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]["port_value"],
        4242
    );
    assert!(tree["static_resources"].get("listeners").is_none() && tree.get("cluster_manager").is_none());
    crate::json::from_value(BOOTSTRAP, &tree).unwrap();
}

#[test]
fn sds_files_hold_secrets() {
    const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
    for (file, name) in
        [(sds_certificate("a.crt", "a.key"), "xds_certificate"), (sds_trusted_ca("ca.crt", "eg"), "xds_trusted_ca")]
    {
        let mut secret = file["resources"][0].clone();
        let kind = secret.as_object_mut().unwrap().remove("@type").unwrap();
        assert!(kind.as_str().unwrap().ends_with(SECRET));
        assert_eq!(secret["name"], name);
        crate::json::from_value(SECRET, &secret).unwrap();
    }
}

fn golden(part: &str) -> Option<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/bootstrap-golden").join(part);
    if !folder.is_dir() {
        println!("skipped: no peer data");
        return None;
    }
    Some(folder)
}

#[test]
fn changes_of_users_are_as_recorded() {
    let Some(folder) = golden("merge") else { return };
    let read = |name: String| std::fs::read_to_string(folder.join(name)).unwrap();
    let typed = |text: &str| crate::json::from_value(BOOTSTRAP, &serde_saphyr::from_str(text).unwrap()).unwrap();
    let default = in_cluster().render();
    let names = ["default", "merge-user-bootstrap", "stats_sinks", "patch-global-config"];
    for name in names {
        let change = read(format!("{name}.in.yaml"));
        let change = match serde_saphyr::from_str(&change).unwrap() {
            Value::Array(operations) => change::Change::Patch(operations),
            _ => change::Change::Merge(change),
        };
        let text = change.apply(default.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(typed(&text), typed(&read(format!("{name}.out.yaml"))), "{name}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2 * names.len(), "every recorded change is compared");
}

#[test]
fn a_bootstrap_that_loses_the_control_plane_is_refused_as_recorded() {
    let Some(folder) = golden("validate") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let outcome = change::Change::Replace(text).apply(in_cluster().render());
        assert_eq!(outcome.is_ok(), name.starts_with("valid"), "{name}: {outcome:?}");
    }
}

#[test]
fn what_is_no_change_is_told() {
    let default = in_cluster().render();
    let told = |change: change::Change| change.apply(default.clone()).unwrap_err().to_string();
    assert!(told(change::Change::Merge("[".to_owned())).starts_with("spec.bootstrap.value is no YAML"));
    assert!(told(change::Change::Merge("admin: {port: 1}".to_owned())).contains("is no bootstrap of Envoy: "));
    let patch = json!({"op": "remove", "path": "/nowhere"});
    assert!(told(change::Change::Patch(vec![patch])).starts_with("spec.bootstrap.jsonPatches: [0]"));
    let patch = json!({"op": "remove", "path": "/dynamic_resources/cds_config"});
    assert!(told(change::Change::Patch(vec![patch])).contains("dynamic_resources"));
}

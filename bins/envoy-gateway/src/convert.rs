//! Settings and values in the terms of the crates that take them.

use std::{sync::Arc, time::Duration};

use api::config::EnvoyGateway;
use translator::Config;
use xds::{Hints, Resource};

/// Namespace of the controller where nothing else is said.
pub(crate) const CONTROLLER_NAMESPACE: &str = "envoy-gateway-system";
/// DNS domain of a cluster where nothing else is said.
pub(crate) const DNS_DOMAIN: &str = "cluster.local";
/// Version of Gateway API that the types follow.
pub(crate) const GATEWAY_API_VERSION: &str = "v1.6.1";
/// Version of Envoy that is tested against.
pub(crate) const ENVOY_VERSION: &str = "1.40.0";

/// Namespace of this process, as the Go controller reads it.
pub(crate) fn controller_namespace() -> String {
    std::env::var("ENVOY_GATEWAY_NAMESPACE").unwrap_or_else(|_| CONTROLLER_NAMESPACE.to_owned())
}

/// DNS domain of the cluster, as the Go controller reads it.
pub(crate) fn dns_domain() -> String {
    std::env::var("KUBERNETES_CLUSTER_DOMAIN").unwrap_or_else(|_| DNS_DOMAIN.to_owned())
}

/// What the translation depends on: the file, and what only the running process knows.
pub(crate) fn translator_config(settings: &EnvoyGateway) -> Config {
    Config {
        controller_namespace: controller_namespace().into(),
        dns_domain: dns_domain().into(),
        now: i64::try_from(certs::now().as_secs()).ok(),
        ..Config::from(settings)
    }
}

/// How the xDS server treats its clients.
pub(crate) fn xds_config(settings: &EnvoyGateway) -> xds::Config {
    let mut config = xds::Config::default();
    let server = &settings.xds_server;
    if let Some(age) = &server.max_connection_age {
        config.max_connection_age = Some(age.get());
    }
    if let Some(grace) = &server.max_connection_age_grace {
        config.max_connection_age_grace = grace.get();
    }
    if let Some(size) = &server.max_receive_message_size {
        config.max_request_bytes = usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    }
    config
}

/// A resource for the xDS server.
pub(crate) fn resource(encoded: &envoy::Encoded) -> Option<(xds::TypeUrl, Resource)> {
    let kind = xds::TypeUrl::parse(encoded.type_url)?;
    let names = |names: &[ir::Name]| names.iter().cloned().collect::<Arc<[_]>>();
    let hints = match &encoded.hints {
        envoy::Hints::Cluster { endpoints, warms, secrets } => {
            Hints::Cluster { warms: *warms, endpoints: endpoints.clone(), secrets: names(secrets) }
        }
        envoy::Hints::Listener { route_tables, secrets, clusters } => {
            Hints::Listener { routes: names(route_tables), secrets: names(secrets), clusters: names(clusters) }
        }
        envoy::Hints::RouteTable { clusters } => Hints::RouteConfiguration { clusters: names(clusters) },
        envoy::Hints::None => Hints::Unknown,
    };
    Some((kind, Resource::with_version(encoded.version.clone(), encoded.message.clone(), hints)))
}

/// The xDS type of a kind of the IR.
pub(crate) fn type_url(kind: ir::XdsKind) -> xds::TypeUrl {
    xds::TypeUrl::parse(envoy::type_url(kind)).expect("the server carries every kind of the IR")
}

/// The kind of the IR whose refusals are traced to objects.
pub(crate) fn xds_kind(kind: xds::TypeUrl) -> Option<ir::XdsKind> {
    match kind {
        xds::TypeUrl::Cluster => Some(ir::XdsKind::Cluster),
        xds::TypeUrl::Listener => Some(ir::XdsKind::Listener),
        xds::TypeUrl::RouteConfiguration => Some(ir::XdsKind::RouteTable),
        _ => None,
    }
}

/// Rounds to whole seconds for people.
pub(crate) fn seconds(d: Duration) -> f64 {
    (d.as_secs_f64() * 1000.0).round() / 1000.0
}

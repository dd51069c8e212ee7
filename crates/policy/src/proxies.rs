//! EnvoyProxies: what is wrong with one, and what is told to the classes and Gateways that name it.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    envoygateway::{Backend, BackendCluster, EnvoyProxy, EnvoyProxySpec, ProxyAccessLogSink, ProxyAccessLogSinkType},
    gateway::{Gateway, GatewayClass},
};
use ir::{AncestorStatus, Condition, ConditionStatus, ParentRef, Status};
use k8s_openapi::{api::core::v1::Service, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use resources::{Kind, ObjectKey, Store};

use crate::topology::{name, namespace};

/// Whether the settings make sense by themselves.
///
/// # Errors
/// All that does not: field, cause and remedy.
pub fn check(spec: &EnvoyProxySpec) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (place, sink) in log_sinks(spec) {
        let (field, is_there) = match &sink.type_ {
            Some(ProxyAccessLogSinkType::File) => ("file", sink.file.is_some()),
            Some(ProxyAccessLogSinkType::ALS) => ("als", sink.als.is_some()),
            Some(ProxyAccessLogSinkType::OpenTelemetry) => ("openTelemetry", sink.open_telemetry.is_some()),
            _ => continue,
        };
        if !is_there {
            wrong.push(format!("{place}.{field} is missing though type asks for it; add it or change type"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// What is wrong with the services that telemetry is sent to: the first reference to something that is not there.
///
/// `own` is the namespace of references without one; when it is not known these are passed over.
#[must_use]
pub fn missing_collector(store: &Store, spec: &EnvoyProxySpec, own: Option<&str>) -> Option<String> {
    collectors(spec).into_iter().find_map(|(place, cluster)| {
        cluster.backend_refs.iter().enumerate().find_map(|(i, reference)| {
            let reference = &reference.object;
            let namespace = reference.namespace.as_deref().or(own)?;
            let kind = reference.kind.as_deref().unwrap_or("Service");
            let there = match kind {
                "Backend" => store.get::<Backend>(namespace, &reference.name).is_some(),
                _ => store.get::<Service>(namespace, &reference.name).is_some(),
            };
            let name = &reference.name;
            (!there).then(|| {
                format!("{place}.backendRefs[{i}]: {kind} {namespace}/{name} does not exist; create it or change the reference")
            })
        })
    })
}

/// Statuses of the EnvoyProxies that these classes and Gateways, all of this controller, name.
pub fn statuses<'a>(
    store: &Store,
    classes: impl Iterator<Item = &'a GatewayClass>,
    gateways: impl Iterator<Item = &'a Gateway>,
) -> BTreeMap<ObjectKey, Arc<Status>> {
    let mut found: BTreeMap<ObjectKey, Vec<AncestorStatus>> = BTreeMap::new();
    let mut note = |kind: &str, meta: &ObjectMeta, of: &str, named: &str| {
        let Some(proxy) = store.get::<EnvoyProxy>(of, named) else { return };
        let at = namespace(meta);
        let ancestor_ref = ParentRef {
            group: Some(api::gateway::GROUP.into()),
            kind: Some(kind.into()),
            namespace: (!at.is_empty()).then(|| at.into()),
            name: name(meta).into(),
            section_name: None,
            port: None,
        };
        let entry = AncestorStatus { ancestor_ref, conditions: vec![accepted(proxy)] };
        found.entry(ObjectKey::new(Kind::EnvoyProxy, of, named)).or_default().push(entry);
    };
    for class in classes {
        let reference = class.spec.parameters_ref.as_ref().filter(|r| is_proxy(&r.group, &r.kind));
        if let Some((reference, of)) = reference.and_then(|r| Some((r, r.namespace.as_deref()?))) {
            note("GatewayClass", &class.metadata, of, &reference.name);
        }
    }
    for gateway in gateways {
        let reference = gateway.spec.infrastructure.as_ref().and_then(|i| i.parameters_ref.as_ref());
        if let Some(reference) = reference.filter(|r| is_proxy(&r.group, &r.kind)) {
            note("Gateway", &gateway.metadata, namespace(&gateway.metadata), &reference.name);
        }
    }
    let status = |(key, mut ancestors): (_, Vec<AncestorStatus>)| {
        ancestors.sort_by(|a, b| a.ancestor_ref.cmp(&b.ancestor_ref));
        (key, Arc::new(Status::EnvoyProxy { ancestors }))
    };
    found.into_iter().map(status).collect()
}

fn accepted(proxy: &EnvoyProxy) -> Condition {
    let (status, reason, message) = match check(&proxy.spec) {
        Ok(()) => (ConditionStatus::True, "Accepted", "The EnvoyProxy is valid".to_owned()),
        Err(message) => (ConditionStatus::False, "InvalidParameters", message),
    };
    Condition { kind: "Accepted", status, reason, message, observed_generation: proxy.metadata.generation }
}

fn is_proxy(group: &str, kind: &str) -> bool {
    group == api::envoygateway::GROUP && kind == "EnvoyProxy"
}

/// Sinks of access logs with their fields.
fn log_sinks(spec: &EnvoyProxySpec) -> impl Iterator<Item = (String, &ProxyAccessLogSink)> {
    let log = spec.telemetry.as_ref().and_then(|t| t.access_log.as_ref());
    log.into_iter().flat_map(|l| l.settings.iter().enumerate()).flat_map(|(i, setting)| {
        let place = move |j| format!("spec.telemetry.accessLog.settings[{i}].sinks[{j}]");
        setting.sinks.iter().enumerate().map(move |(j, sink)| (place(j), sink))
    })
}

/// All that telemetry is sent to, with its field.
fn collectors(spec: &EnvoyProxySpec) -> Vec<(String, &BackendCluster)> {
    let mut out: Vec<(String, &BackendCluster)> = Vec::new();
    for (place, sink) in log_sinks(spec) {
        out.extend(sink.als.as_ref().map(|als| (format!("{place}.als"), &als.backend)));
        out.extend(sink.open_telemetry.as_ref().map(|otel| (format!("{place}.openTelemetry"), &otel.backend)));
    }
    let Some(telemetry) = &spec.telemetry else { return out };
    for (i, sink) in telemetry.metrics.iter().flat_map(|m| m.sinks.iter().enumerate()) {
        let place = format!("spec.telemetry.metrics.sinks[{i}].openTelemetry");
        out.extend(sink.open_telemetry.as_ref().map(|otel| (place, &otel.backend)));
    }
    out.extend(telemetry.tracing.as_ref().map(|t| ("spec.telemetry.tracing.provider".to_owned(), &t.provider.backend)));
    out
}

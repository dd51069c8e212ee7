//! Where the proxies of a fleet send their statistics. It becomes part of their bootstrap, and a changed bootstrap is a
//! new pod: so a Service is named, never one of its endpoints.

use api::envoygateway::{EnvoyProxySpec, ProxyOpenTelemetrySink};
use api::gateway::BackendObjectReference;
use ir::{MetricSink, Name, SinkTls};

use crate::{gateways::ca_text, upstream_tls, view::View};

/// Collectors that are sent to when nothing else is said listen here.
const OTLP: u16 = 4317;

/// The sinks of these settings; `own` is the namespace that references without one mean. A sink that cannot be resolved
/// is left out: it holds up no proxy.
pub(crate) fn resolve(view: &View<'_>, spec: &EnvoyProxySpec, own: &str) -> Vec<MetricSink> {
    let metrics = spec.telemetry.as_ref().and_then(|t| t.metrics.as_ref());
    let sinks = metrics.map(|m| m.sinks.as_slice()).unwrap_or_default();
    let mut out: Vec<MetricSink> = Vec::new();
    for sink in sinks.iter().filter_map(|s| s.open_telemetry.as_ref()) {
        let Some((host, port, authority, tls)) = address(view, sink, own) else { continue };
        // One collector is sent to once.
        if out.iter().any(|s| s.host == host && s.port == port) {
            continue;
        }
        out.push(MetricSink {
            host,
            port,
            authority,
            headers: sink.headers.iter().map(|h| (h.name.as_str().into(), h.value.as_str().into())).collect(),
            resource_attributes: sink
                .resource_attributes
                .iter()
                .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
                .collect(),
            counters_as_deltas: sink.report_counters_as_deltas == Some(true),
            histograms_as_deltas: sink.report_histograms_as_deltas == Some(true),
            tls,
        });
    }
    out
}

type Address = (Name, u16, Option<Name>, Option<SinkTls>);

fn port(number: Option<i32>) -> u16 {
    number.and_then(|p| u16::try_from(p).ok()).unwrap_or(OTLP)
}

fn address(view: &View<'_>, sink: &ProxyOpenTelemetrySink, own: &str) -> Option<Address> {
    if let Some(reference) = sink.backend.backend_refs.first() {
        return of_reference(view, &reference.object, own);
    }
    let host: Name = sink.host.as_deref()?.into();
    Some((host.clone(), port(sink.port), Some(host), None))
}

fn of_reference(view: &View<'_>, reference: &BackendObjectReference, own: &str) -> Option<Address> {
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let name = reference.name.as_str();
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let tls = || tls(view, kind, namespace, reference);
    if kind != "Backend" {
        let host: Name = format!("{name}.{namespace}.svc").into();
        // Without the Service nothing is known of what answers there.
        let there = view.service(namespace, name).is_some();
        return Some((host.clone(), port(reference.port), there.then_some(host), tls()));
    }
    let endpoint = view.backend(namespace, name)?.spec.endpoints.first()?;
    if let Some(fqdn) = &endpoint.fqdn {
        let host: Name = fqdn.hostname.as_str().into();
        return Some((host.clone(), port(Some(fqdn.port)), Some(host), tls()));
    }
    let ip = endpoint.ip.as_ref()?;
    Some((ip.address.as_str().into(), port(Some(ip.port)), None, tls()))
}

fn tls(view: &View<'_>, kind: &str, namespace: &str, reference: &BackendObjectReference) -> Option<SinkTls> {
    if let Some(policy) = upstream_tls::policy_of(view, kind, namespace, &reference.name, reference.port) {
        let validation = &policy.spec.validation;
        let own = policy.metadata.namespace.as_deref().unwrap_or_default();
        let ca = validation.ca_certificate_refs.first().and_then(|r| ca_text(view, &r.kind, own, &r.name).ok());
        return Some(SinkTls { sni: Some(validation.hostname.as_str().into()), ca });
    }
    let backend = view.backend(namespace, &reference.name).filter(|_| kind == "Backend")?;
    let settings = backend.spec.tls.as_ref()?;
    let fqdn = backend.spec.endpoints.first().and_then(|e| e.fqdn.as_ref()).map(|f| f.hostname.as_str());
    let ca = settings.ca_certificate_refs.first().and_then(|r| ca_text(view, &r.kind, namespace, &r.name).ok());
    Some(SinkTls { sni: settings.sni.as_deref().or(fqdn).map(Name::from), ca })
}

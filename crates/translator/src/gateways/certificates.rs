//! Certificates that listeners refer to.

use api::gateway::SecretObjectReference;
use ir::{Name, Secret, SecretContent};
use k8s_openapi::api::core::v1;

use super::{Certificate, GatewayUnit, ListenerUnit};
use crate::{
    certificate,
    condition::Conditions,
    view::{From, To, View},
};

const SDS_TYPE: &str = "gateway.envoyproxy.io/sds";

struct Wrong {
    reason: &'static str,
    message: String,
}

/// Resolves the certificates of a listener that terminates TLS. Those that are valid are used, those that are not are
/// told; a listener without any valid one is not programmed.
pub(super) fn resolve(view: &View<'_>, unit: &mut GatewayUnit<'_>, index: usize, make: Conditions) {
    let set = unit.listeners[index].set;
    let kind = if set.is_some() { "ListenerSet" } else { "Gateway" };
    let listener = &mut unit.listeners[index];
    let Some(tls) = &listener.spec.tls else {
        let message =
            "tls is missing: a listener that terminates TLS needs tls.certificateRefs; add the reference of a Secret";
        listener.conditions.push(make.no("ResolvedRefs", "InvalidCertificateRef", message));
        return;
    };
    if listener.protocol == super::Protocol::Https
        && tls.mode.as_ref().is_some_and(|m| *m != api::gateway::TLSModeType::Terminate)
    {
        let mode = tls.mode.as_ref().map(api::gateway::TLSModeType::as_str).unwrap_or_default();
        let message = format!("tls.mode: {mode} is not possible with protocol HTTPS; use Terminate or protocol TLS");
        listener.conditions.push(make.no("Programmed", "UnsupportedTLSMode", message));
        return;
    }
    if tls.certificate_refs.is_empty() {
        let message = "tls.certificateRefs is empty: a listener that terminates TLS needs a certificate; add the reference of a Secret";
        listener.conditions.push(make.no("ResolvedRefs", "InvalidCertificateRef", message));
        return;
    }
    let mut wrong = Vec::new();
    for (i, reference) in tls.certificate_refs.iter().enumerate() {
        match one(view, kind, listener, reference) {
            Ok(c) => listener.certificates.push(c),
            Err(w) => wrong.push(Wrong { message: format!("tls.certificateRefs[{i}]: {}", w.message), ..w }),
        }
    }
    let Some(first) = wrong.first() else { return };
    let reason = if listener.certificates.is_empty() { first.reason } else { "PartiallyInvalidCertificateRef" };
    let texts: Vec<_> = wrong.iter().map(|w| w.message.as_str()).collect();
    listener.conditions.push(make.no("ResolvedRefs", reason, texts.join("; ")));
}

fn one(
    view: &View<'_>,
    kind: &str,
    listener: &ListenerUnit<'_>,
    reference: &SecretObjectReference,
) -> Result<Certificate, Wrong> {
    let wrong = |reason, message| Err(Wrong { reason, message });
    let group = reference.group.as_deref().unwrap_or_default();
    let target = reference.kind.as_deref().unwrap_or("Secret");
    if !group.is_empty() || target != "Secret" {
        let message =
            format!("{} cannot hold a certificate; refer to a Secret", api::shared::group_kind(group, target));
        return wrong("InvalidCertificateRef", message);
    }
    let namespace = reference.namespace.as_deref().unwrap_or(listener.namespace);
    let name = &reference.name;
    let from = From { group: api::gateway::GROUP, kind, namespace: listener.namespace };
    if !view.granted(from, To { group: "", kind: "Secret", namespace, name }) {
        let message = format!(
            "Secret {namespace}/{name} is in another namespace and no ReferenceGrant there allows it; \
             create one in {namespace} from {kind} of namespace {} to Secret {name}",
            listener.namespace
        );
        return wrong("RefNotPermitted", message);
    }
    let Some(secret) = view.secret(namespace, name) else {
        let message = format!("Secret {namespace}/{name} does not exist; create it with tls.crt and tls.key");
        return wrong("InvalidCertificateRef", message);
    };
    if secret.type_.as_deref() == Some(SDS_TYPE) {
        return sds(view, namespace, name, secret).or_else(|message| wrong("InvalidCertificateRef", message));
    }
    match inline(view, namespace, name, secret) {
        Ok(c) => Ok(c),
        Err(problem) => {
            let message = format!("Secret {namespace}/{name} cannot be used: {problem}; replace its content");
            wrong("InvalidCertificateRef", message)
        }
    }
}

fn inline(view: &View<'_>, namespace: &str, name: &str, secret: &v1::Secret) -> Result<Certificate, String> {
    let pair = certificate::pair(secret, view.config.now)?;
    let content = SecretContent::Certificate { chain: pair.chain, key: pair.key, ocsp: pair.ocsp };
    let secret = Secret { name: format!("{namespace}/{name}").into(), content };
    Ok(Certificate::Inline { secret, names: pair.names })
}

fn sds(view: &View<'_>, namespace: &str, name: &str, secret: &v1::Secret) -> Result<Certificate, String> {
    if !view.config.extension_apis.sds_secret_ref {
        return Err(format!(
            "Secret {namespace}/{name} points to an SDS server, which is off; \
             set extensionApis.enableSDSSecretRef in the EnvoyGateway configuration"
        ));
    }
    let text = |key: &str| {
        certificate::entry(secret, key)
            .and_then(|b| std::str::from_utf8(b).ok())
            .map(str::trim)
            .filter(|t| !t.is_empty())
    };
    let (Some(url), Some(secret_name)) = (text("url"), text("secretName")) else {
        return Err(format!("Secret {namespace}/{name} must contain url and secretName"));
    };
    let path = url.strip_prefix("unix://").unwrap_or(url);
    if !path.starts_with('/') {
        return Err(format!("Secret {namespace}/{name}: url {url} is no path of a Unix socket"));
    }
    Ok(Certificate::Sds { name: secret_name.into(), cluster: sds_cluster(path), path: path.into() })
}

/// Name of the cluster of an SDS server: readable, and unique by a digest of the address.
fn sds_cluster(path: &str) -> Name {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(path.as_bytes());
    let hex: String = digest.iter().take(16).map(|b| format!("{b:02x}")).collect();
    format!("sds{}_{hex}", path.replace('/', "_")).into()
}

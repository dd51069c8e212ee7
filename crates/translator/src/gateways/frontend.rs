//! `spec.tls` of a Gateway: validation of client certificates, and the certificate shown to backends.

use api::gateway::{FrontendTLSValidation, FrontendValidationModeType, ObjectReference};
use ir::{Secret, SecretContent};

use super::{Frontend, GatewayUnit};
use crate::{
    certificate,
    condition::Conditions,
    view::{From, To, View},
};

struct Wrong {
    reason: &'static str,
    message: String,
}

fn validation<'a>(unit: &GatewayUnit<'a>, port: u16) -> Option<(String, &'a FrontendTLSValidation)> {
    let frontend = unit.object.spec.tls.as_ref()?.frontend.as_ref()?;
    match frontend.per_port.iter().find(|p| p.port == i32::from(port)) {
        Some(own) => own.tls.validation.as_ref().map(|v| (port.to_string(), v)),
        None => frontend.default.validation.as_ref().map(|v| ("default".to_owned(), v)),
    }
}

/// Finds the CAs for the client certificates of an HTTPS listener.
pub(super) fn listener(view: &View<'_>, unit: &mut GatewayUnit<'_>, index: usize, make: Conditions) {
    let Some((scope, validation)) = validation(unit, unit.listeners[index].port) else { return };
    match bundle(view, unit, validation) {
        Ok(bundle) => {
            let fallback = validation.mode == Some(FrontendValidationModeType::AllowInsecureFallback);
            let name = format!("gateway/{}/{}/{scope}/ca.crt", unit.namespace, unit.name);
            let content = SecretContent::Ca { bundle, accept_untrusted: fallback, subject_names: Vec::new() };
            unit.listeners[index].frontend = Some(Frontend { secret: Secret { name: name.into(), content }, fallback });
        }
        Err(w) => {
            let conditions = &mut unit.listeners[index].conditions;
            conditions.retain(|c| c.kind != "ResolvedRefs");
            conditions.push(make.no("ResolvedRefs", w.reason, w.message.clone()));
            conditions.push(make.no("Programmed", w.reason, w.message.clone()));
            conditions.push(make.no("Accepted", "NoValidCACertificate", w.message));
        }
    }
}

fn bundle(view: &View<'_>, unit: &GatewayUnit<'_>, validation: &FrontendTLSValidation) -> Result<Vec<u8>, Wrong> {
    let mut parts = Vec::new();
    for (i, reference) in validation.ca_certificate_refs.iter().enumerate() {
        let part = ca(view, unit.namespace, reference).map_err(|w| Wrong {
            message: format!(
                "Gateway {}/{} tls.frontend caCertificateRefs[{i}]: {}",
                unit.namespace, unit.name, w.message
            ),
            ..w
        })?;
        parts.push(part);
    }
    if parts.is_empty() {
        return Err(Wrong {
            reason: "InvalidCACertificateRef",
            message: "tls.frontend caCertificateRefs is empty; refer to a ConfigMap or Secret with ca.crt".to_owned(),
        });
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    certificate::bundle(&parts).map_err(|message| Wrong { reason: "InvalidCACertificateRef", message })
}

fn ca(view: &View<'_>, own: &str, reference: &ObjectReference) -> Result<Vec<u8>, Wrong> {
    let wrong = |reason, message| Err(Wrong { reason, message });
    let kind = reference.kind.as_str();
    if !reference.group.is_empty() || !matches!(kind, "ConfigMap" | "Secret") {
        let kind = api::shared::group_kind(&reference.group, kind);
        return wrong("InvalidCACertificateKind", format!("{kind} cannot hold CAs; refer to a ConfigMap or Secret"));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let name = &reference.name;
    let from = From { group: api::gateway::GROUP, kind: "Gateway", namespace: own };
    if !view.granted(from, To { group: "", kind, namespace, name }) {
        let message = format!(
            "{kind} {namespace}/{name} is in another namespace and no ReferenceGrant there allows it; \
             create one in {namespace} from Gateway of namespace {own} to {kind} {name}"
        );
        return wrong("RefNotPermitted", message);
    }
    match ca_text(view, kind, namespace, name) {
        Ok(text) => Ok(text),
        Err(message) => wrong("InvalidCACertificateRef", message),
    }
}

/// CAs of a ConfigMap or Secret, under `ca.crt`; or `tls.crt`, or the only or first entry.
pub(crate) fn ca_text(view: &View<'_>, kind: &str, namespace: &str, name: &str) -> Result<Vec<u8>, String> {
    let found: Option<Option<Vec<u8>>> = if kind == "ConfigMap" {
        view.config_map(namespace, name).map(|m| {
            let data = m.data.as_ref()?;
            let text = data.get("ca.crt").or_else(|| data.get("tls.crt")).or_else(|| data.values().next())?;
            Some(text.as_bytes().to_vec())
        })
    } else {
        view.secret(namespace, name).map(|s| {
            let named = certificate::entry(s, "ca.crt").or_else(|| certificate::entry(s, "tls.crt"));
            named.or_else(|| s.data.as_ref()?.values().next().map(|b| b.0.as_slice())).map(<[u8]>::to_vec)
        })
    };
    match found {
        None => Err(format!("{kind} {namespace}/{name} does not exist; create it with the CAs under ca.crt")),
        Some(None) => Err(format!("{kind} {namespace}/{name} holds no CA; put it under ca.crt")),
        Some(Some(text)) => {
            certificate::bundle(&[&text]).map_err(|e| format!("{kind} {namespace}/{name} cannot be used: {e}"))
        }
    }
}

/// Conditions of the Gateway that follow from `spec.tls`, and the certificate that is shown to backends.
pub(super) fn gateway(view: &View<'_>, unit: &mut GatewayUnit<'_>) {
    let Some(tls) = &unit.object.spec.tls else { return };
    let make = Conditions::of(&unit.object.metadata);
    if let Some(reference) = tls.backend.as_ref().and_then(|b| b.client_certificate_ref.as_ref()) {
        match client_certificate(view, unit.namespace, reference) {
            Ok(secret) => unit.client_certificate = Some(secret),
            Err(w) => {
                let message = format!("tls.backend.clientCertificateRef: {}", w.message);
                unit.conditions.push(make.no("ResolvedRefs", w.reason, message));
                return;
            }
        }
    }
    if tls.frontend.is_none() {
        if unit.client_certificate.is_some() {
            unit.conditions.push(make.yes("ResolvedRefs", "ResolvedRefs", "All references of spec.tls are resolved"));
        }
        return;
    }
    let wrong = unit
        .listeners
        .iter()
        .filter(|l| l.port > 0)
        .find_map(|l| l.conditions.iter().find(|c| c.reason == "NoValidCACertificate").map(|c| c.message.clone()));
    unit.conditions.push(match wrong {
        Some(message) => make.no("ResolvedRefs", "InvalidParameters", message),
        None => make.yes("ResolvedRefs", "ResolvedRefs", "All references of spec.tls are resolved"),
    });
    if unit.listeners.iter().any(|l| l.frontend.as_ref().is_some_and(|f| f.fallback)) {
        let message = "tls.frontend: AllowInsecureFallback lets clients in whose certificate does not verify; \
                       use AllowValidOnly unless backends check it";
        unit.conditions.push(make.yes("InsecureFrontendValidationMode", "ConfigurationChanged", message));
    }
}

fn client_certificate(
    view: &View<'_>,
    own: &str,
    reference: &api::gateway::SecretObjectReference,
) -> Result<Secret, Wrong> {
    let wrong = |reason, message| Err(Wrong { reason, message });
    let group = reference.group.as_deref().unwrap_or_default();
    let kind = reference.kind.as_deref().unwrap_or("Secret");
    if !group.is_empty() || kind != "Secret" {
        let kind = api::shared::group_kind(group, kind);
        return wrong("InvalidClientCertificateRef", format!("{kind} cannot hold a certificate; refer to a Secret"));
    }
    let namespace = reference.namespace.as_deref().unwrap_or(own);
    let name = &reference.name;
    let from = From { group: api::gateway::GROUP, kind: "Gateway", namespace: own };
    if !view.granted(from, To { group: "", kind: "Secret", namespace, name }) {
        let message = format!(
            "Secret {namespace}/{name} is in another namespace and no ReferenceGrant there allows it; \
             create one in {namespace} from Gateway of namespace {own} to Secret {name}"
        );
        return wrong("RefNotPermitted", message);
    }
    let Some(secret) = view.secret(namespace, name) else {
        let message = format!("Secret {namespace}/{name} does not exist; create it with tls.crt and tls.key");
        return wrong("InvalidClientCertificateRef", message);
    };
    match certificate::pair(secret, view.config.now) {
        Ok(pair) => Ok(Secret {
            name: format!("{namespace}/{name}").into(),
            content: SecretContent::Certificate { chain: pair.chain, key: pair.key, ocsp: pair.ocsp },
        }),
        Err(problem) => {
            wrong("InvalidClientCertificateRef", format!("Secret {namespace}/{name} cannot be used: {problem}"))
        }
    }
}

//! TLS towards backends: BackendTLSPolicy, `spec.tls` of Backends, the Gateway's client certificate.

use api::{
    envoygateway::{BackendTLSSettings, TLSVersion},
    gateway::{BackendObjectReference, BackendTLSPolicy, LocalObjectReference, SubjectAltNameType},
};
use ir::{Name, Secret, SecretContent, SubjectName, TlsParams, UpstreamTls};

use crate::{
    backend::Target,
    certificate,
    condition::Problem,
    gateways::{GatewayUnit, ca_text},
    route::Route,
    view::View,
};

const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";
const SYSTEM_CA_SECRET: &str = "system_ca_certificates";

/// Gives a target its TLS settings.
///
/// # Errors
/// TLS is asked for but cannot be set up: the backend is not reached without it.
pub(crate) fn apply(
    view: &View<'_>,
    unit: &GatewayUnit<'_>,
    _route: Route<'_>,
    reference: &BackendObjectReference,
    namespace: &str,
    target: &mut Target,
) -> Result<(), Problem> {
    let kind = reference.kind.as_deref().unwrap_or("Service");
    let policy = policy_of(view, kind, namespace, &reference.name, reference.port);
    let settings = if kind == "Backend" {
        view.backend(namespace, &reference.name).and_then(|b| b.spec.tls.as_ref())
    } else {
        None
    };
    if policy.is_none() && settings.is_none() {
        return Ok(());
    }
    let skip = settings.is_some_and(|s| s.insecure_skip_verify == Some(true));
    let mut tls = UpstreamTls {
        ca: None,
        client_certificate: None,
        sni: None,
        auto_san: false,
        params: params(settings),
        subject_names: Vec::new(),
        alpn: settings.iter().flat_map(|s| s.config.tls.alpn_protocols.iter().map(|a| a.as_str().into())).collect(),
    };
    if let Some(policy) = policy {
        of_policy(view, policy, skip, &mut tls, target)?;
    } else if let Some(settings) = settings {
        of_backend(view, namespace, &reference.name, settings, skip, &mut tls, target)?;
    }
    if let Some(certificate) = &unit.client_certificate {
        tls.client_certificate = Some(certificate.name.clone());
        target.secrets.push(certificate.clone());
    }
    target.tls = Some(tls);
    Ok(())
}

/// The policy that holds for a port of an object: one for the port before one for the whole, the older before the newer.
pub(crate) fn policy_of<'a>(
    view: &View<'a>,
    kind: &str,
    namespace: &str,
    name: &str,
    port: Option<i32>,
) -> Option<&'a BackendTLSPolicy> {
    let policies = view.tls_policies(namespace, kind, name);
    let names = port_names(view, kind, namespace, name, port);
    let section = |p: &BackendTLSPolicy, wanted: bool| {
        p.spec.target_refs.iter().any(|t| {
            t.kind == kind
                && t.name == name
                && match t.section_name.as_deref().filter(|s| !s.is_empty()) {
                    Some(s) => wanted && names.iter().any(|n| n == s),
                    None => !wanted,
                }
        })
    };
    policies.iter().find(|p| section(p, true)).or_else(|| policies.iter().find(|p| section(p, false))).copied()
}

/// How a port can be called: by its name and by its number.
pub(crate) fn port_names(view: &View<'_>, kind: &str, namespace: &str, name: &str, port: Option<i32>) -> Vec<String> {
    let Some(number) = port else { return Vec::new() };
    let mut names = vec![number.to_string()];
    match kind {
        "Service" => {
            let ports = view.service(namespace, name).and_then(|s| s.spec.as_ref()).and_then(|s| s.ports.as_ref());
            let found = ports.iter().flat_map(|p| p.iter()).find(|p| p.port == number);
            names.extend(found.and_then(|p| p.name.clone()));
        }
        "ServiceImport" => {
            let found = view.import(namespace, name).and_then(|i| i.spec.ports.iter().find(|p| p.port == number));
            names.extend(found.and_then(|p| p.name.clone()));
        }
        _ => {}
    }
    names
}

fn params(settings: Option<&BackendTLSSettings>) -> TlsParams {
    let version = |v: &TLSVersion| match v {
        TLSVersion::V1_0 => ir::TlsVersion::V1_0,
        TLSVersion::V1_1 => ir::TlsVersion::V1_1,
        TLSVersion::V1_2 => ir::TlsVersion::V1_2,
        TLSVersion::V1_3 => ir::TlsVersion::V1_3,
        TLSVersion::Auto | TLSVersion::Unknown(_) => ir::TlsVersion::Auto,
    };
    let own = settings.map(|s| &s.config.tls);
    let names = |list: &[String]| list.iter().map(|s| Name::from(s.as_str())).collect();
    TlsParams {
        min_version: Some(own.and_then(|s| s.min_version.as_ref()).map_or(ir::TlsVersion::V1_2, version)),
        max_version: Some(own.and_then(|s| s.max_version.as_ref()).map_or(ir::TlsVersion::V1_3, version)),
        ciphers: own.map(|s| names(&s.ciphers)).unwrap_or_default(),
        ecdh_curves: own.map(|s| names(&s.ecdh_curves)).unwrap_or_default(),
        signature_algorithms: own.map(|s| names(&s.signature_algorithms)).unwrap_or_default(),
    }
}

fn of_policy(
    view: &View<'_>,
    policy: &BackendTLSPolicy,
    skip: bool,
    tls: &mut UpstreamTls,
    target: &mut Target,
) -> Result<(), Problem> {
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let validation = &policy.spec.validation;
    tls.sni = Some(validation.hostname.as_str().into());
    if skip {
        return Ok(());
    }
    let secret = ca_of_policy(view, policy).map_err(|(_, m)| {
        Problem::reference("InvalidBackendTLS", format!("BackendTLSPolicy {namespace}/{name}: {m}"))
    })?;
    tls.ca = Some(secret.name.clone());
    target.secrets.push(secret);
    tls.subject_names = validation
        .subject_alt_names
        .iter()
        .filter_map(|san| match &san.type_ {
            SubjectAltNameType::Hostname => san.hostname.as_deref().map(|h| SubjectName::Dns(h.into())),
            SubjectAltNameType::URI => san.uri.as_deref().map(|u| SubjectName::Uri(u.into())),
            SubjectAltNameType::Unknown(_) => None,
        })
        .collect();
    if tls.subject_names.is_empty() {
        tls.subject_names.push(SubjectName::Dns(validation.hostname.as_str().into()));
    }
    Ok(())
}

/// The CAs of a policy: reason and message when there are none.
pub(crate) fn ca_of_policy(view: &View<'_>, policy: &BackendTLSPolicy) -> Result<Secret, (&'static str, String)> {
    let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
    let name = policy.metadata.name.as_deref().unwrap_or_default();
    let validation = &policy.spec.validation;
    if validation.well_known_ca_certificates.as_deref().is_some_and(|w| !w.is_empty()) {
        return Ok(system(view, namespace, name));
    }
    cas(view, namespace, name, &validation.ca_certificate_refs, "spec.validation.caCertificateRefs")
}

fn system(view: &View<'_>, namespace: &str, owner: &str) -> Secret {
    let name: Name = if view.config.per_resource_system_ca_secret {
        format!("{owner}/{namespace}-ca").into()
    } else {
        SYSTEM_CA_SECRET.into()
    };
    Secret { name, content: SecretContent::CaFile(SYSTEM_CA.into()) }
}

fn cas(
    view: &View<'_>,
    namespace: &str,
    owner: &str,
    references: &[LocalObjectReference],
    field: &str,
) -> Result<Secret, (&'static str, String)> {
    let mut parts = Vec::new();
    let mut wrong = None;
    for (i, reference) in references.iter().enumerate() {
        let kind = reference.kind.as_str();
        let found = if reference.group.is_empty() && matches!(kind, "ConfigMap" | "Secret") {
            ca_text(view, kind, namespace, &reference.name).map_err(|m| ("InvalidCACertificateRef", m))
        } else {
            let kind = api::shared::group_kind(&reference.group, kind);
            Err(("InvalidKind", format!("{kind} cannot hold CAs; refer to a ConfigMap or Secret")))
        };
        match found {
            Ok(text) => parts.push(text),
            Err((reason, m)) => wrong = wrong.or(Some((reason, format!("{field}[{i}]: {m}")))),
        }
    }
    if let Some(wrong) = wrong.filter(|_| parts.is_empty()) {
        return Err(wrong);
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    if parts.is_empty() {
        return Err((
            "InvalidCACertificateRef",
            format!("{field} is empty; refer to a ConfigMap or Secret with ca.crt"),
        ));
    }
    let bundle = certificate::bundle(&parts).map_err(|m| ("InvalidCACertificateRef", format!("{field}: {m}")))?;
    let content = SecretContent::Ca { bundle, accept_untrusted: false, subject_names: Vec::new() };
    Ok(Secret { name: format!("{owner}/{namespace}-ca").into(), content })
}

fn of_backend(
    view: &View<'_>,
    namespace: &str,
    name: &str,
    settings: &BackendTLSSettings,
    skip: bool,
    tls: &mut UpstreamTls,
    target: &mut Target,
) -> Result<(), Problem> {
    tls.sni = settings.sni.as_deref().map(Into::into);
    if skip {
        return Ok(());
    }
    let secret = if settings.well_known_ca_certificates.as_deref().is_some_and(|w| !w.is_empty()) {
        system(view, namespace, name)
    } else if settings.ca_certificate_refs.is_empty() {
        let message = format!(
            "Backend {namespace}/{name} spec.tls: there are no CAs; set caCertificateRefs, wellKnownCACertificates or insecureSkipVerify"
        );
        return Err(Problem::reference("InvalidBackendTLS", message));
    } else {
        cas(view, namespace, name, &settings.ca_certificate_refs, "spec.tls.caCertificateRefs")
            .map_err(|(_, m)| Problem::reference("InvalidBackendTLS", format!("Backend {namespace}/{name}: {m}")))?
    };
    tls.ca = Some(secret.name.clone());
    target.secrets.push(secret);
    match &tls.sni {
        Some(sni) => tls.subject_names.push(SubjectName::Dns(sni.clone())),
        None => {
            target.auto_sni = true;
            tls.auto_san = !target.dynamic;
        }
    }
    Ok(())
}

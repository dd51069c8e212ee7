//! TLS contexts and secrets.

use envoy_types::pb::envoy::{
    config::core::v3::{
        ApiConfigSource, ConfigSource, DataSource, GrpcService, TransportSocket, api_config_source::ApiType,
        config_source::ConfigSourceSpecifier, data_source::Specifier, grpc_service, transport_socket,
    },
    extensions::transport_sockets::tls::v3::{
        CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret,
        SubjectAltNameMatcher, TlsCertificate, TlsParameters, UpstreamTlsContext,
        certificate_validation_context::TrustChainVerification,
        common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
        downstream_tls_context::SessionTicketKeysType,
        secret::Type,
        subject_alt_name_matcher::SanType,
        tls_parameters::TlsProtocol,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use ir::{CertificateRef, SecretContent, SubjectName, TlsParams, TlsVersion};
use prost::{Message, Name};

use crate::pb::{ads_without_timeout, any, bool_value};

/// A TLS transport socket.
pub(crate) fn socket<M: Message + Name>(context: &M) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(transport_socket::ConfigType::TypedConfig(any(context))),
    }
}

pub(crate) fn upstream(t: &ir::UpstreamTls) -> UpstreamTlsContext {
    let validation = t.ca.as_deref().map(|ca| {
        ValidationContextType::CombinedValidationContext(CombinedCertificateValidationContext {
            default_validation_context: Some(CertificateValidationContext {
                match_typed_subject_alt_names: t.subject_names.iter().map(subject_name).collect(),
                ..Default::default()
            }),
            validation_context_sds_secret_config: Some(secret_config(ca)),
            ..Default::default()
        })
    });
    UpstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: params(&t.params),
            tls_certificate_sds_secret_configs: t.client_certificate.iter().map(|n| secret_config(n)).collect(),
            alpn_protocols: t.alpn.iter().map(ToString::to_string).collect(),
            validation_context_type: validation,
            ..Default::default()
        }),
        sni: t.sni.as_deref().unwrap_or_default().to_owned(),
        auto_sni_san_validation: t.auto_san,
        ..Default::default()
    }
}

pub(crate) fn downstream(t: &ir::DownstreamTls) -> DownstreamTlsContext {
    DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_params: params(&t.params),
            tls_certificate_sds_secret_configs: t.certificates.iter().map(certificate).collect(),
            alpn_protocols: t.alpn.iter().map(ToString::to_string).collect(),
            validation_context_type: t
                .client_ca
                .as_deref()
                .map(|ca| ValidationContextType::ValidationContextSdsSecretConfig(secret_config(ca))),
            ..Default::default()
        }),
        require_client_certificate: if t.require_client_certificate { bool_value(true) } else { None },
        // Session tickets are keyed per proxy: resumption at another proxy of the fleet would fail.
        disable_stateful_session_resumption: true,
        session_ticket_keys_type: Some(SessionTicketKeysType::DisableStatelessSessionResumption(true)),
        ..Default::default()
    }
}

fn certificate(c: &CertificateRef) -> SdsSecretConfig {
    match c {
        CertificateRef::Secret(name) => secret_config(name),
        CertificateRef::Sds { name, cluster } => SdsSecretConfig {
            name: name.to_string(),
            sds_config: Some(ConfigSource {
                config_source_specifier: Some(ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
                    api_type: ApiType::Grpc as i32,
                    grpc_services: vec![GrpcService {
                        target_specifier: Some(grpc_service::TargetSpecifier::EnvoyGrpc(grpc_service::EnvoyGrpc {
                            cluster_name: cluster.to_string(),
                            ..Default::default()
                        })),
                        ..Default::default()
                    }],
                    ..Default::default()
                })),
                ..Default::default()
            }),
        },
    }
}

fn secret_config(name: &str) -> SdsSecretConfig {
    SdsSecretConfig { name: name.to_owned(), sds_config: Some(ads_without_timeout()) }
}

fn params(p: &TlsParams) -> Option<TlsParameters> {
    if *p == TlsParams::default() {
        return None;
    }
    let version = |v: Option<TlsVersion>| match v {
        None | Some(TlsVersion::Auto) => TlsProtocol::TlsAuto,
        Some(TlsVersion::V1_0) => TlsProtocol::TlSv10,
        Some(TlsVersion::V1_1) => TlsProtocol::TlSv11,
        Some(TlsVersion::V1_2) => TlsProtocol::TlSv12,
        Some(TlsVersion::V1_3) => TlsProtocol::TlSv13,
    } as i32;
    let names = |v: &[ir::Name]| v.iter().map(ToString::to_string).collect();
    Some(TlsParameters {
        tls_minimum_protocol_version: version(p.min_version),
        tls_maximum_protocol_version: version(p.max_version),
        cipher_suites: names(&p.ciphers),
        ecdh_curves: names(&p.ecdh_curves),
        signature_algorithms: names(&p.signature_algorithms),
        ..Default::default()
    })
}

fn subject_name(name: &SubjectName) -> SubjectAltNameMatcher {
    let (kind, text) = match name {
        SubjectName::Dns(n) => (SanType::Dns, n),
        SubjectName::Uri(n) => (SanType::Uri, n),
    };
    SubjectAltNameMatcher {
        san_type: kind as i32,
        matcher: Some(StringMatcher {
            match_pattern: Some(MatchPattern::Exact(text.to_string())),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(crate) fn secret(s: &ir::Secret) -> Secret {
    let inline =
        |bytes: &[u8]| DataSource { specifier: Some(Specifier::InlineBytes(bytes.to_vec())), ..Default::default() };
    let content = match &s.content {
        SecretContent::Certificate { chain, key, ocsp } => Type::TlsCertificate(TlsCertificate {
            certificate_chain: Some(inline(chain)),
            private_key: Some(inline(key)),
            ocsp_staple: ocsp.as_deref().map(inline),
            ..Default::default()
        }),
        SecretContent::Ca { bundle, accept_untrusted, subject_names } => {
            let verification = if *accept_untrusted {
                TrustChainVerification::AcceptUntrusted
            } else {
                TrustChainVerification::VerifyTrustChain
            };
            Type::ValidationContext(CertificateValidationContext {
                trusted_ca: (!bundle.is_empty()).then(|| inline(bundle)),
                trust_chain_verification: verification as i32,
                match_typed_subject_alt_names: subject_names.iter().map(subject_name).collect(),
                ..Default::default()
            })
        }
        SecretContent::CaFile(path) => Type::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(DataSource {
                specifier: Some(Specifier::Filename(path.to_string())),
                ..Default::default()
            }),
            ..Default::default()
        }),
    };
    Secret { name: s.name.to_string(), r#type: Some(content) }
}

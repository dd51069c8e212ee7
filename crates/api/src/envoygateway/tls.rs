//! TLS with clients and backends.

use super::common::StringMatch;
use crate::gateway::SecretObjectReference;
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The proxy's side of TLS connections that it opens.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTLSConfig {
    /// Secret with the certificate and key that the proxy presents.
    pub client_certificate_ref: Option<SecretObjectReference>,
    /// Versions, ciphers and the like.
    #[serde(flatten)]
    pub tls: TLSSettings,
}

/// Parameters of the TLS protocol.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("has(self.minVersion) && self.minVersion == '1.3' ? !has(self.ciphers) : true", "setting ciphers has no effect if the minimum possible TLS version is 1.3"))]
#[x_kube(validation = (r#"has(self.minVersion) && has(self.maxVersion) ? {"Auto":0,"1.0":1,"1.1":2,"1.2":3,"1.3":4}[self.minVersion] <= {"1.0":1,"1.1":2,"1.2":3,"1.3":4,"Auto":5}[self.maxVersion] : !has(self.minVersion) && has(self.maxVersion) ? 3 <= {"1.0":1,"1.1":2,"1.2":3,"1.3":4,"Auto":5}[self.maxVersion] : true"#, "minVersion must be smaller or equal to maxVersion"))]
pub struct TLSSettings {
    /// Lowest version to negotiate; TLS 1.2 when unset.
    pub min_version: Option<TLSVersion>,
    /// Highest version to negotiate; TLS 1.3 when unset.
    pub max_version: Option<TLSVersion>,
    /// Cipher suites for TLS 1.2 and below, in BoringSSL's names; those of TLS 1.3 are fixed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ciphers: Vec<String>,
    /// Key exchange curves; X25519 and P-256 when unset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ecdh_curves: Vec<String>,
    /// Signature algorithms to offer or accept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signature_algorithms: Vec<String>,
    /// ALPN protocols in order of preference; an empty list turns ALPN off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub alpn_protocols: Vec<ALPNProtocol>,
    /// Fingerprints to compute from client hellos.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<TLSFingerprintType>,
}

open_enum! {
    /// A version of TLS.
    #[allow(missing_docs)] // the wire forms say it
    pub enum TLSVersion {
        Auto, V1_0 = "1.0", V1_1 = "1.1", V1_2 = "1.2", V1_3 = "1.3",
    }
}

open_enum! {
    /// A protocol negotiated by ALPN.
    #[allow(missing_docs)] // the wire forms say it
    pub enum ALPNProtocol {
        HTTP10 = "http/1.0", HTTP11 = "http/1.1", HTTP2 = "h2",
    }
}

open_enum! {
    /// A scheme of client fingerprints.
    #[allow(missing_docs)] // the wire forms say it
    pub enum TLSFingerprintType {
        JA3, JA4,
    }
}

/// TLS with clients.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientTLSSettings {
    /// Validation of client certificates.
    pub client_validation: Option<ClientValidationContext>,
    /// Versions, ciphers and the like.
    #[serde(flatten)]
    pub tls: TLSSettings,
    /// Sessions.
    pub session: Option<Session>,
}

/// Validation of client certificates.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("!has(self.allowExpiredCertificate) || !self.allowExpiredCertificate || !has(self.mode) || self.mode in ['VerifyIfGiven', 'RequireAndVerify']", "allowExpiredCertificate can only be set when mode is VerifyIfGiven or RequireAndVerify"))]
pub struct ClientValidationContext {
    /// Accept clients without a certificate; superseded by `mode`.
    pub optional: Option<bool>,
    /// How strict to be; `RequireAndVerify` when unset.
    pub mode: Option<ClientValidationModeType>,
    /// ConfigMaps or Secrets with the CA bundle (`ca.crt`) that certificates are checked against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub ca_certificate_refs: Vec<SecretObjectReference>,
    /// Base64 SHA-256 of public keys, one of which the certificate has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spki_hashes: Vec<String>,
    /// Hex SHA-256 of certificates, one of which it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificate_hashes: Vec<String>,
    /// Conditions on alternative names, one of which matches.
    pub subject_alt_names: Option<SubjectAltNames>,
    /// Revocation lists.
    pub crl: Option<CrlContext>,
    /// Accept expired certificates that are good otherwise; off when unset.
    pub allow_expired_certificate: Option<bool>,
}

open_enum! {
    /// How strictly client certificates are validated.
    pub enum ClientValidationModeType {
        /// Ask for one, accept none and any.
        Request,
        /// Accept any, but not none.
        RequireAny,
        /// Accept none; verify one that is presented.
        VerifyIfGiven,
        /// Accept only a verified one.
        RequireAndVerify,
    }
}

/// Conditions on alternative names of a certificate.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAltNames {
    /// On DNS names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_names: Vec<StringMatch>,
    /// On e-mail addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub email_addresses: Vec<StringMatch>,
    /// On IP addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_addresses: Vec<StringMatch>,
    /// On URIs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uris: Vec<StringMatch>,
    /// On names of other kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<OtherSANMatch>,
}

/// A condition on an `otherName`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct OtherSANMatch {
    /// Object identifier of the kind of name.
    pub oid: String,
    /// Condition on the name.
    #[serde(flatten)]
    pub matches: StringMatch,
}

/// Revocation lists.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CrlContext {
    /// ConfigMaps or Secrets with a PEM list under `ca.crl`.
    #[schemars(length(min = 1, max = 8))]
    pub refs: Vec<SecretObjectReference>,
    /// Check the leaf only rather than the whole chain; off when unset.
    pub only_verify_leaf_certificate: Option<bool>,
}

/// TLS sessions.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Session {
    /// Resumption; off when unset.
    pub resumption: Option<SessionResumption>,
}

/// Ways to resume a TLS session.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SessionResumption {
    /// By tickets.
    pub stateless: Option<StatelessTLSSessionResumption>,
    /// By session identifiers kept in the proxy.
    pub stateful: Option<StatefulTLSSessionResumption>,
}

/// Resumption by tickets; nothing to set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StatelessTLSSessionResumption {}

/// Resumption by session identifiers; nothing to set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct StatefulTLSSessionResumption {}

//! BackendTLSPolicy: TLS from the gateway to a backend.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fields;
use super::policy::{LocalPolicyTargetReferenceWithSectionName, PolicyStatus};
use super::reference::LocalObjectReference;
use crate::open_enum;

/// Wanted state of a [`BackendTLSPolicy`].
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[kube(
    group = "gateway.networking.k8s.io",
    version = "v1",
    kind = "BackendTLSPolicy",
    plural = "backendtlspolicies",
    namespaced,
    shortname = "btlspolicy",
    status = "PolicyStatus",
    category = "gateway-api",
    derive = "PartialEq",
    derive = "Default",
    doc = "How the gateway speaks TLS to a backend.",
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct BackendTLSPolicySpec {
    /// Services (or ports of them) that the policy is for.
    #[schemars(length(min = 1, max = 16), extend("x-kubernetes-validations" = [
    { "rule": "self.all(p1, self.all(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name ? ((!has(p1.sectionName) || p1.sectionName == '') == (!has(p2.sectionName) || p2.sectionName == '')) : true))", "message": "sectionName must be specified when targetRefs includes 2 or more references to the same target" },
    { "rule": "self.all(p1, self.exists_one(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.sectionName) || p1.sectionName == '') && (!has(p2.sectionName) || p2.sectionName == '')) || (has(p1.sectionName) && has(p2.sectionName) && p1.sectionName == p2.sectionName))))", "message": "sectionName must be unique when targetRefs includes 2 or more references to the same target" },
]))]
    pub target_refs: Vec<LocalPolicyTargetReferenceWithSectionName>,
    /// How the certificate is validated.
    pub validation: BackendTLSPolicyValidation,
    /// Settings particular to the implementation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "fields::annotations")]
    pub options: BTreeMap<String, String>,
}

/// How the certificate of a backend is validated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": r#"!(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 && has(self.wellKnownCACertificates) && self.wellKnownCACertificates != "")"#, "message": "must not contain both CACertificateRefs and WellKnownCACertificates" },
    { "rule": r#"(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 || has(self.wellKnownCACertificates) && self.wellKnownCACertificates != "")"#, "message": "must specify either CACertificateRefs or WellKnownCACertificates" },
]))]
pub struct BackendTLSPolicyValidation {
    /// Server name sent, and expected in the certificate unless `subjectAltNames` is set.
    #[schemars(schema_with = "fields::section_name")]
    pub hostname: String,
    /// ConfigMaps or Secrets with certificate authorities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub ca_certificate_refs: Vec<LocalObjectReference>,
    /// Names of which the certificate must carry one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub subject_alt_names: Vec<SubjectAltName>,
    /// A named set of authorities: `System`, or an implementation's own.
    #[serde(rename = "wellKnownCACertificates", default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(
            pattern = r"^(System|([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]))$"
        )
    )]
    pub well_known_ca_certificates: Option<String>,
}

/// A subject alternative name that a backend certificate must carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": r#"!(self.type == "Hostname" && (!has(self.hostname) || self.hostname == ""))"#, "message": "SubjectAltName element must contain Hostname, if Type is set to Hostname" },
    { "rule": r#"!(self.type != "Hostname" && has(self.hostname) && self.hostname != "")"#, "message": "SubjectAltName element must not contain Hostname, if Type is not set to Hostname" },
    { "rule": r#"!(self.type == "URI" && (!has(self.uri) || self.uri == ""))"#, "message": "SubjectAltName element must contain URI, if Type is set to URI" },
    { "rule": r#"!(self.type != "URI" && has(self.uri) && self.uri != "")"#, "message": "SubjectAltName element must not contain URI, if Type is not set to URI" },
]))]
pub struct SubjectAltName {
    /// Which kind.
    #[serde(rename = "type")]
    pub type_: SubjectAltNameType,
    /// DNS name, where `type` is `Hostname`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fields::hostname")]
    pub hostname: Option<String>,
    /// URI, where `type` is `URI`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?")
    )]
    pub uri: Option<String>,
}

open_enum! {
    /// Kinds of subject alternative names.
    #[derive(Default)]
    pub enum SubjectAltNameType {
        /// A DNS name.
        #[default]
        Hostname,
        /// A URI.
        URI,
    }
}

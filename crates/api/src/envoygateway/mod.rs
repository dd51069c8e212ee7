//! Kinds of `gateway.envoyproxy.io/v1alpha1`.
//!
//! Names are those of the Go types. A type that a Go type embeds is a flattened member here (`BackendCluster` in
//! `ExtProc` is its member `backend`, `PolicyTargetReferences` in a policy is its member `targets`), to which the outer
//! type dereferences unless it has two. Parts of pods are the types of `k8s-openapi`.
//!
//! [`definitions`] gives what an API server is told about the kinds; `deploy/crds` holds the same as files.
//!
//! Source: the published definitions of Envoy Gateway's `v1alpha1` API.

#![allow(unreachable_pub)] // `KubeSchema` derives public types within functions
#![allow(clippy::duplicated_attributes)] // several print columns have the same type

use crate::gateway::{BackendObjectReference, LocalObjectReference};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

mod access_log;
mod authorization;
mod backend;
mod backend_traffic;
mod client_traffic;
mod cluster;
mod common;
mod crd;
mod extension;
mod health_check;
mod jwt;
mod kubernetes;
mod load_balancer;
mod oidc;
mod patch;
mod patterns;
mod proxy;
mod rate_limit;
mod response;
mod route_filter;
mod security;
mod target;
mod telemetry;
mod tls;

pub use access_log::*;
pub use authorization::*;
pub use backend::*;
pub use backend_traffic::*;
pub use client_traffic::*;
pub use cluster::*;
pub use common::*;
pub use extension::*;
pub use health_check::*;
pub use jwt::*;
pub use kubernetes::*;
pub use load_balancer::*;
pub use oidc::*;
pub use patch::*;
pub use proxy::*;
pub use rate_limit::*;
pub use response::*;
pub use route_filter::*;
pub use security::*;
pub use target::*;
pub use telemetry::*;
pub use tls::*;

/// API group of these kinds.
pub const GROUP: &str = "gateway.envoyproxy.io";

/// All kinds of the group in the order of their names, each with what makes its definition.
pub const KINDS: &[(&str, crate::gateway::MakeDefinition)] = &[
    ("Backend", crd::definition::<Backend>),
    ("BackendTrafficPolicy", crd::definition::<BackendTrafficPolicy>),
    ("ClientTrafficPolicy", crd::definition::<ClientTrafficPolicy>),
    ("EnvoyExtensionPolicy", crd::definition::<EnvoyExtensionPolicy>),
    ("EnvoyPatchPolicy", crd::definition::<EnvoyPatchPolicy>),
    ("EnvoyProxy", crd::definition::<EnvoyProxy>),
    ("HTTPRouteFilter", crd::definition::<HTTPRouteFilter>),
    ("SecurityPolicy", crd::definition::<SecurityPolicy>),
];

/// Definitions of all [`KINDS`].
pub fn definitions() -> Vec<CustomResourceDefinition> {
    KINDS.iter().map(|(_, definition)| definition()).collect()
}

/// Makes the fields of an embedded type read as those of the type around it, as in Go.
macro_rules! embeds {
    ($($outer:ident.$field:ident: $inner:ty,)+) => {
        $(impl std::ops::Deref for $outer {
            type Target = $inner;

            fn deref(&self) -> &$inner {
                &self.$field
            }
        })+
    };
}

embeds! {
    ALSEnvoyProxyAccessLog.backend: BackendCluster,
    BackendRef.object: BackendObjectReference,
    BackendTLSConfig.tls: TLSSettings,
    BackendTLSSettings.config: BackendTLSConfig,
    ClientTLSSettings.tls: TLSSettings,
    ClientTrafficPolicySpec.targets: PolicyTargetReferences,
    EnvoyExtensionPolicySpec.targets: PolicyTargetReferences,
    ExtProc.backend: BackendCluster,
    GRPCExtAuthService.backend: BackendCluster,
    HTTPExtAuthService.backend: BackendCluster,
    LocalObjectKeyReference.reference: LocalObjectReference,
    OIDCDenyRedirectHeader.matches: StringMatch,
    OIDCProvider.backend: BackendCluster,
    OpenTelemetryEnvoyProxyAccessLog.backend: BackendCluster,
    OtherSANMatch.matches: StringMatch,
    ProxyOpenTelemetrySink.backend: BackendCluster,
    ProxyTracing.tracing: Tracing,
    RemoteJWKS.backend: BackendCluster,
    SecurityPolicySpec.targets: PolicyTargetReferences,
    TracingProvider.backend: BackendCluster,
}

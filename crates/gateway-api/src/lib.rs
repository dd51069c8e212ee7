//! Types of Gateway API v1.6.1, experimental channel, and of `ServiceImport`, with their schemas; and what every custom
//! kind of the gateway shares ([`shared`], [`open_enum!`]).
//!
//! The crate is a vocabulary: plain values which decode from and encode to the JSON that an API server stores, and the
//! OpenAPI schema that goes with them. It holds no behaviour beyond reading single fields (durations). The crate `api`
//! re-exports it as `api::gateway` and `api::shared`, beside the gateway's own kinds; use it from there.
//!
//! * Names are those of the Go types. Each kind is one Rust type for all of its versions: what older versions allow
//!   beyond `v1` is a matter of their schema ([`definitions`]), not of decoding.
//! * Types that a Go type embeds (`BackendObjectReference` in `BackendRef`, say) are flattened members here, and the
//!   outer type dereferences to the inner one: `backend_ref.name` reads as in Go.
//! * Decoding is lenient: unknown fields are ignored and enumerations are open, so that one object from a newer release
//!   never breaks the list it came in. What an API server would refuse is the business of the `admission` crate.
//! * A field that the schema gives a default to is still an `Option`; absent and empty lists or maps are one value.
//! * The schema carries the same field paths, types, enumerations, bounds, patterns, defaults and CEL rules as the
//!   published definition; the test `schema` compares them where reference definitions are at hand.
//!
//! `XListenerSet` is gone from v1.6: ListenerSet is a `v1` kind.
//!
//! Source: Gateway API v1.6.1, the Multi-Cluster Services API (ServiceImport), Kubernetes' rules for structural schemas.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};

use crate::shared::definition;

mod backendtlspolicy;
pub mod fields;
mod filter;
mod gateway;
mod gatewayclass;
mod gatewaystatus;
mod gatewaytls;
mod grpcroute;
mod httproute;
mod l4route;
mod listener;
mod listenerset;
mod policy;
mod reference;
mod referencegrant;
mod routestatus;
mod serviceimport;
mod session;
pub mod shared;

pub use backendtlspolicy::*;
pub use filter::*;
pub use gateway::*;
pub use gatewayclass::*;
pub use gatewaystatus::*;
pub use gatewaytls::*;
pub use grpcroute::*;
pub use httproute::*;
pub use l4route::*;
pub use listener::*;
pub use listenerset::*;
pub use policy::*;
pub use reference::*;
pub use referencegrant::*;
pub use routestatus::*;
pub use serviceimport::*;
pub use session::*;

/// API group of Gateway API.
pub const GROUP: &str = "gateway.networking.k8s.io";

/// API group of ServiceImport.
pub const SERVICE_IMPORT_GROUP: &str = "multicluster.x-k8s.io";

/// What makes a definition.
pub type MakeDefinition = fn() -> CustomResourceDefinition;

/// All kinds of Gateway API, and ServiceImport, each with what makes its definition with all served versions.
pub const KINDS: &[(&str, MakeDefinition)] = &[
    ("GatewayClass", || also(definition::<GatewayClass>(), "v1beta1", |_| {})),
    ("Gateway", || also(definition::<Gateway>(), "v1beta1", |_| {})),
    ("ListenerSet", definition::<ListenerSet>),
    ("HTTPRoute", || also(definition::<HTTPRoute>(), "v1beta1", |_| {})),
    ("GRPCRoute", definition::<GRPCRoute>),
    ("TLSRoute", || also(also(definition::<TLSRoute>(), "v1alpha3", |_| {}), "v1alpha2", many_rules)),
    ("TCPRoute", || also(definition::<TCPRoute>(), "v1alpha2", many_rules)),
    ("UDPRoute", || also(definition::<UDPRoute>(), "v1alpha2", many_rules)),
    ("ReferenceGrant", || stored(also(definition::<ReferenceGrant>(), "v1beta1", |_| {}), "v1beta1")),
    ("BackendTLSPolicy", || without_columns(also(definition::<BackendTLSPolicy>(), "v1alpha3", |_| {}), "v1alpha3")),
    ("ServiceImport", definition::<ServiceImport>),
];

/// Definitions of all [`KINDS`].
pub fn definitions() -> Vec<CustomResourceDefinition> {
    KINDS.iter().map(|(_, definition)| definition()).collect()
}

/// Adds a version that differs from the first one by `change`.
fn also(
    mut crd: CustomResourceDefinition,
    name: &str,
    change: impl FnOnce(&mut JSONSchemaProps),
) -> CustomResourceDefinition {
    let first = crd.spec.versions.first().expect("a derived definition has a version").clone();
    let mut version = CustomResourceDefinitionVersion { name: name.to_owned(), storage: false, ..first };
    if name.contains("alpha") {
        version.deprecated = Some(true);
        version.deprecation_warning = Some(format!(
            "The {name} version of {} has been deprecated and will be removed in a future release of the API. Please \
             upgrade to v1.",
            crd.spec.names.kind
        ));
    }
    if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
        change(schema);
    }
    crd.spec.versions.push(version);
    crd
}

/// Makes `name` the stored version.
fn stored(mut crd: CustomResourceDefinition, name: &str) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.storage = version.name == name;
    }
    crd
}

/// Leaves version `name` without printed columns.
fn without_columns(mut crd: CustomResourceDefinition, name: &str) -> CustomResourceDefinition {
    for version in crd.spec.versions.iter_mut().filter(|version| version.name == name) {
        version.additional_printer_columns = None;
    }
    crd
}

/// What the alpha versions of TCPRoute, UDPRoute and TLSRoute allow beyond `v1`: up to 16 rules, and no host names.
fn many_rules(schema: &mut JSONSchemaProps) {
    let Some(spec) = schema.properties.as_mut().and_then(|p| p.get_mut("spec")) else { return };
    if let Some(required) = &mut spec.required {
        required.retain(|field| field != "hostnames");
    }
    let Some(fields) = spec.properties.as_mut() else { return };
    if let Some(rules) = fields.get_mut("rules") {
        rules.max_items = Some(16);
        rules.x_kubernetes_validations = Some(vec![
            serde_json::from_value(serde_json::json!({
                "rule": "self.all(l1, !has(l1.name) || self.exists_one(l2, has(l2.name) && l1.name == l2.name))",
                "message": "Rule name must be unique within the route",
            }))
            .expect("a validation rule decodes"),
        ]);
    }
    if let Some(hostnames) = fields.get_mut("hostnames") {
        hostnames.min_items = None;
        hostnames.x_kubernetes_validations = None;
    }
}

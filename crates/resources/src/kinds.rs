//! The closed list of kinds that the gateway reads.

use std::{fmt, sync::Arc};

use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Node, Secret, Service},
    discovery::v1::EndpointSlice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::ObjectKey;

/// Why a document is not an object that the gateway reads.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// `apiVersion`, `kind` or `metadata.name` is missing or no text.
    #[error("{0} is missing: every object needs apiVersion, kind and metadata.name")]
    Missing(&'static str),
    /// The gateway does not read this kind.
    #[error("kind {kind} of {api_version} is not read by the gateway")]
    UnknownKind {
        /// `apiVersion` of the document.
        api_version: String,
        /// `kind` of the document.
        kind: String,
    },
    /// A field does not have the type that the kind gives it.
    #[error("{key}: {source}")]
    Field {
        /// The object.
        key: String,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// A type that has a place in [`crate::Store`].
pub trait Kinded: Sized {
    /// Its kind.
    const KIND: Kind;
    /// The object, if it is of this type.
    fn from_object(object: &Object) -> Option<&Arc<Self>>;
}

macro_rules! kinds {
    ($($kind:ident: $ty:ty, $name:literal, $group:literal, [$($version:literal),+], $namespaced:literal;)+) => {
        /// Kind of an object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $(#[doc = concat!("`", $name, "` of group `", $group, "`.")] $kind,)+
        }

        /// An object, shared.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Object {
            $(#[doc = concat!("A `", $name, "`.")] $kind(Arc<$ty>),)+
        }

        $(impl Kinded for $ty {
            const KIND: Kind = Kind::$kind;
            fn from_object(object: &Object) -> Option<&Arc<Self>> {
                match object {
                    Object::$kind(o) => Some(o),
                    _ => None,
                }
            }
        }

        impl From<$ty> for Object {
            fn from(o: $ty) -> Self {
                Self::$kind(Arc::new(o))
            }
        })+

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Name, such as `HTTPRoute`.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)+ }
            }

            /// API group; empty for the core group.
            #[must_use]
            pub fn group(self) -> &'static str {
                match self { $(Self::$kind => $group,)+ }
            }

            /// API versions that are read, the preferred one first.
            #[must_use]
            pub fn versions(self) -> &'static [&'static str] {
                match self { $(Self::$kind => &[$($version),+],)+ }
            }

            /// Objects live in a namespace.
            #[must_use]
            pub fn is_namespaced(self) -> bool {
                match self { $(Self::$kind => $namespaced,)+ }
            }
        }

        impl Object {
            /// Kind of the object.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$kind(_) => Kind::$kind,)+ }
            }

            /// The object as JSON, without `apiVersion` and `kind` where the type does not hold them.
            ///
            /// # Errors
            /// When a value has no JSON form (a map with keys that are no text).
            pub fn to_value(&self) -> Result<serde_json::Value, serde_json::Error> {
                match self { $(Self::$kind(o) => serde_json::to_value(&**o),)+ }
            }

            /// Metadata of the object.
            #[must_use]
            pub fn metadata(&self) -> &ObjectMeta {
                match self { $(Self::$kind(o) => &o.metadata,)+ }
            }

            fn decode(kind: Kind, value: serde_json::Value) -> Result<Self, serde_json::Error> {
                match kind { $(Kind::$kind => typed::<$ty>(value).map(|o| Self::$kind(Arc::new(o))),)+ }
            }
        }
    };
}

kinds! {
    GatewayClass: api::gateway::GatewayClass, "GatewayClass", "gateway.networking.k8s.io", ["v1", "v1beta1"], false;
    Gateway: api::gateway::Gateway, "Gateway", "gateway.networking.k8s.io", ["v1", "v1beta1"], true;
    ListenerSet: api::gateway::ListenerSet, "ListenerSet", "gateway.networking.k8s.io", ["v1"], true;
    HttpRoute: api::gateway::HTTPRoute, "HTTPRoute", "gateway.networking.k8s.io", ["v1", "v1beta1"], true;
    GrpcRoute: api::gateway::GRPCRoute, "GRPCRoute", "gateway.networking.k8s.io", ["v1"], true;
    TlsRoute: api::gateway::TLSRoute, "TLSRoute", "gateway.networking.k8s.io", ["v1", "v1alpha3", "v1alpha2"], true;
    TcpRoute: api::gateway::TCPRoute, "TCPRoute", "gateway.networking.k8s.io", ["v1", "v1alpha2"], true;
    UdpRoute: api::gateway::UDPRoute, "UDPRoute", "gateway.networking.k8s.io", ["v1", "v1alpha2"], true;
    ReferenceGrant: api::gateway::ReferenceGrant, "ReferenceGrant", "gateway.networking.k8s.io", ["v1", "v1beta1"], true;
    BackendTlsPolicy: api::gateway::BackendTLSPolicy, "BackendTLSPolicy", "gateway.networking.k8s.io", ["v1", "v1alpha3"], true;
    EnvoyProxy: api::envoygateway::EnvoyProxy, "EnvoyProxy", "gateway.envoyproxy.io", ["v1alpha1"], true;
    ClientTrafficPolicy: api::envoygateway::ClientTrafficPolicy, "ClientTrafficPolicy", "gateway.envoyproxy.io", ["v1alpha1"], true;
    BackendTrafficPolicy: api::envoygateway::BackendTrafficPolicy, "BackendTrafficPolicy", "gateway.envoyproxy.io", ["v1alpha1"], true;
    SecurityPolicy: api::envoygateway::SecurityPolicy, "SecurityPolicy", "gateway.envoyproxy.io", ["v1alpha1"], true;
    EnvoyExtensionPolicy: api::envoygateway::EnvoyExtensionPolicy, "EnvoyExtensionPolicy", "gateway.envoyproxy.io", ["v1alpha1"], true;
    EnvoyPatchPolicy: api::envoygateway::EnvoyPatchPolicy, "EnvoyPatchPolicy", "gateway.envoyproxy.io", ["v1alpha1"], true;
    HttpRouteFilter: api::envoygateway::HTTPRouteFilter, "HTTPRouteFilter", "gateway.envoyproxy.io", ["v1alpha1"], true;
    Backend: api::envoygateway::Backend, "Backend", "gateway.envoyproxy.io", ["v1alpha1"], true;
    Service: Service, "Service", "", ["v1"], true;
    ServiceImport: api::gateway::ServiceImport, "ServiceImport", "multicluster.x-k8s.io", ["v1alpha1"], true;
    EndpointSlice: EndpointSlice, "EndpointSlice", "discovery.k8s.io", ["v1"], true;
    Secret: Secret, "Secret", "", ["v1"], true;
    ConfigMap: ConfigMap, "ConfigMap", "", ["v1"], true;
    Namespace: Namespace, "Namespace", "", ["v1"], false;
    Node: Node, "Node", "", ["v1"], false;
}

// === impl Kind ===

impl Kind {
    /// The kind that `apiVersion` and `kind` of a document name.
    #[must_use]
    pub fn find(api_version: &str, kind: &str) -> Option<Self> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::ALL.iter().copied().find(|k| k.as_str() == kind && k.group() == group && k.versions().contains(&version))
    }

    /// `apiVersion` in the preferred version.
    #[must_use]
    pub fn api_version(self) -> String {
        let version = self.versions()[0];
        if self.group().is_empty() { version.to_owned() } else { format!("{}/{version}", self.group()) }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Object ===

impl Object {
    /// Asks for the same as `other`, a version of the same object: equal generations, or without generations equal content.
    #[must_use]
    pub fn same_generation(&self, other: &Self) -> bool {
        match (self.metadata().generation, other.metadata().generation) {
            (Some(a), Some(b)) => a == b,
            _ => self == other,
        }
    }

    /// Decodes a document. A namespaced object without a namespace is put into `default`, as kubectl does.
    ///
    /// # Errors
    /// [`DecodeError`] names what is missing or wrong.
    pub fn from_value(mut value: serde_json::Value) -> Result<(ObjectKey, Self), DecodeError> {
        let text = |v: &serde_json::Value, at: &str| v.pointer(at).and_then(|s| s.as_str()).map(str::to_owned);
        let api_version = text(&value, "/apiVersion").ok_or(DecodeError::Missing("apiVersion"))?;
        let kind = text(&value, "/kind").ok_or(DecodeError::Missing("kind"))?;
        let name = text(&value, "/metadata/name").ok_or(DecodeError::Missing("metadata.name"))?;
        let Some(kind) = Kind::find(&api_version, &kind) else {
            return Err(DecodeError::UnknownKind { api_version, kind });
        };
        let namespace = match text(&value, "/metadata/namespace") {
            _ if !kind.is_namespaced() => String::new(),
            Some(ns) if !ns.is_empty() => ns,
            _ => {
                value["metadata"]["namespace"] = "default".into();
                "default".to_owned()
            }
        };
        match kind {
            Kind::Secret => join_lines(value.get_mut("data")),
            Kind::ConfigMap => join_lines(value.get_mut("binaryData")),
            _ => {}
        }
        let key = ObjectKey::new(kind, &namespace, &name);
        let object = Self::decode(kind, value).map_err(|source| DecodeError::Field { key: key.to_string(), source })?;
        Ok((key, object))
    }
}

/// Takes line ends out of base64: an API server ignores them, and long values in files are wrapped.
fn join_lines(data: Option<&mut serde_json::Value>) {
    let texts = data.and_then(|d| d.as_object_mut()).into_iter().flat_map(|m| m.values_mut());
    for value in texts {
        if let serde_json::Value::String(text) = value {
            text.retain(|c| !matches!(c, '\r' | '\n'));
        }
    }
}

fn typed<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, serde_json::Error> {
    T::deserialize(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_may_be_wrapped() {
        for (kind, field) in [("Secret", "data"), ("ConfigMap", "binaryData")] {
            let value = serde_json::json!({
                "apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, field: {"k": "AQ\nID\r\n"}
            });
            let data = match Object::from_value(value).unwrap().1 {
                Object::Secret(s) => s.data.clone(),
                Object::ConfigMap(c) => c.binary_data.clone(),
                other => panic!("{other:?}"),
            };
            assert_eq!(data.unwrap()["k"].0, [1, 2, 3], "{kind}");
        }
    }

    #[test]
    fn a_document_without_data_stays_so() {
        let value = serde_json::json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}});
        let Object::Secret(secret) = Object::from_value(value).unwrap().1 else { panic!() };
        assert_eq!(secret.data, None);
    }
}

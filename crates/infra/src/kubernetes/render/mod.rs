//! From a wanted fleet to the objects that make it up. Pure: the same fleet gives the same objects on every replica, in
//! every term and after every start.

mod pod;
mod scaling;
mod service;
#[cfg(test)]
mod tests;

use api::envoygateway::{EnvoyProxyKubernetesProvider, KubernetesPatchSpec, MergeType};
use ir::Proxy;
use resources::merge;
use serde_json::{Map, Value, json};

use super::{
    names,
    object::{Object, ObjectKind, ObjectRef},
    options::Options,
};

/// Why a fleet cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Settings that have no JSON form.
    #[error("the settings of the fleet are not understood: {0}")]
    Settings(#[from] serde_json::Error),
    /// A patch that makes another object of it.
    #[error(
        "provider.kubernetes: the patch of the {kind} changes {field}, by which the fleet is found; remove that from the patch"
    )]
    Patch {
        /// Kind of the patched object.
        kind: &'static str,
        /// What it must not change.
        field: &'static str,
    },
}

/// What the renderers of objects share.
struct Context<'a> {
    proxy: &'a Proxy,
    options: &'a Options,
    provider: EnvoyProxyKubernetesProvider,
    bootstrap: &'a str,
    name: String,
}

/// The objects of a fleet, in the order in which they are written. `bootstrap` is the configuration that its proxies start
/// with, as text.
///
/// # Errors
/// [`RenderError`] says which of the fleet's settings cannot be heeded.
pub fn render(proxy: &Proxy, bootstrap: &str, options: &Options) -> Result<Vec<Object>, RenderError> {
    let provider = proxy.settings.provider.as_ref().and_then(|p| p.kubernetes.clone()).unwrap_or_default();
    let context = Context { proxy, options, provider, bootstrap, name: names::name(proxy, options) };
    let mut out = vec![context.service_account(), context.config_map()];
    out.push(context.workload()?);
    out.push(context.service()?);
    out.extend(context.autoscaler()?);
    out.extend(context.disruption_budget()?);
    Ok(out)
}

/// Namespace and name of the service account that a fleet's pods run as.
#[must_use]
pub fn service_account(proxy: &Proxy, options: &Options) -> (String, String) {
    let provider = proxy.settings.provider.as_ref().and_then(|p| p.kubernetes.as_ref());
    let own = provider.and_then(|p| p.envoy_service_account.as_ref()).and_then(|s| s.name.clone());
    (names::namespace(proxy, options).to_owned(), own.unwrap_or_else(|| names::name(proxy, options)))
}

// === impl Context ===

impl Context<'_> {
    /// An object with metadata; `fields` are added to it.
    fn object(&self, kind: ObjectKind, name: &str, fields: Value) -> Object {
        let (kind_name, api_version, _) = kind.names();
        let namespace = names::namespace(self.proxy, self.options);
        let mut metadata = json!({"name": name, "namespace": namespace, "labels": names::labels(self.proxy)});
        if !self.proxy.annotations.is_empty() {
            metadata["annotations"] =
                self.proxy.annotations.iter().map(|(k, v)| (k.to_string(), Value::from(&**v))).collect();
        }
        let owner = &self.proxy.owner;
        if !owner.uid.is_empty() {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": owner.kind,
                "name": &*owner.name,
                "uid": &*owner.uid,
            }]);
        }
        let mut tree = json!({"apiVersion": api_version, "kind": kind_name, "metadata": metadata});
        if let (Value::Object(tree), Value::Object(fields)) = (&mut tree, fields) {
            tree.extend(fields);
        }
        Object { at: ObjectRef { kind, namespace: namespace.into(), name: name.into() }, tree }
    }

    fn service_account(&self) -> Object {
        let fields = json!({"automountServiceAccountToken": false});
        self.object(ObjectKind::ServiceAccount, &service_account(self.proxy, self.options).1, fields)
    }

    /// The files by which a proxy finds its certificate, its token and the control plane's CA. The texts are those that
    /// Envoy Gateway writes: a fleet that it made keeps its files.
    fn config_map(&self) -> Object {
        const TYPE: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
        let secret =
            |name: &str, field: &str| format!(r#"{{"resources":[{{"@type":"{TYPE}","name":"{name}",{field}}}]}}"#);
        let mut data = Map::new();
        data.insert("ca.crt".to_owned(), self.options.ca.as_str().into());
        let certificate = r#""tls_certificate":{"certificate_chain":{"filename":"/certs/tls.crt"},"private_key":{"filename":"/certs/tls.key"}}"#;
        data.insert("xds-certificate.json".to_owned(), secret("xds_certificate", certificate).into());
        let ca = r#""validation_context":{"trusted_ca":{"filename":"/certs/ca.crt"},"match_typed_subject_alt_names":[{"san_type":"DNS","matcher":{"exact":"envoy-gateway"}}]}"#;
        data.insert("xds-trusted-ca.json".to_owned(), secret("xds_trusted_ca", ca).into());
        if self.options.gateway_namespaces {
            let token = format!(r#""generic_secret":{{"secret":{{"filename":"{}"}}}}"#, pod::TOKEN_FILE);
            data.insert(pod::TOKEN_SDS.to_owned(), secret("jwt-sa-bearer", &token).into());
        }
        self.object(ObjectKind::ConfigMap, &self.name, json!({"data": data}))
    }
}

/// Applies a user's patch. What the fleet is found by stays.
fn patched(mut object: Object, patch: Option<&KubernetesPatchSpec>) -> Result<Object, RenderError> {
    let Some(patch) = patch else { return Ok(object) };
    let before = object.tree["metadata"].clone();
    match patch.type_ {
        Some(MergeType::JSONMerge) => merge::json(&mut object.tree, &patch.value),
        _ => merge::strategic(&mut object.tree, &patch.value),
    }
    let kind = object.at.kind.names().0;
    let after = &object.tree["metadata"];
    for field in ["name", "namespace"] {
        if before[field] != after[field] {
            return Err(RenderError::Patch {
                kind,
                field: if field == "name" { "metadata.name" } else { "metadata.namespace" },
            });
        }
    }
    let kept = before["labels"].as_object().into_iter().flatten().filter(|(name, _)| {
        names::FIXED.iter().any(|(n, _)| n == name) || name.starts_with("gateway.envoyproxy.io/owning-")
    });
    for (name, value) in kept {
        if after["labels"].get(name) != Some(value) {
            return Err(RenderError::Patch { kind, field: "metadata.labels" });
        }
    }
    Ok(object)
}

/// Inserts a value unless it is nothing.
fn set(tree: &mut Value, field: &str, value: impl serde::Serialize) -> Result<(), RenderError> {
    let value = serde_json::to_value(value)?;
    let nothing = match &value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    if !nothing {
        tree[field] = value;
    }
    Ok(())
}

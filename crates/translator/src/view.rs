//! What the unit functions read: the store through indices, so that no unit looks at all objects of a kind.

use std::collections::BTreeMap;

use api::{
    envoygateway::Backend,
    gateway::{BackendTLSPolicy, ListenerSet, ReferenceGrant, ServiceImport},
};
use ir::Name;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret, Service},
    discovery::v1::EndpointSlice,
};
use resources::{Precedence, Store};

use crate::Config;

const SERVICE_LABEL: &str = "kubernetes.io/service-name";
const IMPORT_LABEL: &str = "multicluster.kubernetes.io/service-name";
const OWNER_CLASS: &str = "gateway.envoyproxy.io/owning-gatewayclass";
const OWNER_NAME: &str = "gateway.envoyproxy.io/owning-gateway-name";
const OWNER_NAMESPACE: &str = "gateway.envoyproxy.io/owning-gateway-namespace";

/// By namespace and name.
type Named<'a, V> = BTreeMap<&'a str, BTreeMap<&'a str, V>>;

/// Reads for the unit functions.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) store: &'a Store,
    pub(crate) config: &'a Config,
    slices: Named<'a, Vec<&'a EndpointSlice>>,
    import_slices: Named<'a, Vec<&'a EndpointSlice>>,
    fleet_services: Named<'a, &'a Service>,
    listener_sets: Named<'a, Vec<&'a ListenerSet>>,
    tls_policies: BTreeMap<&'a str, Named<'a, Vec<&'a BackendTLSPolicy>>>,
}

impl<'a> View<'a> {
    /// Builds the indices: once over the objects, then every read is a look-up.
    pub(crate) fn new(store: &'a Store, config: &'a Config) -> Self {
        let mut view = Self {
            store,
            config,
            slices: BTreeMap::new(),
            import_slices: BTreeMap::new(),
            fleet_services: BTreeMap::new(),
            listener_sets: BTreeMap::new(),
            tls_policies: BTreeMap::new(),
        };
        for slice in store.all::<EndpointSlice>() {
            let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
            let label = |l: &str| slice.metadata.labels.as_ref().and_then(|m| m.get(l));
            if let Some(service) = label(SERVICE_LABEL) {
                view.slices.entry(namespace).or_default().entry(service).or_default().push(slice);
            }
            if let Some(import) = label(IMPORT_LABEL) {
                view.import_slices.entry(namespace).or_default().entry(import).or_default().push(slice);
            }
        }
        for service in store.all::<Service>() {
            let Some(labels) = &service.metadata.labels else { continue };
            if let (Some(name), Some(namespace)) = (labels.get(OWNER_NAME), labels.get(OWNER_NAMESPACE)) {
                view.fleet_services.entry(namespace).or_default().entry(name).or_insert(service);
            }
            if let Some(class) = labels.get(OWNER_CLASS) {
                view.fleet_services.entry("").or_default().entry(class).or_insert(service);
            }
        }
        for set in store.all::<ListenerSet>() {
            let parent = &set.spec.parent_ref;
            let namespace = parent.namespace.as_deref().or(set.metadata.namespace.as_deref()).unwrap_or_default();
            let group = parent.group.as_deref().unwrap_or(api::gateway::GROUP);
            if group == api::gateway::GROUP && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway" {
                view.listener_sets.entry(namespace).or_default().entry(&parent.name).or_default().push(set);
            }
        }
        for sets in view.listener_sets.values_mut().flat_map(BTreeMap::values_mut) {
            sets.sort_by_cached_key(|s| Precedence::from(&s.metadata));
        }
        for policy in store.all::<BackendTLSPolicy>() {
            let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
            for target in &policy.spec.target_refs {
                let kinds = view.tls_policies.entry(namespace).or_default();
                let policies = kinds.entry(&target.kind).or_default().entry(&target.name).or_default();
                if !policies.iter().any(|p| std::ptr::eq(*p, &**policy)) {
                    policies.push(policy);
                }
            }
        }
        let all = view.tls_policies.values_mut().flat_map(BTreeMap::values_mut);
        for policies in all.flat_map(BTreeMap::values_mut) {
            policies.sort_by_cached_key(|p| Precedence::from(&p.metadata));
        }
        view
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&'a Service> {
        self.store.get::<Service>(namespace, name).map(|s| &**s)
    }

    pub(crate) fn import(&self, namespace: &str, name: &str) -> Option<&'a ServiceImport> {
        self.store.get::<ServiceImport>(namespace, name).map(|s| &**s)
    }

    pub(crate) fn backend(&self, namespace: &str, name: &str) -> Option<&'a Backend> {
        self.store.get::<Backend>(namespace, name).map(|s| &**s)
    }

    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<&'a Secret> {
        self.store.get::<Secret>(namespace, name).map(|s| &**s)
    }

    pub(crate) fn config_map(&self, namespace: &str, name: &str) -> Option<&'a ConfigMap> {
        self.store.get::<ConfigMap>(namespace, name).map(|s| &**s)
    }

    /// Slices of a Service, by name.
    pub(crate) fn slices(&self, namespace: &str, service: &str) -> &[&'a EndpointSlice] {
        self.slices.get(namespace).and_then(|n| n.get(service)).map_or(&[], Vec::as_slice)
    }

    /// Slices of a ServiceImport, by name.
    pub(crate) fn import_slices(&self, namespace: &str, import: &str) -> &[&'a EndpointSlice] {
        self.import_slices.get(namespace).and_then(|n| n.get(import)).map_or(&[], Vec::as_slice)
    }

    /// The Service in front of the fleet of a Gateway; of a class, whose namespace is empty.
    pub(crate) fn fleet_service(&self, namespace: &str, gateway: &str) -> Option<&'a Service> {
        self.fleet_services.get(namespace)?.get(gateway).copied()
    }

    /// ListenerSets that name a Gateway as their parent, oldest first.
    pub(crate) fn listener_sets(&self, namespace: &str, gateway: &str) -> &[&'a ListenerSet] {
        self.listener_sets.get(namespace).and_then(|n| n.get(gateway)).map_or(&[], Vec::as_slice)
    }

    /// BackendTLSPolicies that name an object as their target, oldest first.
    pub(crate) fn tls_policies(&self, namespace: &str, kind: &str, name: &str) -> &[&'a BackendTLSPolicy] {
        let of_kind = self.tls_policies.get(namespace).and_then(|n| n.get(kind));
        of_kind.and_then(|n| n.get(name)).map_or(&[], Vec::as_slice)
    }

    /// Labels of a namespace.
    pub(crate) fn namespace_labels(&self, name: &str) -> Option<&'a BTreeMap<String, String>> {
        self.store.get::<Namespace>("", name).and_then(|n| n.metadata.labels.as_ref())
    }

    /// Does a ReferenceGrant in the namespace of `to` allow a reference by an object of `from`?
    pub(crate) fn granted(&self, from: From<'_>, to: To<'_>) -> bool {
        if from.namespace == to.namespace {
            return true;
        }
        self.store.in_namespace::<ReferenceGrant>(to.namespace).any(|grant| {
            let wanted = |f: &api::gateway::ReferenceGrantFrom| {
                f.group == from.group && f.kind == from.kind && f.namespace == from.namespace
            };
            let offered = |t: &api::gateway::ReferenceGrantTo| {
                t.group == to.group
                    && t.kind == to.kind
                    && t.name.as_deref().is_none_or(|n| n.is_empty() || n == to.name)
            };
            grant.spec.from.iter().any(wanted) && grant.spec.to.iter().any(offered)
        })
    }
}

/// Who refers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct From<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
}

/// What is referred to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To<'a> {
    pub(crate) group: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Reads for metadata.
pub(crate) fn origin(
    kind: &'static str,
    meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    section: Option<Name>,
) -> ir::Origin {
    const PREFIX: &str = "gateway.envoyproxy.io/";
    let annotations = meta.annotations.iter().flatten();
    ir::Origin {
        kind,
        namespace: meta.namespace.as_deref().unwrap_or_default().into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
        section,
        annotations: annotations
            .filter_map(|(k, v)| k.strip_prefix(PREFIX).map(|k| (k.into(), v.as_str().into())))
            .collect(),
    }
}

//! Which kinds are known, and their schemas, read when an object of the kind first comes.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use api::{envoygateway, gateway};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use crate::schema::{Node, Reader};

/// How names of a kind are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// DNS-1123 subdomain.
    Subdomain,
    /// DNS-1123 label.
    Label,
    /// DNS-1035 label.
    Dns1035,
}

/// A kind with all of its versions.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) namespaced: bool,
    pub(crate) names: NameRule,
    /// Whether the kind is one of the core ones, which the API server decodes rather than validates by a schema.
    pub(crate) builtin: bool,
    pub(crate) versions: BTreeMap<String, Node>,
}

type Load = Box<dyn Fn() -> Kind + Send + Sync>;

/// All kinds by group and name.
pub(crate) struct Kinds {
    kinds: BTreeMap<(String, String), (Load, OnceLock<Kind>)>,
}

impl std::fmt::Debug for Kinds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.kinds.keys()).finish()
    }
}

impl Kinds {
    /// The kinds that a gateway reads.
    pub(crate) fn known() -> Self {
        let mut kinds = Self { kinds: BTreeMap::new() };
        for (kind, load) in gateway::KINDS {
            let group = if *kind == "ServiceImport" { gateway::SERVICE_IMPORT_GROUP } else { gateway::GROUP };
            kinds.add_definition(group, kind, *load);
        }
        for (kind, load) in envoygateway::KINDS {
            kinds.add_definition(envoygateway::GROUP, kind, *load);
        }
        kinds.add_builtin::<Service>("", "v1", "Service", true, NameRule::Dns1035);
        kinds.add_builtin::<Secret>("", "v1", "Secret", true, NameRule::Subdomain);
        kinds.add_builtin::<ConfigMap>("", "v1", "ConfigMap", true, NameRule::Subdomain);
        kinds.add_builtin::<Namespace>("", "v1", "Namespace", false, NameRule::Label);
        kinds.add_builtin::<EndpointSlice>("discovery.k8s.io", "v1", "EndpointSlice", true, NameRule::Subdomain);
        kinds
    }

    fn add_definition(&mut self, group: &str, kind: &str, load: fn() -> CustomResourceDefinition) {
        self.add(group, kind, move || from_definition(&load()));
    }

    /// Adds a kind by its definition, or replaces it.
    pub(crate) fn add(&mut self, group: &str, kind: &str, load: impl Fn() -> Kind + Send + Sync + 'static) {
        self.kinds.insert((group.to_owned(), kind.to_owned()), (Box::new(load), OnceLock::new()));
    }

    fn add_builtin<T: JsonSchema + 'static>(
        &mut self,
        group: &str,
        version: &'static str,
        kind: &str,
        namespaced: bool,
        names: NameRule,
    ) {
        self.add(group, kind, move || {
            let schema = inline_schema::<T>();
            let node = Reader::default().read(&closed(schema));
            Kind { namespaced, names, builtin: true, versions: BTreeMap::from([(version.to_owned(), node)]) }
        });
    }

    /// The kind, its schemas ready.
    pub(crate) fn get(&self, group: &str, kind: &str) -> Option<&Kind> {
        let (load, ready) = self.kinds.get(&(group.to_owned(), kind.to_owned()))?;
        Some(ready.get_or_init(load))
    }

    /// Whether the group has kinds that are known, so that another kind in it is a mistake.
    pub(crate) fn owns_group(&self, group: &str) -> bool {
        [gateway::GROUP, envoygateway::GROUP].contains(&group)
            || (!group.is_empty() && group != "discovery.k8s.io" && self.kinds.keys().any(|(g, _)| g == group))
    }
}

/// Reads a definition: its served versions, with standard metadata.
pub(crate) fn from_definition(crd: &CustomResourceDefinition) -> Kind {
    let mut reader = Reader::default();
    let metadata = closed(inline_schema::<ObjectMeta>());
    let mut versions = BTreeMap::new();
    for version in crd.spec.versions.iter().filter(|version| version.served) {
        let schema = version.schema.as_ref().and_then(|s| s.open_api_v3_schema.as_ref());
        let mut schema = serde_json::to_value(schema).unwrap_or_default();
        let properties = &mut schema["properties"];
        properties["metadata"] = metadata.clone();
        properties["apiVersion"] = json!({ "type": "string" });
        properties["kind"] = json!({ "type": "string" });
        versions.insert(version.name.clone(), reader.read(&schema));
    }
    Kind { namespaced: crd.spec.scope == "Namespaced", names: NameRule::Subdomain, builtin: false, versions }
}

/// The OpenAPI schema of a Kubernetes type, without references.
fn inline_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Marks as `object` every node that has properties, so that unknown fields in it are seen, and drops the bounds on
/// null that a derived schema may have.
fn closed(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("type") {
                fields.insert("type".to_owned(), json!("object"));
            }
            for field in fields.values_mut() {
                *field = closed(field.take());
            }
        }
        Value::Array(items) => {
            for item in items {
                *item = closed(item.take());
            }
        }
        _ => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes<'a>(node: &'a Node, visit: &mut impl FnMut(&'a Node)) {
        visit(node);
        let below = node.properties.values().chain(node.items.as_deref()).chain(node.additional.as_deref());
        let branches = node.all_of.iter().chain(&node.any_of).chain(&node.one_of).chain(node.not.as_deref());
        for node in below.chain(branches) {
            nodes(node, visit);
        }
    }

    #[test]
    fn every_rule_and_pattern_of_every_kind_compiles() {
        let kinds = Kinds::known();
        let (mut rules, mut patterns) = (0, 0);
        for (group, name) in kinds.kinds.keys() {
            let kind = kinds.get(group, name).unwrap();
            for (version, node) in &kind.versions {
                nodes(node, &mut |node| {
                    for rule in &node.rules {
                        rules += 1;
                        assert_eq!(rule.compile_error(), None, "{name}/{version}");
                    }
                    if let Some(pattern) = &node.pattern {
                        patterns += 1;
                        assert!(pattern.is_match("").is_some(), "{name}/{version}: {}", pattern.text);
                    }
                });
            }
        }
        assert!(rules > 300 && patterns > 1000, "{rules} rules, {patterns} patterns");
    }

    #[test]
    fn kinds_are_those_that_a_gateway_reads() {
        let kinds = Kinds::known();
        let namespaced = |group: &str, kind: &str| kinds.get(group, kind).map(|kind| kind.namespaced);
        assert_eq!(namespaced(gateway::GROUP, "GatewayClass"), Some(false));
        assert_eq!(namespaced(gateway::GROUP, "ListenerSet"), Some(true));
        assert_eq!(namespaced(envoygateway::GROUP, "EnvoyProxy"), Some(true));
        assert_eq!(namespaced("", "Namespace"), Some(false));
        assert_eq!(namespaced("", "Pod"), None);
        assert!(kinds.owns_group(envoygateway::GROUP) && !kinds.owns_group("") && !kinds.owns_group("apps"));
    }
}

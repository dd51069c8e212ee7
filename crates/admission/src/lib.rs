//! What an API server does to an object before it is stored: unknown fields, defaults, schema, rules.
//!
//! For objects that come from files instead of a cluster, and for `egctl validate`: what passes here is what a cluster
//! would hold, so the rest of the gateway sees the same values either way.
//!
//! Contract of [`Admission::admit`]:
//! * Fields that the schema does not have are refused, as `kubectl` asks the API server to do; null fields are dropped;
//!   defaults are filled in, also inside defaults. An object that an API server has stored comes back unchanged.
//! * Errors name the field in the API server's form and come in its order: shape first, and CEL rules only when the
//!   shape is right.
//! * Schemas are read once for each kind, patterns and rules compiled once when they are first needed. An object costs
//!   tens of microseconds.
//! * A status that is there is validated; one that is not there is not made up, since its defaults only mean that no
//!   controller has seen the object yet.
//!
//! [`Admission::new`] is for files and lets pass what does no harm there, so that files which other file-fed gateways
//! take go on working: names, labels and annotations in any form, repeated entries in lists that a cluster treats as
//! sets or maps, and core objects with fields missing. [`Admission::strict`] refuses these too, as a cluster does.
//!
//! Limits: objects are judged as new ones, so rules that compare with the previous state are not evaluated. The core
//! kinds that a gateway reads are checked for their shape and names, not for everything that their API says, and their
//! defaults are not filled in (`stringData` of a Secret becomes `data`). Objects of groups that are not known pass as
//! they are when their metadata is right.
//!
//! One bound is stricter than an API server's: numbers must fit into the width that their format names, since they could
//! not be decoded otherwise.
//!
//! Source: Kubernetes' structural schemas and field errors (`apiextensions-apiserver`, `apimachinery`).

mod builtin;
mod defaults;
mod error;
mod formats;
mod kinds;
mod metadata;
mod names;
mod path;
mod rules;
mod schema;
mod validate;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

pub use error::{ErrorType, FieldError, Refused};

use kinds::{Kind, Kinds};
use path::Path;
use rules::Evaluator;
use schema::Node;
use validate::Checks;

/// Judges objects. Make one and share it: what it has read and compiled serves all objects.
///
/// ```
/// let admission = admission::Admission::new();
/// let refused = admission
///     .admit(serde_json::json!({
///         "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
///         "metadata": { "name": "shop", "namespace": "web" },
///         "spec": { "rules": [{ "matches": [{ "path": { "type": "Exact", "value": "cart" } }] }] },
///     }))
///     .unwrap_err();
/// assert_eq!(refused.errors[0].path, "spec.rules[0].matches[0].path");
/// ```
#[derive(Debug)]
pub struct Admission {
    kinds: Kinds,
    evaluator: Evaluator,
    strict: bool,
}

impl Default for Admission {
    fn default() -> Self {
        Self::new()
    }
}

impl Admission {
    /// Knows Gateway API, `gateway.envoyproxy.io`, ServiceImport, and the core kinds that a gateway reads.
    pub fn new() -> Self {
        Self { kinds: Kinds::known(), evaluator: Evaluator::new(), strict: false }
    }

    /// As [`new`](Self::new), refusing everything that an API server refuses.
    pub fn strict() -> Self {
        Self { strict: true, ..Self::new() }
    }

    /// Makes one more kind known, or replaces its definition; for the kinds of an extension.
    #[must_use]
    pub fn with(mut self, definition: CustomResourceDefinition) -> Self {
        let group = definition.spec.group.clone();
        let kind = definition.spec.names.kind.clone();
        self.kinds.add(&group, &kind, move || kinds::from_definition(&definition));
        self
    }

    /// Returns the object as it would be stored, with defaults filled in.
    ///
    /// # Errors
    /// [`Refused`] with every reason, when an API server would refuse the object.
    pub fn admit(&self, mut object: Value) -> Result<Value, Box<Refused>> {
        let mut errors = Vec::new();
        self.judge(&mut object, &mut errors);
        if errors.is_empty() { Ok(object) } else { Err(Box::new(refused(&object, errors))) }
    }

    fn judge(&self, object: &mut Value, errors: &mut Vec<FieldError>) {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (api_version, kind_name) = (text("apiVersion"), text("kind"));
        for (path, text) in [("apiVersion", &api_version), ("kind", &kind_name)] {
            if text.is_empty() {
                errors.push(FieldError::new(path, ErrorType::Required, None, ""));
            }
        }
        if !errors.is_empty() {
            return;
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let kind = self.kinds.get(group, &kind_name);
        let Some((kind, node)) = kind.and_then(|kind| Some((kind, kind.versions.get(version)?))) else {
            if kind.is_some() || self.kinds.owns_group(group) {
                let detail = format!("no matches for kind \"{kind_name}\" in version \"{api_version}\"");
                let path = if kind.is_some() { "apiVersion" } else { "kind" };
                errors.push(FieldError::new(path, ErrorType::Invalid, None, detail));
            } else {
                metadata::check(object, None, self.strict, errors);
            }
            return;
        };
        self.judge_known(kind, node, &kind_name, object, errors);
    }

    fn judge_known(&self, kind: &Kind, node: &Node, name: &str, object: &mut Value, errors: &mut Vec<FieldError>) {
        defaults::unknown_fields(node, object, &mut Path::default(), errors);
        if kind.builtin {
            builtin::convert(name, object);
        } else if let Value::Object(fields) = object {
            defaults::fill_fields(node, fields, |field| {
                !matches!(field, "apiVersion" | "kind" | "metadata" | "status")
            });
            if fields.get("status").is_some_and(Value::is_null) {
                fields.remove("status");
            }
        }
        if !kind.namespaced
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("namespace");
        }
        metadata::check(object, Some(kind), self.strict, errors);
        let checks = Checks { required: self.strict || !kind.builtin, unique: self.strict };
        check_shape(checks, node, object, errors);
        if kind.builtin && self.strict {
            builtin::check(name, object, errors);
        }
        if !errors.iter().any(|error| error.kind.blocks_rules()) {
            self.evaluator.check(node, object, &mut Path::default(), errors);
        }
    }
}

/// Checks an object against its schema, except for nulls in metadata, which mean "not set".
fn check_shape(checks: Checks, node: &Node, object: &Value, errors: &mut Vec<FieldError>) {
    if metadata::has_nulls(object) {
        validate::check(checks, node, &metadata::without_nulls(object), &mut Path::default(), errors);
    } else {
        validate::check(checks, node, object, &mut Path::default(), errors);
    }
}

fn refused(object: &Value, errors: Vec<FieldError>) -> Refused {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = text("/apiVersion");
    Refused {
        group: api_version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default(),
        kind: text("/kind"),
        namespace: Some(text("/metadata/namespace")).filter(|namespace| !namespace.is_empty()),
        name: text("/metadata/name"),
        errors,
    }
}

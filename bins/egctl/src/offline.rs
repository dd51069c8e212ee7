//! The gateway without a cluster: documents in, xDS and statuses out.

use std::collections::BTreeMap;

use admission::Admission;
use anyhow::Result;
use envoy::EncodeError;
use ir::{Full, XdsKind};
use resources::{Change, DecodeError, Object};
use serde_json::{Map, Value};

/// Objects that were read.
#[derive(Debug, Default)]
pub struct Objects {
    /// Objects that an API server would store, as it would store them.
    pub changes: Vec<Change>,
    /// Objects that an API server would refuse.
    pub refused: Vec<Refusal>,
    /// Documents of kinds that the gateway does not read.
    pub ignored: Vec<String>,
}

/// An object that an API server would refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For people: object, fields, values, causes.
    pub message: String,
    /// Paths of the fields.
    pub fields: Vec<String>,
}

/// Reads documents as an API server would take them; the last change says that this is all.
#[must_use]
pub fn objects(documents: impl IntoIterator<Item = Value>, admission: &Admission) -> Objects {
    let mut out = Objects::default();
    for document in documents {
        out.add(document, admission, &|_| String::new());
    }
    out.changes.push(Change::Synced);
    out
}

/// xDS of each group in the form of recorded cases: `{GROUP: {clusters: […], endpoints: […], …}}` in order of names,
/// and the resources that are left out because Envoy would refuse them.
///
/// # Errors
/// When a resource cannot be told as JSON.
pub fn xds(full: &Full) -> Result<(Value, Vec<EncodeError>)> {
    let mut groups = Map::new();
    let mut errors = Vec::new();
    let mut encoder = envoy::Encoder::new();
    for (name, group) in &full.groups {
        let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for ((kind, _), value) in &group.resources {
            match encoder.encode(value) {
                Ok(encoded) => {
                    lists.entry(list(*kind)).or_default().push(encoded.to_value()?);
                }
                Err(e) => errors.push(e),
            }
        }
        let lists: Map<String, Value> = lists.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
        groups.insert(name.to_string(), Value::Object(lists));
    }
    Ok((Value::Object(groups), errors))
}

/// The statuses, each as an object with `apiVersion`, `kind`, `metadata` and `status`, by kind, namespace and name.
#[must_use]
pub fn statuses(full: &Full) -> Vec<Value> {
    let mut keys: Vec<_> = full.statuses.iter().collect();
    keys.sort_by_key(|(k, _)| (k.kind.as_str(), k.namespace.clone(), k.name.clone()));
    keys.into_iter().map(|(key, status)| status::object(key, status)).collect()
}

fn list(kind: XdsKind) -> &'static str {
    match kind {
        XdsKind::Cluster => "clusters",
        XdsKind::Endpoints => "endpoints",
        XdsKind::Listener => "listeners",
        XdsKind::RouteTable => "routes",
        XdsKind::Secret => "secrets",
    }
}

// === impl Objects ===

impl Objects {
    /// Adds a document; one of kind `List` stands for its items. `place` tells where a field of it is written, as a
    /// prefix of messages.
    pub fn add(&mut self, mut document: Value, admission: &Admission, place: &dyn Fn(&str) -> String) {
        if document["kind"] == "List" && document["apiVersion"] == "v1" {
            if let Value::Array(items) = document["items"].take() {
                for (i, item) in items.into_iter().enumerate() {
                    self.add(item, admission, &|field| place(&format!("items[{i}].{field}")));
                }
            }
            return;
        }
        let document = match admission.admit(document) {
            Ok(document) => document,
            Err(refused) => {
                let fields: Vec<String> = refused.errors.iter().map(|e| e.path.clone()).collect();
                let place = place(fields.first().map_or("", String::as_str));
                self.refused.push(Refusal { message: format!("{place}{refused}"), fields });
                return;
            }
        };
        match Object::from_value(document) {
            Ok((key, object)) => self.changes.push(Change::Upsert(key, object)),
            Err(e @ DecodeError::UnknownKind { .. }) => self.ignored.push(format!("{}{e}", place(""))),
            Err(e) => {
                let message = format!("{}{e}", place(""));
                self.refused.push(Refusal { message, fields: vec![e.to_string()] });
            }
        }
    }
}

//! What is in the file: the objects as JSON, and who saved them when.

use std::collections::BTreeMap;

use jiff::Timestamp;
use resources::{Object, ObjectKey};
use serde::{Deserialize, Serialize, Serializer, ser};
use serde_json::Value;

use super::seal::Refused;

/// A state that was read back.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// When it was saved.
    pub at: Timestamp,
    /// All objects.
    pub objects: BTreeMap<ObjectKey, Object>,
}

#[derive(Deserialize, Serialize)]
struct Document<O> {
    /// Release that wrote it, for people.
    program: String,
    controller: String,
    saved: Timestamp,
    objects: O,
}

/// Makes one tree at a time: all of them would take several times the memory of the text.
struct Objects<'a>(&'a BTreeMap<ObjectKey, Object>);

impl Serialize for Objects<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(key, object)| Lazy(key, object)))
    }
}

struct Lazy<'a>(&'a ObjectKey, &'a Object);

impl Serialize for Lazy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut value = self.1.to_value().map_err(ser::Error::custom)?;
        if let Some(fields) = value.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| self.0.kind.api_version().into());
            fields.entry("kind").or_insert_with(|| self.0.kind.as_str().into());
        }
        value.serialize(serializer)
    }
}

/// The state as JSON.
pub(super) fn encode(
    controller: &str,
    saved: Timestamp,
    objects: &BTreeMap<ObjectKey, Object>,
) -> Result<Vec<u8>, serde_json::Error> {
    let program = env!("CARGO_PKG_VERSION").to_owned();
    serde_json::to_vec(&Document { program, controller: controller.to_owned(), saved, objects: Objects(objects) })
}

/// The state that the JSON tells; all of it or nothing.
pub(super) fn decode(controller: &str, text: &[u8]) -> Result<Saved, Refused> {
    let unreadable = |e: &dyn std::fmt::Display| Refused::Content(e.to_string());
    let document: Document<Vec<Value>> = serde_json::from_slice(text).map_err(|e| unreadable(&e))?;
    if document.controller != controller {
        return Err(Refused::OtherController { found: document.controller, own: controller.to_owned() });
    }
    let mut objects = BTreeMap::new();
    for value in document.objects {
        let (key, object) = Object::from_value(value).map_err(|e| unreadable(&e))?;
        objects.insert(key, object);
    }
    Ok(Saved { at: document.saved, objects })
}

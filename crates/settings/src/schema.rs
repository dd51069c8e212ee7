//! The shape of the config file: which fields there are and of what type. Answers what a name in any case may mean, and
//! what a reader may have meant.

use std::sync::LazyLock;

use api::config::EnvoyGateway;
use serde_json::{Map, Value};

use crate::path::{FieldPath, Step};

static ROOT: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(EnvoyGateway).to_value());

/// A place in the file's schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node(&'static Value);

/// What may stand at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A mapping.
    Object,
    /// A list.
    List,
    /// Text.
    Text,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or text.
    IntegerOrText,
    /// Anything.
    Any,
}

impl Shape {
    /// How to write a value of this shape.
    pub(crate) fn remedy(self) -> &'static str {
        match self {
            Self::Object => "write a mapping of fields",
            Self::List => "write a list",
            Self::Text => "write a text",
            Self::Integer => "write a whole number",
            Self::Number => "write a number",
            Self::Boolean => "write true or false",
            Self::IntegerOrText => "write a whole number or a text",
            Self::Any => "write another value",
        }
    }
}

impl Node {
    /// The document.
    pub(crate) fn root() -> Self {
        Self(resolve(&ROOT))
    }

    /// The place at the end of `path`; none where the file has no such field.
    pub(crate) fn at(path: &FieldPath) -> Option<Self> {
        path.0.iter().try_fold(Self::root(), |node, step| match step {
            Step::Key(key) => node.field(key),
            Step::Index(_) => node.item(),
        })
    }

    pub(crate) fn shape(self) -> Shape {
        let node = self.0;
        if node.get("x-kubernetes-int-or-string").is_some() {
            return Shape::IntegerOrText;
        }
        if !self.values().is_empty() {
            return Shape::Text;
        }
        let named = match node.get("type") {
            Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).find(|name| *name != "null"),
            Some(Value::String(name)) => Some(name.as_str()),
            _ => None,
        };
        match named {
            Some("object") => Shape::Object,
            Some("array") => Shape::List,
            Some("string") => Shape::Text,
            Some("integer") => Shape::Integer,
            Some("number") => Shape::Number,
            Some("boolean") => Shape::Boolean,
            _ if node.get("properties").is_some() => Shape::Object,
            _ => Shape::Any,
        }
    }

    /// The values that an enumeration lists.
    pub(crate) fn values(self) -> Vec<&'static str> {
        let listed = self.0.get("enum").and_then(Value::as_array).into_iter().flatten();
        let branches = self.0.get("oneOf").and_then(Value::as_array).into_iter().flatten();
        let branches = branches.flat_map(|branch| {
            let listed = branch.get("enum").and_then(Value::as_array).into_iter().flatten();
            branch.get("const").into_iter().chain(listed)
        });
        listed.chain(branches).filter_map(Value::as_str).collect()
    }

    fn properties(self) -> Option<&'static Map<String, Value>> {
        self.0.get("properties").and_then(Value::as_object)
    }

    /// The names of the fields.
    pub(crate) fn fields(self) -> impl Iterator<Item = &'static str> {
        self.properties().into_iter().flat_map(|properties| properties.keys().map(String::as_str))
    }

    /// The field of this very name, or what a free mapping holds.
    pub(crate) fn field(self, name: &str) -> Option<Self> {
        if let Some(field) = self.properties().and_then(|properties| properties.get(name)) {
            return Some(Self(resolve(field)));
        }
        self.free_values()
    }

    /// What a mapping with free keys holds; none where the keys are fixed.
    pub(crate) fn free_values(self) -> Option<Self> {
        match self.0.get("additionalProperties") {
            Some(values @ Value::Object(_)) => Some(Self(resolve(values))),
            Some(Value::Bool(true)) => Some(Self(&Value::Bool(true))),
            _ if self.shape() == Shape::Any => Some(self),
            _ => None,
        }
    }

    /// What a list holds.
    pub(crate) fn item(self) -> Option<Self> {
        match self.0.get("items") {
            Some(items) => Some(Self(resolve(items))),
            None if self.shape() == Shape::Any => Some(self),
            None => None,
        }
    }

    /// The field that `name` means when case, `-` and `_` do not count.
    pub(crate) fn field_in_any_case(self, name: &str) -> Option<(&'static str, Self)> {
        let wanted = plain(name);
        let properties = self.properties()?;
        let (name, field) = properties.iter().find(|(name, _)| plain(name) == wanted)?;
        Some((name, Self(resolve(field))))
    }

    /// The field that a reader may have meant by `name`.
    pub(crate) fn nearest(self, name: &str) -> Option<&'static str> {
        let wanted = plain(name);
        let limit = 1 + wanted.len() / 4;
        let near = self.fields().map(|field| (distance(&plain(field), &wanted), field));
        near.filter(|(distance, _)| *distance <= limit).min().map(|(_, field)| field)
    }
}

/// Follows references and drops the "or null" that optional fields carry.
fn resolve(mut node: &'static Value) -> &'static Value {
    loop {
        if let Some(name) = node.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/")) {
            match ROOT.get("$defs").and_then(|definitions| definitions.get(name)) {
                Some(definition) => node = definition,
                None => return node,
            }
            continue;
        }
        let branches = ["anyOf", "allOf"].iter().find_map(|word| node.get(word)).and_then(Value::as_array);
        let mut real = branches.into_iter().flatten().filter(|branch| has_shape(branch));
        match (real.next(), real.next()) {
            (Some(only), None) => node = only,
            _ => return node,
        }
    }
}

/// False for branches that only add a condition to what stands beside them (`required`, `not`).
fn has_shape(branch: &Value) -> bool {
    branch.get("type").and_then(Value::as_str) != Some("null")
        && ["$ref", "type", "enum", "oneOf", "properties", "anyOf", "allOf"]
            .iter()
            .any(|word| branch.get(word).is_some())
}

fn plain(name: &str) -> String {
    name.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// Edit distance (insert, delete, replace).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(path: &str) -> Option<Shape> {
        Node::at(&FieldPath::parse(path)).map(Node::shape)
    }

    #[test]
    fn knows_every_sort_of_field() {
        for (path, expected) in [
            ("apiVersion", Shape::Text),
            ("provider", Shape::Object),
            ("provider.type", Shape::Text),
            ("provider.kubernetes.leaderElection.leaseDuration", Shape::Text),
            ("provider.kubernetes.leaderElection.disable", Shape::Boolean),
            ("provider.kubernetes.client.rateLimit.qps", Shape::Integer),
            ("provider.kubernetes.watch.namespaces", Shape::List),
            ("provider.kubernetes.watch.namespaceSelector.matchLabels.some", Shape::Text),
            ("provider.custom.resource.kubernetes.leaderElection.preset", Shape::Text),
            ("logging.level.xds-server", Shape::Text),
            ("xdsServer.maxReceiveMessageSize", Shape::IntegerOrText),
            ("extensionManagers[3].service.fqdn.port", Shape::Integer),
            ("rateLimit.backend.redis.urlRef.secretKeyRef.key", Shape::Text),
        ] {
            assert_eq!(shape(path), Some(expected), "{path}");
        }
        assert_eq!(shape("provider.kubernetes.leaderElection.leaseDuraton"), None);
    }

    #[test]
    fn lists_the_values_of_enumerations() {
        let values = |path: &str| Node::at(&FieldPath::parse(path)).map(Node::values);
        assert_eq!(values("provider.type"), Some(vec!["Kubernetes", "Custom"]));
        assert_eq!(values("provider.kubernetes.deploy.type"), Some(vec!["ControllerNamespace", "GatewayNamespace"]));
        assert_eq!(values("logging.encoder"), Some(vec!["Text", "JSON"]));
    }

    #[test]
    fn guesses_what_was_meant() {
        assert_eq!(Node::root().nearest("logging00"), Some("logging"));
        assert_eq!(Node::root().nearest("provder"), Some("provider"));
        assert_eq!(Node::root().nearest("spec"), None);
    }
}

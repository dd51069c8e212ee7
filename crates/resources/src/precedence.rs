//! The tie-break of Gateway API: oldest first, then namespace and name.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Order in which objects win a conflict: creation time, then namespace, then name.
///
/// An object without a creation time (from a file) comes before all that have one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Precedence {
    /// Creation time, seconds since the epoch; none counts as the oldest.
    pub created: Option<i64>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

// === impl Precedence ===

impl From<&ObjectMeta> for Precedence {
    fn from(meta: &ObjectMeta) -> Self {
        Self {
            created: meta.creation_timestamp.as_ref().map(|t| t.0.as_second()),
            namespace: meta.namespace.as_deref().unwrap_or_default().into(),
            name: meta.name.as_deref().unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_then_namespace_then_name() {
        let p = |created, namespace: &str, name: &str| Precedence {
            created,
            namespace: namespace.into(),
            name: name.into(),
        };
        let mut all =
            [p(Some(2), "a", "a"), p(Some(1), "b", "a"), p(Some(1), "a", "b"), p(Some(1), "a", "a"), p(None, "z", "z")];
        all.sort();
        let names: Vec<_> = all.iter().map(|p| format!("{}/{}", p.namespace, p.name)).collect();
        assert_eq!(names, ["z/z", "a/a", "a/b", "b/a", "a/a"]);
    }
}

//! Paths of fields, and the values at their ends.

use std::fmt;

use serde_json::Value;

/// A step into a mapping or a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    /// By key.
    Key(String),
    /// By position, from 0.
    Index(usize),
}

/// The way to a field. In order, a section comes before its fields and list entries come by position.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FieldPath(pub(crate) Vec<Step>);

impl FieldPath {
    /// The path as people write it: `a.b[0].c`.
    pub(crate) fn parse(text: &str) -> Self {
        let mut steps = Vec::new();
        for part in text.split('.') {
            let (key, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
            if !key.is_empty() {
                steps.push(Step::Key(key.to_owned()));
            }
            steps.extend(indices.split(['[', ']']).filter_map(|index| index.parse().ok()).map(Step::Index));
        }
        Self(steps)
    }

    pub(crate) fn key(mut self, key: &str) -> Self {
        self.0.push(Step::Key(key.to_owned()));
        self
    }

    /// What `tree` has there.
    pub(crate) fn find<'a>(&self, tree: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(tree, |value, step| match step {
            Step::Key(key) => value.get(key),
            Step::Index(index) => value.get(index),
        })
    }

    /// True when this is `other` or below it.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("(document)");
        }
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => f.write_str(key)?,
                Step::Key(key) => write!(f, ".{key}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl From<&serde_path_to_error::Path> for FieldPath {
    fn from(path: &serde_path_to_error::Path) -> Self {
        use serde_path_to_error::Segment;
        let steps = path.iter().filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        });
        Self(steps.collect())
    }
}

impl From<&serde_ignored::Path<'_>> for FieldPath {
    fn from(path: &serde_ignored::Path<'_>) -> Self {
        use serde_ignored::Path;
        match path {
            Path::Root => Self::default(),
            Path::Seq { parent, index } => {
                let mut steps = Self::from(*parent);
                steps.0.push(Step::Index(*index));
                steps
            }
            Path::Map { parent, key } => Self::from(*parent).key(key),
            Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
                Self::from(*parent)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_and_writes_the_usual_form() {
        for text in ["a", "a.b", "a[0]", "a.b[1][2].c"] {
            assert_eq!(FieldPath::parse(text).to_string(), text);
        }
    }

    #[test]
    fn finds_values() {
        let tree = json!({ "a": [{ "b": 1 }] });
        assert_eq!(FieldPath::parse("a[0].b").find(&tree), Some(&json!(1)));
        assert_eq!(FieldPath::parse("a[1].b").find(&tree), None);
        assert!(FieldPath::parse("a[0].b").is_within(&FieldPath::parse("a[0]")));
        assert!(!FieldPath::parse("ab").is_within(&FieldPath::parse("a")));
    }
}

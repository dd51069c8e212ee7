//! Why an object is refused, in the words of the API server.

use std::fmt;

use serde_json::Value;

/// Classes of field errors; their texts are those of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorType {
    /// A field that must be there is not.
    Required,
    /// An entry of a set or map appears twice.
    Duplicate,
    /// The value breaks a bound, a pattern, a format or a rule.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// The value is not one of those enumerated.
    NotSupported,
    /// The field may not be set.
    Forbidden,
    /// The text is too long.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The schema has no such field.
    Unknown,
    /// A rule could not be evaluated.
    Internal,
}

impl ErrorType {
    /// The text that begins an error of this class.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Unknown => "Unknown field",
            Self::Internal => "Internal error",
        }
    }

    /// True for errors after which the API server does not evaluate rules: the object has the wrong shape.
    pub(crate) fn blocks_rules(self) -> bool {
        matches!(self, Self::Required | Self::NotSupported | Self::TooLong | Self::TooMany | Self::TypeInvalid)
    }
}

/// One reason to refuse an object: the field, its value, and what would be right.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    /// Path of the field, such as `spec.rules[0].matches[0].path.value`; `<root>` for the object itself.
    pub path: String,
    /// Class of the error.
    pub kind: ErrorType,
    /// The offending value, where it helps.
    pub value: Option<Value>,
    /// What is wrong with it, or what would be right.
    pub detail: String,
}

impl FieldError {
    pub(crate) fn new(
        path: impl Into<String>,
        kind: ErrorType,
        value: Option<Value>,
        detail: impl Into<String>,
    ) -> Self {
        let path = path.into();
        Self { path: if path.is_empty() { "<root>".to_owned() } else { path }, kind, value, detail: detail.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.kind.as_str())?;
        if let Some(value) = &self.value {
            write!(f, ": {value}")?;
        }
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

/// An object that an API server would not store, with every reason found.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct Refused {
    /// API group of the object; empty for the core group.
    pub group: String,
    /// Kind of the object; empty when it has none.
    pub kind: String,
    /// Namespace of the object, if it has one.
    pub namespace: Option<String>,
    /// Name of the object; empty when it has none.
    pub name: String,
    /// The reasons, in the order of the checks; never empty.
    pub errors: Vec<FieldError>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.kind.is_empty() { "object" } else { &self.kind };
        write!(f, "{} \"", api::shared::group_kind(&self.group, kind))?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}\" is invalid: ", self.name)?;
        match self.errors.as_slice() {
            [error] => write!(f, "{error}"),
            errors => {
                f.write_str("[")?;
                for (i, error) in errors.iter().enumerate() {
                    write!(f, "{}{error}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
        }
    }
}

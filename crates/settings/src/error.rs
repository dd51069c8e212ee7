//! What can be wrong with the settings, said so that the reader can mend it.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// One thing that is wrong, or doubtful, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was said: the file, or `environment variable NAME`.
    pub origin: String,
    /// Path of the field, such as `provider.kubernetes.watch.type` or `extensionManagers[1].name`.
    pub field: String,
    /// What was found there, as JSON; absent where nothing was found. Passwords in URLs are masked.
    pub value: Option<String>,
    /// What is wrong.
    pub reason: String,
    /// What would be right.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, field, value, reason, remedy } = self;
        write!(f, "{origin}: {field}: {reason}")?;
        if let Some(value) = value {
            write!(f, " (found {value})")?;
        }
        write!(f, "; {remedy}")
    }
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{}: the file cannot be read: {source}; check the path and its permissions", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is no single YAML or JSON document, or a key occurs twice.
    #[error("{file}:{line}:{column}: {reason}; correct the YAML at this line")]
    Syntax {
        /// The file.
        file: String,
        /// Line, from 1; 0 where it is not known.
        line: u64,
        /// Column, from 1; 0 where it is not known.
        column: u64,
        /// What is wrong.
        reason: String,
    },
    /// Environment variables that name no field, or whose value does not fit.
    #[error("{}", lines(.0))]
    Environment(Vec<Problem>),
    /// The document is of another kind, or a field has another type or lacks a part.
    #[error("{}", lines(.0))]
    Decode(Vec<Problem>),
    /// Values that are well-formed and still cannot be used.
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
    /// The file cannot be watched for changes.
    #[error("{}: the file cannot be watched: {source}", file.display())]
    Watch {
        /// The file.
        file: PathBuf,
        /// Why.
        source: notify::Error,
    },
}

impl SettingsError {
    /// The single problems, where the error is about fields.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::Environment(problems) | Self::Decode(problems) | Self::Invalid(problems) => problems,
            Self::Read { .. } | Self::Syntax { .. } | Self::Watch { .. } => &[],
        }
    }
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

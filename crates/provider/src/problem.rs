//! What is wrong with the input, for people.

use std::{fmt, path::PathBuf};

/// Something wrong with a file or an object in it. Everything else goes on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// File.
    pub file: PathBuf,
    /// Line, from 1; 0 where none applies.
    pub line: u64,
    /// Object (`HTTPRoute default/web`), where known.
    pub object: Option<String>,
    /// Path of the field (`spec.rules[0].matches[0].path.value`), where known.
    pub field: Option<String>,
    /// What is wrong and what would be right.
    pub message: String,
    /// An older version of what is broken goes on being served.
    pub keeps_last_good: bool,
}

// === impl Problem ===

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if let Some(object) = &self.object {
            write!(f, ": {object}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.message)?;
        if self.keeps_last_good {
            f.write_str(" (the last good version stays in force)")?;
        }
        Ok(())
    }
}

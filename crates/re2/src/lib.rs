//! Would RE2, the expression engine of Envoy, take this pattern?
//!
//! Envoy refuses a whole resource when one pattern in it does not compile, so every pattern is read here first by RE2's
//! own rules (its Perl-like syntax, the one Envoy uses). Those differ from other engines: no look-around and no
//! back-references, no `(?x)`, counts of at most 1,000 also when multiplied by nesting, no stacked repetition (`a**`),
//! `\_` but not `\y`, class names in one spelling only, bytes instead of characters (`\x{100}` does not exist).
//!
//! Contract: [`check`] accepts what RE2 accepts and refuses what it refuses, including programs that are too large for
//! RE2's default memory budget; the size is estimated from above, so a pattern within a hair of the budget may be
//! refused here.
//!
//! Source: RE2's syntax description, and what Envoy 1.40 takes and refuses.

mod class;
mod names;
mod parser;

use std::fmt;

/// Why RE2 does not take a pattern. Prints as RE2 says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPattern {
    problem: &'static str,
    part: String,
}

/// Checks that RE2 compiles `pattern`.
///
/// # Errors
/// [`InvalidPattern`] with the parser's words and the part of the pattern that is at fault.
pub fn check(pattern: &str) -> Result<(), InvalidPattern> {
    // Envoy has RE2 read bytes, not characters: each byte is a character of its own.
    let bytes: String = pattern.bytes().map(char::from).collect();
    parser::parse(&bytes).map_err(|e| {
        let part: Vec<u8> = e.part.chars().filter_map(|c| u8::try_from(u32::from(c)).ok()).collect();
        // A part that ends inside a character is told by the whole.
        let part = String::from_utf8(part).unwrap_or_else(|_| pattern.to_owned());
        InvalidPattern { part, ..e }
    })
}

/// The text as a pattern that matches just that text.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

// === impl InvalidPattern ===

impl InvalidPattern {
    pub(crate) fn new(problem: &'static str, part: impl Into<String>) -> Self {
        Self { problem, part: part.into() }
    }
}

impl fmt::Display for InvalidPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part.is_empty() { f.write_str(self.problem) } else { write!(f, "{}: `{}`", self.problem, self.part) }
    }
}

impl std::error::Error for InvalidPattern {}

#[cfg(test)]
mod tests;

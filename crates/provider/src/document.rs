//! YAML and JSON documents with the lines that they start at.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use serde_saphyr::Spanned;

/// One document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Line of the file at which the document starts, from 1.
    pub line: u64,
    /// Content.
    pub value: Value,
    /// Text, to look lines up in.
    text: String,
}

/// Why a text is not YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line of the file, from 1.
    pub line: u64,
    /// What the parser found.
    pub message: String,
}

/// Splits a text into documents and parses each; empty ones are left out. JSON is YAML.
///
/// # Errors
/// The first document that is no YAML.
pub fn parse(text: &str) -> Result<Vec<Document>, SyntaxError> {
    let mut out = Vec::new();
    for (line, part) in split(text) {
        if part.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) {
            continue;
        }
        let value: Value = serde_saphyr::from_str(part).map_err(|e| {
            let e = e.without_snippet();
            let at = e.location().map_or(0, |l| l.line().saturating_sub(1));
            SyntaxError { line: line + at, message: e.to_string() }
        })?;
        if !value.is_null() {
            out.push(Document { line, value, text: part.to_owned() });
        }
    }
    Ok(out)
}

/// A line that starts with `---` ends a document, inside block scalars too (YAML 1.2, 9.1.2).
fn split(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (i, line) in text.split_inclusive('\n').enumerate() {
        let marker = line.trim_end();
        if marker == "---" || line.starts_with("--- ") {
            if start < at {
                parts.push((start_line, &text[start..at]));
            }
            let inline =
                line.starts_with("--- ") && !line[4..].trim().is_empty() && !line[4..].trim_start().starts_with('#');
            start = if inline { at + 4 } else { at + line.len() };
            start_line = i as u64 + if inline { 1 } else { 2 };
        }
        at += line.len();
    }
    if start < text.len() {
        parts.push((start_line, &text[start..]));
    }
    parts
}

// === impl Document ===

impl Document {
    /// Line of the field with this path (`spec.rules[0].name`), or of its deepest parent that is there. In a document that
    /// is nested deeper than any object it is the line of the document.
    #[must_use]
    pub fn line_of(&self, path: &str) -> u64 {
        if !within(&self.value, DEPTH) {
            return self.line;
        }
        let Ok(root) = serde_saphyr::from_str::<Spanned<Node>>(&self.text) else { return self.line };
        let mut at = &root;
        for step in steps(path) {
            let next = match (&at.value, step) {
                (Node::Map(fields), Step::Field(name)) => fields.iter().find(|(k, _)| k == name).map(|(_, v)| v),
                (Node::List(items), Step::Index(i)) => items.get(i),
                _ => None,
            };
            let Some(next) = next else { break };
            at = next;
        }
        self.line + at.referenced.line().saturating_sub(1)
    }
}

/// Levels of nesting that lines are looked up in: more than any object has. The look-up takes much stack for each.
const DEPTH: usize = 32;

/// Is the value nested no deeper than that?
fn within(value: &Value, depth: usize) -> bool {
    match value {
        Value::Object(fields) => depth > 0 && fields.values().all(|v| within(v, depth - 1)),
        Value::Array(items) => depth > 0 && items.iter().all(|v| within(v, depth - 1)),
        _ => true,
    }
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

fn steps(path: &str) -> impl Iterator<Item = Step<'_>> {
    path.split(['.', '[']).filter(|s| !s.is_empty()).map(|s| match s.strip_suffix(']').map(str::parse) {
        Some(Ok(i)) => Step::Index(i),
        _ => Step::Field(s),
    })
}

/// A tree that knows where each node stands.
#[derive(Debug)]
enum Node {
    Map(Vec<(String, Spanned<Node>)>),
    List(Vec<Spanned<Node>>),
    Leaf,
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(entry) = map.next_entry()? {
            fields.push(entry);
        }
        Ok(Node::Map(fields))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
    fn visit_str<E>(self, _: &str) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_know_their_lines() {
        let text = "# intro\n---\na: 1\n---\n\nb:\n  c: [1, 2]\n  d:\n  - e: x\n--- {f: 1}\n---\n# nothing\n";
        let docs = parse(text).unwrap();
        assert_eq!(docs.iter().map(|d| d.line).collect::<Vec<_>>(), [3, 5, 10]);
        assert_eq!(docs[1].line_of("b.d[0].e"), 9);
        assert_eq!(docs[1].line_of("b.d[0].missing"), 9, "the deepest parent that is there");
        assert_eq!(docs[0].line_of("a"), 3);
    }

    #[test]
    fn a_document_that_is_nested_too_deep_has_only_its_own_line() {
        let nested = |levels: usize| format!("a:\n  b: {}{}\n", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(parse(&nested(30)).unwrap()[0].line_of("a.b"), 2);
        assert_eq!(parse(&nested(31)).unwrap()[0].line_of("a.b"), 1);
        // A file that is deeper still is no YAML that the gateway reads.
        assert!(parse(&nested(10_000)).is_err());
    }

    #[test]
    fn a_syntax_error_names_the_line_of_the_file() {
        let e = parse("a: 1\n---\nb: 1\nc: [1,\n").unwrap_err();
        assert!((4..=5).contains(&e.line), "{e:?}");
        let e = parse("a: 1\na: 2\n").unwrap_err();
        assert_eq!(e.line, 2, "a key that stands twice is an error: {e:?}");
    }

    #[test]
    fn a_marker_inside_a_block_scalar_that_is_indented_is_text() {
        let docs = parse("a: |\n  x\n  ---\n  y\n").unwrap();
        assert_eq!(docs.len(), 1);
        assert_eq!(docs[0].value["a"], "x\n---\ny\n");
    }

    #[test]
    fn json_and_merge_keys_are_read() {
        let docs = parse("{\"a\": [1, true, null]}").unwrap();
        assert_eq!(docs[0].value["a"][1], true);
        let docs = parse("x: &x {p: 1}\ny:\n  <<: *x\n  q: 2\n").unwrap();
        assert_eq!(docs[0].value["y"]["p"], 1);
    }
}

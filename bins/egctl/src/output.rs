//! Values as YAML and JSON, the same bytes for the same values.

use anyhow::Result;
use clap::ValueEnum;
use serde_json::{Map, Value};

/// Form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
}

/// One value.
///
/// # Errors
/// When a value has no form in YAML.
pub fn one(value: &Value, format: Format) -> Result<String> {
    let value = sorted(value);
    Ok(match format {
        Format::Yaml => yaml(&value)?,
        Format::Json => serde_json::to_string_pretty(&value)? + "\n",
    })
}

/// Several values: documents in YAML, a list in JSON.
///
/// # Errors
/// When a value has no form in YAML.
pub fn several(values: &[Value], format: Format) -> Result<String> {
    match format {
        Format::Yaml => {
            let documents: Vec<String> = values.iter().map(|v| yaml(&sorted(v))).collect::<Result<_>>()?;
            Ok(documents.join("---\n"))
        }
        Format::Json => one(&Value::Array(values.to_vec()), format),
    }
}

fn yaml(value: &Value) -> Result<String> {
    let mut text = serde_saphyr::to_string(value)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// With the keys of every map in order, whatever kind of map `serde_json` was built with.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(k, _)| *k);
            Value::Object(fields.into_iter().map(|(k, v)| (k.clone(), sorted(v))).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_that_looks_like_something_else_stays_text() {
        let value = json!({
            "port": "8080", "yes": "yes", "no": "null", "float": "1.0", "star": "*", "colon": ":authority",
            "percent": "%REQ(:METHOD)%", "lines": "a\nb\n", "empty": "", "list": [], "map": {}, "n": 1, "b": true,
            "long": "x ".repeat(200), "dash": "- a", "hash": "a # b", "tilde": "~", "date": "2020-01-01", "e": "1e3",
            "regex": r"^\d+(?:a|b)$", "tab": "\t", "quote": "'\"", "unicode": "é☃", "octal": "0o7", "hex": "0x1f",
        });
        let text = one(&value, Format::Yaml).unwrap();
        assert_eq!(provider::parse(&text).unwrap()[0].value, value, "{text}");
        assert_eq!(serde_json::from_str::<Value>(&one(&value, Format::Json).unwrap()).unwrap(), value);
    }

    #[test]
    fn several_are_documents_or_a_list() {
        let values = [json!({"a": 1}), json!({"b": 2})];
        assert_eq!(several(&values, Format::Yaml).unwrap(), "a: 1\n---\nb: 2\n");
        assert!(several(&values, Format::Json).unwrap().starts_with('['));
    }
}

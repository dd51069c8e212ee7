//! Where two trees differ.

use std::collections::BTreeSet;

use serde_json::Value;

/// Paths at which `got` differs from `want`, each with what is there, up to `limit`.
#[must_use]
pub fn paths(want: &Value, got: &Value, limit: usize) -> Vec<String> {
    let mut out = Vec::new();
    walk("", want, got, limit, &mut out);
    out
}

fn walk(path: &str, want: &Value, got: &Value, limit: usize, out: &mut Vec<String>) {
    if want == got || out.len() >= limit {
        return;
    }
    match (want, got) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => walk(&path, a, b, limit, out),
                    (Some(a), None) => push(out, limit, format!("{path}: missing {}", short(a))),
                    (None, Some(b)) => push(out, limit, format!("{path}: unexpected {}", short(b))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{i}]"), a, b, limit, out);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            push(out, limit, format!("{path}: {} items wanted, {} there", a.len(), b.len()));
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{i}]"), a, b, limit, out);
            }
        }
        _ => push(out, limit, format!("{path}: want {}, got {}", short(want), short(got))),
    }
}

fn push(out: &mut Vec<String>, limit: usize, text: String) {
    if out.len() < limit {
        out.push(text);
    }
}

fn short(v: &Value) -> String {
    let text = v.to_string();
    match text.char_indices().nth(160) {
        Some((i, _)) => format!("{}…", &text[..i]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_told_with_their_paths() {
        let want = json!({"a": [1, {"b": 2}], "c": 3});
        assert!(paths(&want, &want, 5).is_empty());
        assert_eq!(paths(&want, &json!({"a": [1, {"b": 4}], "c": 3}), 5), [".a[1].b: want 2, got 4"]);
        assert_eq!(paths(&want, &json!({"a": [1, {"b": 2}], "d": 3}), 5), [".c: missing 3", ".d: unexpected 3"]);
        assert_eq!(paths(&want, &json!({"a": [2], "c": 4}), 2).len(), 2);
    }
}

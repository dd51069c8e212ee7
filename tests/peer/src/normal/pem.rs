//! The layout of PEM: certificates are compared, not line ends. CAs are a set, a chain is a sequence.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::Value;

/// Replaces the PEM of a secret by its blocks.
pub(super) fn level(secret: &mut Value) {
    for (pointer, is_set) in [
        ("/tlsCertificate/certificateChain", false),
        ("/tlsCertificate/privateKey", false),
        ("/validationContext/trustedCa", true),
    ] {
        let Some(Value::Object(source)) = secret.pointer_mut(pointer) else { continue };
        let blocks = source.get("inlineBytes").and_then(Value::as_str).and_then(blocks);
        if let Some(mut blocks) = blocks {
            if is_set {
                blocks.sort();
            }
            source.insert("inlineBytes".to_owned(), blocks.into());
        }
    }
}

/// Label and content of each block; `None` when there is none.
fn blocks(encoded: &str) -> Option<Vec<String>> {
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let mut out = Vec::new();
    let mut open: Option<String> = None;
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ") {
            open = Some(format!("{label} "));
        } else if line.starts_with("-----END ") {
            out.extend(open.take());
        } else if let Some(block) = &mut open {
            block.extend(line.chars().filter(|c| !c.is_whitespace()));
        }
    }
    (!out.is_empty()).then_some(out)
}

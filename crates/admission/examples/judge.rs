//! Judges many objects: reads one JSON object a line, writes one verdict a line, to be compared with those of an API
//! server: `cargo run -p admission --example judge < objects.jsonl`.

use std::io::{BufRead as _, Write as _};

use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let admission = admission::Admission::strict();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines() {
        let object: Value = serde_json::from_str(&line?)?;
        let verdict = match admission.admit(object) {
            Ok(object) => json!({ "errors": [], "object": object }),
            Err(refused) => {
                let error = |e: &admission::FieldError| json!({ "path": e.path, "type": e.kind.as_str(), "text": e.to_string() });
                json!({ "errors": refused.errors.iter().map(error).collect::<Vec<_>>() })
            }
        };
        writeln!(out, "{verdict}")?;
    }
    out.flush()?;
    Ok(())
}

//! Writes the definitions of the kinds of `gateway.envoyproxy.io` to `deploy/crds`, one file for each kind.
//!
//! Run it after a change of these types: `cargo run -p api --example crds`. The test `envoygateway_crds` fails as long
//! as the files differ from the types.

#![allow(unreachable_pub, dead_code)] // a test includes this file

use std::path::PathBuf;

/// The folder of the files.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

/// Names and contents of the files.
pub fn files() -> Vec<(String, String)> {
    let definitions = api::envoygateway::definitions();
    definitions
        .iter()
        .map(|definition| {
            let name = format!("{}_{}.yaml", definition.spec.group, definition.spec.names.plural);
            let yaml = serde_saphyr::to_string(definition).expect("a definition encodes as YAML");
            (name, format!("# Generated from the types in crates/api by: cargo run -p api --example crds\n{yaml}"))
        })
        .collect()
}

fn main() -> std::io::Result<()> {
    for (name, text) in files() {
        std::fs::write(folder().join(name), text)?;
    }
    Ok(())
}

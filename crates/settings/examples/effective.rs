//! Prints the effective configuration of a file, or what is wrong with it.
//!
//! `cargo run -p settings --example effective -- FILE` (without FILE: the defaults). Variables override fields:
//! `ENVOY_GATEWAY__ADMIN__ADDRESS__PORT=0 cargo run -p settings --example effective`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let path = std::env::args_os().nth(1).map(PathBuf::from);
    let (text, code) = match settings::read(path.as_deref(), std::env::vars()) {
        Ok(loaded) => {
            let warnings: String = loaded.warnings.iter().map(|warning| format!("# warning: {warning}\n")).collect();
            let yaml = serde_saphyr::to_string(&loaded.config).expect("a configuration is always YAML");
            (warnings + &yaml, ExitCode::SUCCESS)
        }
        Err(error) => (format!("{error}\n"), ExitCode::FAILURE),
    };
    // A reader that has gone away needs no message.
    let _ = std::io::stdout().write_all(text.as_bytes());
    code
}

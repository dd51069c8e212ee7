//! Renders the chart with helm and compares objects.
//!
//! `HELM_BIN` names the helm binary (`tests/tools/helm.sh` prints it); without it the tests say that they are skipped.

pub mod differences;
pub mod objects;

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// Namespace that everything is rendered for.
pub const NAMESPACE: &str = "envoy-gateway-system";

/// The helm binary, or `None` (said on the terminal) where `HELM_BIN` is not set.
#[must_use]
#[allow(clippy::print_stdout, reason = "who runs the tests is to know")]
pub fn helm_bin() -> Option<PathBuf> {
    let bin = std::env::var_os("HELM_BIN").map(PathBuf::from);
    if bin.is_none() {
        println!("skipped: HELM_BIN is not set (tests/tools/helm.sh prints it)");
    }
    bin
}

/// A path of this repository.
#[must_use]
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// What the chart renders for a release of this name with these values, later ones first in rank.
///
/// # Errors
/// When helm refuses; its words are part of the error.
pub fn render(helm: &Path, release: &str, values: &[&str]) -> Result<String> {
    let mut command = Command::new(helm);
    command.args(["template", release, "--namespace", NAMESPACE]).arg(repository("deploy/chart/gateway-helm"));
    let mut files = Vec::new();
    for text in values {
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(text.as_bytes())?;
        command.arg("--values").arg(file.path());
        files.push(file);
    }
    let out = command.output().with_context(|| format!("{} does not start", helm.display()))?;
    ensure!(out.status.success(), "helm: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8(out.stdout)?)
}

//! Changes that users make to the bootstrap.

use serde_json::Value;

use crate::json;

const BOOTSTRAP: &str = "envoy.config.bootstrap.v3.Bootstrap";

/// Why a changed bootstrap cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BootstrapError {
    /// The text is no YAML.
    #[error("spec.bootstrap.value is no YAML: {0}")]
    Yaml(String),
    /// It is no bootstrap.
    #[error("spec.bootstrap.value is no bootstrap of Envoy: {0}")]
    Field(#[from] json::JsonError),
    /// The patch is wrong or does not apply.
    #[error("spec.bootstrap.jsonPatches: {0}")]
    Patch(String),
    /// Proxies would start, and never hear of the control plane.
    #[error("spec.bootstrap: {0} has to stay as it is by default, or proxies do not find the control plane")]
    Lost(&'static str),
}

/// A change of the default bootstrap.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// This text in its place.
    Replace(String),
    /// Merged into it, as protobuf merges: lists grow, everything else is overridden.
    Merge(String),
    /// A JSON Patch (RFC 6902).
    Patch(Vec<Value>),
}

// === impl Change ===

impl Change {
    /// The changed bootstrap as text: the user's own where it replaces.
    pub(super) fn apply(self, default: Value) -> Result<String, BootstrapError> {
        match self {
            Self::Replace(text) => {
                keeps(&default, &read(&text)?)?;
                Ok(text)
            }
            Self::Merge(text) => {
                let mut bytes = json::from_value(BOOTSTRAP, &default)?;
                // One message after the other is both merged.
                bytes.extend(json::from_value(BOOTSTRAP, &read(&text)?)?);
                let mut merged = json::to_proto_value(BOOTSTRAP, &bytes)?;
                whole(&mut merged);
                keeps(&default, &merged)?;
                Ok(yaml(&merged))
            }
            Self::Patch(operations) => {
                let patched = patch(default.clone(), operations)?;
                keeps(&default, &patched)?;
                Ok(yaml(&patched))
            }
        }
    }
}

/// Where the control plane is and what is asked of it, and the admin address, are still there.
fn keeps(default: &Value, changed: &Value) -> Result<(), BootstrapError> {
    let level = |tree: &Value| json::to_proto_value(BOOTSTRAP, &json::from_value(BOOTSTRAP, tree)?);
    let (default, changed) = (level(default)?, level(changed)?);
    if changed.pointer("/admin/address/socket_address/address").and_then(Value::as_str).is_none_or(str::is_empty)
        && changed.pointer("/admin/address/pipe").is_none()
    {
        return Err(BootstrapError::Lost("admin.address"));
    }
    let asked = |tree: &Value| {
        let mut asked = tree["dynamic_resources"].clone();
        // How long proxies wait for the first answer is theirs.
        for field in ["lds_config", "cds_config"] {
            if let Some(config) = asked.get_mut(field).and_then(Value::as_object_mut) {
                config.remove("initial_fetch_timeout");
            }
        }
        asked
    };
    if asked(&default) != asked(&changed) {
        return Err(BootstrapError::Lost("dynamic_resources"));
    }
    let server = |tree: &Value| {
        let clusters = tree.pointer("/static_resources/clusters").and_then(Value::as_array);
        let own = clusters.into_iter().flatten().find(|c| c["name"] == "xds_cluster");
        own.map(|c| c["load_assignment"].clone())
    };
    if server(&default) != server(&changed) {
        return Err(BootstrapError::Lost("static_resources.clusters: xds_cluster"));
    }
    Ok(())
}

/// Writes whole numbers without a fraction: those of a `Struct` are all floating.
fn whole(tree: &mut Value) {
    /// Whole numbers up to here are exact.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match tree {
        Value::Array(items) => items.iter_mut().for_each(whole),
        Value::Object(fields) => fields.values_mut().for_each(whole),
        Value::Number(n) if n.is_f64() => {
            if let Some(f) = n.as_f64().filter(|f| f.fract() == 0.0 && f.abs() < EXACT) {
                // Whole, and small enough to be exact.
                *tree = (f as i64).into();
            }
        }
        _ => {}
    }
}

fn read(text: &str) -> Result<Value, BootstrapError> {
    serde_saphyr::from_str(text).map_err(|e| BootstrapError::Yaml(e.to_string()))
}

pub(super) fn yaml(tree: &Value) -> String {
    serde_saphyr::to_string(tree).expect("invariant: a tree of maps, lists and texts is YAML")
}

/// A tree after the operations of a JSON Patch, in order.
///
/// # Errors
/// [`BootstrapError::Patch`] names the operation that is wrong or finds nothing to work on.
pub fn patch(mut tree: Value, operations: Vec<Value>) -> Result<Value, BootstrapError> {
    for (i, operation) in operations.into_iter().enumerate() {
        let wrong = |e: &dyn std::fmt::Display| BootstrapError::Patch(format!("[{i}]: {e}"));
        let operation: json_patch::PatchOperation = serde_json::from_value(operation).map_err(|e| wrong(&e))?;
        json_patch::patch(&mut tree, std::slice::from_ref(&operation)).map_err(|e| wrong(&e))?;
    }
    Ok(tree)
}

//! The settings of the control plane: the `EnvoyGateway` file, read, completed, overridden by the environment, checked,
//! watched.
//!
//! # Contract
//!
//! * A configuration that is handed out can be used: every default is filled in, every rule holds.
//! * `apiVersion` and `kind` have to be there and right; a key that occurs twice, a value of another type, a missing
//!   part are refused. Every refusal names the file or variable, the field, the value, and what would be right; rules on
//!   values are all checked, so that one run tells everything.
//! * A field that does not exist is a warning, not a refusal: files written for another release go on working, as they
//!   do with Envoy Gateway. ([`Loaded::warnings`]; a caller that wants to be strict refuses them.) A *variable* that
//!   names no field is refused: nothing but us reads it, so it is a mistake.
//! * Leader election timings that could let two replicas write at once are refused, unless the election is disabled.
//!
//! # Limits
//!
//! One document in one file; no includes. `envoyProxy` is checked for its types here and for its rules where EnvoyProxy
//! objects are.
//!
//! Source: the recorded behaviour of Envoy Gateway (accepted and refused files, effective defaults); for the election,
//! the rules of `api::config::LeaderElection`.

mod decode;
mod election;
mod error;
mod last_good;
mod overrides;
mod path;
mod schema;
mod validate;
mod watch;

use std::path::Path;

use api::config::{
    CustomProvider, EnvoyGateway, ExtensionApis, FileResources, HostInfrastructure, InfrastructureProvider,
    InfrastructureProviderType, Provider, ProviderType, ResourceProvider, ResourceProviderType,
};
use serde_json::Value;

pub use election::{Election, election, leader_election};
pub use error::{Problem, SettingsError};
pub use last_good::{LastGood, last_good};
pub use overrides::{PREFIX, SEPARATOR};
pub use watch::{Reload, Watch, watch};

/// Where values come from when there is no file.
const NO_FILE: &str = "built-in defaults";

/// A configuration, and what in its sources has no effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The configuration, complete.
    pub config: EnvoyGateway,
    /// Fields that do not exist, names of another release, settings that another one overrules.
    pub warnings: Vec<Problem>,
}

/// Reads the configuration: `path`, or the defaults without one, with the overrides of `env` (`std::env::vars()`).
/// Warnings go to the log; [`read`] returns them instead, for callers that set up logging from what they read.
///
/// # Errors
/// [`SettingsError`], each kind with its text for the operator.
pub fn load(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<EnvoyGateway, SettingsError> {
    let loaded = read(path, env)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded.config)
}

/// As [`load`], with the warnings.
///
/// # Errors
/// As [`load`].
pub fn read(path: Option<&Path>, env: impl Iterator<Item = (String, String)>) -> Result<Loaded, SettingsError> {
    match path {
        None => complete(bare(), NO_FILE, env),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| SettingsError::Read { file: path.to_owned(), source })?;
            parse(&text, &path.display().to_string(), env)
        }
    }
}

/// Reads the configuration out of `text`, which messages call `source`.
///
/// # Errors
/// As [`load`], without [`SettingsError::Read`].
pub fn parse(text: &str, source: &str, env: impl Iterator<Item = (String, String)>) -> Result<Loaded, SettingsError> {
    complete(decode::tree(text, source)?, source, env)
}

/// The configuration of a standalone gateway: resources from `paths` (files and folders), Envoy as processes of this
/// host, the Backend API on.
pub fn defaults_for_standalone(paths: impl IntoIterator<Item = impl AsRef<Path>>) -> EnvoyGateway {
    let paths = paths.into_iter().map(|path| path.as_ref().display().to_string()).collect();
    EnvoyGateway {
        provider: Provider {
            type_: ProviderType::Custom,
            custom: Some(CustomProvider {
                resource: ResourceProvider {
                    type_: ResourceProviderType::File,
                    file: Some(FileResources { paths }),
                    kubernetes: None,
                },
                infrastructure: Some(InfrastructureProvider {
                    type_: InfrastructureProviderType::Host,
                    host: Some(HostInfrastructure::default()),
                    remote: None,
                }),
            }),
            ..Provider::default()
        },
        extension_apis: ExtensionApis { enable_backend: true, ..ExtensionApis::default() },
        ..EnvoyGateway::default()
    }
}

/// [`defaults_for_standalone`] with the overrides of `env`.
///
/// # Errors
/// As [`load`], without those of a file.
pub fn standalone(
    paths: impl IntoIterator<Item = impl AsRef<Path>>,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, SettingsError> {
    let tree = serde_json::to_value(defaults_for_standalone(paths)).expect("a configuration is always JSON");
    complete(tree, NO_FILE, env)
}

/// Everything that is wrong with a configuration made by the program itself; empty when it can be used.
pub fn validate(config: &EnvoyGateway) -> Vec<Problem> {
    let tree = serde_json::to_value(config).expect("a configuration is always JSON");
    let provenance = decode::Provenance { source: "configuration".to_owned(), overridden: Vec::new(), tree };
    validate::validate(config, &provenance)
}

fn bare() -> Value {
    serde_json::json!({ "apiVersion": api::config::API_VERSION, "kind": api::config::KIND })
}

fn complete(
    mut tree: Value,
    source: &str,
    env: impl Iterator<Item = (String, String)>,
) -> Result<Loaded, SettingsError> {
    decode::drop_nulls(&mut tree);
    let said_where = tree.get("provider").is_some();
    let overridden = overrides::apply(&mut tree, env)?;
    // A variable below `provider` does not undo the default of what the file left out.
    if !said_where && let Some(provider) = tree.get_mut("provider").and_then(Value::as_object_mut) {
        provider.entry("type").or_insert_with(|| "Kubernetes".into());
    }
    // An EnvoyProxy object has to name its provider; here it may be left out, as Kubernetes is meant.
    if let Some(provider) = tree.pointer_mut("/envoyProxy/provider").and_then(Value::as_object_mut) {
        provider.entry("type").or_insert_with(|| "Kubernetes".into());
    }
    let provenance = decode::Provenance { source: source.to_owned(), overridden, tree };
    let (mut config, mut warnings) = decode::decode(&provenance)?;
    fill(&mut config);
    let problems = validate::validate(&config, &provenance);
    if !problems.is_empty() {
        return Err(SettingsError::Invalid(problems));
    }
    warnings.extend(validate::warnings(&config, &provenance));
    Ok(Loaded { config, warnings })
}

/// Defaults that depend on another field.
fn fill(config: &mut EnvoyGateway) {
    if let Some(resource) = config.provider.custom.as_mut().map(|custom| &mut custom.resource)
        && resource.type_ == ResourceProviderType::Kubernetes
    {
        resource.kubernetes.get_or_insert_default();
    }
}

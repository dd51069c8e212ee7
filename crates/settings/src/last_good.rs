//! The last good state: where it is kept, and when it is served.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use api::config::{EnvoyGateway, LastGoodState, ProviderType, ResourceProviderType};

use crate::decode::Provenance;
use crate::error::Problem;

/// Time without a sign of life of the API server that nobody wrote otherwise.
const AFTER: Duration = Duration::from_secs(5);
/// Longer than this nobody would wait who wants proxies to be served.
const LONGEST: Duration = Duration::from_secs(60);

/// Where the last good state is kept, every value decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastGood {
    /// Folder of this process alone.
    pub folder: PathBuf,
    /// Time without a sign of life of the API server after which a starting process serves the saved state.
    pub after: Duration,
}

/// What the configuration says of the last good state; none where it is not kept, or where resources come from files,
/// which are there without any API server.
pub fn last_good(config: &EnvoyGateway) -> Option<LastGood> {
    let (_, section) = section(config)?;
    let after = section.after.as_ref().map_or(AFTER, api::config::Duration::get);
    Some(LastGood { folder: PathBuf::from(&section.folder), after })
}

fn section(config: &EnvoyGateway) -> Option<(&'static str, &LastGoodState)> {
    let (at, kubernetes) = match config.provider.type_ {
        ProviderType::Kubernetes => ("provider.kubernetes.lastGoodState", &config.provider.kubernetes),
        ProviderType::Custom => {
            let resource = &config.provider.custom.as_ref()?.resource;
            if resource.type_ != ResourceProviderType::Kubernetes {
                return None;
            }
            ("provider.custom.resource.kubernetes.lastGoodState", resource.kubernetes.as_deref()?)
        }
    };
    Some((at, kubernetes.last_good_state.as_ref()?))
}

/// Whether it can work.
pub(crate) fn validate(config: &EnvoyGateway, provenance: &Provenance) -> Vec<Problem> {
    let Some((at, section)) = section(config) else { return Vec::new() };
    let mut problems = Vec::new();
    if !Path::new(&section.folder).is_absolute() {
        let remedy = "write an absolute path, such as /var/lib/envoy-gateway, of a volume that outlives the container";
        problems.push(provenance.problem(&format!("{at}.folder"), "it is no absolute path", remedy));
    }
    let after = section.after.as_ref().map(api::config::Duration::get);
    if let Some(after) = after.filter(|a| a.is_zero() || *a > LONGEST) {
        let reason = format!("{after:?} is not above zero and at most {LONGEST:?}");
        problems.push(provenance.problem(&format!("{at}.after"), &reason, "write such as 5s"));
    }
    problems
}

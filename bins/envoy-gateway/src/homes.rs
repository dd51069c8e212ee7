//! Where things are kept on this machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::config::HostInfrastructure;

/// Folders of a local gateway.
#[derive(Clone, Debug)]
pub(crate) struct Homes {
    /// Certificates are under `certs/`.
    pub(crate) config: PathBuf,
    /// Envoy binaries.
    pub(crate) data: PathBuf,
    /// Logs.
    pub(crate) state: PathBuf,
    /// Run files.
    pub(crate) runtime: PathBuf,
}

// === impl Homes ===

impl Homes {
    /// Everything under `home`; without it the XDG folders, the first of which `config` replaces.
    ///
    /// # Errors
    /// When neither `home` nor `HOME` is known.
    pub(crate) fn new(home: Option<&Path>, config: Option<&Path>) -> Result<Self> {
        if let Some(home) = home {
            let under = |name: &str| home.join(name);
            return Ok(Self {
                config: config.map_or_else(|| under("config"), Path::to_owned),
                data: under("data"),
                state: under("state"),
                runtime: under("run"),
            });
        }
        let user = std::env::var_os("HOME").map(PathBuf::from).context("HOME is not set: give --home FOLDER")?;
        let tmp = std::env::temp_dir().join(format!("envoy-gateway-{}", nix::unistd::getuid()));
        Ok(Self {
            config: config.map_or_else(|| user.join(".config/envoy-gateway"), Path::to_owned),
            data: user.join(".local/share/envoy-gateway"),
            state: user.join(".local/state/envoy-gateway"),
            runtime: tmp,
        })
    }

    /// What the file says wins over the XDG folders, `--home` over both.
    pub(crate) fn of(host: Option<&HostInfrastructure>, home: Option<&Path>) -> Result<Self> {
        let mut homes = Self::new(home, None)?;
        if let (Some(host), None) = (host, home) {
            let set = |to: &mut PathBuf, from: &Option<String>| {
                if let Some(from) = from {
                    *to = PathBuf::from(from);
                }
            };
            set(&mut homes.config, &host.config_home);
            set(&mut homes.data, &host.data_home);
            set(&mut homes.state, &host.state_home);
            set(&mut homes.runtime, &host.runtime_dir);
        }
        Ok(homes)
    }

    /// Folder of the certificates.
    pub(crate) fn certs(&self) -> PathBuf {
        self.config.join("certs")
    }
}

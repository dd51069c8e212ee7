//! Using certificates that change while the process runs.

use crate::store::read_material;
use crate::{Error, Fault, Material};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What was loaded: the PEM texts and the TLS server made of them.
#[derive(Debug)]
pub struct Loaded {
    /// Certificate, key and CAs as PEM.
    pub material: Material,
    /// A server that asks for client certificates; made for the protocols given to [`Reloading::open`].
    pub server: Arc<rustls::ServerConfig>,
    /// The same for clients that may come without a certificate.
    pub open_server: Arc<rustls::ServerConfig>,
}

/// One identity's files, read again when they have changed: ask for [`current`](Self::current) at each handshake, as
/// the files are small and handshakes with proxies rare. While the files are missing, half-written or broken, the last
/// good content stays in use and the fault is logged once.
#[derive(Debug)]
pub struct Reloading {
    dir: PathBuf,
    alpn: Vec<&'static str>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    loaded: Arc<Loaded>,
    fault: Option<String>,
}

impl Reloading {
    /// Loads the files of `dir` (`ca.crt`, `tls.crt`, `tls.key`). `alpn`: `["h2"]` for gRPC.
    ///
    /// # Errors
    /// [`Error::Unusable`], [`Error::Io`] or [`Error::Tls`] when there is nothing good to start with.
    pub fn open(dir: impl Into<PathBuf>, alpn: &[&'static str]) -> Result<Self, Error> {
        let dir = dir.into();
        let alpn = alpn.to_vec();
        let material = read(&dir)?;
        let loaded = load(&dir, material, &alpn)?;
        Ok(Self { dir, alpn, state: Mutex::new(State { loaded, fault: None }) })
    }

    /// The current content, read again if the files have changed.
    #[must_use]
    pub fn current(&self) -> Arc<Loaded> {
        // The lock is held over three small reads; a poisoned one only means that a reader panicked: the state is whole.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = read(&self.dir).and_then(|material| {
            if material == state.loaded.material {
                return Ok(None);
            }
            load(&self.dir, material, &self.alpn).map(Some)
        });
        match fresh {
            Ok(None) => state.fault = None,
            Ok(Some(loaded)) => {
                tracing::info!(directory = %self.dir.display(), "certificates reloaded");
                state.loaded = loaded;
                state.fault = None;
            }
            Err(error) => {
                let text = error.to_string();
                if state.fault.as_ref() != Some(&text) {
                    tracing::warn!(%error, "certificates not reloaded, the last good ones stay in use");
                    state.fault = Some(text);
                }
            }
        }
        Arc::clone(&state.loaded)
    }

    /// Why the files on disk are not in use, if so, as found by the last [`current`](Self::current).
    #[must_use]
    pub fn fault(&self) -> Option<String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }

    /// Waits until the content differs from `known`, looking every `every`; gives the new content. For those who hold
    /// something made from it instead of asking at each use.
    pub async fn changed(&self, known: &Loaded, every: Duration) -> Arc<Loaded> {
        let mut tick = tokio::time::interval(every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let now = self.current();
            if now.material != known.material {
                return now;
            }
        }
    }
}

fn read(dir: &Path) -> Result<Material, Error> {
    read_material(dir)?.map_err(|fault| unusable(dir, fault))
}

fn load(dir: &Path, material: Material, alpn: &[&'static str]) -> Result<Arc<Loaded>, Error> {
    let placed = |e| match e {
        Error::Unusable { fault, .. } => unusable(dir, fault),
        other => other,
    };
    let server = Arc::new(material.server_config(alpn).map_err(placed)?);
    let open_server = Arc::new(material.open_server_config(alpn).map_err(placed)?);
    Ok(Arc::new(Loaded { material, server, open_server }))
}

fn unusable(dir: &Path, fault: Fault) -> Error {
    Error::Unusable { place: dir.display().to_string(), fault }
}

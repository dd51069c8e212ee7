//! Certificates as the content of Kubernetes Secrets. This crate knows no client: who writes them converts these values.

use crate::store::{CA, CERT, HMAC, HMAC_DIR, KEY};
use crate::{Fault, Identity, Material, Set};
use std::collections::BTreeMap;
use std::fmt;

/// Names of the Secrets that hold a [`Set`].
pub const SECRETS: [&str; 4] = ["envoy-gateway", "envoy", "envoy-rate-limit", HMAC_DIR];

/// A Secret to write, without its namespace. `Debug` shows the keys of the data, never the values.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretData {
    /// `metadata.name`.
    pub name: &'static str,
    /// `type`: `kubernetes.io/tls` or `Opaque`.
    pub kind: &'static str,
    /// `data`, not yet base64.
    pub data: BTreeMap<&'static str, Vec<u8>>,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretData")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("keys", &self.data.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Set {
    /// The four Secrets that hold this set: one for each identity, then the OIDC key.
    #[must_use]
    pub fn secrets(&self) -> Vec<SecretData> {
        let mut all: Vec<SecretData> = self
            .material
            .iter()
            .map(|(identity, material)| SecretData {
                name: identity.name(),
                kind: "kubernetes.io/tls",
                data: BTreeMap::from([
                    (CA, material.ca.clone().into_bytes()),
                    (CERT, material.cert.clone().into_bytes()),
                    (KEY, material.key.clone().into_bytes()),
                ]),
            })
            .collect();
        all.push(SecretData { name: HMAC_DIR, kind: "Opaque", data: BTreeMap::from([(HMAC, self.hmac.clone())]) });
        all
    }
}

impl Material {
    /// The material in a Secret's data (already decoded from base64).
    ///
    /// # Errors
    /// [`Fault::Missing`] or [`Fault::Broken`] with the key of the data.
    pub fn from_secret(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, Fault> {
        let text = |key: &str| {
            let bytes = data.get(key).ok_or_else(|| Fault::Missing(key.to_owned()))?;
            String::from_utf8(bytes.clone()).map_err(|e| Fault::Broken { what: key.to_owned(), why: e.to_string() })
        };
        Ok(Self { ca: text(CA)?, cert: text(CERT)?, key: text(KEY)? })
    }
}

impl Identity {
    /// The identity whose Secret or directory has this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|i| i.name() == name)
    }
}

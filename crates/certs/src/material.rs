//! Certificates and keys as values.

use crate::{Error, Fault, Identity};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What one identity holds, as PEM. `Debug` never shows the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Material {
    /// The CAs that this identity trusts (`ca.crt`): the current one first, then old ones that are still of use.
    pub ca: String,
    /// This identity's certificate (`tls.crt`).
    pub cert: String,
    /// This identity's private key (`tls.key`).
    pub key: String,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").field("ca", &self.ca).field("cert", &self.cert).field("key", &"<redacted>").finish()
    }
}

/// The certificates of all identities, signed by one CA, and the key of the cookies that OIDC sets.
#[derive(Clone, PartialEq, Eq)]
pub struct Set {
    pub(crate) material: BTreeMap<Identity, Material>,
    pub(crate) hmac: Vec<u8>,
}

impl fmt::Debug for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Set").field("material", &self.material).field("hmac", &"<redacted>").finish()
    }
}

impl Set {
    /// What `identity` holds.
    #[must_use]
    pub fn get(&self, identity: Identity) -> &Material {
        self.material.get(&identity).expect("invariant: a set has every identity")
    }

    /// The secret that signs the cookies of OIDC sessions (32 random bytes).
    #[must_use]
    pub fn hmac_secret(&self) -> &[u8] {
        &self.hmac
    }
}

/// The cryptography that every TLS configuration here uses.
pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// All certificates of a PEM text, at least one.
pub(crate) fn certificates(what: &str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Fault> {
    let broken = |why: String| Fault::Broken { what: what.to_owned(), why };
    let all = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| broken(e.to_string()))?;
    if all.is_empty() {
        return Err(broken("no certificate in it".to_owned()));
    }
    Ok(all)
}

impl Material {
    /// The CAs as trust anchors.
    pub(crate) fn roots(&self) -> Result<Arc<RootCertStore>, Fault> {
        let mut roots = RootCertStore::empty();
        for ca in certificates("ca.crt", &self.ca)? {
            roots.add(ca).map_err(|e| Fault::Broken { what: "ca.crt".to_owned(), why: e.to_string() })?;
        }
        Ok(Arc::new(roots))
    }

    /// Certificate and key, which belong together.
    pub(crate) fn certified_key(&self) -> Result<CertifiedKey, Fault> {
        let chain = certificates("tls.crt", &self.cert)?;
        let broken = |why: String| Fault::Broken { what: "tls.key".to_owned(), why };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| broken(e.to_string()))?;
        let key = crypto().key_provider.load_private_key(key).map_err(|e| broken(e.to_string()))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
            Err(rustls::Error::InconsistentKeys(_)) => Err(Fault::KeyMismatch),
            Err(e) => Err(Fault::Broken { what: "tls.crt".to_owned(), why: e.to_string() }),
        }
    }

    /// A TLS server that shows this certificate and admits only clients that one of the CAs vouches for. TLS 1.2 and
    /// 1.3. `alpn`: the protocols offered, `["h2"]` for gRPC.
    ///
    /// # Errors
    /// [`Error::Unusable`] and [`Error::Tls`] when the material is no good.
    pub fn server_config(&self, alpn: &[&str]) -> Result<rustls::ServerConfig, Error> {
        self.server(alpn, false)
    }

    /// The same, but a client may show no certificate at all: for servers that know such clients by other means. One that shows a
    /// certificate has to show one that a CA vouches for.
    ///
    /// # Errors
    /// [`Error::Unusable`] and [`Error::Tls`] when the material is no good.
    pub fn open_server_config(&self, alpn: &[&str]) -> Result<rustls::ServerConfig, Error> {
        self.server(alpn, true)
    }

    fn server(&self, alpn: &[&str], open: bool) -> Result<rustls::ServerConfig, Error> {
        let verifier =
            rustls::server::WebPkiClientVerifier::builder_with_provider(self.roots().map_err(unusable)?, crypto());
        let verifier = if open { verifier.allow_unauthenticated() } else { verifier };
        let verifier =
            verifier.build().map_err(|e| unusable(Fault::Broken { what: "ca.crt".to_owned(), why: e.to_string() }))?;
        let mut config = rustls::ServerConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(
                self.certified_key().map_err(unusable)?,
            )));
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }

    /// A TLS server that shows this certificate and admits any client: for webhooks, whose caller, the API server, has no
    /// certificate of ours. TLS 1.2 and 1.3.
    ///
    /// # Errors
    /// [`Error::Unusable`] and [`Error::Tls`] when the material is no good.
    pub fn webhook_config(&self, alpn: &[&str]) -> Result<rustls::ServerConfig, Error> {
        let key = Arc::new(rustls::sign::SingleCertAndKey::from(self.certified_key().map_err(unusable)?));
        let mut config = rustls::ServerConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(key);
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }

    /// A TLS client that shows this certificate and trusts only servers that one of the CAs vouches for.
    ///
    /// # Errors
    /// [`Error::Unusable`] and [`Error::Tls`] when the material is no good.
    pub fn client_config(&self, alpn: &[&str]) -> Result<rustls::ClientConfig, Error> {
        let mut config = rustls::ClientConfig::builder_with_provider(crypto())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(self.roots().map_err(unusable)?)
            .with_client_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(
                self.certified_key().map_err(unusable)?,
            )));
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }
}

fn unusable(fault: Fault) -> Error {
    Error::Unusable { place: "certificates".to_owned(), fault }
}

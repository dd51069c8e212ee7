//! Certificates for backends and listeners.

use anyhow::Result;
use base64::Engine;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

/// A CA of this run.
#[derive(Debug)]
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// PEM.
    pub(crate) certificate: String,
    /// DER of the certificate.
    pub(crate) der: Vec<u8>,
    /// PEM.
    pub(crate) key: String,
}

// === impl Authority ===

impl Authority {
    /// Makes one.
    ///
    /// # Errors
    /// When no key can be made.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Its certificate, PEM.
    #[must_use]
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A new certificate for a host, with a new key.
    ///
    /// # Errors
    /// When the host is no name or no key can be made.
    pub(crate) fn leaf(&self, host: &str) -> Result<Leaf> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, host);
        params.subject_alt_names = vec![SanType::DnsName(host.try_into()?)];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Leaf { certificate: certificate.pem(), der: certificate.der().to_vec(), key: key.serialize_pem() })
    }
}

/// Base64, as the data of a Secret.
#[must_use]
pub(crate) fn base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(text)
}

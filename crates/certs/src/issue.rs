//! Making a set of certificates.

use crate::{Error, Identity, Material, Set, Spec, UnixTime};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SerialNumber,
};
use std::collections::BTreeMap;
use std::time::Duration;
use time::OffsetDateTime;

/// New certificates begin this much in the past, for machines whose clock is a little behind.
const BACKDATE: Duration = Duration::from_secs(60 * 60);
/// Bytes of the OIDC cookie key.
const HMAC_LEN: usize = 32;

impl Set {
    /// Makes a CA and a certificate of it for each identity, valid from `now` (less an hour, for clocks that differ)
    /// for `spec.validity`. `trusted` are PEM certificates of CAs that stay trusted beside the new one.
    ///
    /// # Errors
    /// [`Error::Issue`] for names that no certificate can carry, [`Error::Randomness`].
    pub fn generate(spec: &Spec, now: UnixTime, trusted: &[String]) -> Result<Self, Error> {
        let ca = CertifiedIssuer::self_signed(ca_params(spec, now)?, KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?)?;
        let mut bundle = ca.pem();
        for old in trusted {
            bundle.push_str(old);
            if !old.ends_with('\n') {
                bundle.push('\n');
            }
        }
        let mut material = BTreeMap::new();
        for identity in Identity::ALL {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
            let cert = leaf_params(identity, spec, now)?.signed_by(&key, &ca)?;
            material.insert(identity, Material { ca: bundle.clone(), cert: cert.pem(), key: key.serialize_pem() });
        }
        Ok(Self { material, hmac: new_hmac()? })
    }
}

pub(crate) fn new_hmac() -> Result<Vec<u8>, Error> {
    let mut hmac = vec![0; HMAC_LEN];
    aws_lc_rs::rand::fill(&mut hmac).map_err(|_| Error::Randomness)?;
    Ok(hmac)
}

fn ca_params(spec: &Spec, now: UnixTime) -> Result<CertificateParams, Error> {
    let serial = serial()?;
    let mut params = dated(spec, now, serial.clone());
    // Each CA has a subject of its own, so that a bundle of the old and the new one is unambiguous to every verifier.
    let id: String = serial.to_bytes().iter().take(4).map(|b| format!("{b:02x}")).collect();
    params.distinguished_name.push(DnType::CommonName, format!("envoy-gateway CA {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn leaf_params(identity: Identity, spec: &Spec, now: UnixTime) -> Result<CertificateParams, Error> {
    let mut params = dated(spec, now, serial()?);
    params.subject_alt_names = CertificateParams::new(identity.dns_names(spec))?.subject_alt_names;
    params.distinguished_name.push(DnType::CommonName, identity.name());
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn dated(spec: &Spec, now: UnixTime, serial: SerialNumber) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.serial_number = Some(serial);
    let start = now.as_secs().saturating_sub(BACKDATE.as_secs());
    params.not_before = calendar(start);
    params.not_after = calendar(now.as_secs().saturating_add(spec.validity.as_secs()));
    params
}

/// Seconds since 1970 as a date; what no calendar holds becomes the last day that X.509 can name.
fn calendar(seconds: u64) -> OffsetDateTime {
    i64::try_from(seconds)
        .ok()
        .and_then(|s| OffsetDateTime::from_unix_timestamp(s).ok())
        .unwrap_or_else(|| rcgen::date_time_ymd(9999, 12, 31))
}

/// 127 random bits: positive, as RFC 5280 section 4.1.2.2 wants it.
fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::Randomness)?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

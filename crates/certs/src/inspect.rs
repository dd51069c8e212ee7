//! Judging certificates that are there.

use crate::material::{certificates, crypto};
use crate::{Fault, Identity, Material, Spec, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::time::Duration;
use x509_parser::prelude::{ASN1Time, FromDer, GeneralName, X509Certificate};

/// Until when good material stays good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The end: the certificate's own or that of the last CA that vouches for it, whichever comes first.
    pub not_after: UnixTime,
    /// From when on it should be renewed.
    pub renew_at: UnixTime,
}

/// Checks that `material` serves `identity` at `now`: it parses, the key belongs to the certificate, a CA of the bundle
/// vouches for it, it is valid in time, carries the names that the other side checks, and is not due for renewal.
///
/// # Errors
/// The first [`Fault`] found.
pub fn inspect(material: &Material, identity: Identity, spec: &Spec, now: UnixTime) -> Result<Validity, Fault> {
    let cas = certificates("ca.crt", &material.ca)?;
    let key = material.certified_key()?;
    let leaf_der = &key.cert[0];
    let leaf = parse("tls.crt", leaf_der)?;
    let now_asn1 = asn1(now);
    let not_after = leaf.validity().not_after;
    if now_asn1 < leaf.validity().not_before {
        return Err(Fault::NotYetValid { at: leaf.validity().not_before.to_string() });
    }
    if now_asn1 > not_after {
        return Err(Fault::Expired { what: "tls.crt", at: not_after.to_string() });
    }

    let mut ca_end: Option<ASN1Time> = None;
    let mut refused = None;
    for ca in &cas {
        let parsed = parse("ca.crt", ca)?;
        match vouches(ca, &key.cert, now) {
            Ok(()) => ca_end = ca_end.max(Some(parsed.validity().not_after)),
            Err(why) if parsed.subject() == leaf.issuer() => refused = Some(why),
            Err(why) => {
                refused.get_or_insert(why);
            }
        }
    }
    let Some(ca_end) = ca_end else {
        return Err(Fault::Untrusted(refused.unwrap_or_else(|| "no CA in it".to_owned())));
    };
    if now_asn1 > ca_end {
        return Err(Fault::Expired { what: "ca.crt", at: ca_end.to_string() });
    }

    let missing = missing_names(&leaf, &identity.required_names(spec));
    if !missing.is_empty() {
        return Err(Fault::Names(missing));
    }

    let end = not_after.min(ca_end);
    let seconds = u64::try_from(end.timestamp()).unwrap_or(0);
    let renew_at = seconds.saturating_sub(spec.margin().as_secs());
    if now.as_secs() >= renew_at {
        return Err(Fault::RenewalDue { at: end.to_string() });
    }
    let unix = |s| UnixTime::since_unix_epoch(Duration::from_secs(s));
    Ok(Validity { not_after: unix(seconds), renew_at: unix(renew_at) })
}

/// The CAs of `material`'s bundle that signed its certificate and are valid at `now`, as PEM: what has to stay trusted
/// while peers still show certificates of the replaced set.
pub(crate) fn still_needed_cas(material: &Material, now: UnixTime) -> Vec<String> {
    let Ok(leaf) = certificates("tls.crt", &material.cert) else { return Vec::new() };
    pem_blocks(&material.ca)
        .into_iter()
        .filter(|pem| {
            let Ok(ca) = CertificateDer::from_pem_slice(pem.as_bytes()) else { return false };
            let valid = parse("ca.crt", &ca).is_ok_and(|c| asn1(now) <= c.validity().not_after);
            valid && vouches(&ca, &leaf, now).is_ok()
        })
        .collect()
}

/// Each certificate of a PEM text as a text of its own.
fn pem_blocks(pem: &str) -> Vec<String> {
    const END: &str = "-----END CERTIFICATE-----";
    let mut blocks = Vec::new();
    let mut rest = pem;
    while let Some(start) = rest.find("-----BEGIN CERTIFICATE-----") {
        let Some(len) = rest[start..].find(END) else { break };
        let end = start + len + END.len();
        blocks.push(format!("{}\n", &rest[start..end]));
        rest = &rest[end..];
    }
    blocks
}

/// Whether `ca` alone makes `chain` acceptable as a client certificate, by the verifier that the server uses.
fn vouches(ca: &CertificateDer<'static>, chain: &[CertificateDer<'static>], now: UnixTime) -> Result<(), String> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(ca.clone()).map_err(|e| e.to_string())?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots.into(), crypto()).build().map_err(|e| e.to_string())?;
    verifier.verify_client_cert(&chain[0], &chain[1..], now).map(|_| ()).map_err(|e| e.to_string())
}

fn missing_names(leaf: &X509Certificate<'_>, wanted: &[String]) -> Vec<String> {
    let present: Vec<String> = leaf
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|san| san.value.general_names.iter().filter_map(name_text).collect())
        .unwrap_or_default();
    wanted.iter().filter(|w| !present.iter().any(|p| p.eq_ignore_ascii_case(w))).cloned().collect()
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(dns) => Some((*dns).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|b| std::net::Ipv4Addr::from(b).to_string()),
            16 => <[u8; 16]>::try_from(*bytes).ok().map(|b| std::net::Ipv6Addr::from(b).to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn parse<'a>(what: &str, der: &'a CertificateDer<'_>) -> Result<X509Certificate<'a>, Fault> {
    X509Certificate::from_der(der)
        .map(|(_, cert)| cert)
        .map_err(|e| Fault::Broken { what: what.to_owned(), why: e.to_string() })
}

fn asn1(at: UnixTime) -> ASN1Time {
    i64::try_from(at.as_secs())
        .ok()
        .and_then(|s| ASN1Time::from_timestamp(s).ok())
        .unwrap_or_else(|| ASN1Time::from_timestamp(0).expect("invariant: 1970 is a date"))
}

//! Certificates and keys, judged as Envoy would judge them.
//!
//! Envoy refuses a secret whose key does not belong to its certificate, whose key is of a kind it does not serve, or
//! whose text is not PEM; a refused secret would hold up those that come with it, so each is judged before it is sent.

use k8s_openapi::api::core::v1::Secret;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use x509_parser::{extensions::GeneralName, prelude::*};

/// A certificate with its key, fit for Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) chain: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) ocsp: Option<Vec<u8>>,
    /// DNS names of the leaf; its common name if it has none.
    pub(crate) names: Vec<String>,
}

/// One entry of a Secret's data.
pub(crate) fn entry<'a>(secret: &'a Secret, key: &str) -> Option<&'a [u8]> {
    let bytes = secret.data.as_ref().and_then(|d| d.get(key)).map(|b| b.0.as_slice());
    bytes.or_else(|| secret.string_data.as_ref().and_then(|d| d.get(key)).map(String::as_bytes))
}

/// Reads the pair of a Secret of type `kubernetes.io/tls`.
///
/// `now` are seconds since the epoch; without it expiry is not judged.
pub(crate) fn pair(secret: &Secret, now: Option<i64>) -> Result<Pair, String> {
    let (Some(chain), Some(key)) = (entry(secret, "tls.crt"), entry(secret, "tls.key")) else {
        return Err("it must contain tls.crt and tls.key".to_owned());
    };
    if chain.is_empty() || key.is_empty() {
        return Err("it must contain tls.crt and tls.key".to_owned());
    }
    let names = check(chain, key, now)?;
    let ocsp = entry(secret, "tls.ocsp-staple").filter(|o| !o.is_empty()).map(<[u8]>::to_vec);
    Ok(Pair { chain: chain.to_vec(), key: key.to_vec(), ocsp, names })
}

/// The label that OpenSSL also knows for certificates, in its usual form.
fn usual_label(pem: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(pem).replace("X509 CERTIFICATE-----", "CERTIFICATE-----").into_bytes()
}

fn check(chain: &[u8], key: &[u8], now: Option<i64>) -> Result<Vec<String>, String> {
    let certificates = rustls_pemfile::certs(&mut usual_label(chain).as_slice())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|e| format!("tls.crt is not PEM: {e}"))?;
    let Some(leaf) = certificates.first() else {
        return Err("tls.crt holds no PEM certificate".to_owned());
    };
    for (i, der) in certificates.iter().enumerate().skip(1) {
        X509Certificate::from_der(der).map_err(|e| format!("certificate {i} in tls.crt cannot be read: {e}"))?;
    }
    let (_, leaf) =
        X509Certificate::from_der(leaf).map_err(|e| format!("the certificate in tls.crt cannot be read: {e}"))?;
    let key = rustls_pemfile::private_key(&mut &*key)
        .map_err(|e| format!("tls.key is not PEM: {e}"))?
        .ok_or_else(|| "tls.key holds no PEM private key that is not encrypted".to_owned())?;
    let signing = any_supported_type(&key).map_err(|_| {
        "the kind of the key in tls.key is not supported: use RSA of 2048 bits or more, ECDSA P-256, P-384 or P-521, or Ed25519"
            .to_owned()
    })?;
    if signing.public_key().is_none_or(|k| k.as_ref() != leaf.public_key().raw) {
        return Err("the key in tls.key does not belong to the certificate in tls.crt".to_owned());
    }
    if now.is_some_and(|now| leaf.validity().not_after.timestamp() < now) {
        return Err(format!("the certificate in tls.crt expired at {}", leaf.validity().not_after));
    }
    Ok(names(&leaf))
}

fn names(leaf: &X509Certificate<'_>) -> Vec<String> {
    let alternative: Vec<String> = leaf
        .subject_alternative_name()
        .ok()
        .flatten()
        .map(|san| {
            san.value
                .general_names
                .iter()
                .filter_map(|n| if let GeneralName::DNSName(d) = n { Some(d.to_ascii_lowercase()) } else { None })
                .collect()
        })
        .unwrap_or_default();
    if alternative.is_empty() {
        leaf.subject().iter_common_name().filter_map(|c| c.as_str().ok()).map(str::to_ascii_lowercase).collect()
    } else {
        alternative
    }
}

/// The CA certificates of a bundle, each once: Envoy refuses a bundle that repeats one.
pub(crate) fn bundle(parts: &[&[u8]]) -> Result<Vec<u8>, String> {
    let mut seen = Vec::new();
    let mut repeated = false;
    let mut out = Vec::new();
    for part in parts {
        let certificates = rustls_pemfile::certs(&mut usual_label(part).as_slice())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| format!("the CA certificates are not PEM: {e}"))?;
        if certificates.is_empty() {
            return Err("it holds no PEM certificate".to_owned());
        }
        for der in certificates {
            X509Certificate::from_der(&der).map_err(|e| format!("a CA certificate cannot be read: {e}"))?;
            if seen.contains(&der) {
                repeated = true;
            } else {
                seen.push(der);
            }
        }
        if out.last().is_some_and(|b| *b != b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(part);
    }
    if repeated {
        out = seen.iter().flat_map(|der| pem(der).into_bytes()).collect();
    }
    Ok(out)
}

fn pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in der.chunks(3) {
        let n = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            if i <= chunk.len() {
                text.push(char::from(ALPHABET[(n >> (18 - 6 * i)) as usize & 63]));
            } else {
                text.push('=');
            }
        }
    }
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        out.extend(line.iter().map(|b| char::from(*b)));
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

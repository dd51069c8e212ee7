//! The keys with which the API server signs tokens, as it publishes them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ECDSA_P521_SHA512_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::claims::Token;

/// What the API server publishes of its keys: who it is as an issuer, and the keys. Nothing of it is secret, but who can change
/// it can make tokens: it is to be kept where nobody else writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedKeys {
    /// `iss` of tokens.
    pub issuer: String,
    keys: Vec<Key>,
}

/// A key as RFC 7517 writes it, as far as it concerns signatures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Key {
    kty: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crv: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    n: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    e: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    x: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    y: Option<String>,
}

/// Why the two documents are of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Useless {
    #[error("the issuer's document: {0}")]
    Issuer(serde_json::Error),
    #[error("the keys: {0}")]
    Keys(serde_json::Error),
    #[error("no key is published")]
    None,
}

impl PublishedKeys {
    /// From the issuer's discovery document and its keys.
    pub(crate) fn parse(issuer: &str, keys: &str) -> Result<Self, Useless> {
        #[derive(Deserialize)]
        struct Issuer {
            issuer: String,
        }
        #[derive(Deserialize)]
        struct Keys {
            keys: Vec<serde_json::Value>,
        }
        let Issuer { issuer } = serde_json::from_str(issuer).map_err(Useless::Issuer)?;
        let Keys { keys } = serde_json::from_str(keys).map_err(Useless::Keys)?;
        // A key of a kind that is not known makes the others no worse.
        let keys: Vec<Key> = keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect();
        if keys.is_empty() { Err(Useless::None) } else { Ok(Self { issuer, keys }) }
    }

    /// Whether there is the key that the token says it was signed with.
    pub(crate) fn knows(&self, token: &Token<'_>) -> bool {
        self.candidates(token).next().is_some()
    }

    /// Whether the token is of this issuer and one of its keys signed it.
    pub(crate) fn vouch_for(&self, token: &Token<'_>) -> bool {
        token.claims.iss == self.issuer && self.candidates(token).any(|key| key.verifies(token))
    }

    fn candidates<'a>(&'a self, token: &'a Token<'_>) -> impl Iterator<Item = &'a Key> {
        self.keys.iter().filter(|key| key.kid.is_none() || token.head.kid.is_none() || key.kid == token.head.kid)
    }
}

impl Key {
    fn verifies(&self, token: &Token<'_>) -> bool {
        let part = |part: &Option<String>| BASE64_URL_SAFE_NO_PAD.decode(part.as_deref()?).ok();
        let (message, signature) = (token.signed.as_bytes(), &*token.signature);
        match &*self.kty {
            "RSA" => {
                let algorithm: &RsaParameters = match &*token.head.alg {
                    "RS256" => &RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &RSA_PKCS1_2048_8192_SHA384,
                    "RS512" => &RSA_PKCS1_2048_8192_SHA512,
                    _ => return false,
                };
                let (Some(n), Some(e)) = (part(&self.n), part(&self.e)) else { return false };
                RsaPublicKeyComponents { n: &n, e: &e }.verify(algorithm, message, signature).is_ok()
            }
            "EC" => {
                let (algorithm, size): (&'static dyn VerificationAlgorithm, usize) =
                    match (&*token.head.alg, self.crv.as_deref()) {
                        ("ES256", Some("P-256")) => (&ECDSA_P256_SHA256_FIXED, 32),
                        ("ES384", Some("P-384")) => (&ECDSA_P384_SHA384_FIXED, 48),
                        ("ES512", Some("P-521")) => (&ECDSA_P521_SHA512_FIXED, 66),
                        _ => return false,
                    };
                let (Some(x), Some(y)) = (part(&self.x), part(&self.y)) else { return false };
                if x.len() != size || y.len() != size {
                    return false;
                }
                let point = [&[4], &*x, &*y].concat();
                UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
            }
            _ => false,
        }
    }
}

//! What a token says of itself. Nothing of it is true before somebody vouches for the token.

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;

/// Longest token that is looked at, in bytes.
const LONGEST: usize = 16 * 1024;

/// The parts of a token: a compact JWS.
pub(crate) struct Token<'a> {
    /// Head and payload as they were signed.
    pub(crate) signed: &'a str,
    /// The signature.
    pub(crate) signature: Vec<u8>,
    pub(crate) head: Head,
    pub(crate) claims: Claims,
}

/// How it was signed.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    pub(crate) alg: String,
    pub(crate) kid: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: String,
    pub(crate) sub: String,
    #[serde(default)]
    pub(crate) aud: Audience,
    pub(crate) exp: u64,
    pub(crate) nbf: Option<u64>,
    #[serde(rename = "kubernetes.io", default)]
    pub(crate) bound: Bound,
}

/// One audience, or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Audience {
    One(String),
    Many(Vec<String>),
}

/// What the token is bound to.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Bound {
    pub(crate) pod: Option<Object>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Object {
    pub(crate) name: String,
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl Audience {
    pub(crate) fn has(&self, audience: &str) -> bool {
        match self {
            Self::One(own) => own == audience,
            Self::Many(all) => all.iter().any(|own| own == audience),
        }
    }
}

/// Takes a token apart; `None` where it is none.
pub(crate) fn read(token: &str) -> Option<Token<'_>> {
    if token.len() > LONGEST {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (head, payload) = signed.split_once('.')?;
    let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
    Some(Token {
        signed,
        signature: decode(signature)?,
        head: serde_json::from_slice(&decode(head)?).ok()?,
        claims: serde_json::from_slice(&decode(payload)?).ok()?,
    })
}

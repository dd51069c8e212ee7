//! The form of the file: a head that anyone can check, and a body that only the holder of the secret can read.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `EGLASTGD` |
//! | 4 | version, 1 (big endian, as all numbers) |
//! | 8 | length of the body |
//! | 32 | SHA-256 of the three above and the body |
//! | … | body: 32 bytes of salt, 12 of nonce, the sealed content with its tag of 16 |
//!
//! The key is HKDF-SHA-256 of the secret with the salt, a fresh one for each file; the content is sealed with AES-256-GCM
//! over the first three fields as associated data. Source: RFC 5869 (HKDF), RFC 5116 (AEAD).

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    digest::{self, SHA256, SHA256_OUTPUT_LEN},
    hkdf::{HKDF_SHA256, Salt},
    rand,
};

const MAGIC: &[u8; 8] = b"EGLASTGD";
const VERSION: u32 = 1;
const FIXED: usize = 8 + 4 + 8;
const HEAD: usize = FIXED + SHA256_OUTPUT_LEN;
const SALT: usize = 32;
/// Keeps keys apart that are derived from the same secret for other purposes.
const INFO: &[u8] = b"envoy-gateway last good state, version 1";

/// Why a saved state is not used.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The file system says no.
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It does not begin as a saved state does.
    #[error("it is no saved state")]
    Foreign,
    /// Saved in another form.
    #[error("it has version {found}, and this release reads version {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// Shorter or longer than it says.
    #[error("it is torn: {expected} bytes were saved and {found} are there")]
    Torn {
        /// Bytes that there should be.
        expected: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// Not what was written.
    #[error("it is corrupt: its SHA-256 is another one")]
    Corrupt,
    /// There is nothing to derive a key from.
    #[error("there is no key: the control plane's certificate has no private key")]
    NoKey,
    /// Sealed with another key.
    #[error("it was sealed with another key: the control plane's certificate has been replaced since")]
    OtherKey,
    /// Another controller's.
    #[error("it was saved by controller {found}, and this one is {own}")]
    OtherController {
        /// Whose it is.
        found: String,
        /// Who reads it.
        own: String,
    },
    /// What is in it cannot be read by this release.
    #[error("its content cannot be read: {0}")]
    Content(String),
}

/// Something in the cryptography failed that cannot fail for a reason of its input.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the content cannot be sealed")]
pub struct CannotSeal;

fn key(secret: &[u8], salt: &[u8]) -> Option<LessSafeKey> {
    if secret.is_empty() {
        return None;
    }
    let derived = Salt::new(HKDF_SHA256, salt).extract(secret);
    let info = [INFO];
    let okm = derived.expand(&info, &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(okm)))
}

fn digest(fixed: &[u8], body: &[u8]) -> digest::Digest {
    let mut context = digest::Context::new(&SHA256);
    context.update(fixed);
    context.update(body);
    context.finish()
}

/// The file for this content.
pub(super) fn seal(secret: &[u8], content: Vec<u8>) -> Result<Vec<u8>, CannotSeal> {
    let (mut salt, mut nonce) = ([0; SALT], [0; NONCE_LEN]);
    rand::fill(&mut salt).and_then(|()| rand::fill(&mut nonce)).map_err(|_| CannotSeal)?;
    let key = key(secret, &salt).ok_or(CannotSeal)?;
    let length = SALT + NONCE_LEN + content.len() + AES_256_GCM.tag_len();
    let mut fixed = Vec::with_capacity(FIXED);
    fixed.extend_from_slice(MAGIC);
    fixed.extend_from_slice(&VERSION.to_be_bytes());
    fixed.extend_from_slice(&(length as u64).to_be_bytes());
    let mut sealed = content;
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&fixed), &mut sealed)
        .map_err(|_| CannotSeal)?;
    let mut body = Vec::with_capacity(length);
    body.extend_from_slice(&salt);
    body.extend_from_slice(&nonce);
    body.append(&mut sealed);
    let digest = digest(&fixed, &body);
    let mut file = Vec::with_capacity(HEAD + length);
    file.append(&mut fixed);
    file.extend_from_slice(digest.as_ref());
    file.append(&mut body);
    Ok(file)
}

/// The content of a file; refused unless every bit of it is as it was written.
pub(super) fn open(secret: &[u8], file: &[u8]) -> Result<Vec<u8>, Refused> {
    if !file.starts_with(MAGIC) {
        return Err(Refused::Foreign);
    }
    let Some((head, body)) = file.split_at_checked(HEAD) else {
        return Err(Refused::Torn { expected: HEAD as u64, found: file.len() as u64 });
    };
    let (fixed, written) = head.split_at(FIXED);
    let version = u32::from_be_bytes(fixed[8..12].try_into().expect("invariant: four bytes"));
    if version != VERSION {
        return Err(Refused::Version { found: version });
    }
    let length = u64::from_be_bytes(fixed[12..].try_into().expect("invariant: eight bytes"));
    if length != body.len() as u64 {
        let expected = length.saturating_add(HEAD as u64);
        return Err(Refused::Torn { expected, found: file.len() as u64 });
    }
    if digest(fixed, body).as_ref() != written {
        return Err(Refused::Corrupt);
    }
    let (Some((salt, rest)), true) = (body.split_at_checked(SALT), body.len() >= SALT + NONCE_LEN) else {
        return Err(Refused::Corrupt);
    };
    let (nonce, sealed) = rest.split_at(NONCE_LEN);
    let key = key(secret, salt).ok_or(Refused::NoKey)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| Refused::Corrupt)?;
    let mut content = sealed.to_vec();
    let length = key.open_in_place(nonce, Aad::from(fixed), &mut content).map_err(|_| Refused::OtherKey)?.len();
    content.truncate(length);
    Ok(content)
}

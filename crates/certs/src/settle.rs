//! What to keep of what is there, and what to make anew: the same for files and for Secrets.

use crate::inspect::still_needed_cas;
use crate::store::{HMAC, HMAC_DIR};
use crate::{Error, Fault, Identity, Material, Set, Spec, UnixTime, Validity, inspect};
use std::collections::BTreeMap;

/// Certificates as they were found. An identity that is not in here is missing. `Debug` never shows a key.
#[derive(Clone, Default)]
pub struct Found {
    /// By identity, or why there is nothing that could be judged.
    pub material: BTreeMap<Identity, Result<Material, Fault>>,
    /// The key of OIDC cookies; an empty one counts as none.
    pub hmac: Option<Vec<u8>>,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Found").field("material", &self.material).field("hmac", &self.hmac.is_some()).finish()
    }
}

impl Found {
    /// Adds the Secret of this name with its data (already decoded from base64); one that holds none of ours is passed
    /// over.
    pub fn add_secret(&mut self, name: &str, data: &BTreeMap<String, Vec<u8>>) {
        if name == HMAC_DIR {
            self.hmac = data.get(HMAC).cloned();
        } else if let Some(identity) = Identity::from_name(name) {
            self.material.insert(identity, Material::from_secret(data));
        }
    }
}

/// One certificate that was replaced, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// Whose.
    pub identity: Identity,
    /// Why.
    pub fault: Fault,
}

impl std::fmt::Display for Replaced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "certificate {}: {}", self.identity, self.fault)
    }
}

/// What [`settle`] decided; of [`Store::ensure`](crate::Store::ensure), what is on disk now.
#[derive(Clone, Debug)]
pub struct Ensured {
    /// The certificates from now on.
    pub set: Set,
    /// What was replaced; empty when everything was good.
    pub replaced: Vec<Replaced>,
    /// The key of OIDC cookies is a new one.
    pub new_hmac: bool,
    /// When the next renewal is due.
    pub renew_at: UnixTime,
}

/// Keeps what is good unless `overwrite`; makes a new set, which goes on trusting the CAs of the old one, when anything
/// else is found. Nothing is written.
///
/// # Errors
/// [`Error::Issue`], [`Error::Randomness`]; [`Error::Unusable`] when the new set is no good either (a validity of zero).
pub fn settle(found: Found, spec: &Spec, now: UnixTime, overwrite: bool) -> Result<Ensured, Error> {
    let mut replaced = Vec::new();
    let mut renew_at: Option<UnixTime> = None;
    let mut good = BTreeMap::new();
    for identity in Identity::ALL {
        let material = match found.material.get(&identity) {
            Some(material) => material.clone(),
            None => Err(Fault::Missing(identity.name().to_owned())),
        };
        match material.and_then(|m| inspect(&m, identity, spec, now).map(|v| (m, v))) {
            Ok(_) if overwrite => replaced.push(Replaced { identity, fault: Fault::Overwrite }),
            Ok((material, Validity { renew_at: at, .. })) => {
                renew_at = Some(renew_at.map_or(at, |r| r.min(at)));
                good.insert(identity, material);
            }
            Err(fault) => replaced.push(Replaced { identity, fault }),
        }
    }
    let kept = found.hmac.filter(|h| !overwrite && !h.is_empty());
    let new_hmac = kept.is_none();
    let hmac = match kept {
        Some(hmac) => hmac,
        None => crate::issue::new_hmac()?,
    };
    if replaced.is_empty() {
        let renew_at = renew_at.expect("invariant: every identity was judged");
        return Ok(Ensured { set: Set { material: good, hmac }, replaced, new_hmac, renew_at });
    }

    complete(&mut replaced);
    let mut trusted: Vec<String> = Vec::new();
    for material in found.material.values().filter_map(|m| m.as_ref().ok()) {
        for ca in still_needed_cas(material, now) {
            if !trusted.contains(&ca) {
                trusted.push(ca);
            }
        }
    }
    let set = Set { hmac, ..Set::generate(spec, now, &trusted)? };
    let server = inspect(set.get(Identity::EnvoyGateway), Identity::EnvoyGateway, spec, now)
        .map_err(|fault| Error::Unusable { place: "new certificates".to_owned(), fault })?;
    Ok(Ensured { set, replaced, new_hmac, renew_at: server.renew_at })
}

/// Adds those that are replaced only because their CA's key is gone, so that all of them are told.
fn complete(replaced: &mut Vec<Replaced>) {
    let cause = replaced[0].identity.name().to_owned();
    for identity in Identity::ALL {
        if !replaced.iter().any(|r| r.identity == identity) {
            replaced.push(Replaced { identity, fault: Fault::Together(cause.clone()) });
        }
    }
    replaced.sort_by_key(|r| r.identity);
}

//! Whether a service account's token, as a proxy in its Gateway's namespace shows it, is good for the configuration of a fleet.
//!
//! # Contract
//!
//! [`Reviewer::check`] says yes only to a token that
//!
//! * names the control plane as its audience, and has not expired;
//! * is of the service account under which the fleet runs ([`Claim::account`]), and of the pod that asks ([`Claim::pod`]);
//! * is genuine: the API server says so (TokenReview), or said so and the token has not expired since, or, while the API server
//!   does not answer, the token bears the signature of a key that the API server publishes.
//!
//! What the token says of itself is looked at first, so that a token which could not be good in any case costs the API server
//! nothing. A yes is not asked for again for a minute ([`FRESH`]); a no is never remembered. After a failure the API server is
//! left alone for a few seconds ([`PAUSE`]), so that many proxies which come at once do not wait one after another.
//!
//! [`Reviewer::follow_keys`] keeps the published keys up to date. Nothing is ever admitted because something is not known: without
//! an answer, a former answer and keys the result is [`Refused::Unverifiable`], which is worth another try.
//!
//! # Limits
//!
//! * While the API server does not answer, a token whose pod or account has been deleted is good until it expires (an hour at most
//!   for those of fleets).
//! * Keys of the kinds that Kubernetes signs with: RSA (RS256, RS384, RS512) and ECDSA (ES256, ES384, ES512).
//!
//! Source: Kubernetes' documentation of service account tokens, their projection and their issuer's discovery; RFC 7515 (JWS), RFC
//! 7517 (JWK), RFC 7518 (their algorithms), RFC 7519 (JWT).

mod claims;
mod keys;
mod reviewer;
#[cfg(test)]
mod tests;

pub use keys::PublishedKeys;
pub use reviewer::{Basis, Claim, FRESH, PAUSE, Refused, Reviewer};

/// Name and namespace of a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl Account {
    /// The name under which the API server knows the account.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

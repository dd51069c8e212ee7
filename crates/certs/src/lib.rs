//! The control plane's certificates: make them, judge them, renew them with overlap, reload them.
//!
//! # What for
//!
//! Proxies and the xDS server authenticate each other (mutual TLS). Nobody should have to make certificates by hand for
//! that, so this crate makes a private CA and one certificate for each [`Identity`], under the names that Envoy
//! Gateway's `certgen` uses, as files ([`Store`], standalone) or as values for Kubernetes Secrets ([`settle`],
//! [`Set::secrets`]).
//!
//! # Contract
//!
//! * What exists and is good is kept, byte for byte. What is missing, broken, expired, mismatched, for other names or
//!   due for renewal is replaced, and [`Ensured::replaced`] says why for each one.
//! * The CA's private key is never stored: it signs one [`Set`] and is forgotten. Replacing any certificate therefore
//!   replaces all of them.
//! * **Overlap:** a new set's `ca.crt` holds the new CA first, then each old CA that signed a certificate of the set it
//!   replaces, for as long as that CA is valid. [`Store`] writes every `ca.crt` before the first new certificate.
//! * Files are replaced atomically, private keys are readable by their owner only (0600).
//! * A reload that fails keeps what was loaded last ([`Reloading`]).
//!
//! # Limits
//!
//! No revocation, no external CA (put its files in place: they are kept while they are good). The private keys are
//! ECDSA P-256.
//!
//! Source: RFC 5280 (certificates), RFC 6125 (names), RFC 8446 (TLS 1.3).
//!
//! # Example
//!
//! ```
//! # fn main() -> Result<(), certs::Error> {
//! let spec = certs::Spec::new("envoy-gateway-system", "cluster.local");
//! let set = certs::Set::generate(&spec, certs::now(), &[])?;
//! let server = set.get(certs::Identity::EnvoyGateway);
//! certs::inspect(server, certs::Identity::EnvoyGateway, &spec, certs::now()).expect("just made");
//! # Ok(())
//! # }
//! ```

mod error;
mod identity;
mod inspect;
mod issue;
mod keep;
mod material;
mod reload;
mod secrets;
mod settle;
mod store;

#[cfg(test)]
mod tests;

pub use error::{Error, Fault};
pub use identity::{Identity, Spec};
pub use inspect::{Validity, inspect};
pub use keep::keep;
pub use material::{Material, Set};
pub use reload::{Loaded, Reloading};
pub use rustls_pki_types::UnixTime;
pub use secrets::{SECRETS, SecretData};
pub use settle::{Ensured, Found, Replaced, settle};
pub use store::Store;

/// The wall clock's time now: certificates are the one place where calendar time decides.
#[must_use]
pub fn now() -> UnixTime {
    UnixTime::now()
}

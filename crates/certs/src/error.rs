//! What can go wrong, and what can be wrong with a certificate.

use std::path::PathBuf;

/// Failure of an operation of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate or key could not be made; practically only a wrong DNS name in the [`Spec`](crate::Spec).
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// The cryptography library has no randomness to give.
    #[error("no randomness available from the operating system")]
    Randomness,
    /// A file could not be read, written or renamed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// Certificates that are there cannot be used.
    #[error("{place}: {fault}")]
    Unusable {
        /// The directory or Secret.
        place: String,
        /// What is wrong.
        fault: Fault,
    },
    /// TLS refuses the combination of certificates and key.
    #[error("TLS configuration: {0}")]
    Tls(#[from] rustls::Error),
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

/// What is wrong with stored certificates: the reason why they are replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A file or Secret key is not there.
    #[error("{0} is missing")]
    Missing(String),
    /// Something is not PEM, not X.509 or not a private key.
    #[error("{what} cannot be parsed: {why}")]
    Broken {
        /// `ca.crt`, `tls.crt` or `tls.key`.
        what: String,
        /// The parser's words.
        why: String,
    },
    /// `tls.key` is not the key of `tls.crt`.
    #[error("tls.key does not belong to tls.crt")]
    KeyMismatch,
    /// No CA of `ca.crt` has signed `tls.crt`, or the certificate is not for this use.
    #[error("ca.crt does not vouch for tls.crt: {0}")]
    Untrusted(String),
    /// The certificate or every CA that vouches for it is past its end.
    #[error("{what} expired at {at}")]
    Expired {
        /// `tls.crt` or `ca.crt`.
        what: &'static str,
        /// RFC 2822 time.
        at: String,
    },
    /// The certificate begins in the future: the clock of this machine or of the one that made it is wrong.
    #[error("tls.crt is not valid before {at}; is the clock right?")]
    NotYetValid {
        /// RFC 2822 time.
        at: String,
    },
    /// The certificate lacks names that peers check.
    #[error("tls.crt is not for {}", .0.join(", "))]
    Names(Vec<String>),
    /// Good, but close enough to its end to be renewed now.
    #[error("due for renewal: expires at {at}")]
    RenewalDue {
        /// RFC 2822 time.
        at: String,
    },
    /// Good, but replaced because the caller wants all of them new.
    #[error("replaced as asked")]
    Overwrite,
    /// Good, but another certificate of the set had to be replaced and the CA that signed this one is gone.
    #[error("renewed together with {0}")]
    Together(String),
}

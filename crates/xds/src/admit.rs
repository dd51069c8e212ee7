//! Who may have the configuration of a group, where that is not said by the connection alone.

use std::{fmt, net::SocketAddr, pin::Pin, sync::Arc};

use tonic::Status;

use crate::{Name, NodeGroup};

/// Who opens a stream, by its connection, its metadata and its first request. Nothing but `certified` has been verified.
#[derive(Clone)]
#[non_exhaustive]
pub struct Applicant {
    /// The group whose configuration is asked for.
    pub group: NodeGroup,
    /// How the proxy calls itself.
    pub node: Name,
    /// Its address, where known.
    pub peer: Option<SocketAddr>,
    /// The connection showed a client certificate, and the TLS configuration accepted it.
    pub certified: bool,
    /// The metadata entry `authorization` of the stream. Secret: do not log it.
    pub authorization: Option<Arc<str>>,
}

/// Why a stream is not opened. Told to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It may not have that.
    #[error("{0}")]
    Refused(String),
    /// It cannot be said now; the client is right to try again.
    #[error("{0}")]
    NotNow(String),
}

type Verdict = Pin<Box<dyn Future<Output = Result<(), Denied>> + Send>>;

/// Decides about each stream, before anything is sent on it. A stream that is open is not asked about again.
#[derive(Clone)]
pub struct Admit(Arc<dyn Fn(Applicant) -> Verdict + Send + Sync>);

// === impl Admit ===

impl Admit {
    /// Asks this function, which should come to an end within some seconds.
    pub fn new<F>(decide: impl Fn(Applicant) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Denied>> + Send + 'static,
    {
        Self(Arc::new(move |applicant| Box::pin(decide(applicant))))
    }

    pub(crate) async fn decide(&self, applicant: Applicant) -> Result<(), Denied> {
        (self.0)(applicant).await
    }
}

impl fmt::Debug for Admit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit").finish_non_exhaustive()
    }
}

impl fmt::Debug for Applicant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Applicant")
            .field("group", &self.group)
            .field("node", &self.node)
            .field("peer", &self.peer)
            .field("certified", &self.certified)
            .field("authorization", &self.authorization.as_ref().map(|_| "…"))
            .finish()
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Refused(why) => Self::unauthenticated(why),
            Denied::NotNow(why) => Self::unavailable(why),
        }
    }
}

//! What proxies say about their configuration, as facts for others to act upon.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::{Name, NodeGroup, TypeUrl};

/// How many facts wait for a slow reader before newer ones are dropped and counted.
pub(crate) const CAPACITY: usize = 8_192;

/// A resource in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentResource {
    /// Its name.
    pub name: Name,
    /// The version that was sent, `None` when its removal was sent.
    pub version: Option<Name>,
}

/// Which proxy a fact is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The `node.id`.
    pub node: Arc<str>,
    /// The `node.cluster`.
    pub group: NodeGroup,
    /// The number of the stream, unique within the process; streams of one proxy are told apart by it.
    pub stream: u64,
}

/// A fact about one stream. Facts of one stream come in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// A proxy has opened a stream and told who it is.
    Connected {
        /// Which one.
        proxy: Proxy,
    },
    /// The stream has ended, for whatever reason.
    Disconnected {
        /// Which one.
        proxy: Proxy,
    },
    /// A proxy has accepted a response. For clusters this means that they are warm (but for the first response of a starting Envoy).
    Acked {
        /// Which one.
        proxy: Proxy,
        /// The type.
        type_url: TypeUrl,
        /// The version of the type that the response carried.
        version: Name,
        /// What was in the response.
        resources: Vec<SentResource>,
    },
    /// A proxy has refused a response. When it held one resource, that one is at fault; when it held more, they are sent again in
    /// parts and further facts follow until the culprit stands alone.
    Nacked {
        /// Which one.
        proxy: Proxy,
        /// The type.
        type_url: TypeUrl,
        /// The version of the type that the response carried.
        version: Name,
        /// What was in the response.
        resources: Vec<SentResource>,
        /// The proxy's own words.
        detail: String,
    },
    /// A proxy has not answered in time. Of clusters the suspects are those that may keep it from becoming warm.
    TimedOut {
        /// Which one.
        proxy: Proxy,
        /// The type.
        type_url: TypeUrl,
        /// What was in the response, without what is known to be innocent.
        suspects: Vec<SentResource>,
    },
}

/// The receiving end of the facts.
pub type FeedbackReceiver = mpsc::Receiver<Feedback>;

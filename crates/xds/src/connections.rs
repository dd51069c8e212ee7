//! Who is connected and what each proxy has: for the admin page and for status.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::{Name, TypeUrl, feedback::Proxy, session::LaneView};

/// A handle of the list of streams. Cloning gives another handle of the same list.
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Mutex<BTreeMap<u64, Open>>>);

#[derive(Debug)]
struct Open {
    proxy: Proxy,
    peer: Option<SocketAddr>,
    delta: bool,
    since: Instant,
    types: BTreeMap<TypeUrl, Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    lane: LaneView,
    nacked_at: Option<Instant>,
}

/// One stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Which proxy.
    pub proxy: Proxy,
    /// Its address, where known.
    pub peer: Option<SocketAddr>,
    /// Whether it is a delta stream, else state of the world.
    pub delta: bool,
    /// For how long it has been open.
    pub open_for: Duration,
    /// What it asked for, by type.
    pub types: BTreeMap<TypeUrl, TypeState>,
}

/// What one stream has of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeState {
    /// Whether it asked for everything.
    pub wildcard: bool,
    /// How many names it asked for.
    pub subscribed: usize,
    /// How many resources it has or is being sent.
    pub held: usize,
    /// How many responses it has not answered.
    pub unanswered: usize,
    /// How many changes wait for something else to be ready.
    pub waiting: usize,
    /// The version that the last response carried.
    pub sent_version: Option<Name>,
    /// The digest of the type's resources (as [`Cache::digests`](crate::Cache::digests) tells it) when it last had accepted all of
    /// them: equal to the group's digest of now when it is up to date. A proxy that came back with everything is up to date without a
    /// response.
    pub acked_version: Option<Name>,
    /// Its words when it last refused a response, and how long ago.
    pub last_nack: Option<(Name, Duration)>,
}

impl Connections {
    /// All open streams, in the order in which they came.
    pub fn snapshot(&self) -> Vec<Connection> {
        let now = Instant::now();
        self.lock().values().map(|open| open.show(now)).collect()
    }

    /// How many streams are open.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn open(&self, proxy: Proxy, peer: Option<SocketAddr>, delta: bool) {
        let since = Instant::now();
        let stream = proxy.stream;
        let open = Open { proxy, peer, delta, since, types: BTreeMap::new() };
        self.lock().insert(stream, open);
    }

    pub(crate) fn close(&self, stream: u64) {
        self.lock().remove(&stream);
    }

    pub(crate) fn note(&self, stream: u64, views: impl Iterator<Item = (TypeUrl, LaneView)>) {
        let mut streams = self.lock();
        let Some(open) = streams.get_mut(&stream) else { return };
        for (kind, lane) in views {
            open.types.entry(kind).or_default().lane = lane;
        }
    }

    pub(crate) fn nacked(&self, stream: u64, kind: TypeUrl) {
        if let Some(open) = self.lock().get_mut(&stream) {
            open.types.entry(kind).or_default().nacked_at = Some(Instant::now());
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn show(&self, now: Instant) -> Connection {
        let types = self.types.iter().map(|(kind, seen)| {
            let ago = seen.nacked_at.map(|at| now - at).unwrap_or_default();
            let state = TypeState {
                wildcard: seen.lane.wildcard,
                subscribed: seen.lane.named,
                held: seen.lane.held,
                unanswered: seen.lane.inflight,
                waiting: seen.lane.waiting,
                sent_version: seen.lane.sent_version.clone(),
                acked_version: seen.lane.acked_version.clone(),
                last_nack: seen.lane.last_nack.clone().map(|text| (text, ago)),
            };
            (*kind, state)
        });
        Connection {
            proxy: self.proxy.clone(),
            peer: self.peer,
            delta: self.delta,
            open_for: now - self.since,
            types: types.collect(),
        }
    }
}

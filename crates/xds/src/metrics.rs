//! Counters, as a snapshot for whoever exposes them.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::TypeUrl;

/// A handle of the server's counters. Cloning gives another handle of the same counters.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub(crate) Arc<Counters>);

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) connections_total: AtomicU64,
    pub(crate) connections_refused: AtomicU64,
    pub(crate) handshakes_failed: AtomicU64,
    pub(crate) streams: AtomicU64,
    pub(crate) streams_total: AtomicU64,
    pub(crate) streams_denied: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) requests_ignored: AtomicU64,
    pub(crate) went_on: AtomicU64,
    pub(crate) feedback_dropped: AtomicU64,
    pub(crate) types: [TypeCounters; TypeUrl::COUNT],
}

#[derive(Debug, Default)]
pub(crate) struct TypeCounters {
    pub(crate) responses: AtomicU64,
    pub(crate) resources: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) acks: AtomicU64,
    pub(crate) nacks: AtomicU64,
    pub(crate) ack_timeouts: AtomicU64,
}

/// The counters at one moment. All but `connections` and `streams` only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Connections that are open.
    pub connections: u64,
    /// Connections accepted since the start.
    pub connections_total: u64,
    /// Connections closed at once because proxies are handed over.
    pub connections_refused: u64,
    /// TLS handshakes that failed or took too long.
    pub handshakes_failed: u64,
    /// Streams that are open.
    pub streams: u64,
    /// Streams opened since the start.
    pub streams_total: u64,
    /// Streams that were not opened, as the client may not have what it asked for or cannot be known now.
    pub streams_denied: u64,
    /// Requests read.
    pub requests: u64,
    /// Requests of types that the server does not carry.
    pub requests_ignored: u64,
    /// Updates that went on although the clusters they waited for did not become ready.
    pub updates_went_on: u64,
    /// Facts that nobody read in time.
    pub feedback_dropped: u64,
    /// By type.
    pub types: BTreeMap<TypeUrl, TypeMetrics>,
}

/// The counters of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeMetrics {
    /// Responses sent.
    pub responses: u64,
    /// Resources in them, removals not counted.
    pub resources: u64,
    /// Bytes of these resources.
    pub bytes: u64,
    /// Responses that were accepted.
    pub acks: u64,
    /// Responses that were refused.
    pub nacks: u64,
    /// Responses that were not answered in time.
    pub ack_timeouts: u64,
}

impl Metrics {
    /// The counters now.
    pub fn snapshot(&self) -> MetricsSnapshot {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = &*self.0;
        let types = TypeUrl::ALL.into_iter().map(|kind| {
            let kind_of = &all.types[kind.index()];
            let metrics = TypeMetrics {
                responses: of(&kind_of.responses),
                resources: of(&kind_of.resources),
                bytes: of(&kind_of.bytes),
                acks: of(&kind_of.acks),
                nacks: of(&kind_of.nacks),
                ack_timeouts: of(&kind_of.ack_timeouts),
            };
            (kind, metrics)
        });
        MetricsSnapshot {
            connections: of(&all.connections),
            connections_total: of(&all.connections_total),
            connections_refused: of(&all.connections_refused),
            handshakes_failed: of(&all.handshakes_failed),
            streams: of(&all.streams),
            streams_total: of(&all.streams_total),
            streams_denied: of(&all.streams_denied),
            requests: of(&all.requests),
            requests_ignored: of(&all.requests_ignored),
            updates_went_on: of(&all.went_on),
            feedback_dropped: of(&all.feedback_dropped),
            types: types.collect(),
        }
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    add(counter, 1);
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

pub(crate) fn less(counter: &AtomicU64) {
    counter.fetch_sub(1, Ordering::Relaxed);
}

//! `/metrics`: every figure is read where it is kept, at the moment of the request.
//!
//! What the Go project's control plane counts too has its name and labels (`xds_snapshot_create_total`,
//! `status_update_total`, `watchable_*` …), so that its dashboards go on; the rest is ours.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{PoisonError, atomic::Ordering},
};

use axum::{extract::State, http::header, response::IntoResponse};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use infra::kubernetes::ObjectRef;
use provider::{cluster::KindFigures, last_good::Origin};

use crate::{
    counted::Row,
    shared::{Shared, Watched},
};

/// Name of the lease's gauge label, as client-go writes it.
const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";

/// Answers with the text format.
pub(crate) async fn serve(State(shared): State<Shared>) -> impl IntoResponse {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Figures(shared)));
    let mut text = String::new();
    if encode(&mut text, &registry).is_err() {
        text.clear();
    }
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

#[derive(Debug)]
struct Figures(Shared);

#[derive(Clone, Debug, EncodeLabelSet)]
struct LeaseLabels {
    name: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct TypeLabels {
    type_url: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

type NoLabels = [(&'static str, &'static str); 0];

#[derive(Clone, Debug, EncodeLabelSet)]
struct BucketLabels {
    le: String,
}

impl Collector for Figures {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.election(&mut to)?;
        self.engine(&mut to)?;
        self.cluster(&mut to)?;
        self.state(&mut to)?;
        self.replicas(&mut to)?;
        self.xds(&mut to)
    }
}

impl Figures {
    fn election(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let s = self.0.role.snapshot();
        let lease = LeaseLabels { name: LEASE };
        {
            let leading = ConstGauge::new(i64::from(s.leading));
            let mut d = to.encode_descriptor(
                "leader_election_master_status",
                "1 while this process leads",
                None,
                MetricType::Gauge,
            )?;
            leading.encode(d.encode_family(&lease)?)?;
        }
        gauge(
            to,
            "leader_election_term",
            "Term of this process's leadership, 0 as follower",
            s.term.map_or(0, |t| t.0),
        )?;
        gauge(
            to,
            "leader_election_seconds_left",
            "Seconds until the leadership ends unless it is renewed",
            s.time_left.map_or(0.0, |d| d.as_secs_f64()),
        )?;
        counter(to, "leader_election_transitions", "How often this process began or stopped leading", s.transitions)?;
        counter(to, "leader_election_renewals", "Renewals that succeeded", s.renewals)?;
        counter(to, "leader_election_failures", "Attempts to take or renew the lease that failed", s.failures)?;
        let mut d = to.encode_descriptor(
            "leader_election_renew_seconds_bucket",
            "Renewals by their latency, cumulative",
            None,
            MetricType::Gauge,
        )?;
        let bounds = election::LATENCY_BUCKETS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (le, n) in bounds.zip(s.latency_buckets) {
            ConstGauge::new(i64::try_from(n).unwrap_or(i64::MAX)).encode(d.encode_family(&BucketLabels { le })?)?;
        }
        Ok(())
    }

    fn engine(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let p = &self.0.progress;
        let translations = p.translations.load(Ordering::Relaxed);
        counter(to, "translations", "Translations", translations)?;
        counter(
            to,
            "translations_saved",
            "Batches of changes without effect, which cost no translation",
            p.without_effect.load(Ordering::Relaxed),
        )?;
        gauge(
            to,
            "translation_last_seconds",
            "Seconds that the last translation took",
            micros(p.last_micros.load(Ordering::Relaxed)),
        )?;
        {
            let what = [("runner", "gateway-api"), ("message", "provider-resources")];
            let mut d = to.encode_descriptor(
                "watchable_subscribe_duration_seconds",
                "Seconds that translations took",
                None,
                MetricType::Histogram,
            )?;
            p.seconds.encode(d.encode_family(&what)?)?;
        }
        let ok = [("status", "success"), ("reason", "")];
        let failed = [("status", "failure"), ("reason", "error")];
        let what = [("runner", "gateway-api"), ("message", "provider-resources"), ok[0], ok[1]];
        counters(to, "watchable_subscribe", "Translations", [(what, translations)])?;
        let published = p.published.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let rows = published.iter().map(|(what, n)| ([("runner", "gateway-api"), ("message", what.as_str())], *n));
        let batches = self.0.watched.as_ref().map(|w| w.handle.figures().batches);
        let provider = batches.map(|n| ([("runner", "provider"), ("message", "provider-resources")], n));
        counters(to, "watchable_publish", "Values handed on", rows.chain(provider))?;
        let made = p.snapshots.load(Ordering::Relaxed);
        let not_made = p.snapshot_errors.load(Ordering::Relaxed);
        let help = "Configurations made for fleets, and resources that were left out as Envoy would refuse them";
        counters(to, "xds_snapshot_create", help, [(ok, made), (failed, not_made)])?;
        // Connected proxies show from zero on.
        let mut refused = p.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for stream in self.0.connections.snapshot() {
            for kind in stream.types.keys() {
                refused.entry((stream.proxy.node.to_string(), kind.as_str())).or_default();
            }
        }
        let rows = refused.iter().map(|((node, kind), n)| ([("nodeID", node.as_str()), ("typeURL", kind)], *n));
        counters(to, "xds_nack", "Responses refused", rows)?;
        gauge(
            to,
            "xds_resources_not_encoded",
            "Resources that are not sent as Envoy would refuse them",
            p.encode_errors.load(Ordering::Relaxed),
        )?;
        gauge(to, "status_wanted", "Objects with a wanted status", self.0.statuses.len() as u64)?;
        gauge(to, "status_pending", "Statuses that wait to be written", self.0.statuses.pending() as u64)?;
        let problems = self.0.problems.as_ref().map_or(0, |p| p.borrow().len());
        gauge(to, "resource_problems", "What is wrong with the resource files now", problems as u64)
    }

    fn cluster(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(watched) = &self.0.watched else { return Ok(()) };
        let Watched { handle, statuses: written, contested, rivals, applied, troubles } = watched;
        let help = "Other control planes that have the same controller name";
        gauge(to, "controller_rivals", help, rivals.borrow().len() as u64)?;
        gauge(to, "status_contested", "Statuses that others replace again and again", contested.count() as u64)?;
        let f = handle.figures();
        gauge(to, "kubernetes_objects_told", "Objects that translation has", f.told)?;
        gauge(to, "kubernetes_objects_broken", "Objects whose last version cannot be read", f.broken.len() as u64)?;
        gauge(to, "kubernetes_kinds_absent", "Kinds that the server does not have", f.absent.len() as u64)?;
        counter(to, "kubernetes_batches", "Batches of changes that were told", f.batches)?;
        counter(to, "kubernetes_discovery_errors", "Failed looks at which kinds there are", f.discovery_errors)?;
        for (name, help, read) in PER_KIND {
            let mut d = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, of) in &f.kinds {
                ConstCounter::new(read(of)).encode(d.encode_family(&KindLabels { kind: kind.as_str() })?)?;
            }
        }
        let kinds = written.kinds();
        let outcomes = |(kind, of): (&resources::Kind, &status::KindFigures)| {
            let row = |status, reason, n| ([("kind", kind.as_str()), ("status", status), ("reason", reason)], n);
            let f = of.figures;
            [
                row("success", "", f.written),
                row("no_action", "", f.unchanged),
                row("failure", "conflict", f.conflicts),
                row("failure", "error", f.failed),
            ]
        };
        counters(to, "status_update", "Looks at statuses by what became of them", kinds.iter().flat_map(outcomes))?;
        let mut d = to.encode_descriptor(
            "status_update_duration_seconds",
            "Seconds that writes of statuses took",
            None,
            MetricType::Histogram,
        )?;
        for (kind, of) in &kinds {
            let bounds = status::SECONDS.into_iter().chain([f64::MAX]);
            let buckets: Vec<(f64, u64)> = bounds.zip(of.buckets).collect();
            let count = of.buckets.iter().sum();
            let labels = [("kind", kind.as_str())];
            let mut family = d.encode_family(&labels)?;
            family.encode_histogram::<NoLabels>(of.seconds, count, &buckets, None)?;
        }
        if let Some(troubles) = troubles {
            let help = "Fleets with changes that are withheld as a newer control plane wrote them";
            gauge(to, "fleets_withheld", help, troubles.withheld() as u64)?;
        }
        fleets(to, "resource_apply", "Creations and changes of objects of fleets", &applied.applies())?;
        fleets(to, "resource_delete", "Deletions of objects of fleets", &applied.deletions())
    }

    /// The state on disk.
    fn state(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(kept) = self.0.progress.state.get() else { return Ok(()) };
        let seconds =
            |at: Option<jiff::Timestamp>| u64::try_from(at.map_or(0, |at| at.as_second())).unwrap_or_default();
        let since = match kept.origin() {
            Origin::Stale { since } => Some(since),
            Origin::Nothing | Origin::Live => None,
        };
        let f = kept.figures();
        gauge(to, "state_stale", "1 while a saved state is served", u64::from(since.is_some()))?;
        let help = "When the saved state that is served was saved; 0 where none is served";
        gauge(to, "state_stale_since_timestamp_seconds", help, seconds(since))?;
        gauge(to, "state_saved_timestamp_seconds", "When the state was saved last", seconds(f.saved))?;
        gauge(to, "state_file_bytes", "Size of the saved state", f.bytes)?;
        gauge(
            to,
            "state_refused",
            "1 when the state that was saved before the start is refused",
            u64::from(f.refused.is_some()),
        )?;
        counter(to, "state_saves", "Saves of the state", f.saves)?;
        counter(to, "state_save_errors", "Saves of the state that failed", f.save_errors)
    }

    /// This replica among the others.
    fn replicas(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let digest = self.0.cache.digest();
        // 48 bits, which a number of Prometheus holds exactly.
        let number = digest.get(..12).and_then(|d| u64::from_str_radix(d, 16).ok()).unwrap_or_default();
        gauge(to, "xds_snapshot_digest", "Digest of what is served: equal on replicas that serve the same", number)?;
        let Some(replicas) = &self.0.replicas else { return Ok(()) };
        let reports = replicas.peers.reports();
        let differ = reports.iter().filter(|r| *r.digest != *digest).count();
        gauge(to, "replicas_heard", "Other replicas that were heard", reports.len() as u64)?;
        gauge(to, "replicas_differing", "Of these, those that serve something else", differ as u64)?;
        let disagreeing = replicas.agreed.disagreements().len() as u64;
        let help = "Other replicas that have seen the same resource versions and serve something else";
        gauge(to, "replicas_disagreeing", help, disagreeing)?;
        gauge(
            to,
            "replica_hands_over",
            "1 while proxies are handed over to a fresher replica",
            u64::from(self.0.hands_over()),
        )?;
        let age = replicas.freshness.age().map_or(f64::INFINITY, |a| a.as_secs_f64());
        gauge(to, "replica_in_touch_age_seconds", "Seconds since the API server answered a probe", age)
    }

    fn xds(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let m = self.0.xds_metrics.snapshot();
        gauge(to, "xds_connections", "Open connections of proxies", m.connections)?;
        gauge(to, "xds_streams", "Open streams of proxies", m.streams)?;
        counter(to, "xds_streams_denied", "Streams of clients that were not admitted", m.streams_denied)?;
        counter(to, "xds_requests", "Requests of proxies", m.requests)?;
        counter(
            to,
            "xds_connections_refused",
            "Connections refused while proxies are handed over",
            m.connections_refused,
        )?;
        counter(to, "xds_handshakes_failed", "TLS handshakes that failed", m.handshakes_failed)?;
        counter(
            to,
            "xds_updates_went_on",
            "Updates that went on although clusters did not become ready",
            m.updates_went_on,
        )?;
        for (name, help, read) in PER_TYPE {
            let mut d = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (kind, of) in &m.types {
                ConstCounter::new(read(of)).encode(d.encode_family(&TypeLabels { type_url: kind.as_str() })?)?;
            }
        }
        Ok(())
    }
}

/// Writes of objects of fleets: how they ended and how long they took.
fn fleets(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, rows: &BTreeMap<ObjectRef, Row>) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let labels = |at: &ObjectRef| {
        [("kind", at.kind.names().0.to_owned()), ("name", at.name.to_string()), ("namespace", at.namespace.to_string())]
    };
    let outcomes = |(at, row): (&ObjectRef, &Row)| {
        let [kind, name, namespace] = labels(at);
        let of = |status: &str, reason: &str, n| {
            let end = [("status", status.to_owned()), ("reason", reason.to_owned())];
            let [status, reason] = end;
            ([kind.clone(), name.clone(), namespace.clone(), status, reason], n)
        };
        [of("success", "", row.done), of("failure", "conflict", row.conflicts), of("failure", "error", row.failed)]
    };
    counters(to, name, help, rows.iter().flat_map(outcomes).filter(|(_, n)| *n > 0))?;
    let name = format!("{name}_duration_seconds");
    let mut d = to.encode_descriptor(&name, "Seconds that they took", None, MetricType::Histogram)?;
    for (at, row) in rows {
        let bounds = status::SECONDS.into_iter().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(row.buckets).collect();
        let labels = labels(at);
        let mut family = d.encode_family(&labels)?;
        family.encode_histogram::<NoLabels>(row.seconds, row.buckets.iter().sum(), &buckets, None)?;
    }
    Ok(())
}

type PerType = (&'static str, &'static str, fn(&xds::TypeMetrics) -> u64);

const PER_TYPE: [PerType; 4] = [
    ("xds_responses", "Responses sent", |t| t.responses),
    ("xds_response_bytes", "Bytes of the resources sent", |t| t.bytes),
    ("xds_acks", "Responses accepted", |t| t.acks),
    ("xds_ack_timeouts", "Responses not answered in time", |t| t.ack_timeouts),
];

type PerKind = (&'static str, &'static str, fn(&KindFigures) -> u64);

const PER_KIND: [PerKind; 5] = [
    ("kubernetes_lists", "Complete lists", |k| k.lists),
    ("kubernetes_events", "Events of watches", |k| k.events),
    ("kubernetes_errors", "Lists and watches that failed", |k| k.errors),
    ("kubernetes_fetched", "Single objects fetched", |k| k.fetched),
    ("kubernetes_fetch_errors", "Fetches of single objects that failed", |k| k.fetch_errors),
];

#[allow(clippy::cast_precision_loss, reason = "a figure for people")]
fn micros(n: u64) -> f64 {
    n as f64 / 1e6
}

/// Numbers that a gauge can show.
trait Figure {
    fn gauge(self) -> f64;
}

impl Figure for u64 {
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    fn gauge(self) -> f64 {
        self as f64
    }
}

impl Figure for f64 {
    fn gauge(self) -> f64 {
        self
    }
}

fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: impl Figure) -> fmt::Result {
    ConstGauge::new(value.gauge()).encode(to.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counter(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(to.encode_descriptor(name, help, None, MetricType::Counter)?)
}

/// Counters of one name by their labels; nothing where there are none.
fn counters<L: EncodeLabelSet>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (L, u64)>,
) -> fmt::Result {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    let mut d = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in rows {
        ConstCounter::new(value).encode(d.encode_family(&labels)?)?;
    }
    Ok(())
}

//! `/metrics`: every figure is read where it is kept, at the moment of the request.

use std::{fmt, sync::atomic::Ordering};

use axum::{extract::State, http::header, response::IntoResponse};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use crate::shared::Shared;

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
struct BucketLabels {
    le: String,
}

impl Collector for Figures {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.election(&mut to)?;
        self.engine(&mut to)?;
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
        counter(to, "translations", "Batches translated", p.translations.load(Ordering::Relaxed))?;
        gauge(
            to,
            "translation_last_seconds",
            "Seconds that the last translation took",
            micros(p.last_micros.load(Ordering::Relaxed)),
        )?;
        gauge(
            to,
            "translation_seconds_sum",
            "Seconds that all translations took",
            micros(p.total_micros.load(Ordering::Relaxed)),
        )?;
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

    fn xds(&self, to: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let m = self.0.xds_metrics.snapshot();
        gauge(to, "xds_connections", "Open connections of proxies", m.connections)?;
        gauge(to, "xds_streams", "Open streams of proxies", m.streams)?;
        counter(to, "xds_requests", "Requests of proxies", m.requests)?;
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

type PerType = (&'static str, &'static str, fn(&xds::TypeMetrics) -> u64);

const PER_TYPE: [PerType; 5] = [
    ("xds_responses", "Responses sent", |t| t.responses),
    ("xds_response_bytes", "Bytes of the resources sent", |t| t.bytes),
    ("xds_acks", "Responses accepted", |t| t.acks),
    ("xds_nack", "Responses refused", |t| t.nacks),
    ("xds_ack_timeouts", "Responses not answered in time", |t| t.ack_timeouts),
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

//! What a BackendTrafficPolicy says about routes.

use api::envoygateway::{
    self as eg, BackendTrafficPolicySpec, BandwidthLimitUnit, BandwidthLimitValue, CompressorType, GRPCSuccessCode,
};
use ir::{Abort, AdmissionControl, Bandwidth, Compression, Compressor, Fault, Feature, Millis, Name, Retry, Upgrade};
use resources::Store;

use crate::{rate_limit, read::Wrong, response};

/// Conditions to retry on when a policy names none.
const RETRY_ON: [&str; 5] = ["connect-failure", "refused-stream", "unavailable", "cancelled", "retriable-status-codes"];

/// What a policy says about routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSettings {
    /// Until the whole response is there.
    pub timeout: Option<Millis>,
    /// A stream without activity.
    pub idle_timeout: Option<Millis>,
    /// Lifetime of a stream.
    pub max_stream_duration: Option<Millis>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Protocols that connections may be upgraded to; none: as without a policy.
    pub upgrades: Option<Vec<Upgrade>>,
    /// What HTTP filters do.
    pub features: Vec<Feature>,
    /// Pattern of the name of the route's statistics.
    pub stat_name: Option<Name>,
    /// Responses are compressed here: backends are not asked to.
    pub compresses: bool,
}

/// Where a policy is and what it may look up.
pub(crate) struct Context<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Namespace of the ConfigMaps that bodies of responses come from.
    pub(crate) bodies: &'a str,
    pub(crate) store: &'a Store,
}

pub(crate) fn settings(spec: &BackendTrafficPolicySpec, context: &Context<'_>, wrong: &mut Wrong) -> RouteSettings {
    let http = spec.cluster.timeout.as_ref().and_then(|t| t.http.as_ref());
    let mut time = |f: &str, value: Option<&eg::Duration>| wrong.time(&format!("spec.timeout.http.{f}"), value);
    let mut out = RouteSettings {
        timeout: time("requestTimeout", http.and_then(|h| h.request_timeout.as_ref())),
        idle_timeout: time("streamIdleTimeout", http.and_then(|h| h.stream_idle_timeout.as_ref())),
        max_stream_duration: time("maxStreamDuration", http.and_then(|h| h.max_stream_duration.as_ref())),
        ..RouteSettings::default()
    };
    out.retry = spec.cluster.retry.as_ref().map(|r| retry(r, wrong));
    out.upgrades = upgrades(spec);
    out.stat_name = stat_name(spec, wrong);
    let compressors = compressors(spec, wrong);
    let rate_limit = spec.rate_limit.as_ref();
    if rate_limit.is_some_and(|l| l.global.is_some()) {
        wrong.add("spec.rateLimit.global: is not supported; use local, or remove it");
    }
    // In the order in which requests meet the filters.
    let name = format!("{}/{}", context.namespace, context.name);
    let response = response::overrides(&spec.response_override, &name, context.bodies, context.store, wrong);
    out.features.extend(response.map(Feature::ResponseOverride));
    out.features.extend(spec.fault_injection.as_ref().map(|f| Feature::Fault(fault(f, wrong))));
    let limit = spec.request_buffer.as_ref().and_then(|b| b.limit.as_ref());
    let max_bytes = wrong.bytes("spec.requestBuffer.limit", limit);
    if max_bytes == Some(0) {
        wrong.add("spec.requestBuffer.limit: must be more than 0; give a larger size");
    }
    out.features.extend(max_bytes.map(|max_bytes| Feature::Buffer { max_bytes }));
    let local = rate_limit.and_then(|l| l.local.as_ref()).and_then(|l| rate_limit::local(l, wrong));
    out.features.extend(local.map(Feature::LocalRateLimit));
    out.features.extend(spec.bandwidth_limit.as_ref().map(|b| Feature::Bandwidth(bandwidth(b, wrong))));
    out.compresses = !compressors.is_empty();
    if out.compresses {
        out.features.push(Feature::Compression(compressors));
    }
    out
}

fn retry(r: &eg::Retry, wrong: &mut Wrong) -> Retry {
    let on = r.retry_on.as_ref();
    let mut triggers: Vec<Name> =
        on.map(|o| o.triggers.iter().map(|t| t.as_str().into()).collect()).unwrap_or_default();
    triggers.sort();
    triggers.dedup();
    let mut codes: Vec<u32> =
        on.map(|o| o.http_status_codes.iter().filter_map(|s| u32::try_from(s.0).ok()).collect()).unwrap_or_default();
    codes.sort_unstable();
    codes.dedup();
    if on.is_none() {
        codes.push(503);
    }
    if triggers.is_empty() {
        triggers = RETRY_ON.iter().map(|t| Name::from(*t)).collect();
    }
    let each = r.per_retry.as_ref();
    let back_off = each.and_then(|e| e.back_off.as_ref());
    let mut positive = |f: &str, value: Option<&eg::Duration>| {
        let field = format!("spec.retry.perRetry.backOff.{f}");
        let time = wrong.time(&field, value);
        if time == Some(Millis(0)) {
            wrong.add(format!("{field}: must be more than 0s; give a longer time"));
        }
        time
    };
    let backoff_base = positive("baseInterval", back_off.and_then(|b| b.base_interval.as_ref()));
    let backoff_max = positive("maxInterval", back_off.and_then(|b| b.max_interval.as_ref()));
    if backoff_base.is_none() && backoff_max.is_some() {
        wrong.add("spec.retry.perRetry.backOff.baseInterval: is missing though maxInterval is there; add it");
    }
    if backoff_base.zip(backoff_max).is_some_and(|(base, max)| max < base) {
        wrong.add("spec.retry.perRetry.backOff.maxInterval: is shorter than baseInterval; give a longer time");
    }
    Retry {
        on: triggers,
        status_codes: codes,
        attempts: Some(r.num_retries.and_then(|n| u32::try_from(n).ok()).unwrap_or(2)),
        per_try_timeout: wrong.time("spec.retry.perRetry.timeout", each.and_then(|e| e.timeout.as_ref())),
        backoff_base,
        backoff_max,
        avoid_previous_hosts: true,
        attempts_per_priority: r.num_attempts_per_priority.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
    }
}

fn upgrades(spec: &BackendTrafficPolicySpec) -> Option<Vec<Upgrade>> {
    if spec.http_upgrade.is_empty() {
        // A request that is held until it is complete cannot become a connection.
        return spec.request_buffer.is_some().then(Vec::new);
    }
    let upgrade = |u: &eg::ProtocolUpgradeConfig| Upgrade {
        protocol: u.type_.as_str().into(),
        terminate: u.connect.as_ref().is_some_and(|c| c.terminate == Some(true)),
    };
    Some(spec.http_upgrade.iter().map(upgrade).collect())
}

/// Operators that the name of a route's statistics may have.
const STAT_OPERATORS: [&str; 4] = ["%ROUTE_NAME%", "%ROUTE_NAMESPACE%", "%ROUTE_KIND%", "%ROUTE_RULE_NAME%"];

fn stat_name(spec: &BackendTrafficPolicySpec, wrong: &mut Wrong) -> Option<Name> {
    let pattern = spec.telemetry.as_ref()?.metrics.as_ref()?.route_stat_name.as_deref().filter(|p| !p.is_empty())?;
    let rest = STAT_OPERATORS.iter().fold(pattern.to_owned(), |text, operator| text.replace(operator, ""));
    if rest.contains('%') {
        wrong.add(format!(
            "spec.telemetry.metrics.routeStatName: `{pattern}` has an operator that is not known; use {}",
            STAT_OPERATORS.join(", ")
        ));
        return None;
    }
    Some(pattern.into())
}

/// The name of a route's statistics, with the operators filled in.
#[must_use]
pub fn stat_prefix(pattern: &str, origin: &ir::Origin) -> Name {
    let values = [&*origin.name, &*origin.namespace, origin.kind, origin.section.as_deref().unwrap_or("-")];
    let filled =
        STAT_OPERATORS.iter().zip(values).fold(pattern.to_owned(), |text, (operator, v)| text.replace(operator, v));
    filled.into()
}

/// Shares of requests go over the wire in millionths.
fn millionths(field: &str, percentage: Option<f64>, wrong: &mut Wrong) -> u32 {
    let percentage = percentage.unwrap_or(100.0);
    if !(0.0..=100.0).contains(&percentage) {
        wrong.add(format!("{field}: {percentage} is no percentage; give a number from 0 to 100"));
        return 0;
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and a million")]
    let out = (percentage * 10_000.0).round() as u32;
    out
}

fn fault(f: &eg::FaultInjection, wrong: &mut Wrong) -> Fault {
    let delay = f.delay.as_ref().and_then(|d| {
        let time = wrong.time("spec.faultInjection.delay.fixedDelay", Some(&d.fixed_delay))?;
        if time.0 == 0 {
            wrong.add("spec.faultInjection.delay.fixedDelay: must be more than 0s; give a longer time");
        }
        Some((time, millionths("spec.faultInjection.delay.percentage", d.percentage, wrong)))
    });
    let abort = f.abort.as_ref().and_then(|a| {
        let number = |n: Option<i32>| n.and_then(|n| u32::try_from(n).ok());
        let abort = number(a.http_status).map(Abort::Http).or(number(a.grpc_status).map(Abort::Grpc))?;
        Some((abort, millionths("spec.faultInjection.abort.percentage", a.percentage, wrong)))
    });
    Fault { delay, abort }
}

fn compressors(spec: &BackendTrafficPolicySpec, wrong: &mut Wrong) -> Vec<Compressor> {
    let mut out: Vec<Compressor> = Vec::new();
    let newer = !spec.compressor.is_empty();
    let (list, field) =
        if newer { (&spec.compressor, "spec.compressor") } else { (&spec.compression, "spec.compression") };
    for (i, c) in list.iter().enumerate() {
        // Without its settings a compressor of the newer list is off: that is how a merged policy takes one away.
        let (algorithm, on) = match c.type_ {
            CompressorType::Brotli => (Compression::Brotli, c.brotli.is_some()),
            CompressorType::Gzip => (Compression::Gzip, c.gzip.is_some()),
            CompressorType::Zstd => (Compression::Zstd, c.zstd.is_some()),
            CompressorType::Unknown(_) => continue,
        };
        if newer && !on || out.iter().any(|o| o.algorithm == algorithm) {
            continue;
        }
        let min_bytes = wrong.bytes(&format!("{field}[{i}].minContentLength"), c.min_content_length.as_ref());
        if min_bytes.is_some_and(|b| b < 30) {
            wrong.add(format!("{field}[{i}].minContentLength: must be at least 30; give a larger size"));
        }
        out.push(Compressor { algorithm, min_bytes, preferred: i == 0 });
    }
    out
}

fn bandwidth(b: &eg::BandwidthLimitSpec, wrong: &mut Wrong) -> Bandwidth {
    let trailers = b.response.as_ref().and_then(|r| r.response_trailers.as_ref());
    Bandwidth {
        request: b.request.as_ref().and_then(|r| kib("request", &r.limit, wrong)),
        response: b.response.as_ref().and_then(|r| kib("response", &r.limit, wrong)),
        trailers: trailers.map(|t| t.prefix.as_deref().map(Into::into)),
    }
}

fn kib(direction: &str, limit: &BandwidthLimitValue, wrong: &mut Wrong) -> Option<u64> {
    let seconds = match limit.unit {
        BandwidthLimitUnit::Minute => 60,
        BandwidthLimitUnit::Hour => 3600,
        _ => 1,
    };
    let kib = resources::quantity::units(&limit.value.0).map(|bytes| bytes / seconds / 1024).filter(|k| *k > 0);
    if kib.is_none() {
        wrong.add(format!(
            "spec.bandwidthLimit.{direction}.limit: {} in a {} is less than 1 KiB in a second; give more",
            limit.value.0,
            limit.unit.as_str().to_ascii_lowercase()
        ));
    }
    kib
}

/// Admission control, which is the business of the clusters.
pub(crate) fn admission(a: &eg::AdmissionControl, wrong: &mut Wrong) -> AdmissionControl {
    let criteria = a.success_criteria.as_ref();
    let http = criteria.and_then(|c| c.http.as_ref());
    let grpc = criteria.and_then(|c| c.grpc.as_ref());
    let mut statuses: Vec<u32> =
        http.map(|h| h.status_codes.iter().filter_map(|s| u32::try_from(s.0).ok()).collect()).unwrap_or_default();
    statuses.sort_unstable();
    statuses.dedup();
    AdmissionControl {
        window: wrong.time("spec.admissionControl.samplingWindow", a.sampling_window.as_ref()),
        min_success_percent: a.min_success_rate,
        aggression: a.rejection_aggression,
        min_rate: a.min_request_rate,
        max_rejection_percent: a.max_rejection_percent,
        http_statuses: statuses,
        grpc_statuses: grpc.map(|g| g.status_codes.iter().filter_map(code).collect()).unwrap_or_default(),
    }
}

fn code(code: &GRPCSuccessCode) -> Option<u32> {
    Some(match code {
        GRPCSuccessCode::Ok => 0,
        GRPCSuccessCode::Cancelled => 1,
        GRPCSuccessCode::UnknownError => 2,
        GRPCSuccessCode::InvalidArgument => 3,
        GRPCSuccessCode::DeadlineExceeded => 4,
        GRPCSuccessCode::NotFound => 5,
        GRPCSuccessCode::AlreadyExists => 6,
        GRPCSuccessCode::PermissionDenied => 7,
        GRPCSuccessCode::ResourceExhausted => 8,
        GRPCSuccessCode::FailedPrecondition => 9,
        GRPCSuccessCode::Aborted => 10,
        GRPCSuccessCode::OutOfRange => 11,
        GRPCSuccessCode::Unimplemented => 12,
        GRPCSuccessCode::Internal => 13,
        GRPCSuccessCode::Unavailable => 14,
        GRPCSuccessCode::DataLoss => 15,
        GRPCSuccessCode::Unauthenticated => 16,
        GRPCSuccessCode::Unknown(_) => return None,
    })
}

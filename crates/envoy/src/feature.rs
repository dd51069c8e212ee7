//! HTTP filters that do on some routes what policies ask for: the filter of a listener, and its settings on a route.

use envoy_types::pb::{
    envoy::{
        config::{
            core::v3::TypedExtensionConfig,
            route::v3::{
                FilterConfig,
                route_action::{HashPolicy, hash_policy},
            },
        },
        extensions::{
            compression::{brotli::compressor::v3::Brotli, gzip::compressor::v3::Gzip, zstd::compressor::v3::Zstd},
            filters::{
                common::fault::v3::{FaultDelay, fault_delay::FaultDelaySecifier},
                http::{
                    bandwidth_limit::v3::{BandwidthLimit, bandwidth_limit::EnableMode},
                    buffer::v3::{Buffer, BufferPerRoute, buffer_per_route},
                    compressor::v3::{
                        Compressor, CompressorOverrides, CompressorPerRoute, ResponseDirectionOverrides,
                        compressor::{CommonDirectionConfig, ResponseDirectionConfig},
                        compressor_per_route,
                    },
                    fault::v3::{FaultAbort, HttpFault, fault_abort::ErrorType},
                },
                network::http_connection_manager::v3::HttpFilter,
            },
        },
        r#type::v3::{FractionalPercent, fractional_percent::DenominatorType},
    },
    google::protobuf::Any,
};
use ir::{Abort, Bandwidth, Compression, Feature};

use crate::{
    http::http_filter,
    local_rate_limit,
    pb::{any, duration, extension, u32_value, u64_value},
    response_override,
};

const FAULT: &str = "envoy.filters.http.fault";
const BUFFER: &str = "envoy.filters.http.buffer";
const LOCAL_RATE_LIMIT: &str = "envoy.filters.http.local_ratelimit";
const REQUEST_BANDWIDTH: &str = "envoy.filters.http.bandwidth_limit/request";
const RESPONSE_BANDWIDTH: &str = "envoy.filters.http.bandwidth_limit/response";
const BANDWIDTH_STATS: &str = "http_bandwidth_limiter";

/// The filter of a listener that does what `f` names; none for those that no policy makes.
pub(crate) fn filter(f: &ir::HttpFilter) -> Option<HttpFilter> {
    let off = |filter: HttpFilter| HttpFilter { disabled: true, ..filter };
    Some(match f {
        ir::HttpFilter::ResponseOverride(o) => off(http_filter(&override_name(o), &response_override::filter(o))),
        ir::HttpFilter::Fault => http_filter(FAULT, &HttpFault::default()),
        ir::HttpFilter::Buffer { max_bytes } => off(http_filter(BUFFER, &buffer(*max_bytes))),
        ir::HttpFilter::LocalRateLimit => http_filter(LOCAL_RATE_LIMIT, &local_rate_limit::filter()),
        ir::HttpFilter::RequestBandwidth => off(http_filter(REQUEST_BANDWIDTH, &no_bandwidth())),
        ir::HttpFilter::ResponseBandwidth => off(http_filter(RESPONSE_BANDWIDTH, &no_bandwidth())),
        ir::HttpFilter::Compressor(c) => off(http_filter(compressor_name(c.algorithm), &compressor(c))),
        _ => return None,
    })
}

/// Settings of a route for those filters, by the filters' names.
pub(crate) fn of_route(f: &Feature) -> Vec<(String, Any)> {
    match f {
        Feature::Fault(f) => vec![(FAULT.to_owned(), any(&fault(f)))],
        Feature::LocalRateLimit(l) => vec![(LOCAL_RATE_LIMIT.to_owned(), any(&local_rate_limit::of_route(l)))],
        Feature::Compression(list) => {
            let on = CompressorPerRoute {
                r#override: Some(compressor_per_route::Override::Overrides(CompressorOverrides {
                    response_direction_config: Some(ResponseDirectionOverrides::default()),
                    ..Default::default()
                })),
            };
            list.iter().map(|c| (compressor_name(c.algorithm).to_owned(), any(&on))).collect()
        }
        Feature::Buffer { max_bytes } => {
            let of_route = BufferPerRoute { r#override: Some(buffer_per_route::Override::Buffer(buffer(*max_bytes))) };
            vec![(BUFFER.to_owned(), any(&of_route))]
        }
        Feature::Bandwidth(b) => bandwidth(b),
        Feature::ResponseOverride(o) => {
            vec![(override_name(o), any(&FilterConfig { config: Some(Any::default()), ..Default::default() }))]
        }
    }
}

fn override_name(o: &ir::ResponseOverride) -> String {
    format!("envoy.filters.http.custom_response/{}", o.name)
}

fn buffer(max_bytes: u32) -> Buffer {
    Buffer { max_request_bytes: u32_value(max_bytes) }
}

fn fault(f: &ir::Fault) -> HttpFault {
    let share = |numerator| Some(FractionalPercent { numerator, denominator: DenominatorType::Million as i32 });
    HttpFault {
        delay: f.delay.map(|(time, millionths)| FaultDelay {
            percentage: share(millionths),
            fault_delay_secifier: Some(FaultDelaySecifier::FixedDelay(duration(time))),
        }),
        abort: f.abort.map(|(abort, millionths)| FaultAbort {
            percentage: share(millionths),
            error_type: Some(match abort {
                Abort::Http(status) => ErrorType::HttpStatus(status),
                Abort::Grpc(status) => ErrorType::GrpcStatus(status),
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn no_bandwidth() -> BandwidthLimit {
    BandwidthLimit { stat_prefix: BANDWIDTH_STATS.to_owned(), ..Default::default() }
}

fn bandwidth(b: &Bandwidth) -> Vec<(String, Any)> {
    let mut out = Vec::new();
    if let Some(limit) = b.request {
        let limit =
            BandwidthLimit { enable_mode: EnableMode::Request as i32, limit_kbps: u64_value(limit), ..no_bandwidth() };
        out.push((REQUEST_BANDWIDTH.to_owned(), any(&limit)));
    }
    if let Some(limit) = b.response {
        let limit = BandwidthLimit {
            enable_mode: EnableMode::Response as i32,
            limit_kbps: u64_value(limit),
            enable_response_trailers: b.trailers.is_some(),
            response_trailer_prefix: b.trailers.clone().flatten().as_deref().unwrap_or_default().to_owned(),
            ..no_bandwidth()
        };
        out.push((RESPONSE_BANDWIDTH.to_owned(), any(&limit)));
    }
    out
}

fn compressor_name(algorithm: Compression) -> &'static str {
    match algorithm {
        Compression::Brotli => "envoy.filters.http.compressor.brotli",
        Compression::Gzip => "envoy.filters.http.compressor.gzip",
        Compression::Zstd => "envoy.filters.http.compressor.zstd",
    }
}

fn compressor(c: &ir::Compressor) -> Compressor {
    let library: TypedExtensionConfig = match c.algorithm {
        Compression::Brotli => extension("envoy.compression.brotli.compressor", &Brotli::default()),
        Compression::Gzip => extension("envoy.compression.gzip.compressor", &Gzip::default()),
        Compression::Zstd => extension("envoy.compression.zstd.compressor", &Zstd::default()),
    };
    let common = |bytes| CommonDirectionConfig { min_content_length: u32_value(bytes), ..Default::default() };
    Compressor {
        compressor_library: Some(library),
        choose_first: c.preferred,
        response_direction_config: c
            .min_bytes
            .map(|b| ResponseDirectionConfig { common_config: Some(common(b)), ..Default::default() }),
        ..Default::default()
    }
}

/// How an endpoint is picked on a route.
pub(crate) fn hash_policy(h: &ir::HashPolicy) -> HashPolicy {
    use hash_policy::PolicySpecifier as By;
    let by = match h {
        ir::HashPolicy::SourceIp => By::ConnectionProperties(hash_policy::ConnectionProperties { source_ip: true }),
        ir::HashPolicy::Header(name) => {
            By::Header(hash_policy::Header { header_name: name.to_string(), ..Default::default() })
        }
        ir::HashPolicy::Cookie { name, ttl, attributes } => By::Cookie(hash_policy::Cookie {
            name: name.to_string(),
            ttl: ttl.map(duration),
            attributes: attributes
                .iter()
                .map(|(name, value)| hash_policy::CookieAttribute { name: name.to_string(), value: value.to_string() })
                .collect(),
            ..Default::default()
        }),
        ir::HashPolicy::Query(name) => By::QueryParameter(hash_policy::QueryParameter { name: name.to_string() }),
    };
    HashPolicy { policy_specifier: Some(by), ..Default::default() }
}

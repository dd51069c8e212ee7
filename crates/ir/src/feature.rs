//! What policies add to routes.

use std::sync::Arc;

use crate::{HeaderAdd, Millis, Name, Redirect, StringMatch};

/// A policy that has a part in a route; becomes metadata beside that of the route's object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyRef {
    /// Kind, such as `BackendTrafficPolicy`.
    pub kind: &'static str,
    /// Namespace.
    pub namespace: Name,
    /// Name.
    pub name: Name,
}

/// Something that an HTTP filter of the listener does on a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Feature {
    /// Delays and aborts on purpose.
    Fault(Fault),
    /// Limits counted by the proxy itself.
    LocalRateLimit(Arc<LocalRateLimit>),
    /// Compression of responses by these algorithms.
    Compression(Vec<Compressor>),
    /// The whole request is held, up to so many bytes.
    Buffer {
        /// Largest request.
        max_bytes: u32,
    },
    /// Bytes per second.
    Bandwidth(Bandwidth),
    /// Some responses are replaced.
    ResponseOverride(Arc<ResponseOverride>),
}

/// Faults on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Delay, and the share of requests in millionths.
    pub delay: Option<(Millis, u32)>,
    /// Answer in place of the backend's, and the share of requests in millionths.
    pub abort: Option<(Abort, u32)>,
}

/// An answer in place of the backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abort {
    /// HTTP status.
    Http(u32),
    /// gRPC status.
    Grpc(u32),
}

/// Limits counted by the proxy itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRateLimit {
    /// For requests that no rule takes.
    pub default: TokenBucket,
    /// Rules in order.
    pub rules: Vec<LocalRule>,
    /// Headers `x-ratelimit-…` are sent.
    pub headers: bool,
    /// The default is counted but not enforced.
    pub shadow: bool,
}

/// So many requests in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Requests.
    pub tokens: u32,
    /// Time.
    pub interval: Millis,
}

/// A limit for those requests that all conditions hold for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRule {
    /// Position in the policy; names the descriptor.
    pub index: usize,
    /// Conditions.
    pub conditions: Vec<RateCondition>,
    /// The limit.
    pub limit: TokenBucket,
    /// Counted but not enforced.
    pub shadow: bool,
    /// What a request counts, if not 1.
    pub cost: Option<Cost>,
    /// Headers `x-ratelimit-…` are sent for this rule, or are not; none: as for the whole.
    pub headers: Option<bool>,
}

/// What a request counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A number.
    Number(u64),
    /// An expression of Envoy.
    Format(Name),
}

/// A condition of a rate limit; its name becomes that of the descriptor's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateCondition {
    /// Name of the entry, such as `rule-0-match-1`.
    pub name: Name,
    /// What must hold.
    pub test: RateTest,
}

/// A test of a rate limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateTest {
    /// A header (or `:method`, `:path`) has, or with `invert` has not, this value.
    Header {
        /// Name.
        name: Name,
        /// Value.
        value: StringMatch,
        /// The other way round.
        invert: bool,
    },
    /// Each value of a header counts by itself.
    EachHeader(Name),
    /// A query parameter has, or with `invert` has not, this value.
    Query {
        /// Name.
        name: Name,
        /// Value.
        value: StringMatch,
        /// The other way round.
        invert: bool,
    },
    /// Each value of a query parameter counts by itself.
    EachQuery(Name),
    /// The client's address is, or with `invert` is not, in the range.
    Source {
        /// The range as text, such as `10.0.0.0/8`.
        range: Name,
        /// Its address.
        address: Name,
        /// Its length.
        prefix: u32,
        /// The other way round.
        invert: bool,
    },
    /// Each address that is, or with `invert` is not, in the range counts by itself.
    EachSource {
        /// Address of the range.
        address: Name,
        /// Its length.
        prefix: u32,
        /// The other way round.
        invert: bool,
    },
}

/// A compressor of responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Compressor {
    /// The algorithm.
    pub algorithm: Compression,
    /// Smallest response to compress.
    pub min_bytes: Option<u32>,
    /// It is preferred where the client likes several alike.
    pub preferred: bool,
}

/// A compression algorithm, in the order of the names of their filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compression {
    /// Brotli.
    Brotli,
    /// Gzip.
    Gzip,
    /// Zstandard.
    Zstd,
}

/// Bytes per second in each direction, in KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bandwidth {
    /// Towards the backend.
    pub request: Option<u64>,
    /// From the backend.
    pub response: Option<u64>,
    /// Trailers tell the delays, with this prefix.
    pub trailers: Option<Option<Name>>,
}

/// Replaces some responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseOverride {
    /// Name of the filter's settings: `backendtrafficpolicy/NS/NAME`.
    pub name: Name,
    /// Rules in order.
    pub rules: Vec<OverrideRule>,
}

/// Replaces those responses that the conditions hold for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideRule {
    /// Statuses, any of which will do: ranges from, to (inclusive).
    pub statuses: Vec<(u32, u32)>,
    /// Headers, any of which will do.
    pub headers: Vec<(Name, StringMatch)>,
    /// Only those that the proxy makes itself (true), or only the backend's (false).
    pub local: Option<bool>,
    /// What is answered.
    pub answer: Answer,
}

/// A replaced response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Another response.
    Response {
        /// Status, if it changes.
        status: Option<u32>,
        /// Body, if it changes.
        body: Option<Vec<u8>>,
        /// Headers, in order.
        headers: Vec<HeaderAdd>,
    },
    /// A redirect.
    Redirect(Redirect),
}

/// How an endpoint is picked by a hash, in order of precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashPolicy {
    /// Of the client's address.
    SourceIp,
    /// Of a header.
    Header(Name),
    /// Of a cookie, which is set if need be.
    Cookie {
        /// Name.
        name: Name,
        /// Lifetime of a cookie that the proxy sets.
        ttl: Option<Millis>,
        /// Attributes of a cookie that the proxy sets.
        attributes: Vec<(Name, Name)>,
    },
    /// Of a query parameter.
    Query(Name),
}

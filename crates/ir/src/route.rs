//! Route tables: virtual hosts and routes.

use std::sync::Arc;

use crate::{Feature, HashPolicy, Millis, Name, Origin, PolicyRef};

/// One RouteConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTable {
    /// xDS name: that of the listener.
    pub name: Name,
    /// The port of the `Host` header plays no part in matching.
    pub ignore_port_in_host: bool,
    /// Virtual hosts; shared, so that an unchanged one is encoded once.
    pub virtual_hosts: Vec<Arc<VirtualHost>>,
}

/// The routes of one hostname of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualHost {
    /// xDS name, `LISTENER/HOST` with dots as underscores.
    pub name: Name,
    /// Domains, `*` for all.
    pub domains: Vec<Name>,
    /// Routes in order of evaluation.
    pub routes: Vec<Route>,
    /// Gateway listener that it comes from.
    pub origin: Origin,
}

/// One match with its action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// xDS name, `httproute/NS/NAME/rule/I/match/J/HOST`.
    pub name: Name,
    /// Route object and, for a named rule, its name.
    pub origin: Origin,
    /// When the route applies.
    pub matches: RouteMatch,
    /// What is done.
    pub action: Action,
    /// Changes to the request's headers, before those of the backend.
    pub request_headers: HeaderMutation,
    /// Changes to the response's headers, after those of the backend.
    pub response_headers: HeaderMutation,
    /// Cross-origin policy.
    pub cors: Option<Cors>,
    /// Session affinity of the route.
    pub session: Option<SessionPersistence>,
    /// Requests whose authority is the proxy itself are refused (dynamic forward proxy in the listener).
    pub deny_loopback: bool,
    /// Policies that have a part in it.
    pub policies: Vec<PolicyRef>,
    /// What HTTP filters of the listener do on it.
    pub features: Vec<Feature>,
    /// Name of its statistics, if it has any.
    pub stat_prefix: Option<Name>,
}

/// Conditions, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// The path.
    pub path: PathMatch,
    /// The method, as a match on `:method`.
    pub method: Option<Name>,
    /// Headers, in the order written.
    pub headers: Vec<(Name, StringMatch)>,
    /// Query parameters, in the order written.
    pub query: Vec<(Name, StringMatch)>,
}

/// How a path is matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Every path that begins with the text (only `/` is used).
    Prefix(Name),
    /// The path itself, or the path followed by `/`.
    SeparatedPrefix(Name),
    /// The whole path.
    Exact(Name),
    /// The whole path by an RE2 expression.
    Regex(Name),
    /// No path: the request is a `CONNECT`.
    Connect,
}

/// How a text is matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StringMatch {
    /// Equal.
    Exact(Name),
    /// Begins with the text.
    Prefix(Name),
    /// Ends with the text.
    Suffix(Name),
    /// Contains the text.
    Contains(Name),
    /// The whole text by an RE2 expression.
    Regex(Name),
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Sends the request to clusters.
    Forward(Box<Forward>),
    /// Answers with another location.
    Redirect(Redirect),
    /// Answers itself.
    Respond {
        /// HTTP status.
        status: u16,
        /// Body, if any.
        body: Option<Name>,
    },
}

/// Forwarding to clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where to.
    pub to: Destination,
    /// Path rewrite.
    pub path: Option<PathRewrite>,
    /// Host rewrite.
    pub host: Option<HostRewrite>,
    /// Mirrors, in order.
    pub mirrors: Vec<Mirror>,
    /// Whole request; `Some(0)` means none.
    pub timeout: Option<Millis>,
    /// Retries.
    pub retry: Option<Retry>,
    /// Stream idle time-out; `Some(0)` means none.
    pub idle_timeout: Option<Millis>,
    /// Lifetime of a stream; `Some(0)` means none.
    pub max_stream_duration: Option<Millis>,
    /// Upgrades that are allowed, such as `websocket`, in order.
    pub upgrades: Vec<Upgrade>,
    /// How an endpoint is picked where the cluster hashes.
    pub hash_policies: Vec<HashPolicy>,
    /// The old host is told as `x-forwarded-host` when the host is rewritten.
    pub append_x_forwarded_host: bool,
}

/// A protocol that a connection may be upgraded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Its name, such as `websocket`.
    pub protocol: Name,
    /// `CONNECT` ends here: the tunnel's content goes on as TCP.
    pub terminate: bool,
}

/// Where a request is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// One cluster.
    Cluster(Name),
    /// Several, by weight.
    Weighted(Vec<WeightedCluster>),
}

/// One of several clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedCluster {
    /// Name of the cluster; [`INVALID_BACKEND_CLUSTER`] answers 500.
    pub cluster: Name,
    /// Weight.
    pub weight: u32,
    /// Changes to the request's headers for this backend.
    pub request_headers: HeaderMutation,
    /// Changes to the response's headers for this backend.
    pub response_headers: HeaderMutation,
    /// Host rewrite for this backend.
    pub host: Option<HostRewrite>,
}

/// Cluster that does not exist on purpose: the share of the requests that goes to invalid backends is answered 500.
pub const INVALID_BACKEND_CLUSTER: &str = "invalid-backend-cluster";

/// A path rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// Replaces the matched prefix.
    Prefix(Name),
    /// Replaces by an RE2 expression.
    Regex {
        /// Expression.
        pattern: Name,
        /// Substitution, with `\1` for groups.
        substitution: Name,
    },
}

/// A host rewrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRewrite {
    /// A fixed name.
    Literal(Name),
    /// The value of a header.
    Header(Name),
    /// The name of the endpoint.
    Endpoint,
}

/// A copy of the request that is sent elsewhere and whose answer is dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Cluster.
    pub cluster: Name,
    /// Share of the requests; none means all.
    pub fraction: Option<Fraction>,
}

/// A fraction of the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction {
    /// Numerator.
    pub numerator: u32,
    /// 100, 10 000 or 1 000 000.
    pub denominator: u32,
}

/// Retries of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Conditions, in Envoy's words.
    pub on: Vec<Name>,
    /// Statuses that are tried again.
    pub status_codes: Vec<u32>,
    /// Number of retries; none leaves Envoy's default.
    pub attempts: Option<u32>,
    /// Time for each try.
    pub per_try_timeout: Option<Millis>,
    /// Base of the back-off.
    pub backoff_base: Option<Millis>,
    /// Largest back-off.
    pub backoff_max: Option<Millis>,
    /// Tries in a row at one host avoid that host (`previous_hosts`).
    pub avoid_previous_hosts: bool,
    /// Tries at one priority before the next is tried.
    pub attempts_per_priority: Option<u32>,
}

/// A redirect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redirect {
    /// New scheme.
    pub scheme: Option<Name>,
    /// New host.
    pub host: Option<Name>,
    /// New port.
    pub port: Option<u16>,
    /// New path.
    pub path: Option<RedirectPath>,
    /// HTTP status: 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// Path of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedirectPath {
    /// Replaces the whole path.
    Full(Name),
    /// Replaces the matched prefix.
    Prefix(Name),
    /// Replaces by an RE2 expression.
    Regex {
        /// Expression.
        pattern: Name,
        /// Substitution.
        substitution: Name,
    },
}

/// Changes to headers, in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderMutation {
    /// Header, value and how: each added, set or (if absent) added.
    pub add: Vec<HeaderAdd>,
    /// Headers that are removed.
    pub remove: Vec<Name>,
}

/// A header that is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderAdd {
    /// Name.
    pub name: Name,
    /// Value.
    pub value: Name,
    /// Replace what is there, or append to it.
    pub overwrite: bool,
}

/// Cross-origin resource sharing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    /// Origins allowed.
    pub allow_origins: Vec<StringMatch>,
    /// Methods allowed.
    pub allow_methods: Vec<Name>,
    /// Request headers allowed.
    pub allow_headers: Vec<Name>,
    /// Response headers exposed.
    pub expose_headers: Vec<Name>,
    /// How long a preflight answer may be kept.
    pub max_age: Option<Millis>,
    /// Credentials allowed.
    pub allow_credentials: Option<bool>,
}

/// Session affinity by cookie or header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionPersistence {
    /// A cookie.
    Cookie {
        /// Name of the cookie.
        name: Name,
        /// Lifetime; none makes it a session cookie.
        ttl: Option<Millis>,
        /// Path of the cookie.
        path: Name,
    },
    /// A header.
    Header {
        /// Name of the header.
        name: Name,
    },
}

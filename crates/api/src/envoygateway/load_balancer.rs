//! Load balancing.

use super::common::Duration;
use crate::open_enum;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use std::collections::BTreeMap;

/// How an endpoint is chosen for each request.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'ConsistentHash' ? has(self.consistentHash) : !has(self.consistentHash)", "If LoadBalancer type is consistentHash, consistentHash field needs to be set."))]
#[x_kube(validation = ("self.type == 'BackendUtilization' ? has(self.backendUtilization) : !has(self.backendUtilization)", "If LoadBalancer type is BackendUtilization, backendUtilization field needs to be set."))]
#[x_kube(validation = ("self.type == 'DynamicModule' ? has(self.dynamicModule) : !has(self.dynamicModule)", "If LoadBalancer type is DynamicModule, dynamicModule field needs to be set."))]
#[x_kube(validation = ("self.type in ['Random', 'ConsistentHash', 'DynamicModule'] ? !has(self.slowStart) : true", "Currently SlowStart is only supported for RoundRobin, LeastRequest, and BackendUtilization load balancers."))]
#[x_kube(validation = ("self.type == 'ConsistentHash' && has(self.zoneAware) ? !has(self.zoneAware.preferLocal) : true", "PreferLocal zone-aware routing is not supported for ConsistentHash load balancers. Use weightedZones instead."))]
#[x_kube(validation = ("self.type == 'BackendUtilization' && has(self.zoneAware) ? !has(self.zoneAware.preferLocal) : true", "PreferLocal zone-aware routing is not currently supported for BackendUtilization load balancers. Only WeightedZones can be used with BackendUtilization."))]
#[x_kube(validation = ("self.type == 'DynamicModule' ? !has(self.zoneAware) : true", "ZoneAware routing is not supported for DynamicModule load balancers."))]
#[x_kube(validation = ("has(self.zoneAware) ? !(has(self.zoneAware.preferLocal) && has(self.zoneAware.weightedZones)) : true", "ZoneAware PreferLocal and WeightedZones cannot be specified together."))]
#[x_kube(validation = ("self.type == 'DynamicModule' ? !has(self.endpointOverride) : true", "EndpointOverride is not supported for DynamicModule load balancers."))]
pub struct LoadBalancer {
    /// The algorithm.
    pub type_: LoadBalancerType,
    /// Settings of `ConsistentHash`.
    pub consistent_hash: Option<ConsistentHash>,
    /// Settings of `BackendUtilization`.
    pub backend_utilization: Option<BackendUtilization>,
    /// Settings of `DynamicModule`; the module is registered in the `EnvoyProxy`.
    pub dynamic_module: Option<DynamicModuleLBPolicy>,
    /// Let requests name their endpoint; the algorithm is the fallback.
    pub endpoint_override: Option<EndpointOverride>,
    /// Raise traffic to new endpoints gradually.
    pub slow_start: Option<SlowStart>,
    /// Prefer or weight zones.
    pub zone_aware: Option<ZoneAware>,
}

open_enum! {
    /// A load balancing algorithm.
    pub enum LoadBalancerType {
        /// Maglev hashing of a property of the request.
        ConsistentHash,
        /// The less busy of two random endpoints.
        LeastRequest,
        /// Any endpoint.
        Random,
        /// Endpoints in turn.
        RoundRobin,
        /// Weights from load that endpoints report.
        BackendUtilization,
        /// A module loaded by the proxy.
        DynamicModule,
    }
}

/// What the hash is taken of.
#[skip_serializing_none]
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = ("self.type == 'Header' ? has(self.header) : !has(self.header)", "If consistent hash type is header, the header field must be set."))]
#[x_kube(validation = ("self.type == 'Headers' ? has(self.headers) : !has(self.headers)", "If consistent hash type is headers, the headers field must be set."))]
#[x_kube(validation = ("self.type == 'Cookie' ? has(self.cookie) : !has(self.cookie)", "If consistent hash type is cookie, the cookie field must be set."))]
#[x_kube(validation = ("self.type == 'QueryParams' ? has(self.queryParams) : !has(self.queryParams)", "If consistent hash type is queryParams, the queryParams field must be set."))]
pub struct ConsistentHash {
    /// The property to hash.
    pub type_: ConsistentHashType,
    /// Header to hash; superseded by `headers`.
    pub header: Option<Header>,
    /// Headers to hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// Cookie to hash.
    pub cookie: Option<Cookie>,
    /// Query parameters to hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<QueryParam>,
    /// Size of the Maglev table, a prime number up to 5000011; defaults to 65537.
    #[schemars(range(min = 2, max = 5000011), extend("default" = 65537))]
    pub table_size: Option<u64>,
}

open_enum! {
    /// Property of a request that is hashed.
    pub enum ConsistentHashType {
        /// Address of the client.
        SourceIP,
        /// One header.
        Header,
        /// Several headers.
        Headers,
        /// A cookie, which the proxy sets if need be.
        Cookie,
        /// Query parameters.
        QueryParams,
    }
}

/// A header to hash.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Header {
    /// Name of the header.
    pub name: String,
}

/// A cookie to hash.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct Cookie {
    /// Name of the cookie; the proxy creates it where a request has none.
    pub name: String,
    /// Lifetime of a created cookie.
    pub ttl: Option<Duration>,
    /// Further attributes of a created cookie.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

/// A query parameter to hash.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct QueryParam {
    /// Name of the parameter.
    pub name: String,
}

/// Weighting by ORCA load reports.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendUtilization {
    /// How long an endpoint reports before its weight counts; defaults to 10 s.
    pub blackout_period: Option<Duration>,
    /// After how long without a report a weight is dropped; defaults to 3 min.
    pub weight_expiration_period: Option<Duration>,
    /// Interval of recalculation, at least 100 ms; defaults to 1 s.
    pub weight_update_period: Option<Duration>,
    /// Weight of the error rate in percent, where 100 means 1.0.
    #[schemars(range(min = 0))]
    pub error_utilization_penalty_percent: Option<u32>,
    /// Metrics to derive utilisation from when none is reported, such as `named_metrics.foo`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metric_names_for_computing_utilization: Vec<String>,
    /// Pass load report headers on to the client; off when unset.
    #[schemars(extend("default" = false))]
    pub keep_response_headers: Option<bool>,
    /// Fetch reports over a stream of their own rather than from responses.
    pub out_of_band: Option<OutOfBandReporting>,
}

/// Load reports fetched over gRPC.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutOfBandReporting {
    /// Interval asked of endpoints; defaults to 10 s.
    #[x_kube(validation = ("duration(self) > duration('0s')", "reportingPeriod must be greater than 0"))]
    pub reporting_period: Option<Duration>,
    /// Port of the reporting service; the endpoint's own when unset.
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
    /// `:authority` of the stream; the endpoint's host when unset.
    #[schemars(length(min = 1, max = 259), regex(pattern = r"^[^\x00\n\r]*$"))]
    pub authority: Option<String>,
}

/// A load balancer in a dynamic module.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DynamicModuleLBPolicy {
    /// Name of the registered module.
    #[schemars(length(min = 1, max = 253), regex(pattern = "^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$"))]
    pub name: String,
    /// Which of the module's load balancers.
    #[schemars(length(min = 1, max = 253))]
    pub lb_policy_name: String,
    /// Configuration handed to it.
    #[serde(default)]
    #[schemars(schema_with = "crate::shared::any_value")]
    pub config: Option<Value>,
}

/// Lets requests name the endpoint to use.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointOverride {
    /// Where the address is read from, in order.
    #[schemars(length(min = 1, max = 10))]
    pub extract_from: Vec<EndpointOverrideExtractFrom>,
}

/// One source of an endpoint's address.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct EndpointOverrideExtractFrom {
    /// Header with `IP:port`, or several of them separated by commas.
    pub header: Option<String>,
}

/// Gradual start of new endpoints.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct SlowStart {
    /// How long traffic grows until the full share.
    pub window: Duration,
}

/// Distribution over zones.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneAware {
    /// Prefer endpoints in the proxy's own zone.
    pub prefer_local: Option<PreferLocalZone>,
    /// Weight of each zone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-map-keys" = ["zone"], "x-kubernetes-list-type" = "map"))]
    pub weighted_zones: Vec<WeightedZoneConfig>,
}

/// Preference of the proxy's own zone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreferLocalZone {
    /// Keep all traffic in the zone rather than balance evenly across zones.
    pub force: Option<ForceLocalZone>,
    /// Endpoints in all zones from which on the preference applies.
    pub min_endpoints_threshold: Option<u64>,
    /// Percentage of requests it applies to; 100 when unset.
    #[schemars(range(min = 0, max = 100))]
    pub percentage_enabled: Option<u32>,
}

/// Keeps traffic in the proxy's zone.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForceLocalZone {
    /// Endpoints that the zone must have for this to apply.
    pub min_endpoints_in_zone_threshold: Option<u32>,
}

/// Weight of one zone.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
pub struct WeightedZoneConfig {
    /// Name of the zone, the nodes' label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Share of traffic relative to other zones; zones not listed have 1.
    pub weight: u32,
}

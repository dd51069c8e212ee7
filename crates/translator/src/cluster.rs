//! Backends of one rule: their clusters, endpoints and shares of the requests.

use std::collections::BTreeMap;

use ir::{
    Cluster, ClusterSettings, Destination, Discovery, DnsFamily, Endpoint, Endpoints, HeaderMutation, HealthCheckAt,
    HostRewrite, LoadBalancing, Locality, Millis, Name, Origin, Probe, Secret, TlsMatch, UpstreamProtocol,
    WeightedCluster, Zones,
};

use policy::{Effective, Upstream};

use crate::{
    backend::{AppProtocol, Target},
    fleet::Fleet,
};

/// Bytes that a connection buffers before it slows its peer down.
pub(crate) const BUFFER_LIMIT: u32 = 32 * 1024;
/// Time to connect to an endpoint.
pub(crate) const CONNECT_TIMEOUT: Millis = Millis(10_000);

/// One backend of a rule with its share.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Position in the rule; -1 for a mirror.
    pub(crate) index: i32,
    pub(crate) weight: u32,
    /// None: the reference is wrong, its share is answered 500.
    pub(crate) target: Option<Target>,
    pub(crate) changes: Changes,
}

/// What filters of a backend change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) request: HeaderMutation,
    pub(crate) response: HeaderMutation,
    pub(crate) host: Option<HostRewrite>,
    /// There are filters, even if they change nothing.
    pub(crate) any: bool,
}

/// What a rule needs in xDS.
#[derive(Clone, Debug, Default)]
pub(crate) struct Built {
    pub(crate) clusters: Vec<Cluster>,
    pub(crate) endpoints: Vec<Endpoints>,
    pub(crate) secrets: Vec<Secret>,
}

/// Where the requests of a rule go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// To clusters.
    To(Destination),
    /// Nowhere: this status is the answer.
    Status(u16),
}

impl Share {
    fn ready(&self) -> Option<&Target> {
        self.target.as_ref().filter(|t| t.dynamic || !t.endpoints.is_empty())
    }
}

/// What policies say about the clusters of a rule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) policy: Option<&'a Effective>,
    /// Host that probes name when the policy names none.
    pub(crate) host: Option<&'a str>,
}

/// Builds the clusters of a rule: one for all backends where they are alike, else one for each.
pub(crate) fn build(
    fleet: &Fleet,
    rule: &str,
    origin: &Origin,
    shares: Vec<Share>,
    wishes: Wishes<'_>,
) -> (Outcome, Built) {
    let mut built = Built::default();
    let shares: Vec<Share> = shares.into_iter().filter(|s| s.weight > 0).collect();
    let invalid: u64 = shares.iter().filter(|s| s.target.is_none()).map(|s| u64::from(s.weight)).sum();
    let ready = shares.iter().filter(|s| s.ready().is_some()).count();
    let empty = shares.len() - ready - shares.iter().filter(|s| s.target.is_none()).count();
    if ready == 0 && (empty == 0 || invalid == 0) {
        return (Outcome::Status(if empty > 0 { 503 } else { 500 }), built);
    }
    let alike = |f: fn(&Target) -> (bool, AppProtocol)| {
        let mut kinds = shares.iter().filter_map(Share::ready).map(f);
        let first = kinds.next();
        kinds.all(|k| Some(k) == first)
    };
    let split = ready < shares.len()
        || shares.iter().any(|s| s.changes.any)
        || !alike(|t| (t.by_dns, t.protocol))
        || wishes.by_zone()
        || shares.len() > 1 && shares.iter().any(|s| s.target.as_ref().is_some_and(|t| t.dynamic));
    if !split {
        add(fleet, &mut built, rule.into(), rule, Some(origin), &shares, wishes);
        return (Outcome::To(Destination::Cluster(rule.into())), built);
    }
    let mut weighted = Vec::new();
    if invalid > 0 {
        weighted.push(WeightedCluster {
            cluster: ir::INVALID_BACKEND_CLUSTER.into(),
            weight: u32::try_from(invalid).unwrap_or(u32::MAX),
            request_headers: HeaderMutation::default(),
            response_headers: HeaderMutation::default(),
            host: None,
        });
    }
    for share in shares {
        let name: Name = format!("{rule}/backend/{}", share.index).into();
        add(fleet, &mut built, name.clone(), rule, Some(origin), std::slice::from_ref(&share), wishes);
        if share.target.is_some() {
            weighted.push(WeightedCluster {
                cluster: name,
                weight: share.weight,
                request_headers: share.changes.request,
                response_headers: share.changes.response,
                host: share.changes.host,
            });
        }
    }
    (Outcome::To(Destination::Weighted(weighted)), built)
}

/// Adds one cluster with its endpoints.
pub(crate) fn add(
    fleet: &Fleet,
    built: &mut Built,
    name: Name,
    rule: &str,
    origin: Option<&Origin>,
    shares: &[Share],
    wishes: Wishes<'_>,
) {
    let upstream = wishes.upstream();
    let first = shares.iter().find_map(|s| s.target.as_ref());
    let mut tls_matches: Vec<TlsMatch> = Vec::new();
    let mut localities = Vec::new();
    let several = shares.len() > 1;
    for share in shares {
        let mut locality = Locality {
            region: Some(format!("{rule}/backend/{}", share.index).into()),
            zone: None,
            weight: Some(share.weight),
            priority: 0,
            endpoints: Vec::new(),
            origin: None,
        };
        if let Some(target) = &share.target {
            locality.endpoints.clone_from(&target.endpoints);
            locality.origin = Some(target.origin.clone());
            locality.priority = u32::from(target.fallback && several);
            if let Some(tls) = target.tls.as_ref().filter(|_| !target.dynamic) {
                let of_match: Name = format!("{rule}/tls/{}", share.index.max(0)).into();
                for endpoint in &mut locality.endpoints {
                    endpoint.tls = Some(of_match.clone());
                }
                tls_matches.push(TlsMatch { name: of_match, tls: tls.clone() });
            }
            built.secrets.extend(target.secrets.iter().cloned());
            for endpoint in &mut locality.endpoints {
                endpoint.health_check = upstream
                    .filter(|u| u.settings.active_check.is_some())
                    .map(|u| HealthCheckAt { port: u.health_check_port, hostname: endpoint.hostname.clone() });
            }
            if let Some(upstream) = upstream.filter(|_| wishes.by_zone()) {
                localities.extend(zones(locality, target, &upstream.zone_weights));
                continue;
            }
        }
        localities.push(locality);
    }
    let dns_family = upstream.and_then(|u| u.dns_family).unwrap_or(fleet.dns_family());
    let dynamic = first.is_some_and(|t| t.dynamic);
    let by_dns = first.is_some_and(|t| t.by_dns);
    let tls = first.filter(|t| t.dynamic).and_then(|t| t.tls.clone());
    let encrypted = |s: &Share| s.target.as_ref().is_none_or(|t| t.tls.is_some());
    let plain = !shares.iter().all(encrypted);
    let datagrams = rule.starts_with("udp");
    let of_streams = upstream.filter(|_| !datagrams);
    let http = rule.starts_with("http") || rule.starts_with("grpc");
    // Negotiation needs TLS on every connection, and HTTP above it.
    let has_tls = http && !plain && (tls.is_some() || !tls_matches.is_empty());
    let protocol = match first.map_or(AppProtocol::Default, |t| t.protocol) {
        AppProtocol::Http2 => UpstreamProtocol::Http2,
        AppProtocol::WebSocket => UpstreamProtocol::Http1Only,
        AppProtocol::Default if has_tls => UpstreamProtocol::Auto,
        AppProtocol::Default => UpstreamProtocol::Http1,
    };
    let discovery = if dynamic {
        Discovery::Dynamic { cache: cache(dns_family, wishes) }
    } else if by_dns {
        Discovery::Dns(localities)
    } else {
        built.endpoints.push(Endpoints { cluster: name.clone(), localities });
        Discovery::Eds
    };
    built.clusters.push(Cluster {
        name,
        discovery,
        connect_timeout: of_streams.and_then(|u| u.connect_timeout).unwrap_or(CONNECT_TIMEOUT),
        protocol,
        tls,
        plain_endpoints: plain || !http,
        tls_matches,
        auto_sni: first.is_some_and(|t| t.auto_sni),
        auto_san: dynamic && first.is_some_and(|t| t.auto_sni),
        load_balancing: LoadBalancing::LeastRequestByLocality,
        buffer_limit: of_streams.and_then(|u| u.buffer_limit).unwrap_or(BUFFER_LIMIT),
        origin: origin.cloned(),
        dns_family,
        settings: wishes.settings(http, datagrams),
    });
}

/// The endpoints of a locality by their zones, in the order of the zones' names.
fn zones(locality: Locality, target: &Target, weights: &[(Name, u32)]) -> Vec<Locality> {
    let mut by_zone: BTreeMap<Option<Name>, Vec<Endpoint>> = BTreeMap::new();
    for endpoint in locality.endpoints {
        by_zone.entry(target.zones.get(&endpoint.address).cloned()).or_default().push(endpoint);
    }
    let weight = |zone: &Option<Name>| {
        let named = weights.iter().find(|(name, _)| Some(name) == zone.as_ref());
        // Without weights the proxy's own zone is preferred, whatever the others weigh.
        (!weights.is_empty()).then(|| named.map_or(1, |(_, w)| *w))
    };
    by_zone
        .into_iter()
        .map(|(zone, endpoints)| Locality {
            region: None,
            weight: weight(&zone),
            zone,
            priority: locality.priority,
            endpoints,
            origin: locality.origin.clone(),
        })
        .collect()
}

/// Name of a cache of looked-up names: what is looked up in another way has another cache.
fn cache(family: DnsFamily, wishes: Wishes<'_>) -> Name {
    let family = match family {
        DnsFamily::V4Only => "v4_only",
        DnsFamily::V4Preferred => "v4_preferred",
        DnsFamily::V6Only => "v6_only",
        DnsFamily::V6Preferred => "auto",
        DnsFamily::All => "all",
    };
    let dns = wishes.policy.zip(wishes.upstream()).filter(|(_, u)| u.has_dns);
    let refresh = dns.and_then(|(_, u)| u.settings.dns_refresh).unwrap_or(Millis(30_000)).0;
    let owner = dns.map_or_else(|| "default".to_owned(), |(p, _)| format!("{}/{}", p.policy.namespace, p.policy.name));
    format!("envoy-gateway-dfp-cache-{family}-{refresh}ms-{owner}").into()
}

// === impl Wishes ===

impl<'a> Wishes<'a> {
    fn upstream(self) -> Option<&'a Upstream> {
        self.policy.and_then(|p| p.settings.as_ref()).map(|s| &s.upstream)
    }

    /// Endpoints are told by zone, which needs a cluster for each backend.
    fn by_zone(self) -> bool {
        let balancer = self.upstream().and_then(|u| u.settings.balancer.as_ref());
        balancer.is_some_and(|b| b.zones != Zones::ByBackend)
    }

    /// Settings of a cluster; below HTTP those that are about HTTP alone are left out, for datagrams all but the choice of
    /// endpoints and the look-up of their names.
    fn settings(self, http: bool, datagrams: bool) -> ClusterSettings {
        let Some(upstream) = self.upstream() else { return ClusterSettings::default() };
        let mut settings = upstream.settings.clone();
        if datagrams {
            return ClusterSettings {
                balancer: settings.balancer,
                dns_refresh: settings.dns_refresh,
                respect_dns_ttl: settings.respect_dns_ttl,
                ..ClusterSettings::default()
            };
        }
        if http && let Some(Probe::Http(probe)) = settings.active_check.as_mut().map(|check| &mut check.probe) {
            probe.host = probe.host.take().or_else(|| self.host.map(Into::into));
        }
        if !http {
            settings.admission = None;
            settings.use_client_protocol = false;
        }
        settings
    }
}

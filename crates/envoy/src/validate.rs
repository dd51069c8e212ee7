//! What Envoy would refuse, found before it is sent.
//!
//! A refused route table or secret is refused whole, a duplicate takes a whole response with it, and Envoy's answer
//! often names neither route nor field: so each rule here names both.

use std::collections::BTreeSet;

use ir::{
    Action, ChainKind, Cluster, Destination, Discovery, EndpointAddress, Forward, HeaderMutation, Listener, Locality,
    Millis, Name, PathMatch, Route, RouteTable, SecretContent, XdsKind, XdsValue,
};

/// A resource that Envoy would refuse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?} {name}: {field}: {problem}")]
pub struct EncodeError {
    /// Type of the resource.
    pub kind: XdsKind,
    /// Name of the resource.
    pub name: Name,
    /// Route, virtual host or field inside of it.
    pub field: String,
    /// What is wrong.
    pub problem: Invalid,
}

/// Why Envoy refuses a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Must not be empty.
    #[error("must not be empty")]
    Empty,
    /// Must be more than zero.
    #[error("must be more than zero")]
    Zero,
    /// More than Envoy takes.
    #[error("{value} is more than {max}, the most that Envoy takes")]
    TooLarge {
        /// The value.
        value: u64,
        /// The largest that is taken.
        max: u64,
    },
    /// The same value twice where Envoy wants each once.
    #[error("{0:?} is there twice")]
    Duplicate(String),
    /// A header name or value with characters that HTTP does not allow there.
    #[error("{0:?} is no valid header name or value")]
    Header(String),
    /// `max` is less than `base`.
    #[error("the largest back-off is less than the base")]
    Backoff,
    /// No PEM block.
    #[error("holds no PEM block")]
    Pem,
}

/// Longest duration of protobuf: 10,000 years, in milliseconds.
const MAX_DURATION: u64 = 315_576_000_000_000;

/// Collects where in the resource the walk is.
struct At<'a> {
    kind: XdsKind,
    name: &'a Name,
}

type Checked = Result<(), EncodeError>;

pub(crate) fn resource(value: &XdsValue) -> Checked {
    let (kind, name) = value.key();
    let at = At { kind, name: &name };
    if name.is_empty() {
        return at.fails("name", Invalid::Empty);
    }
    match value {
        XdsValue::Cluster(c) => at.cluster(c),
        XdsValue::Endpoints(e) => at.localities(&e.localities),
        XdsValue::Listener(l) => at.listener(l),
        XdsValue::Ready(r) if r.port == 0 => at.fails("port", Invalid::Zero),
        XdsValue::Ready(_) => Ok(()),
        XdsValue::RouteTable(t) => at.route_table(t),
        XdsValue::Secret(s) => match &s.content {
            SecretContent::Certificate { chain, key, .. } => {
                at.pem("certificate chain", chain)?;
                at.pem("private key", key)
            }
            SecretContent::Ca { bundle, .. } if bundle.is_empty() => Ok(()),
            SecretContent::Ca { bundle, .. } => at.pem("CA bundle", bundle),
            SecretContent::CaFile(path) if path.is_empty() => at.fails("file", Invalid::Empty),
            SecretContent::CaFile(_) => Ok(()),
        },
    }
}

// === impl At ===

impl At<'_> {
    fn fails(&self, field: impl Into<String>, problem: Invalid) -> Checked {
        Err(EncodeError { kind: self.kind, name: self.name.clone(), field: field.into(), problem })
    }

    fn duration(&self, field: &str, time: Option<Millis>) -> Checked {
        match time {
            Some(Millis(value)) if value > MAX_DURATION => {
                self.fails(field, Invalid::TooLarge { value, max: MAX_DURATION })
            }
            _ => Ok(()),
        }
    }

    /// A duration that must be more than zero.
    fn positive(&self, field: &str, time: Option<Millis>) -> Checked {
        if time == Some(Millis(0)) {
            return self.fails(field, Invalid::Zero);
        }
        self.duration(field, time)
    }

    fn once(&self, field: &str, seen: &mut BTreeSet<String>, value: String) -> Checked {
        if seen.contains(&value) {
            return self.fails(field, Invalid::Duplicate(value));
        }
        seen.insert(value);
        Ok(())
    }

    fn pem(&self, field: &str, bytes: &[u8]) -> Checked {
        let marker = b"-----BEGIN ";
        if bytes.windows(marker.len()).any(|w| w == marker) { Ok(()) } else { self.fails(field, Invalid::Pem) }
    }

    fn cluster(&self, c: &Cluster) -> Checked {
        if !matches!(c.discovery, Discovery::Empty) {
            self.positive("connect time-out", Some(c.connect_timeout))?;
        }
        let mut seen = BTreeSet::new();
        for m in &c.tls_matches {
            self.once("TLS match", &mut seen, m.name.to_string())?;
        }
        match &c.discovery {
            Discovery::Static(localities) | Discovery::Dns(localities) => self.localities(localities),
            Discovery::SdsSocket { path } if path.is_empty() => self.fails("socket", Invalid::Empty),
            Discovery::Dynamic { cache } if cache.is_empty() => self.fails("DNS cache", Invalid::Empty),
            _ => Ok(()),
        }
    }

    fn localities(&self, localities: &[Locality]) -> Checked {
        let (mut localities_weight, mut seen) = (0_u64, BTreeSet::new());
        for l in localities {
            let part = |n: &Option<Name>| n.as_deref().unwrap_or_default().to_owned();
            let identity = format!("{} {} {}", part(&l.region), part(&l.zone), l.priority);
            self.once("locality", &mut seen, identity)?;
            localities_weight += u64::from(l.weight.unwrap_or(0));
            let mut weight = 0;
            for e in &l.endpoints {
                if e.weight == 0 {
                    return self.fails("endpoint weight", Invalid::Zero);
                }
                weight += u64::from(e.weight);
                match &e.address {
                    EndpointAddress::Name(name, _) | EndpointAddress::Unix(name) if name.is_empty() => {
                        return self.fails("endpoint address", Invalid::Empty);
                    }
                    _ => {}
                }
            }
            self.sum("endpoint weights", weight)?;
        }
        self.sum("locality weights", localities_weight)
    }

    /// Envoy adds weights up in 32 bits.
    fn sum(&self, field: &str, value: u64) -> Checked {
        let max = u64::from(u32::MAX);
        if value > max { self.fails(field, Invalid::TooLarge { value, max }) } else { Ok(()) }
    }

    fn listener(&self, l: &Listener) -> Checked {
        if l.port == 0 {
            return self.fails("port", Invalid::Zero);
        }
        if l.udp.is_none() && l.chains.is_empty() && l.default_chain.is_none() {
            return self.fails("filter chains", Invalid::Empty);
        }
        let (mut names, mut server_names) = (BTreeSet::new(), BTreeSet::new());
        for chain in l.chains.iter().chain(&l.default_chain) {
            self.once("filter chain", &mut names, chain.name.to_string())?;
            if let ChainKind::Tcp(tcp) = &chain.kind {
                self.duration(&chain.name, tcp.idle_timeout)?;
                if tcp.clusters.is_empty() {
                    return self.fails(&*chain.name, Invalid::Empty);
                }
                self.sum(&chain.name, tcp.clusters.iter().map(|(_, w)| u64::from(*w)).sum())?;
            }
        }
        for chain in &l.chains {
            if chain.server_names.is_empty() {
                self.once("server name", &mut server_names, "any".to_owned())?;
            }
            for name in &chain.server_names {
                self.once("server name", &mut server_names, name.to_ascii_lowercase())?;
            }
        }
        Ok(())
    }

    fn route_table(&self, t: &RouteTable) -> Checked {
        let (mut names, mut domains) = (BTreeSet::new(), BTreeSet::new());
        for host in &t.virtual_hosts {
            self.once("virtual host", &mut names, host.name.to_string())?;
            if host.domains.is_empty() {
                return self.fails(&*host.name, Invalid::Empty);
            }
            for domain in &host.domains {
                self.once(&host.name, &mut domains, domain.to_ascii_lowercase())?;
            }
            for route in &host.routes {
                self.route(route)?;
            }
        }
        Ok(())
    }

    fn route(&self, r: &Route) -> Checked {
        match &r.matches.path {
            PathMatch::Prefix(p) | PathMatch::SeparatedPrefix(p) | PathMatch::Exact(p) | PathMatch::Regex(p)
                if p.is_empty() =>
            {
                return self.fails(format!("route {}: path", r.name), Invalid::Empty);
            }
            _ => {}
        }
        for name in r.matches.headers.iter().chain(&r.matches.query).map(|(name, _)| name) {
            if name.is_empty() {
                return self.fails(format!("route {}: match", r.name), Invalid::Empty);
            }
        }
        self.headers(&r.name, &r.request_headers)?;
        self.headers(&r.name, &r.response_headers)?;
        match &r.action {
            Action::Forward(f) => self.forward(&r.name, f),
            Action::Respond { status, .. } if !(200..600).contains(status) => {
                self.fails(format!("route {}: status", r.name), Invalid::TooLarge { value: (*status).into(), max: 599 })
            }
            Action::Redirect(_) | Action::Respond { .. } => Ok(()),
        }
    }

    fn forward(&self, route: &str, f: &Forward) -> Checked {
        self.duration(route, f.timeout)?;
        self.duration(route, f.idle_timeout)?;
        match &f.to {
            Destination::Cluster(name) if name.is_empty() => return self.fails(route, Invalid::Empty),
            Destination::Cluster(_) => {}
            Destination::Weighted(clusters) => {
                let weight: u64 = clusters.iter().map(|c| u64::from(c.weight)).sum();
                if weight == 0 {
                    return self.fails(format!("route {route}: weights"), Invalid::Zero);
                }
                self.sum(&format!("route {route}: weights"), weight)?;
                for c in clusters {
                    self.headers(route, &c.request_headers)?;
                    self.headers(route, &c.response_headers)?;
                }
            }
        }
        if let Some(retry) = &f.retry {
            self.duration(route, retry.per_try_timeout)?;
            self.positive(&format!("route {route}: back-off"), retry.backoff_base)?;
            self.positive(&format!("route {route}: back-off"), retry.backoff_max)?;
            if retry.backoff_max.is_some_and(|max| retry.backoff_base.is_some_and(|base| max < base)) {
                return self.fails(format!("route {route}: back-off"), Invalid::Backoff);
            }
        }
        Ok(())
    }

    fn headers(&self, route: &str, m: &HeaderMutation) -> Checked {
        let bad_value = |v: &str| v.contains(['\r', '\n', '\0']);
        let mut names = m.add.iter().map(|h| &h.name).chain(&m.remove);
        let wrong = names.find(|n| !header_name(n)).or_else(|| m.add.iter().map(|h| &h.value).find(|v| bad_value(v)));
        match wrong {
            Some(text) => self.fails(format!("route {route}: headers"), Invalid::Header(text.to_string())),
            None => Ok(()),
        }
    }
}

/// A token of RFC 9110, or a pseudo-header.
fn header_name(name: &str) -> bool {
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    let rest = name.strip_prefix(':').unwrap_or(name);
    !rest.is_empty() && rest.chars().all(token)
}

//! Who answers a request: route tables read as Envoy reads them.

use ir::{Action, Destination, PathMatch, Route, RouteMatch, RouteTable, StringMatch, VirtualHost, XdsKind, XdsValue};

/// A request without a body.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub host: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub headers: Vec<(&'a str, &'a str)>,
    pub query: Vec<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    pub fn get(host: &'a str, path: &'a str) -> Self {
        Self { host, method: "GET", path, headers: Vec::new(), query: Vec::new() }
    }

    pub fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// The route that takes a request, if any does.
pub fn taken_by<'t>(table: &'t RouteTable, request: &Request<'_>) -> Option<&'t Route> {
    let host = virtual_host(table, request.host)?;
    host.routes.iter().find(|r| matches(&r.matches, request))
}

fn virtual_host<'t>(table: &'t RouteTable, host: &str) -> Option<&'t VirtualHost> {
    let closeness = |domain: &str| {
        if domain == host {
            Some((2, domain.len()))
        } else if domain == "*" {
            Some((0, 0))
        } else {
            let suffix = domain.strip_prefix('*')?;
            (host.len() > suffix.len() && host.ends_with(suffix)).then_some((1, suffix.len()))
        }
    };
    let all = table.virtual_hosts.iter().flat_map(|v| v.domains.iter().map(move |d| (v, d)));
    all.filter_map(|(v, d)| closeness(d).map(|c| (c, v))).max_by_key(|(c, _)| *c).map(|(_, v)| &**v)
}

fn matches(m: &RouteMatch, r: &Request<'_>) -> bool {
    let path = match &m.path {
        PathMatch::Prefix(p) => r.path.starts_with(&**p),
        PathMatch::SeparatedPrefix(p) => {
            r.path.strip_prefix(&**p).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        PathMatch::Exact(p) => r.path == &**p,
        PathMatch::Regex(p) => whole(p, r.path),
        PathMatch::Connect => r.method == "CONNECT",
    };
    let method = m.method.as_deref().is_none_or(|m| m == r.method);
    let value = |list: &[(&str, &str)], name: &str| {
        list.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| (*v).to_owned())
    };
    let all = |wanted: &[(ir::Name, StringMatch)], given: &[(&str, &str)]| {
        wanted.iter().all(|(name, m)| {
            let found = if &**name == ":path" { Some(r.path.to_owned()) } else { value(given, name) };
            found.is_some_and(|v| text(m, &v))
        })
    };
    path && method && all(&m.headers, &r.headers) && all(&m.query, &r.query)
}

fn text(m: &StringMatch, v: &str) -> bool {
    match m {
        StringMatch::Exact(e) => v == &**e,
        StringMatch::Regex(e) => whole(e, v),
        StringMatch::Prefix(e) => v.starts_with(&**e),
        StringMatch::Suffix(e) => v.ends_with(&**e),
        StringMatch::Contains(e) => v.contains(&**e),
    }
}

fn whole(pattern: &str, text: &str) -> bool {
    regex::Regex::new(&format!("^(?:{pattern})$")).expect("a pattern").is_match(text)
}

/// The route table of a group's only plain HTTP port.
pub fn table<'f>(full: &'f ir::Full, group: &str) -> &'f RouteTable {
    let resources = &full.groups[group].resources;
    let mut tables = resources.iter().filter(|((k, _), _)| *k == XdsKind::RouteTable);
    match tables.next().expect("a route table").1 {
        XdsValue::RouteTable(t) => t,
        other => panic!("{other:?}"),
    }
}

/// The answer in short: `404`, `status 503`, `redirect 302`, the cluster, or `a 70, b 30`.
pub fn answer(full: &ir::Full, request: &Request<'_>) -> String {
    let Some(route) = taken_by(table(full, "infra/gw"), request) else { return "404".to_owned() };
    match &route.action {
        Action::Respond { status, .. } => format!("status {status}"),
        Action::Redirect(r) => format!("redirect {}", r.status),
        Action::Forward(f) => match &f.to {
            Destination::Cluster(c) => served(full, c),
            Destination::Weighted(all) => {
                all.iter().map(|w| format!("{} {}", served(full, &w.cluster), w.weight)).collect::<Vec<_>>().join(", ")
            }
        },
    }
}

/// The Services behind a cluster; `503` for one without endpoints, `500` for one that does not exist.
fn served(full: &ir::Full, cluster: &ir::Name) -> String {
    let resources = &full.groups["infra/gw"].resources;
    let Some(XdsValue::Endpoints(e)) = resources.get(&(XdsKind::Endpoints, cluster.clone())) else {
        return "500".to_owned();
    };
    let names: Vec<_> = e
        .localities
        .iter()
        .filter(|l| !l.endpoints.is_empty())
        .filter_map(|l| l.origin.as_ref())
        .map(|o| o.name.to_string())
        .collect();
    if names.is_empty() { "503".to_owned() } else { names.join("+") }
}

//! A translation as text, for golden files: short, and complete in what the translator decides.

use std::fmt::Write as _;

use ir::{
    Action, ChainKind, Destination, Discovery, EndpointAddress, Full, HeaderMutation, HostRewrite, Locality, PathMatch,
    PathRewrite, RedirectPath, Route, RouteMatch, StringMatch, XdsValue,
};

pub fn of(full: &Full) -> String {
    let mut out = String::new();
    for (name, group) in &full.groups {
        let _ = writeln!(out, "group {name}");
        for value in group.resources.values() {
            resource(&mut out, value);
        }
    }
    for (name, fleet) in &full.infra {
        let ports: Vec<_> = fleet
            .ports
            .iter()
            .map(|p| format!("{}->{} {} {:?}", p.service_port, p.container_port, p.name, p.protocol))
            .collect();
        let _ = writeln!(out, "fleet {name}: {}", ports.join(", "));
    }
    for (key, status) in &full.statuses {
        let _ = writeln!(out, "status {key}");
        status_lines(&mut out, status);
    }
    out
}

fn resource(out: &mut String, value: &XdsValue) {
    match value {
        XdsValue::Cluster(c) => {
            let discovery = match &c.discovery {
                Discovery::Static(l) => format!("static {}", localities(l)),
                Discovery::Dns(l) => format!("dns {}", localities(l)),
                Discovery::Dynamic { .. } => "dynamic".to_owned(),
                Discovery::Eds => "eds".to_owned(),
                Discovery::Empty => "empty".to_owned(),
                Discovery::SdsSocket { path } => format!("sds {path}"),
            };
            let _ = write!(out, "  cluster {} {discovery} {:?}", c.name, c.protocol);
            for m in &c.tls_matches {
                let _ = write!(out, " tls {} sni {:?} ca {:?}", m.name, m.tls.sni.as_deref(), m.tls.ca.as_deref());
            }
            out.push('\n');
        }
        XdsValue::Endpoints(e) => {
            let _ = writeln!(out, "  endpoints {} {}", e.cluster, localities(&e.localities));
        }
        XdsValue::Listener(l) => {
            let _ = writeln!(out, "  listener {} {}:{} {:?}", l.name, l.address, l.port, l.protocol);
            for c in l.chains.iter().chain(&l.default_chain) {
                let kind = match &c.kind {
                    ChainKind::Http(h) => {
                        format!("http {} table {} filters {:?}", h.stat_prefix, h.route_table, h.filters)
                    }
                    ChainKind::Tcp(t) => format!("tcp {} {:?}", t.stat_prefix, t.clusters),
                };
                let _ = write!(out, "    chain {} {:?} {kind}", c.name, c.server_names);
                if let Some(tls) = &c.tls {
                    let _ = write!(
                        out,
                        " tls {:?} alpn {:?} client ca {:?} required {}",
                        tls.certificates,
                        tls.alpn,
                        tls.client_ca.as_deref(),
                        tls.require_client_certificate
                    );
                }
                out.push('\n');
            }
            if let Some(u) = &l.udp {
                let _ = writeln!(out, "    udp {}", u.cluster);
            }
        }
        XdsValue::Ready(r) => {
            let _ = writeln!(out, "  ready {}:{}", r.address, r.port);
        }
        XdsValue::RouteTable(t) => {
            let _ = writeln!(out, "  table {}", t.name);
            for h in &t.virtual_hosts {
                let _ = writeln!(out, "    host {} {:?}", h.name, h.domains);
                for r in &h.routes {
                    let _ = writeln!(out, "      {}", route(r));
                }
            }
        }
        XdsValue::Secret(s) => {
            let _ = writeln!(out, "  secret {} {:?}", s.name, s.content);
        }
    }
}

fn localities(all: &[Locality]) -> String {
    let one = |l: &Locality| {
        let endpoints: Vec<_> = l
            .endpoints
            .iter()
            .map(|e| {
                let address = match &e.address {
                    EndpointAddress::Socket(ip, port) => format!("{ip}:{port}"),
                    EndpointAddress::Name(name, port) => format!("{name}:{port}"),
                    EndpointAddress::Unix(path) => path.to_string(),
                };
                if e.draining { format!("{address} draining") } else { address }
            })
            .collect();
        let place = l.region.as_deref().or(l.zone.as_deref()).unwrap_or_default();
        let place = place.rsplit("/backend/").next().unwrap_or_default();
        format!("[{place} x{} p{}: {}]", l.weight.unwrap_or(0), l.priority, endpoints.join(" "))
    };
    all.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn text(m: &StringMatch) -> String {
    match m {
        StringMatch::Exact(v) => format!("={v}"),
        StringMatch::Regex(v) => format!("~{v}"),
        StringMatch::Prefix(v) => format!("={v}*"),
        StringMatch::Suffix(v) => format!("=*{v}"),
        StringMatch::Contains(v) => format!("=*{v}*"),
    }
}

fn conditions(m: &RouteMatch) -> String {
    let mut out = match &m.path {
        PathMatch::Prefix(p) => format!("{p}*"),
        PathMatch::SeparatedPrefix(p) => format!("{p}/*"),
        PathMatch::Exact(p) => p.to_string(),
        PathMatch::Regex(p) => format!("~{p}"),
        PathMatch::Connect => "CONNECT".to_owned(),
    };
    if let Some(m) = &m.method {
        let _ = write!(out, " method={m}");
    }
    for (n, m) in &m.headers {
        let _ = write!(out, " {n}{}", text(m));
    }
    for (n, m) in &m.query {
        let _ = write!(out, " ?{n}{}", text(m));
    }
    out
}

fn headers(out: &mut String, what: &str, m: &HeaderMutation) {
    for h in &m.add {
        let _ = write!(out, " {what}{}{}:{}", if h.overwrite { "=" } else { "+" }, h.name, h.value);
    }
    for h in &m.remove {
        let _ = write!(out, " {what}-{h}");
    }
}

fn host(out: &mut String, h: Option<&HostRewrite>) {
    match h {
        Some(HostRewrite::Literal(n)) => _ = write!(out, " host={n}"),
        Some(HostRewrite::Header(n)) => _ = write!(out, " host=header {n}"),
        Some(HostRewrite::Endpoint) => out.push_str(" host=endpoint"),
        None => {}
    }
}

fn route(r: &Route) -> String {
    let mut out = format!("{}: {} =>", r.name, conditions(&r.matches));
    match &r.action {
        Action::Respond { status, body } => _ = write!(out, " {status} {:?}", body.as_deref()),
        Action::Redirect(d) => {
            let _ =
                write!(out, " redirect {} {:?} {:?} {:?}", d.status, d.scheme.as_deref(), d.host.as_deref(), d.port);
            match &d.path {
                Some(RedirectPath::Full(p)) => _ = write!(out, " path={p}"),
                Some(RedirectPath::Prefix(p)) => _ = write!(out, " prefix={p}"),
                Some(RedirectPath::Regex { pattern, substitution }) => _ = write!(out, " s/{pattern}/{substitution}/"),
                None => {}
            }
        }
        Action::Forward(f) => {
            match &f.to {
                Destination::Cluster(c) => _ = write!(out, " {c}"),
                Destination::Weighted(all) => {
                    for w in all {
                        let _ = write!(out, " {{{} x{}", w.cluster, w.weight);
                        headers(&mut out, "req", &w.request_headers);
                        headers(&mut out, "resp", &w.response_headers);
                        host(&mut out, w.host.as_ref());
                        out.push('}');
                    }
                }
            }
            match &f.path {
                Some(PathRewrite::Prefix(p)) => _ = write!(out, " prefix={p}"),
                Some(PathRewrite::Regex { pattern, substitution }) => _ = write!(out, " s/{pattern}/{substitution}/"),
                None => {}
            }
            host(&mut out, f.host.as_ref());
            for m in &f.mirrors {
                let _ = write!(out, " mirror {} {:?}", m.cluster, m.fraction.map(|f| (f.numerator, f.denominator)));
            }
            if let Some(t) = f.timeout {
                let _ = write!(out, " timeout={}ms idle={:?}", t.0, f.idle_timeout.map(|i| i.0));
            }
            if let Some(r) = &f.retry {
                let _ = write!(
                    out,
                    " retry {:?} {:?} each={:?} base={:?}",
                    r.attempts,
                    r.status_codes,
                    r.per_try_timeout.map(|t| t.0),
                    r.backoff_base.map(|t| t.0)
                );
            }
        }
    }
    headers(&mut out, "req", &r.request_headers);
    headers(&mut out, "resp", &r.response_headers);
    if let Some(c) = &r.cors {
        let _ = write!(out, " cors {:?} {:?} {:?}", c.allow_origins, c.allow_methods, c.max_age.map(|m| m.0));
    }
    if let Some(s) = &r.session {
        let _ = write!(out, " session {s:?}");
    }
    if let Some(section) = &r.origin.section {
        let _ = write!(out, " rule {section}");
    }
    out
}

fn status_lines(out: &mut String, status: &ir::Status) {
    fn conditions(out: &mut String, indent: &str, all: &[ir::Condition]) {
        for c in all {
            let _ = writeln!(
                out,
                "{indent}{}={} {}: {}",
                c.kind,
                c.status.as_str(),
                c.reason,
                c.message.replace('\n', " | ")
            );
        }
    }
    match status {
        ir::Status::GatewayClass { conditions: c } | ir::Status::Plain { conditions: c } => conditions(out, "  ", c),
        ir::Status::Gateway { conditions: c, listeners, attached_listener_sets } => {
            conditions(out, "  ", c);
            for l in listeners {
                let kinds: Vec<_> = l.supported_kinds.iter().map(|(_, k)| &**k).collect();
                let _ = writeln!(out, "  listener {} attached {} kinds {}", l.name, l.attached_routes, kinds.join(","));
                for c in &l.conditions {
                    let _ = writeln!(out, "    {}={} {}: {}", c.kind, c.status.as_str(), c.reason, c.message);
                }
            }
            if let Some(n) = attached_listener_sets {
                let _ = writeln!(out, "  listener sets {n}");
            }
        }
        ir::Status::EnvoyProxy { ancestors } => {
            for a in ancestors {
                let _ = writeln!(out, "  ancestor {}", a.ancestor_ref.name);
                conditions(out, "    ", &a.conditions);
            }
        }
        ir::Status::Route { parents } | ir::Status::Policy { ancestors: parents } => {
            for p in parents {
                let r = &p.parent;
                let place = [r.namespace.as_deref(), Some(&*r.name), r.section_name.as_deref()];
                let place: Vec<_> = place.into_iter().flatten().collect();
                let port = r.port.map(|p| format!(":{p}")).unwrap_or_default();
                let _ = writeln!(out, "  parent {}{port}", place.join("/"));
                for c in &p.conditions {
                    let message = c.message.replace('\n', " | ");
                    let _ = writeln!(out, "    {}={} {}: {message}", c.kind, c.status.as_str(), c.reason);
                }
            }
        }
    }
}

//! `egctl status`: conditions of objects, as a cluster or a gateway on this machine tells them.

use anyhow::{Result, bail};
use resources::Kind;
use serde_json::Value;

use crate::{
    admin,
    cli::{Status, StatusFormat, Streams},
    cluster::{Cluster, Listed},
    config::names,
    output::{self, Format},
};

/// Kinds that a group of kinds stands for.
const ROUTES: [&str; 5] = ["HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"];
const POLICIES: [&str; 6] = [
    "BackendTLSPolicy",
    "BackendTrafficPolicy",
    "ClientTrafficPolicy",
    "EnvoyExtensionPolicy",
    "EnvoyPatchPolicy",
    "SecurityPolicy",
];
/// Short names, as in kubectl.
const SHORT: [(&str, &str); 14] = [
    ("gc", "GatewayClass"),
    ("gtw", "Gateway"),
    ("gw", "Gateway"),
    ("ls", "ListenerSet"),
    ("hr", "HTTPRoute"),
    ("gr", "GRPCRoute"),
    ("btlsp", "BackendTLSPolicy"),
    ("btp", "BackendTrafficPolicy"),
    ("ctp", "ClientTrafficPolicy"),
    ("eep", "EnvoyExtensionPolicy"),
    ("epp", "EnvoyPatchPolicy"),
    ("ep", "EnvoyProxy"),
    ("sp", "SecurityPolicy"),
    ("be", "Backend"),
];

/// Kinds that have a status.
const KINDS: [Kind; 16] = [
    Kind::GatewayClass,
    Kind::Gateway,
    Kind::ListenerSet,
    Kind::HttpRoute,
    Kind::GrpcRoute,
    Kind::TlsRoute,
    Kind::TcpRoute,
    Kind::UdpRoute,
    Kind::BackendTlsPolicy,
    Kind::BackendTrafficPolicy,
    Kind::ClientTrafficPolicy,
    Kind::SecurityPolicy,
    Kind::EnvoyExtensionPolicy,
    Kind::EnvoyPatchPolicy,
    Kind::EnvoyProxy,
    Kind::Backend,
];

pub(crate) async fn run(args: &Status, streams: &mut Streams<'_>) -> Result<bool> {
    if !KINDS.iter().any(|k| wanted(args, k.as_str())) {
        let kinds: Vec<String> = KINDS.iter().map(|k| k.as_str().to_ascii_lowercase()).collect();
        bail!("no kind with a status is called {}; there are all, xroute, xpolicy, {}", args.kind, kinds.join(", "));
    }
    let mut complete = true;
    let objects: Vec<Value> = match &args.admin {
        Some(address) => {
            let answer = admin::get(address, "/api/status", args.reach.request_timeout).await?;
            let all = answer.as_array().into_iter().flatten().filter(|o| wanted(args, text(o, "/kind")));
            all.filter(|o| args.namespace.as_deref().is_none_or(|n| text(o, "/metadata/namespace") == n))
                .cloned()
                .collect()
        }
        None => of_cluster(args, streams, &mut complete).await?,
    };
    let text = match args.output {
        StatusFormat::Table => table(&objects, args),
        StatusFormat::Yaml => output::several(&objects, Format::Yaml)?,
        StatusFormat::Json => output::several(&objects, Format::Json)?,
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(complete)
}

/// The objects of a cluster with what belongs to a status.
async fn of_cluster(args: &Status, streams: &mut Streams<'_>, complete: &mut bool) -> Result<Vec<Value>> {
    let cluster = Cluster::open(&args.reach).await?;
    let own = args.namespace.as_deref().unwrap_or(&cluster.namespace);
    let namespace = (!args.all_namespaces).then_some(own);
    let kinds: Vec<Kind> = KINDS.into_iter().filter(|k| wanted(args, k.as_str())).collect();
    let mut out = Vec::new();
    for kind in &kinds {
        let listed = Listed {
            kind: kind.as_str(),
            group: kind.group(),
            versions: kind.versions(),
            namespaced: kind.is_namespaced(),
        };
        match cluster.list(listed, namespace).await {
            Ok(Some(objects)) => out.extend(objects.iter().map(|o| {
                serde_json::json!({
                    "apiVersion": o["apiVersion"], "kind": o["kind"],
                    "metadata": {"name": o["metadata"]["name"], "namespace": o["metadata"]["namespace"]},
                    "status": o["status"],
                })
            })),
            Ok(None) if kinds.len() == 1 => bail!(
                "the cluster does not have {kind}: the definition of {} is missing, or none of its versions {} is served",
                kind.group(),
                kind.versions().join(", ")
            ),
            // Few clusters have every kind.
            Ok(None) => writeln!(streams.err, "left out: the cluster does not have {kind} ({})", kind.group())?,
            Err(e) if kinds.len() == 1 => return Err(e),
            Err(e) => {
                writeln!(streams.err, "left out: {kind}: {e:#}")?;
                *complete = false;
                if out.is_empty() && e.downcast_ref::<kube::Error>().is_none() {
                    // A server that does not answer does not answer to the next question either.
                    return Err(e);
                }
            }
        }
    }
    Ok(out)
}

fn wanted(args: &Status, kind: &str) -> bool {
    let asked = args.kind.to_ascii_lowercase();
    match &*asked {
        "all" => true,
        "xroute" => ROUTES.contains(&kind),
        "xpolicy" => POLICIES.contains(&kind),
        _ => SHORT.iter().any(|(short, long)| *short == asked && *long == kind) || names(kind, &asked),
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// One row per condition: object, whose condition it is (listener, parent, ancestor), type, status, reason.
fn table(objects: &[Value], args: &Status) -> String {
    let mut rows = vec![
        vec!["KIND", "NAMESPACE", "NAME", "OF", "TYPE", "STATUS", "REASON"].into_iter().map(str::to_owned).collect(),
    ];
    if args.verbose {
        let header: &mut Vec<String> = &mut rows[0];
        header.push("MESSAGE".to_owned());
    }
    for object in objects {
        let none = serde_json::json!({"type": "-", "status": "-", "reason": "NoStatus", "message": "no controller has answered"});
        let mut all = conditions(&object["status"], args.quiet);
        if all.is_empty() {
            all.push((String::new(), &none));
        }
        for (of, condition) in all {
            let mut row: Vec<String> = [
                text(object, "/kind"),
                text(object, "/metadata/namespace"),
                text(object, "/metadata/name"),
                &of,
                text(condition, "/type"),
                text(condition, "/status"),
                text(condition, "/reason"),
            ]
            .map(str::to_owned)
            .to_vec();
            if args.verbose {
                row.push(text(condition, "/message").to_owned());
            }
            rows.push(row);
        }
    }
    aligned(&rows)
}

/// All conditions of a status with the part that they are of; with `quiet`, the last one of each part.
fn conditions(status: &Value, quiet: bool) -> Vec<(String, &Value)> {
    let mut out = Vec::new();
    let take = |part: &Value| {
        let count = part["conditions"].as_array().map_or(0, Vec::len);
        if quiet { count.saturating_sub(1) } else { 0 }
    };
    out.extend(listed(status, String::new(), take(status)));
    for (list, name) in [("listeners", "/name"), ("parents", "/parentRef"), ("ancestors", "/ancestorRef")] {
        for part in status[list].as_array().into_iter().flatten() {
            let of = match list {
                "listeners" => format!("listener {}", text(part, name)),
                _ => reference(&part[&name[1..]]),
            };
            out.extend(listed(part, of, take(part)));
        }
    }
    out
}

fn listed(part: &Value, of: String, skip: usize) -> impl Iterator<Item = (String, &Value)> {
    part["conditions"].as_array().into_iter().flatten().skip(skip).map(move |c| (of.clone(), c))
}

/// A reference as `Kind namespace/name/section`.
fn reference(r: &Value) -> String {
    let mut out = r["kind"].as_str().unwrap_or("Gateway").to_owned();
    out.push(' ');
    for field in ["namespace", "name", "sectionName"] {
        if let Some(part) = r[field].as_str() {
            if !out.ends_with(' ') {
                out.push('/');
            }
            out.push_str(part);
        }
    }
    out
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().map(|r| r.get(c).map_or(0, |t| t.chars().count())).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        out.push_str(cells.join("   ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::cli::{Cli, Command};

    fn args(args: &[&str]) -> Status {
        let cli = Cli::try_parse_from(["egctl", "status"].iter().chain(args)).unwrap();
        let Command::Status(status) = cli.command else { panic!("status") };
        status
    }

    fn objects() -> Vec<Value> {
        let condition =
            |t: &str, s: &str| json!({"type": t, "status": s, "reason": format!("{t}Reason"), "message": "why"});
        vec![
            json!({"kind": "Gateway", "metadata": {"name": "g", "namespace": "a"}, "status": {
                "conditions": [condition("Accepted", "True")],
                "listeners": [{"name": "http", "conditions": [condition("Accepted", "True"), condition("Programmed", "False")]}],
            }}),
            json!({"kind": "HTTPRoute", "metadata": {"name": "r", "namespace": "a"}, "status": {"parents": [
                {"parentRef": {"name": "g", "sectionName": "http"}, "conditions": [condition("Accepted", "True")]},
            ]}}),
        ]
    }

    #[test]
    fn every_condition_is_a_row() {
        assert_eq!(
            table(&objects(), &args(&[])),
            "\
KIND        NAMESPACE   NAME   OF               TYPE         STATUS   REASON
Gateway     a           g                       Accepted     True     AcceptedReason
Gateway     a           g      listener http    Accepted     True     AcceptedReason
Gateway     a           g      listener http    Programmed   False    ProgrammedReason
HTTPRoute   a           r      Gateway g/http   Accepted     True     AcceptedReason
"
        );
    }

    #[test]
    fn quiet_shows_the_last_condition_and_verbose_the_message() {
        let text = table(&objects(), &args(&["-q", "-v"]));
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().all(|l| l.ends_with("MESSAGE") || l.ends_with("why")), "{text}");
    }

    #[test]
    fn kinds_by_name_short_name_plural_and_group() {
        for (asked, kind) in [
            ("httproute", "HTTPRoute"),
            ("httproutes", "HTTPRoute"),
            ("hr", "HTTPRoute"),
            ("xroute", "UDPRoute"),
            ("gatewayclasses", "GatewayClass"),
            ("securitypolicies", "SecurityPolicy"),
            ("xpolicy", "BackendTLSPolicy"),
            ("all", "Backend"),
        ] {
            assert!(wanted(&args(&[asked]), kind), "{asked}");
        }
        assert!(!wanted(&args(&["gateway"]), "GatewayClass"));
        assert!(!wanted(&args(&["xroute"]), "Gateway"));
    }
}

//! `egctl status`: conditions of the objects of a gateway that runs.

use anyhow::Result;
use serde_json::Value;

use crate::{
    admin,
    cli::{Status, StatusFormat, Streams},
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

pub(crate) fn run(args: &Status, streams: &mut Streams<'_>) -> Result<bool> {
    let answer = admin::get(&args.admin, "/api/status")?;
    let objects: Vec<Value> = answer
        .as_array()
        .into_iter()
        .flatten()
        .filter(|o| wanted(args, text(o, "/kind")))
        .filter(|o| args.namespace.as_deref().is_none_or(|n| text(o, "/metadata/namespace") == n))
        .cloned()
        .collect();
    let text = match args.output {
        StatusFormat::Table => table(&objects, args),
        StatusFormat::Yaml => output::several(&objects, Format::Yaml)?,
        StatusFormat::Json => output::several(&objects, Format::Json)?,
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(true)
}

fn wanted(args: &Status, kind: &str) -> bool {
    let asked = args.kind.to_ascii_lowercase();
    match &*asked {
        "all" => true,
        "xroute" => ROUTES.contains(&kind),
        "xpolicy" => POLICIES.contains(&kind),
        _ => {
            let kind = kind.to_ascii_lowercase();
            let long = SHORT.iter().find(|(short, _)| *short == asked).map(|(_, long)| long.to_ascii_lowercase());
            // Singular or plural.
            long.is_some_and(|l| l == kind)
                || asked == kind
                || asked.strip_suffix('s') == Some(&*kind)
                || asked.strip_suffix("es") == Some(&*kind)
                || asked.strip_suffix("ies").is_some_and(|stem| kind.strip_suffix('y') == Some(stem))
        }
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
        for (of, condition) in conditions(&object["status"], args.quiet) {
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

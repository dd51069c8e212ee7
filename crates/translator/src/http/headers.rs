//! Changes to headers.

use std::collections::BTreeSet;

use api::gateway::HTTPHeaderFilter;
use ir::{HeaderAdd, HeaderMutation};

use crate::condition::Problem;

/// Reads a header modifier. A header that is both added and set is added; of headers that are named twice, in whatever
/// case, the first counts.
///
/// # Errors
/// A header that Envoy does not let anyone change would make it refuse the whole route table.
pub(super) fn mutation(filter: &HTTPHeaderFilter, field: &str) -> Result<HeaderMutation, Problem> {
    let mut out = HeaderMutation::default();
    let mut named = BTreeSet::new();
    let all = [("add", &filter.add, false), ("set", &filter.set, true)];
    for (list, headers, overwrite) in all {
        for (i, header) in headers.iter().enumerate() {
            changeable(&header.name, &format!("{field}.{list}[{i}].name"))?;
            if named.insert(header.name.to_ascii_lowercase()) {
                let (name, value) = (header.name.as_str().into(), escape(&header.value).into());
                out.add.push(HeaderAdd { name, value, overwrite });
            }
        }
    }
    let mut removed = BTreeSet::new();
    for (i, name) in filter.remove.iter().enumerate() {
        changeable(name, &format!("{field}.remove[{i}]"))?;
        if removed.insert(name.to_ascii_lowercase()) {
            out.remove.push(name.as_str().into());
        }
    }
    Ok(out)
}

fn changeable(name: &str, field: &str) -> Result<(), Problem> {
    let problem = |text: String| Err(Problem::value("UnsupportedValue", format!("{field}: {text}")));
    if name.is_empty() {
        return problem("a header needs a name".to_owned());
    }
    if name.contains([':', '/']) {
        return problem(format!("header {name} cannot be changed: a name with : or / is reserved"));
    }
    if name.eq_ignore_ascii_case("host") {
        return problem("the host header cannot be changed here; use a URLRewrite filter with hostname".to_owned());
    }
    Ok(())
}

/// A value may hold commands such as `%REQ(host)%`, which Envoy fills in. A `%` that begins none is sent as it is:
/// Envoy would refuse the whole route table for it.
fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with("%%") { 2 } else { command(rest).unwrap_or(0) };
        if length == 0 {
            out.push_str("%%");
            rest = &rest[1..];
        } else {
            out.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    out + rest
}

/// Length of the command that the text begins with, if Envoy knows it.
fn command(text: &str) -> Option<usize> {
    let body = &text[1..];
    let name_end = body.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))?;
    let name = &body[..name_end];
    let mut rest = &body[name_end..];
    let argument = if let Some(inner) = rest.strip_prefix('(') {
        let end = inner.find(')')?;
        rest = &inner[end + 1..];
        Some(&inner[..end])
    } else {
        None
    };
    // Only what takes a name can be cut to a length.
    if let (Some(digits), true) = (rest.strip_prefix(':'), argument.is_some() && name != "START_TIME") {
        let end = digits.find(|c: char| !c.is_ascii_digit())?;
        if end == 0 || end > 5 {
            return None;
        }
        rest = &digits[end..];
    }
    rest.strip_prefix('%')?;
    let plain = |a: &str| a.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let fine = match (name, argument) {
        ("REQ" | "RESP", Some(a)) => {
            let mut names = a.split('?');
            let header = |n: &str| !n.is_empty() && plain(n.strip_prefix(':').unwrap_or(n));
            names.next().is_some_and(header) && names.next().is_none_or(header) && names.next().is_none()
        }
        ("DYNAMIC_METADATA", Some(a)) => !a.is_empty() && a.split(':').all(plain),
        ("FILTER_STATE" | "QUERY_PARAM", Some(a)) => !a.is_empty() && plain(a),
        ("START_TIME", Some(_)) => true,
        (name, None) => PLAIN_COMMANDS.contains(&name),
        _ => false,
    };
    fine.then(|| text.len() - rest.len() + 1)
}

/// Commands without an argument.
#[rustfmt::skip]
const PLAIN_COMMANDS: &[&str] = &[
    "BYTES_RECEIVED", "CONNECTION_ID", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS", "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT", "DOWNSTREAM_LOCAL_URI_SAN", "DOWNSTREAM_PEER_CERT", "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START", "DOWNSTREAM_PEER_FINGERPRINT_1", "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER", "DOWNSTREAM_PEER_SERIAL", "DOWNSTREAM_PEER_SUBJECT", "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER", "DOWNSTREAM_TLS_SESSION_ID", "DOWNSTREAM_TLS_VERSION", "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DURATION", "HOSTNAME", "PROTOCOL", "REQUESTED_SERVER_NAME", "REQUEST_DURATION", "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS", "RESPONSE_FLAGS", "ROUTE_NAME", "START_TIME", "STREAM_ID", "TLS_JA3_FINGERPRINT",
    "TLS_JA4_FINGERPRINT", "UPSTREAM_CLUSTER", "UPSTREAM_HOST", "UPSTREAM_LOCAL_ADDRESS", "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", "VIRTUAL_CLUSTER_NAME",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: serde_json::Value) -> Result<HeaderMutation, Problem> {
        mutation(&serde_json::from_value(value).expect("a header filter"), "f")
    }

    #[test]
    fn the_first_of_equal_names_counts_and_adding_beats_setting() {
        let m = read(serde_json::json!({
            "set": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}, {"name": "b", "value": "3"}],
            "add": [{"name": "a", "value": "4"}],
            "remove": ["X", "x", "Y"],
        }))
        .expect("fine");
        let adds: Vec<_> = m.add.iter().map(|h| (&*h.name, &*h.value, h.overwrite)).collect();
        assert_eq!(adds, [("a", "4", false), ("B", "2", true)]);
        assert_eq!(m.remove, ["X".into(), "Y".into()]);
    }

    #[test]
    fn headers_that_envoy_protects_are_refused_by_name() {
        for filter in [
            serde_json::json!({"set": [{"name": ":path", "value": "/"}]}),
            serde_json::json!({"add": [{"name": "Host", "value": "x"}]}),
            serde_json::json!({"remove": ["host"]}),
            serde_json::json!({"set": [{"name": "a/b", "value": "x"}]}),
        ] {
            let p = read(filter).expect_err("refused");
            assert_eq!(p.reason, "UnsupportedValue");
            assert!(p.message.starts_with("f."), "{}", p.message);
        }
    }

    #[test]
    fn commands_are_kept_and_other_percent_signs_are_sent_as_they_are() {
        for (value, sent) in [
            ("100%", "100%%"),
            ("a%%b", "a%%b"),
            ("%REQ(X?Y):20%", "%REQ(X?Y):20%"),
            ("%REQ()%", "%%REQ()%%"),
            ("%REQ%", "%%REQ%%"),
            ("%REQ(a?b?c)%", "%%REQ(a?b?c)%%"),
            ("x %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% y", "x %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT% y"),
            ("%START_TIME(%s)%", "%START_TIME(%s)%"),
            ("%NO_SUCH_THING%", "%%NO_SUCH_THING%%"),
            ("50% of %PROTOCOL%", "50%% of %PROTOCOL%"),
            ("%20", "%%20"),
            ("%", "%%"),
            ("%DYNAMIC_METADATA(a:b)%", "%DYNAMIC_METADATA(a:b)%"),
            ("%FILTER_STATE(a:b)%", "%%FILTER_STATE(a:b)%%"),
            ("%PROTOCOL:5%", "%%PROTOCOL:5%%"),
            ("%REQ(a b)%", "%%REQ(a b)%%"),
        ] {
            assert_eq!(escape(value), sent, "{value}");
        }
    }
}

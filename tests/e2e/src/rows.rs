//! Tables of request → response.
//!
//! A file of `rows/` holds `resources` (objects for the gateway) and `rows`. Texts may use `${NAME}` for what the
//! surroundings chose: ports, certificates.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;
use testkit::echo;

use crate::client::{Answer, Request};

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Objects.
    #[serde(default)]
    pub resources: Vec<Value>,
    /// Requests and what must come back.
    pub rows: Vec<Row>,
}

/// One request and what must come back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Row {
    /// What the row shows.
    pub name: String,
    /// `METHOD URL`, or a URL for GET.
    pub request: String,
    /// Headers of the request.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Body of the request.
    #[serde(default)]
    pub body: String,
    /// Speak HTTP/2.
    #[serde(default)]
    pub http2: bool,
    /// Show the client certificate of the surroundings.
    #[serde(default)]
    pub client_certificate: bool,
    /// Another SNI than the URL's host.
    #[serde(default)]
    pub sni: Option<String>,
    /// What must come back.
    pub expect: Expect,
    /// How often the request is sent.
    #[serde(default = "once")]
    pub times: usize,
}

/// What must come back. What is not given is not looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Expect {
    /// HTTP status; `0`: the connection or the handshake fails.
    pub status: Option<u16>,
    /// Backend that answered.
    pub backend: Option<String>,
    /// Backends that answered, with the least and the most number of answers each (with `times`).
    pub backends: BTreeMap<String, (usize, usize)>,
    /// Path that the backend saw.
    pub path: Option<String>,
    /// Query that the backend saw.
    pub query: Option<String>,
    /// Host that the backend saw.
    pub host: Option<String>,
    /// Protocol that the backend saw, `HTTP/1.1` or `HTTP/2`.
    pub proto: Option<String>,
    /// Headers that the backend saw; `null`: not there; several values are joined with `,`.
    pub seen: BTreeMap<String, Option<String>>,
    /// Headers of the answer; `null`: not there.
    pub headers: BTreeMap<String, Option<String>>,
    /// The body contains this.
    pub body: Option<String>,
}

fn once() -> usize {
    1
}

/// What a request needs of its surroundings.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Values for `${NAME}`.
    pub names: BTreeMap<String, String>,
    /// CA of the listeners' certificates.
    pub ca: String,
    /// Certificate and key of the client.
    pub identity: Option<(String, String)>,
}

// === impl Surroundings ===

impl Surroundings {
    /// Fills in `${NAME}`.
    ///
    /// # Errors
    /// When a name is not known.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut out = text.to_owned();
        for (name, value) in &self.names {
            out = out.replace(&format!("${{{name}}}"), value);
        }
        if let Some(at) = out.find("${") {
            bail!("nothing is known for {}", out[at..].chars().take_while(|c| *c != '}').collect::<String>());
        }
        Ok(out)
    }

    /// Reads a file of rows.
    ///
    /// # Errors
    /// When it is no such file.
    pub fn read(&self, text: &str) -> Result<File> {
        Ok(serde_saphyr::from_str(&self.fill(text)?)?)
    }
}

// === impl Row ===

impl Row {
    /// Sends the request and checks what comes back.
    ///
    /// # Errors
    /// What differs.
    pub async fn check(&self, surroundings: &Surroundings) -> Result<()> {
        let (method, url) = self.request.split_once(' ').unwrap_or(("GET", &self.request));
        let mut request = Request::get(url);
        request.method = method.parse()?;
        request.headers.clone_from(&self.headers);
        request.body = self.body.clone().into();
        request.http2 = self.http2;
        request.sni.clone_from(&self.sni);
        if url.starts_with("https:") {
            request.ca = Some(surroundings.ca.clone());
            if self.client_certificate {
                request.identity.clone_from(&surroundings.identity);
            }
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..self.times {
            let sent = request.send().await;
            if self.expect.status == Some(0) {
                if let Ok(answer) = sent {
                    bail!("{}: answered {} where no connection was expected", self.name, answer.status);
                }
                continue;
            }
            let answer = sent.with_context(|| self.name.clone())?;
            let seen: Option<echo::Answer> = serde_json::from_slice(&answer.body).ok();
            self.compare(&answer, seen.as_ref()).with_context(|| {
                format!("{}: {} -> {} {}", self.name, self.request, answer.status, String::from_utf8_lossy(&answer.body))
            })?;
            if let Some(seen) = seen {
                *counts.entry(seen.backend).or_default() += 1;
            }
        }
        for (backend, (least, most)) in &self.expect.backends {
            let n = counts.get(backend).copied().unwrap_or_default();
            if n < *least || n > *most {
                bail!("{}: {backend} answered {n} of {}, expected {least} to {most}: {counts:?}", self.name, self.times);
            }
        }
        Ok(())
    }

    fn compare(&self, answer: &Answer, seen: Option<&echo::Answer>) -> Result<()> {
        let expect = &self.expect;
        if let Some(status) = expect.status
            && status != answer.status
        {
            bail!("status {}, expected {status}", answer.status);
        }
        for (name, value) in &expect.headers {
            let values: Vec<_> = answer.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
            same(&format!("answer header {name}"), (!values.is_empty()).then(|| values.join(",")).as_ref(), value.as_ref())?;
        }
        if let Some(text) = &expect.body
            && !String::from_utf8_lossy(&answer.body).contains(text)
        {
            bail!("body without {text:?}");
        }
        let wants_echo = expect.backend.is_some()
            || expect.path.is_some()
            || expect.query.is_some()
            || expect.host.is_some()
            || expect.proto.is_some()
            || !expect.seen.is_empty();
        if !wants_echo {
            return Ok(());
        }
        let seen = seen.context("no backend answered")?;
        for (what, got, want) in [
            ("backend", &seen.backend, &expect.backend),
            ("path", &seen.path, &expect.path),
            ("query", &seen.query, &expect.query),
            ("host", &seen.host, &expect.host),
            ("proto", &seen.proto, &expect.proto),
        ] {
            if want.is_some() {
                same(what, Some(got), want.as_ref())?;
            }
        }
        for (name, value) in &expect.seen {
            same(&format!("request header {name}"), seen.headers.get(name).map(|v| v.join(",")).as_ref(), value.as_ref())?;
        }
        Ok(())
    }
}

fn same(what: &str, got: Option<&String>, want: Option<&String>) -> Result<()> {
    if got != want {
        bail!("{what} {got:?}, expected {want:?}");
    }
    Ok(())
}

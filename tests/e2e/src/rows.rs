//! Tables of request → response.
//!
//! A file of `rows/` holds `resources` (objects for the gateway) and `rows`, with the placeholders of
//! [`Surroundings`].

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::Value;
use testkit::echo;
use tokio::time::{Instant, sleep};

use crate::{
    client::{Answer, Request},
    surroundings::Surroundings,
};

/// How long copies of requests may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(5);
/// How long is waited for copies that must not arrive.
const QUIET: Duration = Duration::from_millis(100);

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Objects.
    #[serde(default)]
    pub resources: Vec<Value>,
    /// Requests and what must come back.
    #[serde(default)]
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
    /// Body of the request; with `websocket`, the message.
    #[serde(default)]
    pub body: String,
    /// Speak HTTP/2.
    #[serde(default)]
    pub http2: bool,
    /// Open a WebSocket and send a message.
    #[serde(default)]
    pub websocket: bool,
    /// Show a client certificate that the CA of this name signed.
    #[serde(default)]
    pub client_certificate: Option<String>,
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
    /// HTTP status; `0`: the connection or the handshake fails. With a backend and without a status: 200.
    pub status: Option<u16>,
    /// Statuses, with the least and the most number of answers each (with `times`).
    pub statuses: BTreeMap<u16, (usize, usize)>,
    /// Backend that answered.
    pub backend: Option<String>,
    /// Backends that answered, with the least and the most number of answers each (with `times`).
    pub backends: BTreeMap<String, (usize, usize)>,
    /// Backends, with the least and the most number of requests that arrive there meanwhile, copies and retries
    /// included.
    pub arrived: BTreeMap<String, (u64, u64)>,
    /// Path that the backend saw.
    pub path: Option<String>,
    /// Query that the backend saw.
    pub query: Option<String>,
    /// Host that the backend saw.
    pub host: Option<String>,
    /// Protocol that the backend saw, `HTTP/1.1` or `HTTP/2`.
    pub proto: Option<String>,
    /// SNI that the backend saw.
    pub sni: Option<String>,
    /// Headers that the backend saw; `null`: not there; several values are joined with `,`.
    pub seen: BTreeMap<String, Option<String>>,
    /// Headers of the answer; `null`: not there; several values are joined with `,`.
    pub headers: BTreeMap<String, Option<String>>,
    /// Headers that the answer has, whatever their value.
    pub present: Vec<String>,
    /// The body contains this.
    pub body: Option<String>,
    /// Host that the server's certificate was made for.
    pub certificate: Option<String>,
    /// The handshake fails with this in its error (with status 0).
    pub error: Option<String>,
}

fn once() -> usize {
    1
}

// === impl File ===

impl File {
    /// Reads a file of rows.
    ///
    /// # Errors
    /// When it is no such file.
    pub fn read(text: &str, surroundings: &Surroundings) -> Result<Self> {
        Ok(serde_saphyr::from_str(&surroundings.fill(text)?)?)
    }

    /// The objects as one document.
    #[must_use]
    pub fn document(&self) -> String {
        serde_json::json!({"apiVersion": "v1", "kind": "List", "items": self.resources}).to_string()
    }
}

// === impl Row ===

impl Row {
    /// Sends the request and checks what comes back.
    ///
    /// # Errors
    /// What differs.
    pub async fn check(&self, surroundings: &Surroundings) -> Result<()> {
        let request = self.request(surroundings)?;
        let before = self.arrivals(surroundings)?;
        let (mut backends, mut statuses) = (BTreeMap::<String, usize>::new(), BTreeMap::<u16, usize>::new());
        for _ in 0..self.times {
            let sent = if self.websocket { request.websocket().await } else { request.send().await };
            if self.expect.status == Some(0) {
                match sent {
                    Ok(answer) => bail!("answered {} where no connection was expected", answer.status),
                    Err(e) => {
                        let text = format!("{e:#}");
                        ensure!(self.expect.error.as_ref().is_none_or(|w| text.contains(w)), "failed with {text}");
                    }
                }
                continue;
            }
            let answer = sent?;
            let seen: Option<echo::Answer> = serde_json::from_slice(&answer.body).ok();
            self.compare(&answer, seen.as_ref(), surroundings).with_context(|| {
                let body: String = String::from_utf8_lossy(&answer.body).split_whitespace().collect();
                format!("{} {:?} {body}", answer.status, answer.headers)
            })?;
            *statuses.entry(answer.status).or_default() += 1;
            if let Some(seen) = seen {
                *backends.entry(seen.backend).or_default() += 1;
            }
        }
        within("answers of", &backends, &self.expect.backends)?;
        within("answers with", &statuses, &self.expect.statuses)?;
        self.await_arrivals(&before, surroundings).await
    }

    fn request(&self, surroundings: &Surroundings) -> Result<Request> {
        let (method, url) = self.request.split_once(' ').unwrap_or(("GET", &self.request));
        let mut request = Request::get(url);
        request.method = method.parse()?;
        request.headers.clone_from(&self.headers);
        request.body = self.body.clone().into();
        request.http2 = self.http2;
        request.sni.clone_from(&self.sni);
        if url.starts_with("https:") {
            request.ca = Some(surroundings.authority("server")?);
            if let Some(authority) = &self.client_certificate {
                let leaf = surroundings.leaf(authority, "client.test")?;
                request.identity = Some((leaf.certificate, leaf.key));
            }
        }
        Ok(request)
    }

    fn arrivals(&self, surroundings: &Surroundings) -> Result<BTreeMap<String, u64>> {
        let backends = self.expect.arrived.keys();
        backends.map(|b| Ok((b.clone(), surroundings.backend(b)?.requests()))).collect()
    }

    async fn await_arrivals(&self, before: &BTreeMap<String, u64>, surroundings: &Surroundings) -> Result<()> {
        let deadline = Instant::now() + ARRIVAL;
        let mut quiet = false;
        loop {
            let now = self.arrivals(surroundings)?;
            let since: BTreeMap<_, _> = now.iter().map(|(b, n)| (b.clone(), n - before[b])).collect();
            let enough = self.expect.arrived.iter().all(|(b, (least, _))| since[b] >= *least);
            if enough && !quiet && !since.is_empty() {
                quiet = true;
                sleep(QUIET).await;
                continue;
            }
            if enough || Instant::now() > deadline {
                return within("requests at", &since, &self.expect.arrived);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn compare(&self, answer: &Answer, seen: Option<&echo::Answer>, surroundings: &Surroundings) -> Result<()> {
        let expect = &self.expect;
        let by_backend = expect.backend.is_some() || (!expect.backends.is_empty() && expect.statuses.is_empty());
        if let Some(status) = expect.status.or(by_backend.then_some(200)) {
            ensure!(status == answer.status, "status {}, expected {status}", answer.status);
        }
        for (name, value) in &expect.headers {
            let values: Vec<_> = answer.headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).collect();
            let got = (!values.is_empty()).then(|| values.join(","));
            same(&format!("answer header {name}"), got.as_ref(), value.as_ref())?;
        }
        for name in &expect.present {
            ensure!(answer.headers.contains_key(name), "no answer header {name}");
        }
        if let Some(text) = &expect.body {
            ensure!(String::from_utf8_lossy(&answer.body).contains(text), "body without {text:?}");
        }
        if let Some(host) = &expect.certificate {
            let wanted = surroundings.leaf("server", host)?.der;
            ensure!(answer.certificate.as_ref() == Some(&wanted), "not the certificate for {host}");
        }
        let wanted = [&expect.backend, &expect.path, &expect.query, &expect.host, &expect.proto, &expect.sni];
        if wanted.iter().all(|w| w.is_none()) && expect.seen.is_empty() {
            return Ok(());
        }
        let seen = seen.context("no backend answered")?;
        let sni = seen.tls.clone().unwrap_or_default().server_name;
        let got = [&seen.backend, &seen.path, &seen.query, &seen.host, &seen.proto, &sni];
        let names = ["backend", "path", "query", "host", "proto", "SNI"];
        for ((what, got), want) in names.iter().zip(got).zip(wanted) {
            if want.is_some() {
                same(what, Some(got), want.as_ref())?;
            }
        }
        for (name, value) in &expect.seen {
            let got = seen.headers.get(name).map(|v| v.join(","));
            same(&format!("request header {name}"), got.as_ref(), value.as_ref())?;
        }
        Ok(())
    }
}

fn within<K, N>(what: &str, got: &BTreeMap<K, N>, wanted: &BTreeMap<K, (N, N)>) -> Result<()>
where
    K: Ord + std::fmt::Debug,
    N: Copy + Default + Ord + std::fmt::Display + std::fmt::Debug,
{
    for (key, (least, most)) in wanted {
        let n = got.get(key).copied().unwrap_or_default();
        ensure!(n >= *least && n <= *most, "{n} {what} {key:?}, expected {least} to {most}: {got:?}");
    }
    Ok(())
}

fn same(what: &str, got: Option<&String>, want: Option<&String>) -> Result<()> {
    ensure!(got == want, "{what} {got:?}, expected {want:?}");
    Ok(())
}

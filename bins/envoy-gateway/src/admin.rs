//! The admin server and the probes: JSON of what this process holds, secrets redacted.

use std::{sync::atomic::Ordering, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::get,
};
use provider::last_good::Origin;
use resources::{Kind, Object, ObjectKey};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{convert, metrics, shared::Shared};

/// Routes of the admin server.
pub(crate) fn admin(shared: Shared) -> Router {
    Router::new()
        .route("/", get(console))
        .route("/api/info", get(info))
        .route("/api/server_info", get(server_info))
        .route("/api/config", get(async |State(s): State<Shared>| Json((*s.config).clone())))
        .route("/api/config_dump", get(config_dump))
        .route("/api/resources", get(config_dump))
        .route("/api/status", get(statuses))
        .route("/api/xds", get(xds_dump))
        .route("/api/proxies", get(proxies))
        .route("/api/metrics", get(metrics::serve))
        .with_state(shared)
}

/// Routes of the probes.
pub(crate) fn health(shared: Shared) -> Router {
    Router::new()
        // Alive: this very answer comes from the process's runtime; engine and elector end the process when they end.
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .with_state(shared)
}

/// Routes of the Prometheus endpoint.
pub(crate) fn prometheus(shared: Shared) -> Router {
    Router::new().route("/metrics", get(metrics::serve)).with_state(shared)
}

/// Longest wait for the first translation in a look at the readiness: within the second that a kubelet waits.
const SOON: Duration = Duration::from_millis(700);

/// Readiness, with the role for people: it plays no part in the answer. A kubelet looks once as soon as the process has started, and
/// then only after the probe's period: what is about to be ready is waited for, or each rollout takes that period longer.
async fn ready(State(shared): State<Shared>) -> Response {
    if !shared.progress.translated.load(Ordering::Acquire) && !shared.stopping.load(Ordering::Acquire) {
        let _ = tokio::time::timeout(SOON, shared.progress.synced.subscribe().wait_for(|n| *n > 0)).await;
    }
    let ready = shared.is_ready();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({"ready": ready, "handsOver": shared.hands_over(), "state": state(&shared), "translated": shared.progress.translated.load(Ordering::Acquire), "leadership": leadership(&shared)});
    (status, Json(body)).into_response()
}

/// Whether what is served comes from the cluster or was saved, and since when.
fn state(shared: &Shared) -> Value {
    let Some(kept) = shared.progress.state.get() else {
        return json!({"origin": if shared.progress.is_live() { "live" } else { "nothing" }});
    };
    let (origin, since) = match kept.origin() {
        Origin::Nothing => ("nothing", None),
        Origin::Stale { since } => ("stale", Some(since)),
        Origin::Live => ("live", None),
    };
    let f = kept.figures();
    json!({"origin": origin, "staleSince": since, "saved": f.saved, "saveError": f.last_error, "refused": f.refused})
}

/// This replica among the others.
fn replicas(shared: &Shared) -> Value {
    let Some(replicas) = &shared.replicas else { return Value::Null };
    json!({
        "own": replicas.own,
        "secondsSinceInTouch": replicas.freshness.age().map(convert::seconds),
        "handsOver": shared.hands_over(),
        "peers": replicas.peers.reports(),
        "disagreements": replicas.agreed.disagreements(),
    })
}

fn leadership(shared: &Shared) -> Value {
    let s = shared.role.snapshot();
    json!({
        "role": if s.leading { "leader" } else { "follower" },
        "term": s.term.map(|t| t.0),
        "holder": s.holder,
        "identity": s.identity,
        "secondsLeft": s.time_left.map(convert::seconds),
        "transitions": s.transitions,
        "lastReason": s.last_reason,
        "lastError": s.last_error,
    })
}

async fn info(State(shared): State<Shared>) -> Json<Value> {
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "gatewayApiVersion": convert::GATEWAY_API_VERSION,
        "uptimeSeconds": shared.started.elapsed().as_secs(),
        "pid": std::process::id(),
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    }))
}

async fn server_info(State(shared): State<Shared>) -> Json<Value> {
    let p = &shared.progress;
    let problems: Vec<String> = shared
        .problems
        .iter()
        .flat_map(|r| r.borrow().clone().iter().map(ToString::to_string).collect::<Vec<_>>())
        .collect();
    Json(json!({
        "ready": shared.is_ready(),
        "leadership": leadership(&shared),
        "state": state(&shared),
        "snapshotDigest": &*shared.cache.digest(),
        "replicas": replicas(&shared),
        "translations": p.translations.load(Ordering::Relaxed),
        "lastTranslationMicros": p.last_micros.load(Ordering::Relaxed),
        "encodeErrors": p.encode_errors.load(Ordering::Relaxed),
        "statusesPending": shared.statuses.pending(),
        "problems": problems,
        "config": *shared.config,
    }))
}

/// Parameters of the dumps.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DumpQuery {
    /// `all` for whole objects, else their keys only.
    resource: Option<String>,
    /// One kind, such as `HTTPRoute`.
    kind: Option<String>,
}

async fn config_dump(State(shared): State<Shared>, Query(query): Query<DumpQuery>) -> Json<Value> {
    let store = shared.engine.store().await;
    let whole = query.resource.as_deref() == Some("all");
    let mut by_kind = serde_json::Map::new();
    let wanted = store.iter().filter(|(k, _)| query.kind.as_deref().is_none_or(|kind| k.kind.as_str() == kind));
    for (key, object) in wanted {
        let value =
            if whole { redacted(key, object) } else { json!({"namespace": &*key.namespace, "name": &*key.name}) };
        if let Value::Array(list) = by_kind.entry(key.kind.as_str()).or_insert_with(|| json!([])) {
            list.push(value);
        }
    }
    Json(Value::Object(by_kind))
}

/// The object; of a Secret, the names of its keys only.
fn redacted(key: &ObjectKey, object: &Object) -> Value {
    let mut value = object.to_value().unwrap_or_default();
    if key.kind == Kind::Secret {
        for field in ["data", "stringData"] {
            if let Some(Value::Object(data)) = value.get_mut(field) {
                data.values_mut().for_each(|v| *v = "[redacted]".into());
            }
        }
    }
    value
}

async fn statuses(State(shared): State<Shared>) -> Json<Value> {
    let all: Vec<Value> = shared.statuses.values().iter().map(|(key, status)| status::object(key, status)).collect();
    Json(Value::Array(all))
}

async fn xds_dump(State(shared): State<Shared>, Query(query): Query<DumpQuery>) -> Json<Value> {
    let whole = query.resource.as_deref() == Some("all");
    let mut groups = serde_json::Map::new();
    for group in shared.cache.groups() {
        let mut types = serde_json::Map::new();
        for ((kind, name), resource) in shared.cache.resources(&group).unwrap_or_default() {
            let mut entry = json!({"name": &*name, "version": &**resource.version(), "bytes": resource.body().len()});
            // Secrets are shown by name only.
            if whole && kind != xds::TypeUrl::Secret {
                entry["resource"] =
                    envoy::json::to_value(kind.as_str().trim_start_matches("type.googleapis.com/"), resource.body())
                        .unwrap_or_else(|e| json!({"error": e.to_string()}));
            }
            if let Value::Array(list) = types.entry(kind.as_str()).or_insert_with(|| json!([])) {
                list.push(entry);
            }
        }
        let digests = shared.cache.digests(&group).unwrap_or_default();
        let digests: serde_json::Map<_, _> =
            digests.into_iter().map(|(k, d)| (k.as_str().to_owned(), json!(&*d))).collect();
        groups.insert(group.to_string(), json!({"digests": digests, "resources": types}));
    }
    Json(Value::Object(groups))
}

async fn proxies(State(shared): State<Shared>) -> Json<Value> {
    let streams: Vec<Value> = shared
        .connections
        .snapshot()
        .into_iter()
        .map(|c| {
            let types: serde_json::Map<_, _> = c
                .types
                .iter()
                .map(|(kind, t)| {
                    let state = json!({
                        "wildcard": t.wildcard, "subscribed": t.subscribed, "held": t.held,
                        "unanswered": t.unanswered, "waiting": t.waiting,
                        "sentVersion": t.sent_version.as_deref(), "ackedVersion": t.acked_version.as_deref(),
                        "lastNack": t.last_nack.as_ref().map(|(text, ago)| json!({"detail": &**text, "secondsAgo": convert::seconds(*ago)})),
                    });
                    (kind.as_str().to_owned(), state)
                })
                .collect();
            json!({
                "node": &*c.proxy.node, "group": c.proxy.group.to_string(), "stream": c.proxy.stream,
                "peer": c.peer.map(|p| p.to_string()), "protocol": if c.delta { "delta" } else { "state-of-the-world" },
                "openSeconds": convert::seconds(c.open_for), "types": types,
            })
        })
        .collect();
    let local = shared.proxies.as_ref().map(|r| serde_json::to_value(&*r.borrow()).unwrap_or_default());
    Json(json!({"streams": streams, "local": local}))
}

async fn console() -> impl IntoResponse {
    const LINKS: [(&str, &str); 8] = [
        ("/api/info", "version and uptime"),
        ("/api/server_info", "readiness, leadership, problems, effective configuration"),
        ("/api/config_dump?resource=all", "objects that this process holds"),
        ("/api/status", "statuses that are wanted"),
        ("/api/xds?resource=all", "xDS resources by group of proxies"),
        ("/api/proxies", "connected proxies, acknowledged versions, last refusals"),
        ("/api/config", "effective configuration"),
        ("/api/metrics", "metrics"),
    ];
    let items: String =
        LINKS.iter().map(|(path, text)| format!("<li><a href=\"{path}\">{path}</a> {text}</li>")).collect();
    let page = format!("<!doctype html><title>Envoy Gateway</title><h1>Envoy Gateway</h1><ul>{items}</ul>");
    ([(header::CACHE_CONTROL, "no-store")], Html(page))
}

//! Client layers through which no write passes without a live permit.
//!
//! The check is made as the request leaves, after the inner service has become ready, and in the task of the caller, whose
//! permit it asks for. So a request that waited for its turn until the leadership was over does not leave.

use crate::role::{Term, Ticket};
use http::{Method, Request, Response};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::Mutex;
use tower::{BoxError, Layer, Service, ServiceExt as _};

/// Lets mutating requests pass only within a live [`Permit`](crate::Permit).
///
/// Mutating are POST, PUT, PATCH and DELETE. Not meant, and counted apart: calls on Leases and Events, token and access
/// reviews. Requests from a task that was spawned inside a permit carry no permit and are refused.
#[derive(Clone, Debug)]
pub struct PermitLayer {
    rule: Rule,
    tally: Arc<Tally>,
}

/// Lets no mutating request pass at all, apart from those that [`PermitLayer`] does not mean either. For the parts of a
/// program that only read.
#[derive(Clone, Debug, Default)]
pub struct ReadOnlyLayer {
    tally: Arc<Tally>,
}

/// A service behind one of the layers.
pub struct PermitService<S> {
    /// Behind a lock, as the check has to come between the inner service's readiness and its call.
    inner: Arc<Mutex<S>>,
    rule: Rule,
    tally: Arc<Tally>,
}

/// A mutating request did not leave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{method} {path} refused: {why}")]
pub struct WriteRefused {
    /// The request's method.
    pub method: String,
    /// The request's path.
    pub path: String,
    /// Why.
    pub why: Refusal,
}

/// Why a mutating request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The client only reads.
    #[error("this client only reads")]
    ReadOnly,
    /// The request was made outside of a permit.
    #[error("it was made without a permit of the leader")]
    NoPermit,
    /// The leadership was over when the request was to leave.
    #[error("the leadership of term {} is over", .0.0)]
    Over(
        /// Its term.
        Term,
    ),
    /// There was no answer in time.
    #[error("no answer within the write time-out of {0:?}")]
    TimedOut(
        /// The time-out.
        Duration,
    ),
}

/// How many mutating requests were let pass and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Left within a live permit.
    pub permitted: u64,
    /// Refused.
    pub refused: u64,
    /// Not meant: Leases, Events, reviews.
    pub exempt: u64,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    ReadOnly,
    WithPermit { limit: Duration },
}

#[derive(Debug, Default)]
struct Tally {
    permitted: AtomicU64,
    refused: AtomicU64,
    exempt: AtomicU64,
}

/// A client for the writers: [`PermitLayer`] over the default stack, without retries beneath it.
///
/// # Errors
/// When the configuration does not make a client.
pub fn gated_client(mut config: Config, layer: &PermitLayer) -> Result<Client, kube::Error> {
    config.default_retry = false; // a retry beneath the layer would leave unchecked
    Ok(ClientBuilder::try_from(config)?.with_layer(layer).build())
}

/// A client for everything else: [`ReadOnlyLayer`] over the default stack.
///
/// # Errors
/// When the configuration does not make a client.
pub fn read_only_client(config: Config, layer: &ReadOnlyLayer) -> Result<Client, kube::Error> {
    Ok(ClientBuilder::try_from(config)?.with_layer(layer).build())
}

// === impl PermitLayer ===

impl PermitLayer {
    /// A layer that waits for the answer to a mutating request no longer than `write_timeout`.
    #[must_use]
    pub fn new(write_timeout: Duration) -> Self {
        Self { rule: Rule::WithPermit { limit: write_timeout }, tally: Arc::default() }
    }

    /// What it has counted; shared by all clones and services.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }
}

impl<S> Layer<S> for PermitLayer {
    type Service = PermitService<S>;

    fn layer(&self, inner: S) -> PermitService<S> {
        PermitService { inner: Arc::new(Mutex::new(inner)), rule: self.rule, tally: self.tally.clone() }
    }
}

// === impl ReadOnlyLayer ===

impl ReadOnlyLayer {
    /// A layer that refuses mutating requests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What it has counted; shared by all clones and services.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }
}

impl<S> Layer<S> for ReadOnlyLayer {
    type Service = PermitService<S>;

    fn layer(&self, inner: S) -> PermitService<S> {
        PermitService { inner: Arc::new(Mutex::new(inner)), rule: Rule::ReadOnly, tally: self.tally.clone() }
    }
}

// === impl PermitService ===

impl<S, R> Service<Request<Body>> for PermitService<S>
where
    S: Service<Request<Body>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(())) // the inner service is waited for in the caller's task, before the check
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (inner, rule, tally) = (self.inner.clone(), self.rule, self.tally.clone());
        Box::pin(async move {
            let meant = mutating(request.method()) && !exempt(request.uri().path());
            if !meant {
                if mutating(request.method()) {
                    tally.exempt.fetch_add(1, Ordering::Relaxed);
                }
                let answer = {
                    let mut inner = inner.lock().await;
                    inner.ready().await.map_err(Into::into)?.call(request)
                };
                return answer.await.map_err(Into::into);
            }
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let refused = |why| {
                tally.refused.fetch_add(1, Ordering::Relaxed);
                let refusal = WriteRefused { method: method.clone(), path: path.clone(), why };
                tracing::warn!(%refusal, "a write did not leave");
                Err::<Response<R>, BoxError>(refusal.into())
            };
            let Rule::WithPermit { limit } = rule else { return refused(Refusal::ReadOnly) };
            let Some(ticket) = Ticket::current() else { return refused(Refusal::NoPermit) };
            if !ticket.live() {
                return refused(Refusal::Over(ticket.term()));
            }
            let mut ready = inner.lock().await;
            let service = ready.ready().await.map_err(Into::into)?;
            // Again, now that it is about to leave. Counted first, so that a release waits for it.
            let flight = ticket.begin();
            if !ticket.live() {
                flight.answered(); // nothing was sent
                return refused(Refusal::Over(ticket.term()));
            }
            tally.permitted.fetch_add(1, Ordering::Relaxed);
            let answer = service.call(request);
            drop(ready);
            let Ok(answer) = tokio::time::timeout(limit, answer).await else {
                return Err(WriteRefused { method, path, why: Refusal::TimedOut(limit) }.into());
            };
            let answer = answer.map_err(Into::into)?;
            // A gateway's or an overloaded server's 5xx does not say that the write will not happen.
            if !answer.status().is_server_error() {
                flight.answered();
            }
            Ok(answer)
        })
    }
}

impl<S> fmt::Debug for PermitService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermitService").field("rule", &self.rule).finish_non_exhaustive()
    }
}

// === impl Tally ===

impl Tally {
    fn counts(&self) -> Counts {
        Counts {
            permitted: self.permitted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            exempt: self.exempt.load(Ordering::Relaxed),
        }
    }
}

fn mutating(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Whether a path belongs to what the permit does not mean.
fn exempt(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["apis", "coordination.k8s.io", _, "namespaces", _, "leases"]
        | ["apis", "coordination.k8s.io", _, "namespaces", _, "leases", _] => true,
        ["api", "v1", "namespaces", _, "events", rest @ ..]
        | ["apis", "events.k8s.io", _, "namespaces", _, "events", rest @ ..] => rest.len() <= 1,
        ["apis", "authentication.k8s.io", _, "tokenreviews" | "selfsubjectreviews"] => true,
        [
            "apis",
            "authorization.k8s.io",
            _,
            "subjectaccessreviews" | "selfsubjectaccessreviews" | "selfsubjectrulesreviews",
        ] => true,
        ["apis", "authorization.k8s.io", _, "namespaces", _, "localsubjectaccessreviews"] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_leases_events_and_reviews_are_exempt() {
        for path in [
            "/apis/coordination.k8s.io/v1/namespaces/a/leases",
            "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
            "/api/v1/namespaces/a/events",
            "/apis/events.k8s.io/v1/namespaces/a/events/b",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews",
        ] {
            assert!(exempt(path), "{path}");
        }
        for path in [
            "/api/v1/namespaces/leases",
            "/api/v1/namespaces/a/services/events",
            "/apis/apps/v1/namespaces/a/deployments/leases",
            "/apis/example.com/v1/namespaces/a/leases/b",
            "/apis/gateway.networking.k8s.io/v1/namespaces/a/gateways/b/status",
            "/apis/authorization.k8s.io/v1/namespaces/a/anything",
            "/api/v1/namespaces/a/serviceaccounts/b/token",
        ] {
            assert!(!exempt(path), "{path}");
        }
    }
}

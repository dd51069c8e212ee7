//! Drives one session: requests, changes of the snapshot and time go in, responses come out, facts are told.

#[cfg(test)]
mod tests;

use std::{net::SocketAddr, pin::pin, sync::Arc};

use envoy_types::pb::envoy::config::core::v3::Node;
use futures::{Stream, StreamExt};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tonic::Status;

use crate::{
    Admit, Applicant, Cache, Connections, Denied, Feedback, Metrics, Name, NodeGroup, Proxy, SentResource, TypeUrl,
    cache::Group,
    metrics::{add, count, less},
    session::{Abuse, Fact, Mode, Response, Session, Waits},
    wire::{Ask, Incoming},
};

/// The longest `node.id` and `node.cluster` that are accepted, in bytes.
const MAX_NODE: usize = 4 * 1024;

/// What all streams of a server share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) cache: Cache,
    pub(crate) waits: Waits,
    pub(crate) feedback: mpsc::Sender<Feedback>,
    pub(crate) connections: Connections,
    pub(crate) metrics: Metrics,
    pub(crate) numbers: std::sync::atomic::AtomicU64,
}

/// What the connection knows about itself, for its streams.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    pub(crate) peer: Option<SocketAddr>,
    /// Turns true when the connection wants its streams to end.
    pub(crate) drain: watch::Receiver<bool>,
    /// Decides about its streams.
    pub(crate) admit: Option<Admit>,
    /// It showed a certificate that was accepted.
    pub(crate) certified: bool,
    /// What the stream shows in its metadata.
    pub(crate) authorization: Option<Arc<str>>,
}

/// The responses of one stream. The stream is driven by whoever reads them; dropping it ends the session.
pub(crate) fn responses<S>(
    context: Arc<Context>,
    requests: S,
    mode: Mode,
    only: Option<TypeUrl>,
    carrier: Carrier,
) -> impl Stream<Item = Result<Response, Status>> + Send + 'static
where
    S: Stream<Item = Result<Incoming, Status>> + Unpin + Send + 'static,
{
    count(&context.metrics.0.streams);
    count(&context.metrics.0.streams_total);
    let session = Session::new(mode, only, context.waits);
    let stream = StreamOf { context, requests, mode, only, carrier, session, joined: None, over: false };
    futures::stream::unfold(stream, |mut stream| async { stream.next().await.map(|response| (response, stream)) })
}

struct StreamOf<S> {
    context: Arc<Context>,
    requests: S,
    mode: Mode,
    only: Option<TypeUrl>,
    carrier: Carrier,
    session: Session,
    joined: Option<Joined>,
    over: bool,
}

/// A stream whose client has told who it is.
struct Joined {
    proxy: Proxy,
    group: Arc<Group>,
    changed: watch::Receiver<u64>,
}

#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack, never stored")]
enum Event {
    Request(Option<Result<Incoming, Status>>),
    Changed,
    Timer,
    Drain,
}

impl<S> StreamOf<S>
where
    S: Stream<Item = Result<Incoming, Status>> + Unpin + Send + 'static,
{
    async fn next(&mut self) -> Option<Result<Response, Status>> {
        loop {
            if let Some(response) = self.session.pop_response() {
                self.count_response(&response);
                return Some(Ok(response));
            }
            if self.over || *self.carrier.drain.borrow() && self.session.is_at_rest() {
                return None;
            }
            match self.event().await {
                Event::Request(Some(Ok(incoming))) => {
                    if let Err(status) = self.request(incoming).await {
                        self.over = true;
                        return Some(Err(status));
                    }
                }
                // The client is gone or has finished; either way nothing more can be acknowledged.
                Event::Request(_) => return None,
                Event::Changed => self.with_snapshot(Session::changed),
                Event::Timer => self.with_snapshot(Session::timer),
                Event::Drain => {}
            }
            self.tell();
        }
    }

    async fn event(&mut self) -> Event {
        let timer = self.session.next_timer().map(Instant::from_std);
        let timer = async {
            match timer {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let draining = *self.carrier.drain.borrow();
        let drain = &mut self.carrier.drain;
        let drain = async {
            if draining || drain.wait_for(|drain| *drain).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let changed = async {
            if let Some(joined) = &mut self.joined
                && joined.changed.changed().await.is_ok()
            {
                return;
            }
            // Nobody has told who they are; or the sender is gone, which lives as long as the group that is held here.
            std::future::pending().await
        };
        let (timer, drain, changed) = (pin!(timer), pin!(drain), pin!(changed));
        tokio::select! {
            request = self.requests.next() => Event::Request(request),
            () = changed => Event::Changed,
            () = timer => Event::Timer,
            () = drain => Event::Drain,
        }
    }

    async fn request(&mut self, incoming: Incoming) -> Result<(), Status> {
        let metrics = &self.context.metrics.0;
        count(&metrics.requests);
        if self.joined.is_none() {
            self.join(incoming.node).await?;
        }
        let kind = match (TypeUrl::parse(&incoming.type_url), self.only) {
            (Some(kind), None) => kind,
            (Some(kind), Some(only)) if kind == only => kind,
            (None, Some(only)) if incoming.type_url.is_empty() => only,
            _ => {
                count(&self.context.metrics.0.requests_ignored);
                tracing::debug!(type_url = shorten(&incoming.type_url), "request for a type that is not carried");
                return Ok(());
            }
        };
        let Some(joined) = &self.joined else { return Ok(()) };
        let snapshot = joined.group.read();
        let now = Instant::now().into_std();
        let done = match incoming.ask {
            Ask::Delta(ask) => self.session.ask_delta(&snapshot, now, kind, ask),
            Ask::Sotw(ask) => self.session.ask_sotw(&snapshot, now, kind, ask),
        };
        done.map_err(|abuse: Abuse| Status::resource_exhausted(abuse.to_string()))
    }

    async fn join(&mut self, node: Option<Node>) -> Result<(), Status> {
        let node = node.ok_or_else(|| Status::invalid_argument("the first request of a stream must carry its node"))?;
        if node.cluster.is_empty() {
            return Err(Status::invalid_argument(
                "node.cluster is empty: it must name the group of proxies, as the bootstrap does",
            ));
        }
        if node.cluster.len() > MAX_NODE || node.id.len() > MAX_NODE {
            return Err(Status::invalid_argument("node.id or node.cluster is too long"));
        }
        let group_name = NodeGroup(node.cluster.into());
        let node_id: Name = node.id.into();
        self.admitted(&group_name, &node_id).await?;
        let stream = self.context.numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let proxy = Proxy { node: node_id.clone(), group: group_name.clone(), stream };
        let group = self.context.cache.group(&group_name);
        let changed = group.subscribe();
        if let Some(drain) = group.drain_time() {
            self.session.drains_for(drain);
        }
        let doubts = self.context.cache.take_doubts(&(group_name, node_id));
        self.session.introduce(node.user_agent_name == "envoy", doubts);
        self.context.connections.open(proxy.clone(), self.carrier.peer, self.mode == Mode::Delta);
        tracing::info!(node = %proxy.node, group = %proxy.group, peer = ?self.carrier.peer, "proxy connected");
        self.context.send(Feedback::Connected { proxy: proxy.clone() });
        self.joined = Some(Joined { proxy, group, changed });
        Ok(())
    }

    /// Whether the client may have that group's configuration. Until that is known it is no proxy of ours: it is neither listed nor told
    /// of.
    async fn admitted(&mut self, group: &NodeGroup, node: &Name) -> Result<(), Denied> {
        let Some(admit) = &self.carrier.admit else { return Ok(()) };
        let applicant = Applicant {
            group: group.clone(),
            node: node.clone(),
            peer: self.carrier.peer,
            certified: self.carrier.certified,
            authorization: self.carrier.authorization.clone(),
        };
        let decided = admit.decide(applicant).await;
        if let Err(denied) = &decided {
            count(&self.context.metrics.0.streams_denied);
            tracing::warn!(
                node = shorten(node), group = shorten(&group.0), peer = ?self.carrier.peer, %denied,
                "a stream was not opened"
            );
        }
        decided
    }

    fn with_snapshot(&mut self, event: fn(&mut Session, &crate::snapshot::Snapshot, std::time::Instant)) {
        if let Some(joined) = &self.joined {
            let snapshot = joined.group.read();
            event(&mut self.session, &snapshot, Instant::now().into_std());
        }
    }

    /// Tells what the session noticed.
    fn tell(&mut self) {
        let Some(joined) = &self.joined else { return };
        let proxy = &joined.proxy;
        let (connections, metrics) = (&self.context.connections, &self.context.metrics.0);
        let views = TypeUrl::ALL.into_iter().map(|kind| (kind, self.session.view(kind)));
        connections.note(proxy.stream, views.filter(|(_, view)| view.requested));
        while let Some(fact) = self.session.pop_fact() {
            let proxy = proxy.clone();
            match fact {
                Fact::Acked { kind, version, resources } => {
                    count(&metrics.types[kind.index()].acks);
                    let resources = resources_of(resources);
                    self.context.send(Feedback::Acked { proxy, type_url: kind, version, resources });
                }
                Fact::Nacked { kind, version, resources, detail } => {
                    count(&metrics.types[kind.index()].nacks);
                    connections.nacked(proxy.stream, kind);
                    tracing::warn!(
                        node = %proxy.node, group = %proxy.group, type_url = %kind,
                        resources = resources.len(), detail = shorten(&detail), "proxy refused a response"
                    );
                    let resources = resources_of(resources);
                    self.context.send(Feedback::Nacked { proxy, type_url: kind, version, resources, detail });
                }
                Fact::TimedOut { kind, suspects } => {
                    count(&metrics.types[kind.index()].ack_timeouts);
                    tracing::warn!(
                        node = %proxy.node, group = %proxy.group, type_url = %kind,
                        suspects = ?suspects.iter().take(10).map(|(name, _)| name).collect::<Vec<_>>(),
                        "proxy did not answer in time"
                    );
                    let suspects = resources_of(suspects);
                    self.context.send(Feedback::TimedOut { proxy, type_url: kind, suspects });
                }
                Fact::WentOn => count(&metrics.went_on),
            }
        }
    }

    fn count_response(&self, response: &Response) {
        let counters = &self.context.metrics.0.types[response.kind.index()];
        count(&counters.responses);
        add(&counters.resources, response.resources.len() as u64);
        let bytes = response.resources.iter().map(|(_, resource)| resource.body().len() as u64);
        add(&counters.bytes, bytes.sum());
        if let Some(joined) = &self.joined {
            tracing::debug!(
                node = %joined.proxy.node, type_url = %response.kind, nonce = response.nonce,
                resources = response.resources.len(), removed = response.removed.len(), "response"
            );
        }
    }
}

impl<S> Drop for StreamOf<S> {
    fn drop(&mut self) {
        less(&self.context.metrics.0.streams);
        if let Some(Joined { proxy, group, changed }) = self.joined.take() {
            let cache = &self.context.cache;
            let node = (proxy.group.clone(), proxy.node.clone());
            cache.remember_doubts(node, self.session.doubts());
            drop(changed);
            cache.release(&proxy.group, group);
            self.context.connections.close(proxy.stream);
            tracing::info!(node = %proxy.node, group = %proxy.group, "proxy disconnected");
            self.context.send(Feedback::Disconnected { proxy });
        }
    }
}

impl Context {
    fn send(&self, fact: Feedback) {
        if self.feedback.try_send(fact).is_err() {
            count(&self.metrics.0.feedback_dropped);
        }
    }
}

fn resources_of(of: Vec<(Name, Option<Name>)>) -> Vec<SentResource> {
    of.into_iter().map(|(name, version)| SentResource { name, version }).collect()
}

/// The first part of a text that a client chose.
fn shorten(text: &str) -> &str {
    match text.char_indices().nth(500) {
        Some((at, _)) => &text[..at],
        None => text,
    }
}

//! Watches of a cluster.
//!
//! Contract
//!
//! * Every kind of [`resources::Kind`] that the server has is listed (as a stream where the server can) and watched. A
//!   kind that it does not have is "not known"; it is picked up when its definition appears. Each object is decoded on
//!   its own: one that cannot be read is reported, and its last good version stays.
//! * A list replaces what was known at once, when it is complete. A list or watch that fails changes nothing: it is
//!   counted and tried again for ever, with back-off. An object is gone only when a watch says so or a complete list
//!   does not hold it.
//! * [`Change::Synced`] is sent once every kind that is there has been listed and every Secret and ConfigMap that is
//!   referred to has been fetched; nothing is sent before.
//! * Told is what matters to the controller: its GatewayClasses, the Gateways of these, the routes of these, their
//!   policies, and what any of them refers to ([`references`]); of namespaces those that hold one of them. Every Backend,
//!   EnvoyPatchPolicy, ReferenceGrant and Node counts. Services, EndpointSlices, ServiceImports, Secrets and ConfigMaps are told only while
//!   something refers to them. Of Secrets and ConfigMaps only metadata is watched and kept; those that are referred to are
//!   fetched one by one. An object that refers to one that is on its way is told together with it.
//! * Versions, managed fields and statuses are not part of what is told (but for the addresses of Services and Nodes):
//!   our own writes of statuses are no changes. [`ClusterHandle`] has them, for the writers.
//!
//! Limits: it only reads. Two versions of an object that come faster than batches are told as one.

mod backoff;
mod decode;
mod discovery;
mod feed;
mod handle;
mod references;
mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    Client,
    core::{ApiResource, DynamicObject, ParseExpressionError, Selector},
};
use resources::{Change, Kind, ObjectKey};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use self::{
    decode::Item,
    discovery::Known,
    feed::Context,
    state::{Event, Feed, State},
};
pub use self::{
    handle::{ClusterHandle, Figures, KindFigures},
    references::references,
};
use crate::Source;

/// Quiet time after a change before a batch goes out.
const SETTLE: Duration = Duration::from_millis(5);
/// Longest wait under steady changes.
const SETTLE_MAX: Duration = Duration::from_millis(50);
/// Objects that are fetched at once.
const FETCHES: usize = 16;
/// After this long without everything at hand, the log says what is missing, and again after each such time.
const IMPATIENCE: Duration = Duration::from_secs(10);

/// What is read of the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterOptions {
    /// Namespaces that count.
    pub scope: Scope,
    /// Name of our controller: what does not hang on a GatewayClass of ours is not told. None: everything counts, but for
    /// the kinds that are told only while something refers to them.
    pub controller: Option<Arc<str>>,
    /// Objects that are relevant without anything referring to them, such as Secrets of the control plane.
    pub always: BTreeSet<ObjectKey>,
}

/// Namespaces that count. Kinds without a namespace are read whole in any case.
#[derive(Clone, Debug, Default)]
pub enum Scope {
    /// All.
    #[default]
    All,
    /// Those named; each is watched on its own, so that rights in them are enough.
    Namespaces(BTreeSet<String>),
    /// Those whose labels match, and one by name. All are watched; what is in others counts for nothing.
    Selected(Box<Selected>),
}

/// Namespaces by label.
#[derive(Clone, Debug)]
pub struct Selected {
    selector: Selector,
    own: Arc<str>,
}

/// A selector that Kubernetes does not know.
#[derive(Debug, thiserror::Error)]
#[error("namespaceSelector: {0}")]
pub struct InvalidSelector(#[from] ParseExpressionError);

/// Watches a cluster.
pub struct ClusterSource {
    client: Client,
    options: ClusterOptions,
    handle: ClusterHandle,
}

/// The part of the source that runs.
struct Running {
    context: Context,
    options: ClusterOptions,
    state: State,
    known: Known,
    watches: BTreeMap<Feed, (ApiResource, AbortHandle)>,
    tasks: JoinSet<()>,
    fetches: Arc<Semaphore>,
}

/// What a source with these options tells first of a cluster that holds these objects, each with `apiVersion` and `kind`;
/// those of other kinds are left out. For tools and tests without a cluster.
#[must_use]
pub fn told(objects: impl IntoIterator<Item = DynamicObject>, options: &ClusterOptions) -> Vec<Change> {
    let selector = match &options.scope {
        Scope::Selected(s) => Some((s.selector.clone(), s.own.clone())),
        Scope::All | Scope::Namespaces(_) => None,
    };
    let mut state = State::new(selector, options.controller.clone(), &options.always);
    let feed = |kind: Kind| Feed { kind, namespace: None };
    state.take(Event::Feeds { feeds: Kind::ALL.iter().copied().map(feed).collect(), complete: true });
    let mut items: BTreeMap<Kind, Vec<Item>> = BTreeMap::new();
    let mut whole = BTreeMap::new();
    for object in objects {
        let Some(types) = &object.types else { continue };
        let Some(kind) = Kind::find(&types.api_version, &types.kind) else { continue };
        let api_version = types.api_version.clone();
        let item = if decode::is_lazy(kind) {
            let item = decode::meta(kind, &object.metadata);
            whole.insert(item.key.clone(), decode::full(kind, &api_version, object));
            item
        } else {
            decode::full(kind, &api_version, object)
        };
        let named = match &options.scope {
            Scope::Namespaces(names) => !kind.is_namespaced() || names.contains(&*item.key.namespace),
            Scope::All | Scope::Selected(_) => true,
        };
        if named {
            items.entry(kind).or_default().push(item);
        }
    }
    for kind in Kind::ALL {
        state.take(Event::Listed(feed(*kind), items.remove(kind).unwrap_or_default()));
    }
    for (key, asked) in state.next_fetches() {
        let got = whole.remove(&key);
        state.take(Event::Fetched { key, asked, got });
    }
    state.flush()
}

// === impl Scope ===

impl Scope {
    /// Namespaces whose labels match, and `own`.
    ///
    /// # Errors
    /// [`InvalidSelector`] when an operator is not known or lacks its values.
    pub fn selected(selector: LabelSelector, own: &str) -> Result<Self, InvalidSelector> {
        Ok(Self::Selected(Box::new(Selected { selector: Selector::try_from(selector)?, own: own.into() })))
    }
}

// === impl ClusterSource ===

impl ClusterSource {
    /// A source that reads with this client, which needs no rights but get, list and watch; and what looks at it.
    #[must_use]
    pub fn new(client: Client, options: ClusterOptions) -> (Self, ClusterHandle) {
        let handle = ClusterHandle::default();
        (Self { client, options, handle: handle.clone() }, handle)
    }
}

impl fmt::Debug for ClusterSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSource").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Source for ClusterSource {
    async fn run(self, out: mpsc::Sender<Vec<Change>>) {
        let (events_tx, mut events) = mpsc::channel(1024);
        let (lost, asked) = mpsc::channel(1);
        let (known_tx, mut known) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(discovery::run(self.client.clone(), self.handle.clone(), asked, known_tx));
        let selector = match &self.options.scope {
            Scope::Selected(s) => Some((s.selector.clone(), s.own.clone())),
            Scope::All | Scope::Namespaces(_) => None,
        };
        let mut running = Running {
            context: Context { client: self.client, events: events_tx, handle: self.handle, lost },
            state: State::new(selector, self.options.controller.clone(), &self.options.always),
            options: self.options,
            known: Known::default(),
            watches: BTreeMap::new(),
            tasks,
            fetches: Arc::new(Semaphore::new(FETCHES)),
        };
        let mut impatient = Instant::now() + IMPATIENCE;
        // When the first change that waits came, and when the batch goes out.
        let mut waiting: Option<(Instant, Instant)> = None;
        loop {
            let due = waiting.map(|(_, due)| due);
            tokio::select! {
                biased;
                () = out.closed() => return,
                Some(known) = known.recv() => running.adapt(known),
                () = at(due) => {
                    waiting = None;
                    let batch = running.flush();
                    if !batch.is_empty() && out.send(batch).await.is_err() {
                        return;
                    }
                    continue;
                }
                Some(event) = events.recv() => {
                    running.state.take(event);
                    for _ in 0..events.len() {
                        let Ok(event) = events.try_recv() else { break };
                        running.state.take(event);
                    }
                }
                Some(ended) = running.tasks.join_next() => if let Err(e) = ended && e.is_panic() {
                    error!(error = %e, "a watch ended unexpectedly");
                    return;
                },
                () = sleep_until(impatient), if !running.state.is_synced() => {
                    warn!(missing = ?running.state.missing(), open = ?running.known.open, "still waiting for the cluster");
                    impatient = Instant::now() + IMPATIENCE;
                }
            }
            if running.state.is_dirty() {
                let now = Instant::now();
                let first = waiting.map_or(now, |(first, _)| first);
                waiting = Some((first, (now + SETTLE).min(first + SETTLE_MAX)));
            }
        }
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

// === impl Running ===

impl Running {
    /// Starts and ends watches so that there is one for each kind that the server has.
    fn adapt(&mut self, known: Known) {
        let mut wanted: BTreeMap<Feed, ApiResource> = BTreeMap::new();
        for (kind, resource) in &known.there {
            let everywhere = Feed { kind: *kind, namespace: None };
            match &self.options.scope {
                Scope::Namespaces(names) if kind.is_namespaced() => wanted.extend(
                    names
                        .iter()
                        .map(|n| (Feed { namespace: Some(n.as_str().into()), ..everywhere.clone() }, resource.clone())),
                ),
                _ => {
                    wanted.insert(everywhere, resource.clone());
                }
            }
        }
        for kind in known.there.keys().filter(|k| !self.known.there.contains_key(k)) {
            info!(%kind, version = known.there[kind].version, "the server has this kind");
        }
        for kind in self.known.there.keys().filter(|k| !known.there.contains_key(k)) {
            warn!(%kind, "the server does not have this kind any more; what is known of it stays");
        }
        self.watches.retain(|feed, (resource, task)| {
            let stays = wanted.get(feed) == Some(resource);
            if !stays {
                task.abort();
            }
            stays
        });
        for (feed, resource) in &wanted {
            if !self.watches.contains_key(feed) {
                let task = self.tasks.spawn(feed::run(self.context.clone(), feed.clone(), resource.clone()));
                self.watches.insert(feed.clone(), (resource.clone(), task));
            }
        }
        self.state.take(Event::Feeds { feeds: wanted.into_keys().collect(), complete: known.open.is_empty() });
        self.known = known;
    }

    fn flush(&mut self) -> Vec<Change> {
        for (key, version) in self.state.next_fetches() {
            let Some(resource) = self.known.there.get(&key.kind).cloned() else { continue };
            self.tasks.spawn(feed::fetch(self.context.clone(), resource, key, version, self.fetches.clone()));
        }
        let was = self.state.is_synced();
        let batch = self.state.flush();
        self.context.handle.set_seen(self.state.seen());
        let mut figures = self.context.handle.figures_mut();
        figures.batches += u64::from(!batch.is_empty());
        figures.told = self.state.told() as u64;
        figures.synced = self.state.is_synced();
        if figures.broken != *self.state.broken() {
            figures.broken.clone_from(self.state.broken());
        }
        drop(figures);
        if !was && self.state.is_synced() {
            self.context.handle.set_synced();
            let kinds = self.known.there.len();
            info!(objects = self.state.told(), kinds, absent = Kind::ALL.len() - kinds, "the cluster has been read");
        }
        batch
    }
}

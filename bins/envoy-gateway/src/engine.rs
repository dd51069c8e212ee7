//! The engine's own thread: batches in, translation, bytes to the xDS cache, wanted values to the gates.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use ir::{Translation, XdsKey, XdsKind, XdsValue};
use reconcile::Wanted;
use refusal::Refusals;
use resources::{Change, ObjectKey, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, error, info};
use translator::Engine;

use crate::{convert, shared::Progress};

/// Batches that wait while one is translated; a source that is faster waits itself.
const QUEUE: usize = 64;

/// How long a trial of suspects waits for a proxy's verdict.
const VERDICT: Duration = Duration::from_secs(20);

/// Where the engine's output goes.
#[derive(Debug)]
pub(crate) struct Outputs {
    /// xDS of every replica.
    pub(crate) cache: xds::Cache,
    /// Statuses, written by the leader.
    pub(crate) statuses: Wanted<ObjectKey, Arc<ir::Status>>,
    /// Fleets, written by the leader.
    pub(crate) fleets: Wanted<String, Arc<ir::Proxy>>,
    /// Moves when the wanted fleets do.
    pub(crate) fleet_changes: watch::Sender<u64>,
    /// How far it is.
    pub(crate) progress: Arc<Progress>,
    /// Proxies of this host share its ports: the readiness listener of the fleet is left out, Envoy's admin page tells.
    pub(crate) on_this_host: bool,
}

/// Asks the engine's thread.
#[derive(Clone, Debug)]
pub(crate) struct EngineHandle(mpsc::Sender<Ask>);

/// What can be asked of it beside batches.
#[derive(Debug)]
enum Ask {
    /// All objects.
    Store(oneshot::Sender<Store>),
    /// Other settings, or another time.
    Reconfigure(Box<translator::Config>),
    /// What a proxy says of its configuration.
    Fact(Box<xds::Feedback>),
    /// What proxies of other replicas refused.
    Elsewhere(Vec<peers::Refusal>),
}

/// The engine's thread.
#[derive(Debug)]
pub(crate) struct EngineThread {
    /// Batches for it.
    pub(crate) batches: mpsc::Sender<Vec<Change>>,
    /// Questions for it.
    pub(crate) handle: EngineHandle,
    /// Ends when the senders of batches are gone.
    pub(crate) thread: JoinHandle<()>,
}

enum Event {
    Batch(Vec<Change>),
    Ask(Ask),
    NoVerdict,
    End,
}

// === impl EngineHandle ===

impl EngineHandle {
    /// All objects that the engine holds now; empty when it is gone.
    pub(crate) async fn store(&self) -> Store {
        let (tx, rx) = oneshot::channel();
        if self.0.send(Ask::Store(tx)).await.is_err() {
            return Store::new();
        }
        rx.await.unwrap_or_default()
    }

    /// What a proxy says: refusals are traced to objects.
    pub(crate) async fn fact(&self, fact: xds::Feedback) {
        let _ = self.0.send(Ask::Fact(Box::new(fact))).await;
    }

    /// What proxies of other replicas refused: it is left out here too.
    pub(crate) async fn refused_elsewhere(&self, refusals: Vec<peers::Refusal>) {
        let _ = self.0.send(Ask::Elsewhere(refusals)).await;
    }

    /// Translates by other settings from now on; told only what that changes.
    pub(crate) async fn reconfigure(&self, config: translator::Config) {
        // An engine that is gone ends the process anyway.
        let _ = self.0.send(Ask::Reconfigure(Box::new(config))).await;
    }
}

/// Starts the engine.
///
/// # Errors
/// When no thread can be started.
pub(crate) fn start(config: translator::Config, outputs: Outputs) -> Result<EngineThread> {
    let (batches, batch_rx) = mpsc::channel(QUEUE);
    let (ask, ask_rx) = mpsc::channel(1024);
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().context("the engine has no runtime")?;
    let thread = std::thread::Builder::new()
        .name("engine".to_owned())
        .spawn(move || Loop::new(config, outputs).run(&runtime, batch_rx, ask_rx))
        .context("the engine has no thread")?;
    Ok(EngineThread { batches, handle: EngineHandle(ask), thread })
}

/// What changes in a group.
type Update = BTreeMap<(xds::TypeUrl, xds::Name), Option<xds::Resource>>;

struct Loop {
    engine: Engine,
    encoder: envoy::Encoder,
    /// Clusters and endpoints of each group as they go over the wire.
    editions: BTreeMap<ir::Name, envoy::Editions>,
    outputs: Outputs,
    failed: BTreeMap<(ir::Name, XdsKey), String>,
    refusals: Refusals,
    /// What follows from what could not be encoded, to be applied next.
    follow_up: Vec<Change>,
    /// What proxies of this replica refused, and their words.
    left_out: BTreeMap<ObjectKey, Arc<str>>,
}

impl Loop {
    fn new(config: translator::Config, outputs: Outputs) -> Self {
        Self {
            engine: Engine::new(config),
            encoder: envoy::Encoder::new(),
            editions: BTreeMap::new(),
            outputs,
            failed: BTreeMap::new(),
            refusals: Refusals::new(),
            follow_up: Vec::new(),
            left_out: BTreeMap::new(),
        }
    }

    fn run(
        mut self,
        runtime: &tokio::runtime::Runtime,
        mut batches: mpsc::Receiver<Vec<Change>>,
        mut asks: mpsc::Receiver<Ask>,
    ) {
        let mut verdict_due = None;
        loop {
            let event = runtime.block_on(async {
                tokio::select! {
                    biased;
                    Some(ask) = asks.recv() => Event::Ask(ask),
                    batch = batches.recv() => batch.map_or(Event::End, Event::Batch),
                    () = async {
                        match verdict_due {
                            Some(at) => tokio::time::sleep_until(at).await,
                            None => std::future::pending().await,
                        }
                    } => Event::NoVerdict,
                }
            });
            let step = matches!(event, Event::NoVerdict | Event::Ask(Ask::Fact(_)));
            match event {
                Event::End => return,
                // Whoever asked may have gone.
                Event::Ask(Ask::Store(reply)) => drop(reply.send(self.engine.store().clone())),
                Event::Ask(Ask::Reconfigure(config)) => {
                    let from = Instant::now();
                    let translation = self.engine.reconfigure(*config);
                    self.hand_out(translation);
                    self.took(from);
                }
                Event::Ask(Ask::Fact(fact)) => {
                    let changes = self.fact(&fact);
                    self.take_refusals(changes);
                }
                Event::NoVerdict => {
                    let changes = self.refusals.no_verdict();
                    self.take_refusals(changes);
                }
                Event::Ask(Ask::Elsewhere(refusals)) => {
                    let changes = self.elsewhere(&refusals);
                    self.take(changes);
                }
                Event::Batch(mut batch) => {
                    while let Ok(more) = batches.try_recv() {
                        batch.extend(more);
                    }
                    self.take(batch);
                }
            }
            if !self.refusals.on_trial() {
                self.tell_left_out();
                verdict_due = None;
            } else if step || verdict_due.is_none() {
                verdict_due = Some(tokio::time::Instant::now() + VERDICT);
            }
        }
    }

    /// What follows from a proxy's words.
    fn fact(&mut self, fact: &xds::Feedback) -> Vec<Change> {
        let at = |group: &xds::NodeGroup, kind: xds::TypeUrl, name: &xds::Name| {
            Some((group.0.clone(), (convert::xds_kind(kind)?, name.clone())))
        };
        match fact {
            xds::Feedback::Acked { proxy, type_url, resources, .. } => {
                let mut changes = Vec::new();
                for r in resources {
                    if let (Some(at), Some(version)) = (at(&proxy.group, *type_url, &r.name), &r.version) {
                        changes.extend(self.refusals.accepted(&at, version));
                    }
                }
                changes
            }
            // Of several resources the server sends parts again until the culprit stands alone.
            xds::Feedback::Nacked { proxy, type_url, resources, detail, .. } => {
                self.outputs.progress.count_refused(&proxy.node, type_url.as_str());
                match &resources[..] {
                    [r] => match (at(&proxy.group, *type_url, &r.name), &r.version) {
                        (Some(at), Some(version)) => self.refusals.refused(&at, version, detail),
                        _ => Vec::new(),
                    },
                    _ => Vec::new(),
                }
            }
            _ => Vec::new(),
        }
    }

    /// Takes in what follows from what proxies of this replica said.
    fn take_refusals(&mut self, changes: Vec<Change>) {
        for change in &changes {
            match change {
                Change::Exclude(key, why) => drop(self.left_out.insert(key.clone(), why.clone())),
                Change::Readmit(key) => drop(self.left_out.remove(key)),
                _ => {}
            }
        }
        self.take(changes);
    }

    /// Objects that proxies of other replicas refused, in the very version that is here; not while it is open what is wrong
    /// with one.
    fn elsewhere(&self, refusals: &[peers::Refusal]) -> Vec<Change> {
        if self.refusals.on_trial() {
            return Vec::new();
        }
        let store = self.engine.store();
        let exclude = |r: &peers::Refusal| {
            let named = |k: &ObjectKey| k.kind.as_str() == r.kind && *k.namespace == *r.namespace && *k.name == *r.name;
            let (key, object) = store.iter().find(|(k, _)| named(k))?;
            let meta = object.metadata();
            let same = meta.uid.as_deref() == Some(&*r.uid) && meta.generation == Some(r.generation);
            (same && store.exclusion(key).is_none()).then(|| Change::Exclude(key.clone(), r.detail.as_str().into()))
        };
        refusals.iter().filter_map(exclude).collect()
    }

    /// Has the other replicas told what proxies of this one refused and is still left out.
    fn tell_left_out(&mut self) {
        let store = self.engine.store();
        self.left_out.retain(|key, _| store.exclusion(key).is_some());
        let told = self.left_out.iter().filter_map(|(key, why)| {
            let meta = store.iter().find(|(k, _)| *k == key)?.1.metadata();
            Some(peers::Refusal {
                kind: key.kind.as_str().to_owned(),
                namespace: key.namespace.to_string(),
                name: key.name.to_string(),
                uid: meta.uid.clone()?,
                generation: meta.generation?,
                detail: why.to_string(),
            })
        });
        let told = told.collect();
        *self.outputs.progress.left_out.lock().unwrap_or_else(PoisonError::into_inner) = told;
    }

    /// Takes changes in, and tells when what there was at the start is translated.
    fn take(&mut self, batch: Vec<Change>) {
        let synced = batch.iter().filter(|c| matches!(c, Change::Synced)).count() as u64;
        self.take_in(batch);
        if synced > 0 {
            self.outputs.progress.synced.send_modify(|n| *n += synced);
        }
    }

    /// Takes changes in as one batch. What changes nothing costs nothing.
    fn take_in(&mut self, batch: Vec<Change>) {
        if batch.is_empty() {
            return;
        }
        let mut batch = self.engine.store().differences(batch);
        let progress = self.outputs.progress.clone();
        let mut synced = batch.iter().any(|c| matches!(c, Change::Synced));
        if synced && progress.translated.load(Ordering::Acquire) {
            batch.retain(|c| !matches!(c, Change::Synced));
            synced = false;
        }
        if batch.is_empty() {
            progress.without_effect.fetch_add(1, Ordering::Relaxed);
            return;
        }
        for change in &batch {
            match change {
                Change::Exclude(object, why) => error!(%object, %why, "refused by Envoy: left out until it changes"),
                Change::Readmit(object) => info!(%object, "not left out any more"),
                _ => {}
            }
        }
        let changes = batch.len();
        let from = Instant::now();
        let translation = self.engine.apply(batch);
        self.hand_out(translation);
        let ms = self.took(from);
        if synced && !progress.translated.swap(true, Ordering::AcqRel) {
            self.outputs.statuses.complete();
            self.outputs.fleets.complete();
            info!(changes, ms, "translated for the first time");
        } else {
            debug!(changes, ms, "translated");
        }
    }

    /// Counts a translation that began then; returns its milliseconds.
    fn took(&self, from: Instant) -> f64 {
        let took = from.elapsed();
        let progress = &self.outputs.progress;
        progress.translations.fetch_add(1, Ordering::Relaxed);
        progress.last_micros.store(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
        progress.seconds.observe(took.as_secs_f64());
        convert::seconds(took) * 1000.0
    }

    /// xDS before infra: a new proxy finds its configuration when it comes up.
    fn hand_out(&mut self, translation: Translation) {
        let mut statuses = translation.statuses.clone();
        self.hand_out_once(translation);
        // Objects that cannot be encoded are left out, which changes what was just made: statuses are told at the end.
        while !self.follow_up.is_empty() {
            let changes = std::mem::take(&mut self.follow_up);
            for change in &changes {
                if let Change::Exclude(object, why) = change {
                    error!(%object, %why, "Envoy would refuse it: left out until it changes");
                }
            }
            let translation = self.engine.apply(changes);
            if translation.is_empty() {
                break;
            }
            statuses.extend(translation.statuses.clone());
            self.hand_out_once(translation);
        }
        for key in statuses.keys() {
            self.outputs.progress.count_published(&format!("{}-status", key.kind.as_str().to_lowercase()), 1);
        }
        self.outputs.statuses.publish(statuses);
    }

    fn hand_out_once(&mut self, translation: Translation) {
        let progress = self.outputs.progress.clone();
        progress.count_published("xds-ir", translation.xds.len());
        progress.count_published("infra-ir", translation.infra.len());
        progress.snapshots.fetch_add(translation.xds.len() as u64, Ordering::Relaxed);
        // Proxies of this host are all started with the same.
        let own_times = translation.infra.iter().filter(|_| !self.outputs.on_this_host);
        for (group, proxy) in own_times.filter_map(|(k, v)| Some((k, v.as_ref()?))) {
            let own = proxy.settings.shutdown.as_ref().and_then(|s| s.drain_timeout.as_ref()?.get().ok());
            self.outputs.cache.set_drain_time(&xds::NodeGroup(group.clone()), own);
        }
        for (group, changes) in translation.xds {
            let mut update = BTreeMap::new();
            for (key, value) in changes {
                self.encode(&group, key, value, &mut update);
            }
            self.assign(&group, &mut update);
            self.outputs.cache.update(xds::NodeGroup(group), update);
        }
        for group in translation.gone {
            self.failed.retain(|(of, _), _| *of != group);
            self.refusals.forget(&group);
            self.editions.remove(&group);
            self.outputs.cache.remove(&xds::NodeGroup(group));
        }
        progress.encode_errors.store(self.failed.len() as u64, Ordering::Relaxed);
        if !translation.infra.is_empty() {
            self.outputs.fleets.publish(translation.infra.into_iter().map(|(k, v)| (k.to_string(), v)));
            self.outputs.fleet_changes.send_modify(|changes| *changes += 1);
        }
    }

    fn encode(&mut self, group: &ir::Name, key: XdsKey, value: Option<XdsValue>, update: &mut Update) {
        let at = (convert::type_url(key.0), key.1.clone());
        // The fleet's own cluster is known to bootstraps, by its name.
        let own = key.1 == *group;
        let Some(value) = value else {
            self.encoder.forget(&key);
            self.editions.entry(group.clone()).or_default().remove(&key);
            self.failed.remove(&(group.clone(), key.clone()));
            self.refusals.sent((group.clone(), key), None);
            update.insert(at, None);
            return;
        };
        if self.outputs.on_this_host && matches!(value, XdsValue::Ready(_)) {
            return;
        }
        let encoded = match &value {
            XdsValue::Cluster(cluster) if !own => {
                self.editions.entry(group.clone()).or_default().cluster(&mut self.encoder, cluster)
            }
            XdsValue::Endpoints(endpoints) if !own => {
                return self.editions.entry(group.clone()).or_default().endpoints(endpoints);
            }
            _ => self.encoder.encode(&value),
        };
        match encoded {
            Ok(encoded) => {
                self.failed.remove(&(group.clone(), key.clone()));
                if matches!(key.0, XdsKind::Cluster | XdsKind::Listener | XdsKind::RouteTable) {
                    self.refusals.sent((group.clone(), key), Some((encoded.version.clone(), value)));
                }
                if let Some((_, resource)) = convert::resource(&encoded) {
                    update.insert(at, Some(resource));
                }
            }
            Err(e) => self.not_sent(group, key, &value, &e),
        }
    }

    /// Endpoints, under the names by which the clusters of the update ask for them.
    fn assign(&mut self, group: &ir::Name, update: &mut Update) {
        let Some(editions) = self.editions.get_mut(group) else { return };
        for envoy::Assignment { name, resource, value } in editions.take() {
            let at = (xds::TypeUrl::ClusterLoadAssignment, name.clone());
            let key = value.as_ref().map_or((XdsKind::Endpoints, name), XdsValue::key);
            match (resource, value) {
                (Some(Err(e)), Some(value)) => self.not_sent(group, key, &value, &e),
                (Some(Ok(encoded)), _) => {
                    self.failed.remove(&(group.clone(), key));
                    update.insert(at, convert::resource(&encoded).map(|(_, resource)| resource));
                }
                (None | Some(Err(_)), _) => drop(update.insert(at, None)),
            }
        }
    }

    /// What proxies have of it stays; everything else goes on.
    fn not_sent(&mut self, group: &ir::Name, key: XdsKey, value: &XdsValue, e: &envoy::EncodeError) {
        let text = e.to_string();
        error!(%group, resource = %key.1, error = %text, "a resource that Envoy would refuse is not sent");
        self.outputs.progress.snapshot_errors.fetch_add(1, Ordering::Relaxed);
        self.follow_up.extend(culprits(value, &text));
        self.failed.insert((group.clone(), key), text);
    }
}

/// Objects of a value that cannot be encoded, by encoding each one's part alone.
fn culprits(value: &XdsValue, why: &str) -> Vec<Change> {
    match value {
        XdsValue::RouteTable(table) => refusal::alone(table)
            .into_iter()
            .filter_map(|(object, part)| {
                let error = envoy::encode(&XdsValue::RouteTable(Arc::new(part))).err()?;
                Some(Change::Exclude(object, error.to_string().into()))
            })
            .collect(),
        XdsValue::Cluster(_) => refusal::origins(value).into_iter().map(|o| Change::Exclude(o, why.into())).collect(),
        _ => Vec::new(),
    }
}

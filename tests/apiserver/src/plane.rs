//! The control plane in this process: the cluster as source, the engine, and the writers behind their gates. What the
//! binary adds (xDS, admin page, signals) is not here; every request is recorded.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{self, Poll},
    time::Duration,
};

use anyhow::Result;
use election::{
    RoleWatch,
    kubernetes::{PermitLayer, ReadOnlyLayer},
};
use http::{Request, header};
use kube::{Config, client::ClientBuilder};
use provider::{
    Source,
    cluster::{ClusterHandle, ClusterOptions, ClusterSource, Scope},
};
use reconcile::{Backoff, Gated, Wanted};
use resources::{Change, Kind, ObjectKey, Store};
use status::{Facts, Finalizers, KubeStatusClient, StatusWriter};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tower::{Layer, Service};
use translator::Engine;

/// A control plane that runs.
#[derive(Debug)]
pub struct Plane {
    /// Looks at the cluster as it was read.
    pub handle: ClusterHandle,
    /// Statuses that are wanted.
    pub statuses: Wanted<ObjectKey, Arc<ir::Status>>,
    /// Facts of fleets, which tests tell.
    pub facts: Facts,
    /// Requests that only read, so far.
    pub requests: Requests,
    /// Batches that were translated.
    pub translations: Arc<AtomicU64>,
    /// Objects that the engine has.
    pub store: watch::Receiver<Arc<Store>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// Requests as they left: method, path with query, `Accept`.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Vec<(String, String, String)>>>);

impl Plane {
    /// Starts it. It reads and writes by two configurations (users), and leads if `role` does.
    ///
    /// # Errors
    /// When a configuration makes no client.
    pub fn start(
        reads: Config,
        writes: Config,
        scope: Scope,
        settings: translator::Config,
        role: &RoleWatch,
    ) -> Result<Self> {
        let requests = Requests::default();
        let builder = |mut config: Config| {
            config.default_retry = false;
            ClientBuilder::try_from(config)
        };
        let reads = builder(reads)?.with_layer(&requests).with_layer(&ReadOnlyLayer::new()).build();
        let writes = builder(writes)?.with_layer(&PermitLayer::new(Duration::from_secs(3))).build();
        let controller = settings.controller_name.clone();
        let options = ClusterOptions { scope, controller: Some(controller.clone()), always: BTreeSet::new() };
        let (source, handle) = ClusterSource::new(reads, options);
        let (statuses, classes) = (Wanted::new(), Wanted::new());
        let facts = Facts::new(statuses.clone());
        let client = KubeStatusClient::new(writes);
        let writer = StatusWriter::new(client.clone(), handle.clone(), controller.clone(), facts.clone());
        let finalizers = Finalizers::new(client, handle.clone(), controller.clone());
        let (stop, stopped) = watch::channel(false);
        let until = || {
            let mut stopped = stopped.clone();
            async move {
                // Dropped or told: both are the end.
                let _ = stopped.wait_for(|s| *s).await;
            }
        };
        let translations = Arc::new(AtomicU64::new(0));
        let (store_tx, store) = watch::channel(Arc::new(Store::new()));
        let mut tasks = JoinSet::new();
        let (tx, rx) = mpsc::channel(64);
        let end = until();
        tasks.spawn(async move {
            tokio::select! { () = source.run(tx) => panic!("the source ended"), () = end => {} }
        });
        tasks.spawn(translate(settings, rx, statuses.clone(), translations.clone(), store_tx));
        let gate = Gated::new(writer, statuses.clone(), role.clone(), Backoff::default()).with_concurrency(8);
        tasks.spawn(gate.run(until()));
        tasks.spawn(Gated::new(finalizers, classes.clone(), role.clone(), Backoff::default()).run(until()));
        let (of, wanted) = (handle.clone(), statuses.clone());
        let end = until();
        tasks.spawn(async move {
            tokio::select! { () = follow(of, wanted, classes, controller) => {}, () = end => {} }
        });
        Ok(Self { handle, statuses, facts, requests, translations, store, stop, tasks })
    }

    /// Number of translations so far.
    #[must_use]
    pub fn translations(&self) -> u64 {
        self.translations.load(Ordering::Relaxed)
    }

    /// Whether the engine has an object.
    #[must_use]
    pub fn has(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        let key = ObjectKey::new(kind, namespace, name);
        self.store.borrow().iter().any(|(k, _)| *k == key)
    }

    /// Stops it; writes under way are answered first.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn translate(
    settings: translator::Config,
    mut batches: mpsc::Receiver<Vec<Change>>,
    statuses: Wanted<ObjectKey, Arc<ir::Status>>,
    count: Arc<AtomicU64>,
    store: watch::Sender<Arc<Store>>,
) {
    let mut engine = Engine::new(settings);
    while let Some(batch) = batches.recv().await {
        let synced = batch.iter().any(|c| matches!(c, Change::Synced));
        let batch = engine.store().differences(batch);
        if batch.is_empty() {
            continue;
        }
        let translation = engine.apply(batch);
        count.fetch_add(1, Ordering::Relaxed);
        statuses.publish(translation.statuses);
        store.send_replace(Arc::new(engine.store().clone()));
        if synced {
            statuses.complete();
        }
    }
}

async fn follow(
    handle: ClusterHandle,
    statuses: Wanted<ObjectKey, Arc<ir::Status>>,
    classes: Wanted<ObjectKey, ()>,
    controller: Arc<str>,
) {
    handle.synced().await;
    let mut in_use = BTreeSet::new();
    loop {
        let now = status::classes_in_use(&handle, &controller);
        let gone = in_use.iter().filter(|k| !now.contains(*k)).map(|k: &ObjectKey| (k.clone(), None));
        let new = now.iter().filter(|k| !in_use.contains(*k)).map(|k| (k.clone(), Some(())));
        classes.publish(gone.chain(new).collect::<Vec<_>>());
        classes.complete();
        in_use = now;
        let touched = handle.touched().await;
        statuses.recheck(&touched);
        classes.recheck(&touched);
    }
}

// === impl Requests ===

impl Requests {
    /// All so far.
    #[must_use]
    pub fn all(&self) -> Vec<(String, String, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Records requests.
#[derive(Clone, Debug)]
pub struct Record<S> {
    inner: S,
    requests: Requests,
}

impl<S> Layer<S> for Requests {
    type Service = Record<S>;

    fn layer(&self, inner: S) -> Record<S> {
        Record { inner, requests: self.clone() }
    }
}

impl<S: Service<Request<B>>, B> Service<Request<B>> for Record<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        let accept = request.headers().get(header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
        let path = request.uri().path_and_query().map_or("", |p| p.as_str());
        let line = (request.method().to_string(), path.to_owned(), accept.to_owned());
        self.requests.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        self.inner.call(request)
    }
}

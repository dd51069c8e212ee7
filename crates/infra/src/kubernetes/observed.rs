//! What there is: watches of the objects of all fleets, and of the addresses of nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use kube::{
    Api, Client,
    core::{ApiResource, DynamicObject},
    runtime::watcher::{self, watcher},
};
use serde_json::Value;
use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};

use super::{
    names::{FleetKey, SELECTOR},
    object::{Live, ObjectKind, ObjectRef},
};

/// Objects of fleets as last seen. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Fleets(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    table: Mutex<Table>,
    touched: Notify,
    /// What has been listed: a kind in a namespace or in all, or nodes.
    listed: watch::Sender<BTreeSet<(Option<ObjectKind>, Option<String>)>>,
    /// How much is to be listed.
    lists: usize,
}

#[derive(Debug, Default)]
struct Table {
    by_fleet: BTreeMap<FleetKey, BTreeMap<ObjectRef, Live>>,
    /// Internal and external addresses of nodes, by name.
    nodes: BTreeMap<String, Vec<(String, String)>>,
    touched: BTreeSet<FleetKey>,
    all_touched: bool,
}

/// Watches the objects of fleets.
pub struct Watches {
    client: Client,
    /// Namespaces that are watched, each on its own; one without a name stands for all.
    namespaces: Vec<Option<String>>,
    fleets: Fleets,
}

/// Longest time that a watch is open before it is opened again.
const WATCH_SECONDS: u32 = 45;
/// Longest wait between two tries of a watch.
const PATIENCE: Duration = Duration::from_secs(30);

// === impl Shared ===

impl Shared {
    fn new(namespaces: usize) -> Self {
        Self {
            table: Mutex::default(),
            touched: Notify::new(),
            listed: watch::Sender::new(BTreeSet::new()),
            lists: namespaces * ObjectKind::ALL.len() + 1,
        }
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new(1)
    }
}

// === impl Fleets ===

impl Fleets {
    /// The objects of a fleet.
    #[must_use]
    pub fn of(&self, key: &FleetKey) -> BTreeMap<ObjectRef, Live> {
        self.table().by_fleet.get(key).cloned().unwrap_or_default()
    }

    /// All fleets of which there is something.
    #[must_use]
    pub fn keys(&self) -> Vec<FleetKey> {
        self.table().by_fleet.keys().cloned().collect()
    }

    /// Addresses of nodes, those that clients reach first.
    #[must_use]
    pub fn node_addresses(&self) -> Vec<String> {
        let table = self.table();
        let of = |wanted: &str| -> Vec<String> {
            let all = table.nodes.values().flatten();
            all.filter(|(kind, _)| kind == wanted).map(|(_, address)| address.clone()).collect()
        };
        let external = of("ExternalIP");
        if external.is_empty() { of("InternalIP") } else { external }
    }

    /// Waits until everything has been listed once.
    pub async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.listed.subscribe().wait_for(|listed| listed.len() >= self.0.lists).await;
    }

    /// Everything has been listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.0.listed.borrow().len() >= self.0.lists
    }

    /// Waits for changes and takes them: fleets that were touched; `None` for all of them.
    pub async fn touched(&self) -> Option<BTreeSet<FleetKey>> {
        loop {
            {
                let mut table = self.table();
                if mem::take(&mut table.all_touched) {
                    table.touched.clear();
                    return None;
                }
                let touched = mem::take(&mut table.touched);
                if !touched.is_empty() {
                    return Some(touched);
                }
            }
            self.0.touched.notified().await;
        }
    }

    /// Notes an object, unless a later version of it is known.
    pub(super) fn note(&self, at: ObjectRef, live: Live) {
        let Some(fleet) = FleetKey::of_object(&live) else { return };
        let mut table = self.table();
        let objects = table.by_fleet.entry(fleet.clone()).or_default();
        let newer = |old: &Live| {
            let number = |l: &Live| l.resource_version.parse::<u64>().ok();
            old.uid != live.uid || number(old).zip(number(&live)).is_none_or(|(old, new)| old < new)
        };
        if objects.get(&at).is_none_or(newer) {
            objects.insert(at, live);
            table.touched.insert(fleet);
            drop(table);
            self.0.touched.notify_one();
        }
    }

    /// Notes that an object is gone.
    pub(super) fn forget(&self, at: &ObjectRef) {
        let mut table = self.table();
        let Table { by_fleet, touched, .. } = &mut *table;
        for (fleet, objects) in by_fleet.iter_mut() {
            if objects.remove(at).is_some() {
                touched.insert(fleet.clone());
            }
        }
        by_fleet.retain(|_, objects| !objects.is_empty());
        drop(table);
        self.0.touched.notify_one();
    }

    /// Notes a complete list of a kind, in a namespace or in all.
    pub(super) fn listed(&self, kind: ObjectKind, namespace: Option<&str>, items: Vec<(ObjectRef, Live)>) {
        let there: BTreeSet<&ObjectRef> = items.iter().map(|(at, _)| at).collect();
        let gone: Vec<ObjectRef> = {
            let table = self.table();
            let known = table.by_fleet.values().flat_map(BTreeMap::keys);
            let inside = |at: &&ObjectRef| at.kind == kind && namespace.is_none_or(|n| *at.namespace == *n);
            known.filter(inside).filter(|at| !there.contains(at)).cloned().collect()
        };
        gone.iter().for_each(|at| self.forget(at));
        for (at, live) in items {
            self.note(at, live);
        }
        self.done(Some(kind), namespace);
    }

    /// Notes that a list is complete; without a kind, that of nodes.
    pub(super) fn done(&self, kind: Option<ObjectKind>, namespace: Option<&str>) {
        self.0.listed.send_if_modified(|listed| listed.insert((kind, namespace.map(str::to_owned))));
    }

    fn nodes(&self, change: impl FnOnce(&mut BTreeMap<String, Vec<(String, String)>>)) {
        let mut table = self.table();
        let before = table.nodes.clone();
        change(&mut table.nodes);
        if table.nodes != before {
            table.all_touched = true;
            drop(table);
            self.0.touched.notify_one();
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Watches ===

impl Watches {
    /// Watches with this client, which needs no rights but list and watch, in those namespaces, or in all where none is
    /// named; and what looks at what is seen.
    #[must_use]
    pub fn new(client: Client, namespaces: impl IntoIterator<Item = String>) -> (Self, Fleets) {
        let mut namespaces: Vec<Option<String>> = namespaces.into_iter().map(Some).collect();
        if namespaces.is_empty() {
            namespaces.push(None);
        }
        let fleets = Fleets(Arc::new(Shared::new(namespaces.len())));
        (Self { client, namespaces, fleets: fleets.clone() }, fleets)
    }

    /// Watches until `stop` resolves.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        for namespace in &self.namespaces {
            for kind in ObjectKind::ALL {
                tasks.spawn(objects(self.client.clone(), namespace.clone(), kind, self.fleets.clone()));
            }
        }
        tasks.spawn(nodes(self.client, self.fleets));
        tokio::select! {
            () = stop => {}
            // None of them ends by itself.
            _ = tasks.join_next() => {}
        }
    }
}

impl fmt::Debug for Watches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watches").field("namespaces", &self.namespaces).finish_non_exhaustive()
    }
}

async fn objects(client: Client, namespace: Option<String>, kind: ObjectKind, fleets: Fleets) {
    let (name, api_version, plural) = kind.names();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: name.to_owned(),
        plural: plural.to_owned(),
    };
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let read = |object: DynamicObject| {
        let at = ObjectRef {
            kind,
            namespace: object.metadata.namespace.as_deref().unwrap_or_default().into(),
            name: object.metadata.name.as_deref().unwrap_or_default().into(),
        };
        let live = serde_json::to_value(object).ok().and_then(|mut tree| {
            // Items of a list do not say what they are.
            tree["apiVersion"] = api_version.into();
            tree["kind"] = name.into();
            Live::from_tree(tree)
        });
        (at, live)
    };
    let mut staged = Vec::new();
    follow(api, name, config().labels(SELECTOR), |event| match event {
        watcher::Event::Init => staged.clear(),
        watcher::Event::InitApply(object) => {
            if let (at, Some(live)) = read(object) {
                staged.push((at, live));
            }
        }
        watcher::Event::InitDone => fleets.listed(kind, namespace.as_deref(), mem::take(&mut staged)),
        watcher::Event::Apply(object) => {
            if let (at, Some(live)) = read(object) {
                fleets.note(at, live);
            }
        }
        watcher::Event::Delete(object) => fleets.forget(&read(object).0),
    })
    .await;
}

async fn nodes(client: Client, fleets: Fleets) {
    let api: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
    let read = |node: k8s_openapi::api::core::v1::Node| {
        let addresses = node.status.and_then(|s| s.addresses).unwrap_or_default();
        let addresses = addresses.into_iter().map(|a| (a.type_, a.address)).collect::<Vec<_>>();
        (node.metadata.name.unwrap_or_default(), addresses)
    };
    let mut staged = BTreeMap::new();
    follow(api, "Node", config(), |event| match event {
        watcher::Event::Init => staged.clear(),
        watcher::Event::InitApply(node) => staged.extend([read(node)]),
        watcher::Event::InitDone => {
            let all = mem::take(&mut staged);
            fleets.nodes(|nodes| *nodes = all);
            fleets.done(None, None);
        }
        watcher::Event::Apply(node) => fleets.nodes(|nodes| nodes.extend([read(node)])),
        watcher::Event::Delete(node) => fleets.nodes(|nodes| drop(nodes.remove(&read(node).0))),
    })
    .await;
}

/// The server ends each watch after so long; one that hangs is found out by its missing end.
fn config() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS)
}

async fn follow<K>(api: Api<K>, what: &str, config: watcher::Config, mut take: impl FnMut(watcher::Event<K>))
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + fmt::Debug + Send + 'static,
{
    let mut failures = 0u32;
    let mut events = std::pin::pin!(watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                failures = 0;
                take(event);
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                tracing::warn!(kind = what, %error, failures, "a watch of proxies' objects failed; what is known stays, trying again");
                let wait = Duration::from_millis(200).saturating_mul(2u32.saturating_pow(failures.min(10)));
                tokio::time::sleep(wait.min(PATIENCE)).await;
            }
        }
    }
}

/// A field of an object's tree as a number.
pub(super) fn number(tree: &Value, pointer: &str) -> i64 {
    tree.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

//! A model of Envoy's side of a stream, and random histories of updates, acknowledgements, refusals, cuts and restarts against it.
//!
//! The model behaves as was measured with Envoy 1.40: clusters warm up, the acknowledgement of clusters waits for them, a changed
//! cluster does not ask for its endpoints again, endpoints without a cluster are dropped, the good part of a refused response applies
//! and is forgotten in `initial_resource_versions`. Connections of a listener that was removed or changed go on with its table for the
//! drain time, and requests may look for the cluster of a former route for as long.

mod found;
mod histories;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{DeltaAsk, Mode, Response, Session, SotwAsk, Waits};
use crate::{Hints, Name, Resource, TypeUrl, snapshot::Snapshot};

const KINDS: [TypeUrl; TypeUrl::COUNT] = TypeUrl::ALL;
const WAITS: Waits =
    Waits { ack: Duration::from_secs(20), settle: Duration::from_secs(5), drain: Duration::from_secs(60) };

/// What the test wants the proxy to have.
#[derive(Clone, Debug, Default)]
struct World {
    /// Name → (revision, needs more than endpoints, of type EDS, fault).
    clusters: BTreeMap<u8, ClusterSpec>,
    endpoints: BTreeMap<u8, u8>,
    /// Name → (revision, clusters).
    tables: BTreeMap<u8, (u8, BTreeSet<u8>, bool)>,
    /// Name → (revision, table).
    listeners: BTreeMap<u8, (u8, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Refused.
    Bad,
    /// Never warm.
    Stuck,
}

#[derive(Clone, Copy, Debug)]
struct ClusterSpec {
    revision: u8,
    warms: bool,
    eds: bool,
    fault: Fault,
}

fn names(kind: char, of: impl IntoIterator<Item = u8>) -> Arc<[Name]> {
    of.into_iter().map(|at| Name::from(format!("{kind}{at}"))).collect()
}

impl World {
    fn resources(&self) -> BTreeMap<(TypeUrl, Name), Resource> {
        let mut all = BTreeMap::new();
        for (at, of) in &self.clusters {
            let body = format!("{};{};{};{:?}", of.revision, of.warms, of.eds, of.fault);
            let hints = Hints::Cluster {
                warms: of.warms,
                endpoints: of.eds.then(|| format!("c{at}").into()),
                secrets: Arc::new([]),
            };
            all.insert((TypeUrl::Cluster, format!("c{at}").into()), Resource::new(body, hints));
        }
        for (at, revision) in &self.endpoints {
            if self.clusters.get(at).is_some_and(|of| of.eds) {
                let key = (TypeUrl::ClusterLoadAssignment, format!("c{at}").into());
                all.insert(key, Resource::new(format!("e{revision}"), Hints::Unknown));
            }
        }
        for (at, (revision, clusters, bad)) in &self.tables {
            let list: Vec<String> = clusters.iter().map(|at| format!("c{at}")).collect();
            let body = format!("{revision};{bad};{}", list.join(","));
            let hints = Hints::RouteConfiguration { clusters: names('c', clusters.iter().copied()) };
            all.insert((TypeUrl::RouteConfiguration, format!("r{at}").into()), Resource::new(body, hints));
        }
        for (at, (revision, table)) in &self.listeners {
            let hints = Hints::Listener { routes: names('r', [*table]), secrets: Arc::new([]), clusters: Arc::new([]) };
            let body = format!("{revision};r{table}");
            all.insert((TypeUrl::Listener, format!("l{at}").into()), Resource::new(body, hints));
        }
        all
    }
}

#[derive(Debug, Default)]
struct ModelCluster {
    /// What takes requests.
    active: bool,
    /// What was applied last.
    version: String,
    warms: bool,
    eds: bool,
    stuck: bool,
    waits_for_endpoints: bool,
    waits_for_checks: bool,
}

impl ModelCluster {
    fn is_warming(&self) -> bool {
        self.waits_for_endpoints || self.waits_for_checks
    }
}

#[derive(Debug)]
enum Ask {
    Delta(TypeUrl, DeltaAsk),
    Sotw(TypeUrl, SotwAsk),
}

/// The proxy.
#[derive(Debug, Default)]
struct Proxy {
    sotw: bool,
    clusters: BTreeMap<String, ModelCluster>,
    endpoints: BTreeMap<String, String>,
    tables: BTreeMap<String, (String, Vec<String>)>,
    listeners: BTreeMap<String, (String, String)>,
    /// What it will name when it connects again.
    known: [BTreeMap<String, String>; TypeUrl::COUNT],
    subscribed: [BTreeSet<String>; TypeUrl::COUNT],
    version: [String; TypeUrl::COUNT],
    nonce: [String; TypeUrl::COUNT],
    started: bool,
    asked_clusters: bool,
    asked_listeners: bool,
    /// Tables that it asked for before it told what clusters it has: they are answered at once, for better or worse.
    blind: BTreeSet<String>,
    held_back: Vec<Ask>,
    /// The time by the proxy's clock.
    now: Option<Instant>,
    /// Tables that connections of former listeners go on with, and until when.
    draining: Vec<(Instant, String)>,
    /// Clusters that requests which were routed earlier may still look for, and until when.
    flying: Vec<(Instant, String)>,
    out: VecDeque<Ask>,
    /// The first rule that was broken.
    broken: RefCell<Option<String>>,
}

impl Proxy {
    fn is_warming(&self) -> bool {
        self.clusters.values().any(ModelCluster::is_warming)
    }

    fn connect(&mut self) {
        self.out.clear();
        self.held_back.clear();
        self.blind.clear();
        self.nonce = Default::default();
        (self.asked_clusters, self.asked_listeners) = (false, false);
        // In the order in which it began to ask; clusters only when none is warming up.
        self.ask_when_warm();
        for kind in [TypeUrl::ClusterLoadAssignment, TypeUrl::Secret] {
            if !self.subscribed[kind.index()].is_empty() {
                self.first_ask(kind);
            }
        }
        if self.started {
            self.asked_listeners = true;
            self.first_ask(TypeUrl::Listener);
        }
        if !self.subscribed[TypeUrl::RouteConfiguration.index()].is_empty() {
            self.first_ask(TypeUrl::RouteConfiguration);
        }
    }

    fn first_ask(&mut self, kind: TypeUrl) {
        if kind == TypeUrl::RouteConfiguration && !self.asked_clusters {
            let missing = self.subscribed[kind.index()].iter().filter(|name| !self.tables.contains_key(*name));
            self.blind = missing.cloned().collect();
        }
        let subscribe: Vec<String> = self.subscribed[kind.index()].iter().cloned().collect();
        let ask = if self.sotw {
            let version = self.version[kind.index()].clone();
            Ask::Sotw(kind, SotwAsk { names: subscribe, version, ..Default::default() })
        } else {
            let initial = self.known[kind.index()].clone().into_iter().collect();
            Ask::Delta(kind, DeltaAsk { subscribe, initial, ..Default::default() })
        };
        self.out.push_back(ask);
    }

    fn ask_when_warm(&mut self) {
        if self.is_warming() {
            return;
        }
        let held_back = std::mem::take(&mut self.held_back);
        self.out.extend(held_back);
        if !self.asked_clusters {
            self.asked_clusters = true;
            self.first_ask(TypeUrl::Cluster);
        } else if !self.asked_listeners && !self.nonce[TypeUrl::Cluster.index()].is_empty() {
            (self.started, self.asked_listeners) = (true, true);
            self.first_ask(TypeUrl::Listener);
        }
    }

    fn subscribe(&mut self, kind: TypeUrl, add: &[String], drop: &[String]) {
        let fresh = |name: &&String| !self.subscribed[kind.index()].contains(*name);
        let add: Vec<String> = add.iter().filter(fresh).cloned().collect();
        if add.is_empty() && drop.is_empty() {
            return;
        }
        for name in drop {
            self.subscribed[kind.index()].remove(name);
            self.known[kind.index()].remove(name);
        }
        self.subscribed[kind.index()].extend(add.iter().cloned());
        if kind == TypeUrl::RouteConfiguration && !self.asked_clusters {
            self.blind.extend(add.iter().cloned());
        }
        let ask = if self.sotw {
            Ask::Sotw(
                kind,
                SotwAsk {
                    names: self.subscribed[kind.index()].iter().cloned().collect(),
                    version: self.version[kind.index()].clone(),
                    nonce: self.nonce[kind.index()].clone(),
                    error: None,
                },
            )
        } else {
            Ask::Delta(kind, DeltaAsk { subscribe: add, unsubscribe: drop.to_vec(), ..Default::default() })
        };
        self.out.push_back(ask);
    }

    fn read(&mut self, response: &Response) {
        let kind = response.kind;
        self.nonce[kind.index()] = response.nonce.to_string();
        let mut refused = Vec::new();
        let upserts: Vec<(String, String)> = response
            .resources
            .iter()
            .map(|(name, of)| (name.to_string(), String::from_utf8(of.body().to_vec()).unwrap()))
            .collect();
        let mut removed: Vec<String> = response.removed.iter().map(ToString::to_string).collect();
        let first_clusters = kind == TypeUrl::Cluster && self.clusters.is_empty() && !self.started;
        if self.sotw && kind.is_wildcard() {
            let kept: BTreeSet<&String> = upserts.iter().map(|(name, _)| name).collect();
            let held: Vec<String> = match kind {
                TypeUrl::Cluster => self.clusters.keys().cloned().collect(),
                _ => self.listeners.keys().cloned().collect(),
            };
            removed.extend(held.into_iter().filter(|name| !kept.contains(name)));
        }
        for (name, body) in &upserts {
            let good = match kind {
                TypeUrl::Cluster => self.read_cluster(name, body),
                TypeUrl::ClusterLoadAssignment => self.read_endpoints(name, body),
                TypeUrl::Listener => self.read_listener(name, body),
                TypeUrl::RouteConfiguration => self.read_table(name, body),
                TypeUrl::Secret => true,
            };
            if !good {
                refused.push(name.clone());
            }
        }
        for name in &removed {
            self.read_removal(kind, name);
        }
        if refused.is_empty() {
            self.version[kind.index()] = response.version.to_string();
            for (name, of) in &response.resources {
                let wanted = kind.is_wildcard() || self.subscribed[kind.index()].contains(&**name);
                if wanted {
                    self.known[kind.index()].insert(name.to_string(), of.version().to_string());
                }
            }
            for name in &removed {
                self.known[kind.index()].remove(name);
            }
        }
        let mention = if response.nonce.is_multiple_of(2) { refused.join(", ") } else { String::new() };
        let error = (!refused.is_empty()).then(|| format!("refused: {mention}"));
        let nonce = response.nonce.to_string();
        let ack = if self.sotw {
            let names = self.subscribed[kind.index()].iter().cloned().collect();
            Ask::Sotw(kind, SotwAsk { names, version: self.version[kind.index()].clone(), nonce, error })
        } else {
            Ask::Delta(kind, DeltaAsk { nonce, error, ..Default::default() })
        };
        if kind == TypeUrl::Cluster && !first_clusters {
            // Let go in their order, at once when nothing is warming up.
            self.held_back.push(ack);
        } else {
            self.out.push_back(ack);
        }
        self.ask_when_warm();
    }

    fn read_cluster(&mut self, name: &str, body: &str) -> bool {
        let parts: Vec<&str> = body.split(';').collect();
        if parts[3] == "Bad" {
            return false;
        }
        let cluster = self.clusters.entry(name.to_owned()).or_default();
        if cluster.version == body {
            return true;
        }
        let had_endpoints = cluster.eds;
        cluster.version = body.to_owned();
        cluster.warms = parts[1] == "true";
        cluster.eds = parts[2] == "true";
        cluster.stuck = parts[3] == "Stuck";
        cluster.waits_for_endpoints = cluster.eds;
        cluster.waits_for_checks = cluster.warms || cluster.stuck;
        if !cluster.is_warming() {
            cluster.active = true;
        }
        if cluster.eds {
            self.subscribe(TypeUrl::ClusterLoadAssignment, &[name.to_owned()], &[]);
        } else if had_endpoints {
            self.subscribe(TypeUrl::ClusterLoadAssignment, &[], &[name.to_owned()]);
        }
        true
    }

    fn read_endpoints(&mut self, name: &str, body: &str) -> bool {
        if let Some(cluster) = self.clusters.get_mut(name) {
            self.endpoints.insert(name.to_owned(), body.to_owned());
            cluster.waits_for_endpoints = false;
            if !cluster.is_warming() {
                cluster.active = true;
            }
        }
        true
    }

    fn read_listener(&mut self, name: &str, body: &str) -> bool {
        let table = body.split(';').nth(1).unwrap().to_owned();
        let former = self.listeners.insert(name.to_owned(), (body.to_owned(), table));
        if let Some((former, table)) = former
            && former != body
        {
            self.draining.push((self.drained_at(), table));
        }
        self.follow_tables();
        true
    }

    fn drained_at(&self) -> Instant {
        self.now.expect("the proxy has a clock") + WAITS.drain
    }

    /// Time passes for connections that drain and requests under way.
    fn pass(&mut self, now: Instant) {
        self.now = Some(now);
        self.flying.retain(|(until, _)| *until > now);
        let before = self.draining.len();
        self.draining.retain(|(until, _)| *until > now);
        if self.draining.len() < before {
            self.follow_tables();
        }
    }

    fn follow_tables(&mut self) {
        let draining = self.draining.iter().map(|(_, table)| table);
        let used: BTreeSet<String> = self.listeners.values().map(|(_, table)| table).chain(draining).cloned().collect();
        let drop: Vec<String> =
            self.subscribed[TypeUrl::RouteConfiguration.index()].difference(&used).cloned().collect();
        for name in &drop {
            self.tables.remove(name);
        }
        let used: Vec<String> = used.into_iter().collect();
        self.subscribe(TypeUrl::RouteConfiguration, &used, &drop);
    }

    fn read_table(&mut self, name: &str, body: &str) -> bool {
        if !self.subscribed[TypeUrl::RouteConfiguration.index()].contains(name) {
            return true;
        }
        let parts: Vec<&str> = body.split(';').collect();
        if parts[1] == "true" {
            return false;
        }
        let clusters: Vec<String> = parts[2].split(',').filter(|of| !of.is_empty()).map(str::to_owned).collect();
        let known = self.tables.contains_key(name);
        if self.tables.get(name).is_some_and(|has| has.0 == body) {
            return true;
        }
        if let Some((_, former)) = self.tables.get(name) {
            let left: Vec<String> = former.iter().filter(|of| !clusters.contains(of)).cloned().collect();
            let until = self.drained_at();
            self.flying.extend(left.into_iter().map(|of| (until, of)));
        }
        if self.blind.remove(name) {
            self.tables.insert(name.to_owned(), (body.to_owned(), clusters));
            return true;
        }
        for of in &clusters {
            let cluster = self.clusters.get(of);
            let ready = cluster.is_some_and(|of| of.active || !known);
            if !ready {
                self.broken.replace(Some(format!("table {name} came before cluster {of}")));
            }
        }
        self.tables.insert(name.to_owned(), (body.to_owned(), clusters));
        true
    }

    fn read_removal(&mut self, kind: TypeUrl, name: &str) {
        match kind {
            TypeUrl::Cluster => {
                if self.clusters.remove(name).is_some_and(|of| of.eds) {
                    self.endpoints.remove(name);
                    self.subscribe(TypeUrl::ClusterLoadAssignment, &[], &[name.to_owned()]);
                }
                for (table, (_, clusters)) in &self.tables {
                    if clusters.iter().any(|of| of == name) {
                        self.broken.replace(Some(format!("cluster {name} was taken from under table {table}")));
                    }
                }
                if self.flying.iter().any(|(_, of)| of == name) {
                    self.broken.replace(Some(format!("cluster {name} was taken from requests under way")));
                }
            }
            TypeUrl::Listener => {
                if let Some((_, table)) = self.listeners.remove(name) {
                    self.draining.push((self.drained_at(), table));
                }
                self.follow_tables();
            }
            _ => {}
        }
    }

    /// A cluster passes its first health check.
    fn warm(&mut self, pick: usize) {
        let warming: Vec<String> = self
            .clusters
            .iter()
            .filter(|(_, of)| of.waits_for_checks && !of.stuck && !of.waits_for_endpoints)
            .map(|(name, _)| name.clone())
            .collect();
        if let Some(name) = warming.get(pick % warming.len().max(1)) {
            let cluster = self.clusters.get_mut(name).unwrap();
            cluster.waits_for_checks = false;
            cluster.active = true;
        }
        self.ask_when_warm();
    }
}

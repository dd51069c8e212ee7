//! Fleets on a real API server; its audit log is the judge of what was written.
//!
//! `INFRA_ROW=life,rejected` runs those rows only. `INFRA_FLIPS` (3) is how often an address is lost and found again;
//! `INFRA_REST_SECONDS` (10) how long nothing may be written at rest; `INFRA_OUTAGE_SECONDS` (20) how long writes are refused.

#![allow(clippy::print_stdout, reason = "the table is the result")]

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use apiserver::{
    server::Server,
    world::{World, until},
};
use election::{
    RoleWatch,
    kubernetes::{PermitLayer, ReadOnlyLayer},
};
use envoy::bootstrap::{Bootstrap, XdsServer};
use infra::kubernetes::{Facts, Fleets, KubeInfraClient, ObjectKind, ObjectRef, Options, Watches, Writer, tell};
use ir::Proxy;
use kube::client::ClientBuilder;
use reconcile::{Backoff, Gated, Wanted};
use resources::{Change, Kind, Object, ObjectKey};
use serde_json::{Value, json};
use testkit::apiserver::kube_bin;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};

const SYSTEM: &str = "envoy-gateway-system";
const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const OURS: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const SOON: Duration = Duration::from_secs(10);

type Row = (&'static str, fn(Arc<World>) -> Pin<Box<dyn Future<Output = Result<String>>>>);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleets_are_written_as_wanted_and_told_as_they_are() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let users = ["life", "rest", "takeover", "foreign", "rejected", "sweep", "address", "shape", "versions", "server"];
    let world = Arc::new(World::start(bin, &users, &[]).await?);
    world.define(|_| true).await?;
    world.namespace(SYSTEM, json!({})).await?;
    world.namespace("app", json!({})).await?;
    let rows: Vec<Row> = vec![
        ("life", |w| Box::pin(life(w))),
        ("shape", |w| Box::pin(shape(w))),
        ("takeover", |w| Box::pin(takeover(w))),
        ("foreign", |w| Box::pin(foreign(w))),
        ("rejected", |w| Box::pin(rejected(w))),
        ("sweep", |w| Box::pin(sweep(w))),
        ("address", |w| Box::pin(address(w))),
        ("versions", |w| Box::pin(versions(w))),
        ("server", |w| Box::pin(server(w))),
    ];
    let only = std::env::var("INFRA_ROW").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, row) in rows {
        if !only.is_empty() && !only.split(',').any(|o| o == name) {
            continue;
        }
        let begin = Instant::now();
        let outcome = row(world.clone()).await;
        let seconds = begin.elapsed().as_secs_f64();
        match outcome {
            Ok(said) => println!("{name:<10} ok     {seconds:>5.1}s  {said}"),
            Err(e) => {
                println!("{name:<10} FAILED {seconds:>5.1}s  {e:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "{failed:?}");
    Ok(())
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|s| s.parse().ok()).unwrap_or(otherwise)
}

/// A control plane as far as fleets go, as that user.
struct Plane {
    wanted: Wanted<String, Arc<Proxy>>,
    changes: watch::Sender<u64>,
    facts: Arc<Mutex<BTreeMap<ObjectKey, Facts>>>,
    fleets: Fleets,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

fn bootstrap(proxy: &Proxy, options: &Options) -> Result<String, String> {
    let server = XdsServer::in_cluster(&options.xds_host(), options.gateway_namespaces);
    Bootstrap::text_of_fleet(proxy, server, options.zones).map_err(|e| e.to_string())
}

fn options() -> Options {
    Options { ca: "the CA".to_owned(), ..Options::new(SYSTEM, "example.test/envoy-gateway:1") }
}

// === impl Plane ===

impl Plane {
    async fn start(world: &World, user: &str, options: Options) -> Result<Self> {
        let config = world.config(user, &world.server.url()).await?;
        let reads = ClientBuilder::try_from(config.clone())?.with_layer(&ReadOnlyLayer::new()).build();
        let writes = ClientBuilder::try_from(config)?.with_layer(&PermitLayer::new(Duration::from_secs(3))).build();
        let (watches, fleets) = Watches::new(reads, [SYSTEM.to_owned()]);
        let wanted = Wanted::new();
        let role = RoleWatch::always_leader();
        let (_, options) = watch::channel(Arc::new(options));
        let client = KubeInfraClient::new(writes);
        let writer = Writer::new(client, fleets.clone(), wanted.clone(), bootstrap, options, role.clone());
        let troubles = writer.troubles();
        let gate = Gated::new(writer, wanted.clone(), role, Backoff::default());
        let (changes, changed) = watch::channel(0);
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let ends = || {
            let mut stopped = stopped.clone();
            async move { drop(stopped.wait_for(|s| *s).await.map(|s| *s)) }
        };
        tasks.spawn(watches.run(ends()));
        let (seen, end) = (fleets.clone(), ends());
        tasks.spawn(async move {
            seen.synced().await;
            gate.run(end).await;
        });
        let facts: Arc<Mutex<BTreeMap<ObjectKey, Facts>>> = Arc::default();
        let (table, end) = (facts.clone(), ends());
        let telling = tell(fleets.clone(), wanted.clone(), changed, troubles, move |gateway, told| {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            match told {
                Some(told) => drop(table.insert(gateway, told)),
                None => drop(table.remove(&gateway)),
            }
        });
        tasks.spawn(async move {
            tokio::select! { () = telling => {}, () = end => {} }
        });
        Ok(Self { wanted, changes, facts, fleets, stop, tasks })
    }

    /// Wants the fleets of these objects, and no others.
    fn want(&self, objects: &[Value]) -> Result<()> {
        self.wanted.publish_all(fleets(objects)?);
        self.changes.send_modify(|n| *n += 1);
        Ok(())
    }

    fn fact(&self, gateway: &str) -> Option<Facts> {
        let table = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        table.get(&ObjectKey::new(Kind::Gateway, "app", gateway)).cloned()
    }

    /// Waits until `Programmed` has that reason.
    async fn told(&self, gateway: &str, reason: &str, limit: Duration) -> Result<Facts> {
        let mut last = None;
        let found = until(limit, reason, async || {
            last = self.fact(gateway);
            Ok(last.as_ref().is_some_and(|f| f.reason == reason))
        });
        found.await.with_context(|| format!("{last:?}, {:?}", self.wanted.states()))?;
        last.context("told")
    }

    /// Waits until everything is written.
    async fn settled(&self) -> Result<()> {
        let mut since: Option<Instant> = None;
        until(Duration::from_secs(20), "all is written", async || {
            let calm = self.fleets.is_synced() && self.wanted.pending() == 0;
            since = if calm { since.or(Some(Instant::now())) } else { None };
            Ok(since.is_some_and(|s| s.elapsed() > Duration::from_millis(300)))
        })
        .await
        .with_context(|| format!("{:?}", self.wanted.states()))
    }

    async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

fn fleets(objects: &[Value]) -> Result<BTreeMap<String, Arc<Proxy>>> {
    let mut changes = Vec::new();
    for object in objects {
        let (key, object) = Object::from_value(object.clone())?;
        changes.push(Change::Upsert(key, object));
    }
    let full = translator::translate(changes, &translator::Config::default());
    Ok(full.infra.into_iter().map(|(group, proxy)| (group.to_string(), proxy)).collect())
}

fn class() -> Value {
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass",
        "metadata": {"name": "eg", "uid": "00000000-0000-0000-0000-000000000001"}, "spec": {"controllerName": OURS}})
}

fn gateway(name: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": name, "namespace": "app"},
        "spec": {"gatewayClassName": "eg", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
}

/// With an EnvoyProxy of its own.
fn with_proxy(name: &str, spec: Value) -> [Value; 2] {
    let mut gateway = gateway(name);
    gateway["spec"]["infrastructure"]["parametersRef"] =
        json!({"group": "gateway.envoyproxy.io", "kind": "EnvoyProxy", "name": name});
    let proxy = json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyProxy",
        "metadata": {"name": name, "namespace": "app"}, "spec": spec});
    [gateway, proxy]
}

fn at(kind: ObjectKind, name: &str) -> ObjectRef {
    ObjectRef { kind, namespace: SYSTEM.into(), name: name.into() }
}

fn path(at: &ObjectRef) -> String {
    let (_, version, plural) = at.kind.names();
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/namespaces/{}/{plural}/{}", at.namespace, at.name)
}

async fn get(world: &World, at: &ObjectRef) -> Result<Option<Value>> {
    match world.client().request::<Value>(http::Request::get(path(at)).body(Vec::new())?).await {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(s)) if s.code == 404 => Ok(None),
        Err(e) => Err(e.into()),
    }
}

async fn patch(world: &World, at: &ObjectRef, part: &str, body: Value) -> Result<Value> {
    let request = http::Request::patch(format!("{}{part}", path(at)));
    let request = request.header("content-type", "application/merge-patch+json").body(body.to_string().into_bytes())?;
    Ok(world.client().request::<Value>(request).await?)
}

/// As a controller of Deployments would say.
async fn available(world: &World, name: &str, replicas: u32) -> Result<()> {
    let status = json!({"status": {"replicas": replicas, "availableReplicas": replicas, "readyReplicas": replicas}});
    patch(world, &at(ObjectKind::Deployment, name), "/status", status).await.map(drop)
}

/// As a load balancer would say.
async fn assign(world: &World, name: &str, addresses: &[&str]) -> Result<()> {
    let ingress: Vec<Value> = addresses.iter().map(|ip| json!({"ip": ip})).collect();
    let status = json!({"status": {"loadBalancer": {"ingress": ingress}}});
    patch(world, &at(ObjectKind::Service, name), "/status", status).await.map(drop)
}

/// From creation to deletion, and that nothing is written at rest nor by a new leader.
async fn life(world: Arc<World>) -> Result<String> {
    let name = "envoy-app-life-4aa92522";
    let objects = [class(), gateway("life")];
    let plane = Plane::start(&world, "life", options()).await?;
    plane.want(&objects)?;
    let from = Instant::now();
    plane.told("life", "AddressNotAssigned", SOON).await?;
    plane.settled().await?;
    let took = from.elapsed();
    let wanted = [ObjectKind::ServiceAccount, ObjectKind::ConfigMap, ObjectKind::Deployment, ObjectKind::Service];
    for kind in wanted {
        let object = get(&world, &at(kind, name)).await?.with_context(|| format!("{kind:?} {name}"))?;
        ensure!(object["metadata"]["labels"]["gateway.envoyproxy.io/infra-term"] == "1", "{object}");
    }
    let written = world.written("life")?;
    ensure!(written.len() == wanted.len() && written.iter().all(|w| w.verb == "create"), "{written:?}");
    available(&world, name, 2).await?;
    plane.told("life", "AddressNotAssigned", SOON).await?;
    assign(&world, name, &["192.0.2.7"]).await?;
    let facts = plane.told("life", "Programmed", SOON).await?;
    ensure!(facts.programmed && facts.addresses == [("IPAddress", "192.0.2.7".to_owned())], "{facts:?}");
    // At rest, and with a label that somebody else adds.
    patch(&world, &at(ObjectKind::Deployment, name), "", json!({"metadata": {"labels": {"team": "x"}}})).await?;
    sleep(Duration::from_secs(number("INFRA_REST_SECONDS", 10))).await;
    ensure!(world.written("life")?.len() == written.len(), "{:?}", world.written("life")?);
    // What somebody else changes of ours is put back; a new leader has nothing to write.
    patch(&world, &at(ObjectKind::Service, name), "", json!({"spec": {"externalTrafficPolicy": "Cluster"}})).await?;
    until(SOON, "put back", async || {
        let service = get(&world, &at(ObjectKind::Service, name)).await?.context("the Service")?;
        Ok(service["spec"]["externalTrafficPolicy"] == "Local")
    })
    .await?;
    plane.settled().await?;
    plane.stop().await;
    let generation =
        get(&world, &at(ObjectKind::Deployment, name)).await?.context("there")?["metadata"]["generation"].clone();
    let before = world.written("life")?.len();
    let plane = Plane::start(&world, "life", options()).await?;
    plane.want(&objects)?;
    plane.told("life", "Programmed", SOON).await?;
    plane.settled().await?;
    ensure!(world.written("life")?.len() == before, "{:?}", &world.written("life")?[before..]);
    let now = get(&world, &at(ObjectKind::Deployment, name)).await?.context("there")?["metadata"]["generation"].clone();
    ensure!(generation == 1 && now == 1, "{generation} {now}");
    plane.want(&[class()])?;
    for kind in wanted {
        until(SOON, "gone", async || Ok(get(&world, &at(kind, name)).await?.is_none())).await?;
    }
    until(SOON, "forgotten", async || Ok(plane.fact("life").is_none())).await?;
    plane.stop().await;
    Ok(format!("four objects after {} ms, none written at rest", took.as_millis()))
}

/// What users ask for comes and goes: patches, an autoscaler, a budget, a DaemonSet.
async fn shape(world: Arc<World>) -> Result<String> {
    let plane = Plane::start(&world, "shape", options()).await?;
    let kubernetes = |k: Value| json!({"provider": {"type": "Kubernetes", "kubernetes": k}});
    let objects =
        |spec: Value| -> Vec<Value> { [class()].into_iter().chain(with_proxy("shape", kubernetes(spec))).collect() };
    plane.want(&objects(json!({
        "envoyDeployment": {"container": {"resources": {"limits": {"cpu": "2000m", "memory": "1Gi"}}},
            "patch": {"type": "StrategicMerge", "value": {"spec": {"template": {"spec": {"hostNetwork": true}}}}}},
        "envoyHpa": {"maxReplicas": 3}, "envoyPDB": {"minAvailable": 1},
        "envoyService": {"type": "ClusterIP", "annotations": {"a": "b"}},
    })))?;
    plane.settled().await?;
    let name = "envoy-app-shape-a23b36a4";
    let there = async |kind| get(&world, &at(kind, name)).await;
    let deployment = there(ObjectKind::Deployment).await?.context("Deployment")?;
    ensure!(deployment["spec"]["template"]["spec"]["hostNetwork"] == true);
    // The server writes 2000m as 2; that is no difference.
    ensure!(deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == "2");
    ensure!(there(ObjectKind::HorizontalPodAutoscaler).await?.is_some());
    ensure!(there(ObjectKind::PodDisruptionBudget).await?.is_some());
    let service = there(ObjectKind::Service).await?.context("Service")?;
    let ip = service["spec"]["clusterIP"].as_str().context("an address")?.to_owned();
    available(&world, name, 1).await?;
    let facts = plane.told("shape", "Programmed", SOON).await?;
    ensure!(facts.addresses == [("IPAddress", ip)], "{facts:?}");
    let created = world.written("shape")?;
    ensure!(created.iter().all(|w| w.verb == "create"), "{created:?}");
    // Less is wanted: fields and objects go, the rest stays.
    plane.want(&objects(json!({"envoyDeployment": {"replicas": 2}, "envoyService": {"type": "ClusterIP"}})))?;
    plane.settled().await?;
    ensure!(there(ObjectKind::HorizontalPodAutoscaler).await?.is_none());
    ensure!(there(ObjectKind::PodDisruptionBudget).await?.is_none());
    let deployment = there(ObjectKind::Deployment).await?.context("Deployment")?;
    let pod = &deployment["spec"]["template"]["spec"];
    ensure!(pod["hostNetwork"].is_null() && pod["containers"][0]["resources"].get("limits").is_none(), "{pod}");
    ensure!(deployment["spec"]["replicas"] == 2);
    let service = there(ObjectKind::Service).await?.context("Service")?;
    ensure!(service["metadata"]["annotations"].get("a").is_none(), "{service}");
    // A DaemonSet in its place.
    plane.want(&objects(json!({"envoyDaemonSet": {}, "envoyService": {"type": "ClusterIP"}})))?;
    plane.settled().await?;
    ensure!(there(ObjectKind::Deployment).await?.is_none() && there(ObjectKind::DaemonSet).await?.is_some());
    plane.want(&[class()])?;
    plane.settled().await?;
    plane.stop().await;
    Ok("patches, autoscaler, budget and DaemonSet came and went".to_owned())
}

/// Objects as Envoy Gateway made them are taken over: no new generation, no new pods.
async fn takeover(world: Arc<World>) -> Result<String> {
    let cases = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/peer-data/cases");
    if !cases.is_dir() {
        return Ok("skipped: no peer data".to_owned());
    }
    // Those that are rendered as recorded.
    let list = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../peer/ratchet/infra.txt");
    let list = std::fs::read_to_string(list)?;
    let folders: Vec<_> = list.lines().map(|name| cases.join(name)).collect();
    let (mut taken, mut cases, mut rolled) = (0, 0, Vec::new());
    let plane = Plane::start(&world, "takeover", options()).await?;
    for folder in folders.iter().filter(|f| f.join("infra.yaml").is_file()) {
        let case = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let documents = |file: &str| -> Result<Vec<Value>> {
            let parsed = provider::parse(&std::fs::read_to_string(folder.join(file))?);
            Ok(parsed.map_err(|e| anyhow::anyhow!("{file}: {}", e.message))?.into_iter().map(|d| d.value).collect())
        };
        let text = std::fs::read_to_string(folder.join("config.yaml"))?;
        let settings = settings::parse(&text, "config.yaml", std::iter::empty())?.config;
        let config = translator::Config::from(&settings);
        if config.gateway_namespaces {
            continue;
        }
        let mut inputs = documents("in.yaml")?;
        for (i, input) in inputs.iter_mut().enumerate() {
            if input["metadata"]["name"].is_null() {
                input["metadata"]["name"] = format!("unnamed-{i}").into();
            }
            if input["kind"] == "GatewayClass" {
                input["metadata"]["uid"] = "00000000-0000-0000-0000-000000000001".into();
            }
        }
        let objects = egctl::offline::objects(inputs, &admission::Admission::new());
        let full = translator::translate(objects.changes, &config);
        let fleets: BTreeMap<String, Arc<Proxy>> = full.infra.into_iter().map(|(g, p)| (g.to_string(), p)).collect();
        let made: Vec<Value> = documents("infra.yaml")?
            .into_iter()
            .filter(|d| d["kind"] != "Service" || d["spec"]["ports"].is_array())
            .collect();
        let mut deployments = Vec::new();
        for object in &made {
            let kind =
                ObjectKind::ALL.into_iter().find(|k| k.names().0 == object["kind"]).context("a kind of fleets")?;
            let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
            let at =
                ObjectRef { kind, namespace: text("/metadata/namespace").into(), name: text("/metadata/name").into() };
            let request = http::Request::patch(format!("{}?fieldManager=envoy-gateway&force=true", path(&at)));
            let request =
                request.header("content-type", "application/apply-patch+yaml").body(object.to_string().into_bytes())?;
            let before = match world.client().request::<Value>(request).await {
                Ok(before) => before,
                // Some recorded objects are none that an API server takes.
                Err(kube::Error::Api(s)) if s.code == 422 => continue,
                Err(e) => return Err(e).with_context(|| format!("{case}: {at}")),
            };
            if matches!(kind, ObjectKind::Deployment | ObjectKind::DaemonSet) {
                deployments.push((at, before));
            }
        }
        plane.wanted.publish_all(fleets);
        plane.changes.send_modify(|n| *n += 1);
        for (at, before) in deployments {
            let mut now = Value::Null;
            until(SOON, "taken over", async || {
                now = get(&world, &at).await?.context("it is kept")?;
                Ok(now["metadata"]["labels"].get("gateway.envoyproxy.io/infra-term").is_some())
            })
            .await
            .with_context(|| format!("{case} {at}: {:?}", plane.wanted.states()))?;
            if now["metadata"]["generation"] == 1 {
                taken += 1;
            } else {
                let why = peer::diff::paths(&before["spec"], &now["spec"], 2);
                rolled.push(format!("{case} {}: {why:?}", at.name));
            }
        }
        cases += 1;
        plane.want(&[])?;
        plane.settled().await.with_context(|| case.clone())?;
    }
    plane.stop().await;
    println!("not taken over as they are: {rolled:?}");
    ensure!(rolled.is_empty(), "{} replaced their pods: {rolled:?}", rolled.len());
    Ok(format!("{taken} fleets of {cases} cases taken over without a new generation, {} with one", rolled.len()))
}

/// What is not of the fleet is not touched, and that is told.
async fn foreign(world: Arc<World>) -> Result<String> {
    let name = "envoy-app-foreign-cf1606d1";
    let at = at(ObjectKind::Service, name);
    let theirs = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": SYSTEM},
        "spec": {"ports": [{"port": 1}]}});
    world.create(std::slice::from_ref(&theirs)).await?;
    let before = get(&world, &at).await?.context("there")?;
    let plane = Plane::start(&world, "foreign", options()).await?;
    plane.want(&[class(), gateway("foreign")])?;
    let facts = plane.told("foreign", "NoResources", SOON).await?;
    ensure!(facts.message.contains(&format!("Service {SYSTEM}/{name} is there already")), "{facts:?}");
    ensure!(get(&world, &at).await?.context("there")? == before);
    // The rest of the fleet is there; once the other is gone, so is the trouble.
    world.delete(&theirs).await?;
    plane.told("foreign", "AddressNotAssigned", Duration::from_secs(35)).await?;
    plane.want(&[class()])?;
    plane.settled().await?;
    plane.stop().await;
    Ok(facts.message)
}

/// Case S05: creates of Services are refused for a while.
async fn rejected(world: Arc<World>) -> Result<String> {
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-services"}, "spec": {"failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}]},
            "validations": [{"expression": "false", "message": "no Services on Mondays"}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-services"}, "spec": {"policyName": "no-services", "validationActions": ["Deny"]}});
    let root = "/apis/admissionregistration.k8s.io/v1";
    for (plural, object) in [("validatingadmissionpolicies", &policy), ("validatingadmissionpolicybindings", &binding)]
    {
        let request = http::Request::post(format!("{root}/{plural}")).header("content-type", "application/json");
        world.client().request::<Value>(request.body(object.to_string().into_bytes())?).await?;
    }
    let probe = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "probe", "namespace": "app"}, "spec": {"ports": [{"port": 1}]}});
    until(SOON, "the policy holds", async || {
        if world.create(std::slice::from_ref(&probe)).await.is_ok() {
            world.delete(&probe).await?;
            return Ok(false);
        }
        Ok(true)
    })
    .await?;
    let plane = Plane::start(&world, "rejected", options()).await?;
    plane.want(&[class(), gateway("gw2")])?;
    let facts = plane.told("gw2", "NoResources", SOON).await?;
    ensure!(!facts.programmed && facts.message.contains("no Services on Mondays"), "{facts:?}");
    let outage = Duration::from_secs(number("INFRA_OUTAGE_SECONDS", 20));
    sleep(outage).await;
    let tries = world.written("rejected")?.iter().filter(|w| w.what.starts_with("services") && w.code == 422).count();
    ensure!(tries >= 4, "{tries} tries in {outage:?}");
    let request = http::Request::delete(format!("{root}/validatingadmissionpolicybindings/no-services"));
    world.client().request::<Value>(request.body(Vec::new())?).await?;
    let from = Instant::now();
    plane.told("gw2", "AddressNotAssigned", Duration::from_secs(35)).await?;
    let took = from.elapsed();
    let service = plane.fleets.keys().into_iter().find(|k| k.as_str() == "app/gw2").map(|k| plane.fleets.of(&k));
    let name =
        service.into_iter().flatten().find(|(at, _)| at.kind == ObjectKind::Service).context("the Service")?.0.name;
    assign(&world, &name, &["192.0.2.8"]).await?;
    available(&world, &name, 1).await?;
    plane.told("gw2", "Programmed", SOON).await?;
    plane.want(&[class()])?;
    plane.settled().await?;
    plane.stop().await;
    Ok(format!(
        "{tries} tries in {} s of refusals, written {:.1} s after their end",
        outage.as_secs(),
        took.as_secs_f64()
    ))
}

/// A new leader removes what nobody wants, and nothing else.
async fn sweep(world: Arc<World>) -> Result<String> {
    let first = Plane::start(&world, "sweep", options()).await?;
    let both = [class(), gateway("kept"), gateway("orphan")];
    first.want(&both)?;
    first.settled().await?;
    first.stop().await;
    let others = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "envoy-gateway-config", "namespace": SYSTEM,
        "labels": {"app.kubernetes.io/managed-by": "envoy-gateway"}}});
    world.create(std::slice::from_ref(&others)).await?;
    let before = world.written("sweep")?.len();
    let second = Plane::start(&world, "sweep", options()).await?;
    // As long as it does not know everything that is wanted, nothing is gone.
    second.fleets.synced().await;
    sleep(Duration::from_millis(500)).await;
    ensure!(world.written("sweep")?.len() == before);
    second.want(&both[..2])?;
    until(SOON, "the orphan is gone", async || Ok(second.fleets.keys().iter().all(|k| k.as_str() != "app/orphan")))
        .await?;
    second.settled().await?;
    let after: Vec<_> = world.written("sweep")?.split_off(before);
    ensure!(after.len() == 4 && after.iter().all(|w| w.verb == "delete" && w.what.contains("orphan")), "{after:?}");
    ensure!(world.get(&others).await.is_ok());
    second.want(&[class()])?;
    second.settled().await?;
    second.stop().await;
    Ok("four objects of the orphan deleted, nothing else".to_owned())
}

/// Case S16: an address is lost and comes back.
async fn address(world: Arc<World>) -> Result<String> {
    let name = "envoy-app-flip-7940e223";
    let plane = Plane::start(&world, "address", options()).await?;
    plane.want(&[class(), gateway("flip")])?;
    plane.told("flip", "AddressNotAssigned", SOON).await?;
    plane.settled().await?;
    available(&world, name, 1).await?;
    let flips = number("INFRA_FLIPS", 3);
    let (mut lost, mut found) = (Duration::ZERO, Duration::ZERO);
    for i in 0..flips {
        let ip = format!("192.0.2.{}", 10 + i);
        assign(&world, name, &[&ip]).await?;
        let from = Instant::now();
        let facts = plane.told("flip", "Programmed", SOON).await?;
        ensure!(facts.addresses == [("IPAddress", ip)], "{facts:?}");
        found = found.max(from.elapsed());
        assign(&world, name, &[]).await?;
        let from = Instant::now();
        plane.told("flip", "AddressNotAssigned", SOON).await?;
        lost = lost.max(from.elapsed());
    }
    let written = world.written("address")?;
    ensure!(written.iter().all(|w| w.verb == "create"), "a status is nothing to write about: {written:?}");
    plane.want(&[class()])?;
    plane.settled().await?;
    plane.stop().await;
    Ok(format!(
        "{flips} times; told at most {} ms after the loss, {} ms after the return",
        lost.as_millis(),
        found.as_millis()
    ))
}

/// Hand-over between versions: an older control plane that leads takes nothing back, and says what it withholds.
async fn versions(world: Arc<World>) -> Result<String> {
    const LABEL: &str = "gateway.envoyproxy.io/infra-version";
    let of = |version: &str| -> Result<Options> { Ok(Options { version: version.parse()?, ..options() }) };
    let objects = |replicas: u32| -> Vec<Value> {
        let deployment = json!({"envoyDeployment": {"replicas": replicas}});
        let spec = json!({"provider": {"type": "Kubernetes", "kubernetes": deployment}});
        [class()].into_iter().chain(with_proxy("versions", spec)).collect()
    };
    let older = Plane::start(&world, "versions", of("1.0.0")?).await?;
    older.want(&objects(1))?;
    older.settled().await?;
    older.stop().await;
    let request = http::Request::get(format!("/apis/apps/v1/namespaces/{SYSTEM}/deployments")).body(Vec::new())?;
    let list = world.client().request::<Value>(request).await?;
    let owned = |d: &&Value| d["metadata"]["labels"]["gateway.envoyproxy.io/owning-gateway-name"] == "versions";
    let found = list["items"].as_array().into_iter().flatten().find(owned).context("the Deployment")?;
    let name = found["metadata"]["name"].as_str().context("a name")?.to_owned();
    let deployment = at(ObjectKind::Deployment, &name);
    let now = async || get(&world, &deployment).await?.context("the Deployment");
    available(&world, &name, 1).await?;
    assign(&world, &name, &["192.0.2.30"]).await?;

    // An upgrade writes nothing by itself; what it changes has its version, and no more of a generation than the change.
    let before = world.written("versions")?.len();
    let newer = Plane::start(&world, "versions", of("1.1.0")?).await?;
    newer.want(&objects(1))?;
    newer.told("versions", "Programmed", SOON).await?;
    newer.settled().await?;
    ensure!(world.written("versions")?.len() == before, "{:?}", &world.written("versions")?[before..]);
    newer.want(&objects(2))?;
    newer.settled().await?;
    newer.stop().await;
    let made = now().await?;
    ensure!(made["metadata"]["labels"][LABEL] == "1.1.0" && made["spec"]["replicas"] == 2, "{}", made["metadata"]);
    ensure!(made["metadata"]["generation"] == 2, "{}", made["metadata"]);
    ensure!(made["spec"]["template"]["metadata"]["labels"].get(LABEL).is_none(), "never on pods");

    // The older one wins the lease: it wants something else, and leaves it.
    let before = world.written("versions")?.len();
    let older = Plane::start(&world, "versions", of("1.0.0")?).await?;
    older.want(&objects(3))?;
    let withheld = async || Ok(older.fact("versions").is_some_and(|f| f.message.contains("Changes are withheld")));
    until(SOON, "it is told", withheld).await?;
    let facts = older.fact("versions").context("told")?;
    ensure!(facts.programmed && facts.message.contains("1.1.0") && facts.message.contains(LABEL), "{facts:?}");
    // A change by somebody else makes it look, and write nothing.
    patch(&world, &deployment, "", json!({"metadata": {"labels": {"team": "y"}}})).await?;
    older.settled().await?;
    ensure!(world.written("versions")?.len() == before, "{:?}", &world.written("versions")?[before..]);
    ensure!(now().await?["spec"]["replicas"] == 2);
    // Handed over by hand.
    patch(&world, &deployment, "", json!({"metadata": {"labels": {LABEL: null}}})).await?;
    until(SOON, "the older one goes on", async || Ok(now().await?["spec"]["replicas"] == 3)).await?;
    until(SOON, "nothing is withheld", async || {
        Ok(older.fact("versions").is_some_and(|f| !f.message.contains("withheld")))
    })
    .await?;
    ensure!(now().await?["metadata"]["labels"][LABEL] == "1.0.0");
    // What nobody has goes, whoever wrote it.
    patch(&world, &deployment, "", json!({"metadata": {"labels": {LABEL: "1.1.0"}}})).await?;
    older.want(&[class()])?;
    until(SOON, "gone", async || Ok(get(&world, &deployment).await?.is_none())).await?;
    older.settled().await?;
    older.stop().await;
    Ok(facts.message)
}

/// The real binary, from the Gateway to `Programmed`.
async fn server(world: Arc<World>) -> Result<String> {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "5b9825d2.gateway.envoyproxy.io", "namespace": SYSTEM},
        "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}});
    let request = http::Request::post(format!("/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"));
    let request = request.header("content-type", "application/json").body(lease.to_string().into_bytes())?;
    world.client().request::<Value>(request).await?;
    let mut class = class();
    class["metadata"] = json!({"name": "eg"});
    let gateway = gateway("web");
    world.create(&[class.clone(), gateway.clone()]).await?;
    let config = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider: {type: Kubernetes}\n";
    let from = Instant::now();
    let server = Server::start(&world.server.kubeconfig("server", &world.server.url()), config).await?;
    let mut name = String::new();
    until(SOON, "the Service is there", async || {
        let request = http::Request::get(format!("/api/v1/namespaces/{SYSTEM}/services")).body(Vec::new())?;
        let list = world.client().request::<Value>(request).await?;
        let found = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|s| s["metadata"]["labels"]["gateway.envoyproxy.io/owning-gateway-name"] == "web");
        name = found.and_then(|s| s["metadata"]["name"].as_str()).unwrap_or_default().to_owned();
        Ok(!name.is_empty())
    })
    .await
    .with_context(|| server.log_tail())?;
    let took = from.elapsed();
    let owner =
        get(&world, &at(ObjectKind::Service, &name)).await?.context("there")?["metadata"]["ownerReferences"][0].clone();
    ensure!(owner["kind"] == "GatewayClass" && owner["uid"] == world.get(&class).await?["metadata"]["uid"], "{owner}");
    assign(&world, &name, &["192.0.2.9"]).await?;
    available(&world, &name, 1).await?;
    until(SOON, "Programmed", async || {
        let status = world.get(&gateway).await?["status"].clone();
        let programmed = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Programmed" && c["status"] == "True");
        Ok(programmed && status["addresses"][0]["value"] == "192.0.2.9")
    })
    .await
    .with_context(|| server.log_tail())?;
    world.delete(&gateway).await?;
    until(SOON, "gone", async || Ok(get(&world, &at(ObjectKind::Deployment, &name)).await?.is_none())).await?;
    let status = server.terminate().await?;
    ensure!(status.success(), "{status}");
    world.delete(&class).await.ok();
    Ok(format!("Service {} ms after the start; Programmed, then gone with the Gateway", took.as_millis()))
}

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::envoygateway::EnvoyProxySpec;
use election::RoleWatch;
use ir::{FleetOwner, FleetSettings, IpFamily, Proxy, ProxyPort, Transport};
use reconcile::{Backoff, Gated, Wanted};
use resources::{Kind, ObjectKey};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinSet, time::sleep};

use super::*;
use crate::kubernetes::compare::{covers, same};

/// A fleet of Gateway `app/NAME` with these settings.
pub(super) fn fleet(name: &str, spec: Value) -> Proxy {
    let spec: EnvoyProxySpec = serde_json::from_value(spec).expect("settings");
    let owner = |n: &str| format!("gateway.envoyproxy.io/owning-gateway-{n}");
    Proxy {
        group: format!("app/{name}").into(),
        namespace: "app".into(),
        name: name.into(),
        owner: FleetOwner { kind: "GatewayClass", name: "eg".into(), uid: "u".into() },
        gateways: vec![ObjectKey::new(Kind::Gateway, "app", name)],
        labels: BTreeMap::from([(owner("name").into(), name.into()), (owner("namespace").into(), "app".into())]),
        annotations: BTreeMap::new(),
        ports: vec![ProxyPort {
            service_port: 80,
            container_port: 10080,
            name: "http-80".into(),
            protocol: Transport::Tcp,
        }],
        addresses: Vec::new(),
        family: IpFamily::V4,
        memory_limit: None,
        metric_sinks: Vec::new(),
        settings: FleetSettings(Arc::new(spec)),
    }
}

pub(super) fn options() -> Options {
    Options { ca: "CA".to_owned(), ..Options::new("system", "own:1") }
}

fn object(objects: &[Object], kind: ObjectKind) -> Object {
    objects.iter().find(|o| o.at.kind == kind).cloned().expect("rendered")
}

/// An API server in memory: versions, uids, and what it refuses.
#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<World>>, Arc<AtomicU64>);

#[derive(Default)]
pub(super) struct World {
    pub(super) there: BTreeMap<ObjectRef, Live>,
    log: Vec<String>,
    refuses: Option<(ObjectKind, ClientError)>,
}

impl Server {
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.world().log)
    }

    pub(super) fn store(&self, at: &ObjectRef, mut tree: Value, uid: Option<&str>) -> Live {
        let version = self.1.fetch_add(1, Ordering::Relaxed) + 1;
        tree["metadata"]["uid"] = uid.map_or_else(|| format!("uid-{version}"), str::to_owned).into();
        tree["metadata"]["resourceVersion"] = version.to_string().into();
        let live = Live::from_tree(tree).expect("an object");
        self.world().there.insert(at.clone(), live.clone());
        live
    }

    fn begin(&self, verb: &str, at: &ObjectRef) -> Result<Option<Live>, ClientError> {
        let mut world = self.world();
        world.log.push(format!("{verb} {}", at.kind.names().0));
        if let Some((kind, error)) = &world.refuses
            && *kind == at.kind
            && verb != "read"
        {
            return Err(error.clone());
        }
        Ok(world.there.get(at).cloned())
    }
}

impl InfraClient for Server {
    async fn read(&self, at: &ObjectRef) -> Result<Live, ClientError> {
        self.begin("read", at)?.ok_or(ClientError::NotFound)
    }

    async fn create(&self, object: &Object) -> Result<Live, ClientError> {
        match self.begin("create", &object.at)? {
            Some(_) => Err(ClientError::Exists),
            None => Ok(self.store(&object.at, object.tree.clone(), None)),
        }
    }

    async fn apply(&self, object: &Object, over: &Live) -> Result<Live, ClientError> {
        let now = self.begin("apply", &object.at)?.ok_or(ClientError::NotFound)?;
        if (&now.uid, &now.resource_version) != (&over.uid, &over.resource_version) {
            return Err(ClientError::Conflict);
        }
        Ok(self.store(&object.at, object.tree.clone(), Some(&now.uid)))
    }

    async fn delete(&self, at: &ObjectRef, over: &Live) -> Result<(), ClientError> {
        let now = self.begin("delete", at)?.ok_or(ClientError::NotFound)?;
        if (&now.uid, &now.resource_version) != (&over.uid, &over.resource_version) {
            return Err(ClientError::Conflict);
        }
        self.world().there.remove(at);
        Ok(())
    }
}

fn bootstrap(_: &Proxy, _: &Options) -> Result<String, String> {
    Ok("a: 1\n".to_owned())
}

/// A leader over that server that has seen everything.
pub(super) struct Leader {
    pub(super) wanted: Wanted<String, Arc<Proxy>>,
    pub(super) fleets: Fleets,
    pub(super) troubles: Troubles,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Leader {
    fn start(server: &Server) -> Self {
        Self::start_as(server, options(), |_| false)
    }

    /// With these options; of fleets that `claimed` says so, what they are for is there.
    pub(super) fn start_as(
        server: &Server,
        options: Options,
        claimed: impl Fn(&FleetKey) -> bool + Send + Sync + 'static,
    ) -> Self {
        let fleets = Fleets::default();
        for kind in ObjectKind::ALL {
            let items = server
                .world()
                .there
                .iter()
                .filter(|(at, _)| at.kind == kind)
                .map(|(a, l)| (a.clone(), l.clone()))
                .collect();
            fleets.listed(kind, None, items);
        }
        fleets.done(None, None);
        let (wanted, role) = (Wanted::new(), RoleWatch::always_leader());
        let (_, options) = watch::channel(Arc::new(options));
        let writer = Writer::new(server.clone(), fleets.clone(), wanted.clone(), bootstrap, options, role.clone());
        let writer = writer.with_claims(claimed);
        let troubles = writer.troubles();
        let gate = Gated::new(writer, wanted.clone(), role, Backoff::default());
        let (stop, mut stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(gate.run(async move {
            let _ = stopped.wait_for(|s| *s).await;
        }));
        Self { wanted, fleets, troubles, stop, tasks }
    }

    pub(super) async fn want(&self, fleets: &[Proxy]) {
        self.wanted.publish_all(fleets.iter().map(|f| (f.group.to_string(), Arc::new(f.clone()))));
        sleep(Duration::from_secs(1)).await;
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.troubles.watch().borrow().values().next().cloned()
    }

    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.tasks.join_next().await.is_some() {}
    }
}

const FOUR: [&str; 4] = ["create ServiceAccount", "create ConfigMap", "create Deployment", "create Service"];

#[tokio::test(start_paused = true)]
async fn a_fleet_is_created_once_and_not_written_again() {
    let server = Server::default();
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    assert_eq!(server.log(), FOUR);
    leader.wanted.recheck(&["app/web".to_owned()]);
    sleep(Duration::from_secs(60)).await;
    leader.stop().await;
    // Another leader, which has to find out.
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    assert_eq!(server.log(), Vec::<String>::new());
    leader.want(&[]).await;
    assert_eq!(server.log(), ["delete Service", "delete Deployment", "delete ConfigMap", "delete ServiceAccount"]);
    assert!(server.world().there.is_empty());
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_others_changed_is_put_back_over_the_version_that_is_there() {
    let server = Server::default();
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    server.log();
    let (at, mut tree) = {
        let world = server.world();
        let (at, live) = world.there.iter().find(|(at, _)| at.kind == ObjectKind::Service).expect("there");
        (at.clone(), (*live.tree).clone())
    };
    tree["spec"]["type"] = "ClusterIP".into();
    let uid = tree["metadata"]["uid"].as_str().map(str::to_owned);
    let changed = server.store(&at, tree.clone(), uid.as_deref());
    // The watch is behind: it saw another version, so the first apply meets a conflict and the object is read.
    let mut seen = (*changed.tree).clone();
    seen["metadata"]["resourceVersion"] = "1000000".into();
    leader.fleets.note(at, Live::from_tree(seen).expect("an object"));
    leader.wanted.recheck(&["app/web".to_owned()]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.log(), ["apply Service", "read Service", "apply Service"]);
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_of_the_fleet_is_not_touched() {
    let server = Server::default();
    let at = render(&fleet("web", json!({})), "a: 1", &options()).expect("rendered")[2].at.clone();
    server.store(&at, json!({"metadata": {"name": "theirs"}}), None);
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    let log = server.log();
    assert!(log.contains(&"create Service".to_owned()) && !log.iter().any(|l| l.starts_with("apply")), "{log:?}");
    let trouble = leader.trouble().expect("told");
    assert!(trouble.lasting && trouble.message.contains("is there already and is not of this fleet"), "{trouble:?}");
    leader.want(&[]).await;
    assert_eq!(server.world().there.keys().collect::<Vec<_>>(), [&at], "only theirs is left");
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_newer_leader_is_not_written_over() {
    let server = Server::default();
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    leader.stop().await;
    let there = server.world().there.clone();
    for (at, live) in there {
        let mut tree = (*live.tree).clone();
        tree["metadata"]["labels"][compare::TERM] = "7".into();
        server.store(&at, tree, Some(&live.uid));
    }
    server.log();
    let leader = Leader::start(&server);
    let other =
        fleet("web", json!({"provider": {"type": "Kubernetes", "kubernetes": {"envoyDeployment": {"replicas": 3}}}}));
    leader.want(std::slice::from_ref(&other)).await;
    // This leader has no lease; its term is raised above what it found, and only then it writes.
    assert_eq!(server.log(), ["apply Deployment"]);
    let terms: Vec<_> =
        server.world().there.values().filter_map(|l| l.label(compare::TERM).map(str::to_owned)).collect();
    assert_eq!(terms, ["7", "7", "8", "7"]);
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn refusals_are_told_and_tried_again_for_ever_within_thirty_seconds() {
    let server = Server::default();
    server.world().refuses = Some((ObjectKind::Service, ClientError::Refused("denied by webhook (403)".to_owned())));
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    let trouble = leader.trouble().expect("told");
    assert!(trouble.message.contains("denied by webhook (403)"), "{trouble:?}");
    let told = facts(&fleet("web", json!({})), &BTreeMap::new(), &[], Some(&trouble));
    assert!(!told.programmed && told.message.contains("denied by webhook"), "{told:?}");
    sleep(Duration::from_secs(3600)).await;
    server.log();
    sleep(Duration::from_secs(31)).await;
    assert!(server.log().contains(&"create Service".to_owned()), "tried within every 31 s");
    server.world().refuses = None;
    sleep(Duration::from_secs(31)).await;
    assert!(leader.trouble().is_none());
    assert!(server.world().there.keys().any(|at| at.kind == ObjectKind::Service));
    leader.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_or_deleted_before_everything_has_been_listed() {
    let server = Server::default();
    let leader = Leader::start(&server);
    leader.want(&[fleet("web", json!({}))]).await;
    leader.stop().await;
    server.log();
    let fleets = Fleets::default();
    let (wanted, role) = (Wanted::new(), RoleWatch::always_leader());
    let (_, options) = watch::channel(Arc::new(options()));
    let writer = Writer::new(server.clone(), fleets.clone(), wanted.clone(), bootstrap, options, role.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(Gated::new(writer, wanted.clone(), role, Backoff::default()).run(std::future::pending()));
    wanted.publish_all([]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.log(), Vec::<String>::new());
    for kind in ObjectKind::ALL {
        let there = server.world().there.clone();
        fleets.listed(kind, None, there.into_iter().filter(|(at, _)| at.kind == kind).collect());
    }
    fleets.done(None, None);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.log().len(), 4, "the orphan is deleted");
    assert!(server.world().there.is_empty());
}

#[test]
fn a_fleet_that_runs_keeps_its_images_and_the_wording_of_its_bootstrap() {
    let wanted = object(
        &render(&fleet("web", json!({})), "a: 1\nb: [2]\n", &options()).expect("rendered"),
        ObjectKind::Deployment,
    );
    let mut tree = wanted.tree.clone();
    tree["metadata"]["uid"] = "u".into();
    tree["metadata"]["resourceVersion"] = "1".into();
    let containers =
        tree.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut).expect("containers");
    containers[0]["image"] = "envoy:old".into();
    containers[0]["args"][5] = "{\"b\": [2], \"a\": 1}".into();
    containers[1]["image"] = "gateway:old".into();
    tree["spec"]["selector"]["matchLabels"]["old"] = "label".into();
    tree["spec"]["template"]["metadata"]["labels"]["old"] = "label".into();
    let live = Live::from_tree(tree).expect("an object");
    let options = options();
    let defaults = [("envoy", options.envoy_image.as_str()), ("shutdown-manager", options.shutdown_image.as_str())];
    let adopt = |mut wanted: Object| {
        compare::adopt(&mut wanted, &live, &defaults);
        wanted
    };
    let adopted = adopt(wanted.clone());
    assert_eq!(adopted.tree["spec"], live.tree["spec"]);
    // Something else of the pods changes: they are replaced anyway.
    let mut other = wanted.clone();
    other.tree["spec"]["template"]["spec"]["hostNetwork"] = true.into();
    let adopted = adopt(other);
    assert_eq!(adopted.tree["spec"]["template"]["spec"]["containers"][0]["image"], ENVOY_IMAGE);
    assert_eq!(adopted.tree["spec"]["selector"], live.tree["spec"]["selector"], "a selector cannot be changed");
    // An image that somebody asked for.
    let asked = json!({"provider": {"type": "Kubernetes", "kubernetes": {"envoyDeployment": {"container": {"image": "envoy:new"}}}}});
    let asked =
        object(&render(&fleet("web", asked), "a: 1\nb: [2]\n", &options).expect("rendered"), ObjectKind::Deployment);
    assert_eq!(adopt(asked).tree["spec"]["template"]["spec"]["containers"][0]["image"], "envoy:new");
}

#[test]
fn defaults_of_the_server_are_no_difference_and_changes_are() {
    let live = json!({"a": 1, "default": true, "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}, "list": [{"x": 1, "y": 2}]});
    let covered = [
        json!({"a": 1}),
        json!({"resources": {"limits": {"cpu": "2000m", "memory": "1024Mi"}}}),
        json!({"list": [{"x": 1}], "empty": {}}),
    ];
    for wanted in covered {
        assert!(covers(&live, &wanted, ""), "{wanted}");
    }
    let differs = [
        json!({"a": 2}),
        json!({"b": 1}),
        json!({"resources": {"limits": {"cpu": "3"}}}),
        json!({"list": []}),
        json!({"list": [{"x": 1}, {"x": 2}]}),
        json!({"emptyDir": {}}),
        json!({"a": "1"}),
    ];
    for wanted in differs {
        assert!(!covers(&live, &wanted, ""), "{wanted}");
    }
    // What was wanted and is not any more changes the digest.
    let wanted = render(&fleet("web", json!({})), "a: 1", &options()).expect("rendered").remove(0);
    let mut stamped = wanted.clone();
    compare::stamp(&mut stamped, 3, &compare::digest(&wanted));
    stamped.tree["metadata"]["uid"] = "u".into();
    stamped.tree["metadata"]["resourceVersion"] = "1".into();
    let live = Live::from_tree(stamped.tree).expect("an object");
    assert!(same(&live, &wanted, &compare::digest(&wanted)));
    assert!(!same(&live, &wanted, "another"));
}

#[test]
fn facts_are_those_of_the_service_and_the_pods() {
    let proxy = fleet("web", json!({}));
    let live = |kind: ObjectKind, mut tree: Value| {
        tree["kind"] = kind.names().0.into();
        tree["metadata"] = json!({"uid": "u", "resourceVersion": "1"});
        (ObjectRef { kind, namespace: "system".into(), name: "x".into() }, Live::from_tree(tree).expect("an object"))
    };
    let deployment = |n: u32| live(ObjectKind::Deployment, json!({"status": {"availableReplicas": n, "replicas": 2}}));
    let service = |tree: Value| live(ObjectKind::Service, tree);
    let lb = |ingress: Value| {
        service(json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": ingress}}}))
    };
    let nodes = ["10.0.0.1".to_owned()];
    let tell = |objects: Vec<(ObjectRef, Live)>| facts(&proxy, &objects.into_iter().collect(), &nodes, None);
    assert_eq!(tell(vec![]).reason, "AddressNotAssigned");
    assert_eq!(tell(vec![deployment(1), lb(json!([]))]).reason, "AddressNotAssigned");
    assert_eq!(tell(vec![deployment(0), lb(json!([{"ip": "192.0.2.1"}]))]).reason, "NoResources");
    let told = tell(vec![
        deployment(1),
        lb(json!([{"hostname": "lb.example.test"}, {"ip": "192.0.2.1"}, {"ip": "192.0.2.1"}])),
    ]);
    assert_eq!((told.programmed, told.reason), (true, "Programmed"));
    assert_eq!(told.addresses, [("IPAddress", "192.0.2.1".to_owned()), ("Hostname", "lb.example.test".to_owned())]);
    assert!(told.message.contains("1/2"), "{}", told.message);
    let told = tell(vec![deployment(1), service(json!({"spec": {"type": "ClusterIP", "clusterIPs": ["10.1.1.1"]}}))]);
    assert_eq!(told.addresses, [("IPAddress", "10.1.1.1".to_owned())]);
    let told = tell(vec![deployment(1), service(json!({"spec": {"type": "NodePort", "clusterIPs": ["10.1.1.1"]}}))]);
    assert_eq!(told.addresses, [("IPAddress", "10.0.0.1".to_owned())]);
    let many: Vec<Value> = (0..17).map(|i| json!({"ip": format!("192.0.2.{i}")})).collect();
    let told = tell(vec![deployment(1), lb(many.into())]);
    assert_eq!((told.programmed, told.reason, told.addresses.len()), (false, "Invalid", 16));
    // A fleet that serves is not called broken for one lost answer, but for a refusal.
    let serving: BTreeMap<_, _> = [deployment(1), lb(json!([{"ip": "192.0.2.1"}]))].into();
    let trouble = |failures, lasting| Trouble { message: "why".to_owned(), failures, lasting, withheld: false };
    assert!(facts(&proxy, &serving, &nodes, Some(&trouble(1, false))).programmed);
    assert!(!facts(&proxy, &serving, &nodes, Some(&trouble(3, false))).programmed);
    assert!(!facts(&proxy, &serving, &nodes, Some(&trouble(1, true))).programmed);
}

#[test]
fn a_fleet_is_told_apart_by_labels_that_may_be_shorter_than_its_name() {
    let long = "g".repeat(100);
    let key = FleetKey::of_group(&format!("app/{long}"));
    assert_eq!(key.as_str().len(), "app/".len() + 63);
    assert_eq!(FleetKey::of_group(key.as_str()), key);
    assert_eq!(FleetKey::of_group("eg").as_str(), "eg");
    let proxy = Proxy { labels: BTreeMap::new(), ..fleet(&long, json!({})) };
    let name = names::name(&proxy, &options());
    assert!(name.len() <= 63 && name.starts_with("envoy-app-ggg"), "{name}");
}

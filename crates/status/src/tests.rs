//! The writers against an API server in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use election::{Leadership, Role, RoleWatch};
use ir::{AncestorStatus, Condition, ConditionStatus, ListenerStatus, ParentRef, ParentStatus, Status};
use k8s_openapi::jiff::Timestamp;
use reconcile::{Sync as _, Wanted};
use resources::{Kind, Object, ObjectKey, Observed, Seen};
use serde_json::{Value, json};

use crate::*;

const OURS: &str = "example.test/gateway-controller";
const THEIRS: &str = "example.test/other";

/// An API server: objects by key; what the watch shows may lag behind.
#[derive(Clone, Debug, Default)]
struct Server(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    objects: BTreeMap<ObjectKey, Value>,
    watched: BTreeMap<ObjectKey, Value>,
    lagging: bool,
    version: u64,
    patches: Vec<Value>,
    /// Written by somebody else as the next patch arrives.
    meanwhile: Vec<(ObjectKey, Value)>,
}

impl Server {
    fn put(&self, key: &ObjectKey, mut object: Value) {
        let mut inner = self.0.lock().unwrap();
        inner.version += 1;
        object["metadata"]["resourceVersion"] = inner.version.to_string().into();
        if !inner.lagging {
            inner.watched.insert(key.clone(), object.clone());
        }
        inner.objects.insert(key.clone(), object);
    }

    fn status(&self, key: &ObjectKey) -> Value {
        self.0.lock().unwrap().objects[key]["status"].clone()
    }

    fn patches(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock().unwrap().patches)
    }
}

fn seen(key: &ObjectKey, object: &Value) -> Seen {
    let text = |at: &str| -> Arc<str> { object.pointer(at).and_then(Value::as_str).unwrap_or_default().into() };
    let mut whole = object.clone();
    whole["apiVersion"] = key.kind.api_version().into();
    whole["kind"] = key.kind.as_str().into();
    whole["metadata"]["name"] = key.name.as_ref().into();
    whole.as_object_mut().unwrap().remove("status");
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    Seen {
        api_version: key.kind.api_version().into(),
        plural: "things".into(),
        uid: text("/metadata/uid"),
        resource_version: text("/metadata/resourceVersion"),
        status: object.get("status").map(|s| s.to_string().into()),
        finalizers: finalizers.into_iter().flatten().map(|f| f.as_str().unwrap().to_owned()).collect(),
        deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
        object: Object::from_value(whole).ok().map(|(_, o)| o),
    }
}

impl Observed for Server {
    fn observed(&self, key: &ObjectKey) -> Option<Seen> {
        self.0.lock().unwrap().watched.get(key).map(|o| seen(key, o))
    }

    fn keys(&self, kind: Kind) -> Vec<ObjectKey> {
        self.0.lock().unwrap().watched.keys().filter(|k| k.kind == kind).cloned().collect()
    }
}

impl StatusClient for Server {
    async fn read(&self, key: &ObjectKey, _: &Seen) -> Result<Seen, StatusError> {
        let inner = self.0.lock().unwrap();
        inner.objects.get(key).map(|o| seen(key, o)).ok_or(StatusError::NotFound)
    }

    async fn patch(&self, key: &ObjectKey, _: Part, _: &Seen, body: Value) -> Result<Seen, StatusError> {
        let meanwhile = self.0.lock().unwrap().meanwhile.pop();
        if let Some((key, object)) = meanwhile {
            self.put(&key, object);
        }
        let Some(mut object) = self.0.lock().unwrap().objects.get(key).cloned() else {
            return Err(StatusError::NotFound);
        };
        self.0.lock().unwrap().patches.push(body.clone());
        for field in ["uid", "resourceVersion"] {
            assert!(body["metadata"][field].is_string(), "a write names what it was compared with: {body}");
            if body["metadata"][field] != object["metadata"][field] {
                return Err(StatusError::Conflict);
            }
        }
        json_patch::merge(&mut object, &body);
        self.put(key, object);
        let inner = self.0.lock().unwrap();
        Ok(seen(key, &inner.objects[key]))
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

struct Bench {
    server: Server,
    facts: Facts,
    leadership: Leadership,
    // Kept: a leadership ends with its watch.
    _role: RoleWatch,
}

impl Bench {
    fn new() -> Self {
        let role = RoleWatch::always_leader();
        let Role::Leader(leadership) = role.current() else { panic!("always") };
        Self { server: Server::default(), facts: Facts::new(Wanted::new()), leadership, _role: role }
    }

    fn writer(&self, now: fn() -> Timestamp) -> StatusWriter<Server, Server> {
        StatusWriter::new(self.server.clone(), self.server.clone(), OURS, self.facts.clone()).with_clock(now)
    }

    /// Brings a status about at a time; tells what was written.
    async fn write_at(&self, now: fn() -> Timestamp, key: &ObjectKey, want: Option<Status>) -> Vec<Value> {
        let want = want.map(Arc::new);
        self.writer(now).sync(self.leadership.permit().unwrap(), key, want.as_ref()).await.unwrap();
        self.server.patches()
    }

    async fn write(&self, key: &ObjectKey, want: Option<Status>) -> Vec<Value> {
        self.write_at(|| at(100), key, want).await
    }
}

fn route() -> ObjectKey {
    ObjectKey::new(Kind::HttpRoute, "ns", "r")
}

fn object() -> Value {
    json!({"metadata": {"uid": "u", "generation": 1}, "spec": {}})
}

fn condition(kind: &'static str, good: bool, generation: i64) -> Condition {
    Condition {
        kind,
        status: if good { ConditionStatus::True } else { ConditionStatus::False },
        reason: "Because",
        message: "m".to_owned(),
        observed_generation: Some(generation),
    }
}

fn entry(gateway: &str, good: bool, generation: i64) -> ParentStatus {
    let parent = ParentRef {
        group: Some("gateway.networking.k8s.io".into()),
        kind: Some("Gateway".into()),
        namespace: None,
        name: gateway.into(),
        section_name: None,
        port: None,
    };
    ParentStatus { parent, controller_name: OURS.into(), conditions: vec![condition("Accepted", good, generation)] }
}

fn parents(gateways: &[&str]) -> Status {
    Status::Route { parents: gateways.iter().map(|g| entry(g, true, 1)).collect() }
}

fn names(status: &Value, list: &str, reference: &str) -> Vec<String> {
    let name = |e: &Value| format!("{} {}", e[reference]["name"].as_str().unwrap(), e["controllerName"] == OURS);
    status[list].as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn only_real_changes_are_written() {
    let bench = Bench::new();
    bench.server.put(&route(), object());
    assert_eq!(bench.write(&route(), Some(parents(&["g1"]))).await.len(), 1);
    assert!(bench.write(&route(), Some(parents(&["g1"]))).await.is_empty());
    // A label, a condition of the same content in another order, defaults that the server fills in: nothing to write.
    let mut labelled = object();
    labelled["status"] = bench.server.status(&route());
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let parent = labelled.pointer_mut("/status/parents/0/parentRef").unwrap();
    parent.as_object_mut().unwrap().remove("group");
    bench.server.put(&route(), labelled);
    assert!(bench.write(&route(), Some(parents(&["g1"]))).await.is_empty());
    let newer = Status::Route { parents: vec![entry("g1", true, 2)] };
    assert_eq!(bench.write(&route(), Some(newer)).await.len(), 1, "the generation counts");
}

#[tokio::test]
async fn times_move_only_with_the_status() {
    let bench = Bench::new();
    bench.server.put(&route(), object());
    let time = || bench.server.status(&route())["parents"][0]["conditions"][0]["lastTransitionTime"].clone();
    bench.write_at(|| at(0), &route(), Some(Status::Route { parents: vec![entry("g", false, 1)] })).await;
    assert_eq!(time(), "1970-01-01T00:00:00Z");
    let mut reworded = entry("g", false, 2);
    reworded.conditions[0].message = "another".to_owned();
    assert_eq!(bench.write_at(|| at(50), &route(), Some(Status::Route { parents: vec![reworded] })).await.len(), 1);
    assert_eq!(time(), "1970-01-01T00:00:00Z", "another message is no transition");
    bench.write_at(|| at(60), &route(), Some(Status::Route { parents: vec![entry("g", true, 2)] })).await;
    assert_eq!(time(), "1970-01-01T00:01:00Z");
}

#[tokio::test]
async fn entries_of_others_stay_and_where_they_are() {
    let bench = Bench::new();
    let foreign =
        json!({"parentRef": {"name": "g1"}, "controllerName": THEIRS, "conditions": [{"type": "X", "odd": [1]}]});
    let stale = json!({"parentRef": {"name": "old"}, "controllerName": OURS, "conditions": []});
    let mut with_foreign = object();
    with_foreign["status"] = json!({"parents": [stale, foreign]});
    bench.server.put(&route(), with_foreign);

    bench.write(&route(), Some(parents(&["g1", "g2"]))).await;
    let status = bench.server.status(&route());
    assert_eq!(names(&status, "parents", "parentRef"), ["g1 false", "g1 true", "g2 true"]);
    assert_eq!(status["parents"][0], foreign, "to the letter");
    // Another parent in place of one: exactly those that are wanted.
    bench.write(&route(), Some(parents(&["g3", "g1"]))).await;
    let status = bench.server.status(&route());
    assert_eq!(names(&status, "parents", "parentRef"), ["g1 false", "g1 true", "g3 true"]);
    // No parent of ours any more.
    bench.write(&route(), None).await;
    assert_eq!(bench.server.status(&route()), json!({"parents": [foreign]}));
    assert!(bench.write(&route(), None).await.is_empty());
}

#[tokio::test]
async fn a_policy_has_at_most_sixteen_ancestors_and_those_of_others_come_first() {
    let bench = Bench::new();
    let key = ObjectKey::new(Kind::BackendTlsPolicy, "ns", "p");
    let foreign: Vec<Value> = (0..3)
        .map(|i| json!({"ancestorRef": {"name": format!("f{i}")}, "controllerName": THEIRS, "conditions": []}))
        .collect();
    let mut policy = object();
    policy["status"] = json!({"ancestors": foreign});
    bench.server.put(&key, policy);
    let ancestors: Vec<ParentStatus> = (0..20).map(|i| entry(&format!("g{i}"), true, 1)).collect();
    let want = Status::Policy { ancestors };
    bench.write(&key, Some(want.clone())).await;
    let all = names(&bench.server.status(&key), "ancestors", "ancestorRef");
    assert_eq!(all.len(), 16);
    assert_eq!(all[..4], ["f0 false", "f1 false", "f2 false", "g0 true"]);
    assert!(bench.write(&key, Some(want)).await.is_empty(), "and stays so");
}

#[tokio::test]
async fn entries_of_an_envoy_proxy_name_no_controller_and_are_all_ours() {
    let bench = Bench::new();
    let key = ObjectKey::new(Kind::EnvoyProxy, "ns", "p");
    let mut proxy = object();
    proxy["status"] = json!({"ancestors": [{"ancestorRef": {"name": "gone"}, "conditions": []}]});
    bench.server.put(&key, proxy);
    let ancestor = |name: &str| {
        let ParentStatus { parent, conditions, .. } = entry(name, true, 1);
        AncestorStatus { ancestor_ref: parent, conditions }
    };
    let want = Status::EnvoyProxy { ancestors: (0..20).map(|i| ancestor(&format!("g{i}"))).collect() };
    bench.write(&key, Some(want.clone())).await;
    let status = bench.server.status(&key);
    let all = status["ancestors"].as_array().unwrap();
    assert_eq!((all.len(), all[0].get("controllerName")), (20, None), "the API sets no limit");
    assert_eq!(all[0]["ancestorRef"]["name"], "g0", "that of a Gateway that is gone is gone too");
    assert!(bench.write(&key, Some(want)).await.is_empty(), "and stays so");
    bench.write(&key, None).await;
    assert_eq!(bench.server.status(&key), json!({"ancestors": []}));
}

#[tokio::test]
async fn a_conflict_is_read_and_compared_again() {
    let bench = Bench::new();
    bench.server.put(&route(), object());
    // Somebody else writes an entry between our look and our write.
    let mut other = object();
    other["status"] = json!({"parents": [{"parentRef": {"name": "g"}, "controllerName": THEIRS, "conditions": []}]});
    bench.server.0.lock().unwrap().meanwhile.push((route(), other));
    let patches = bench.write(&route(), Some(parents(&["g"]))).await;
    assert_eq!(patches.len(), 2);
    assert_eq!(names(&bench.server.status(&route()), "parents", "parentRef"), ["g false", "g true"]);
    // Somebody wrote just what was wanted.
    let mut done = object();
    bench.write(&route(), Some(parents(&["g", "h"]))).await;
    done["status"] = bench.server.status(&route());
    bench.write(&route(), Some(parents(&["g"]))).await;
    bench.server.0.lock().unwrap().meanwhile.push((route(), done));
    assert_eq!(bench.write(&route(), Some(parents(&["g", "h"]))).await.len(), 1, "one try, nothing left to write");
}

#[tokio::test]
async fn what_is_gone_or_another_object_is_left_alone() {
    let bench = Bench::new();
    assert!(bench.write(&route(), Some(parents(&["g"]))).await.is_empty());
    bench.server.put(&route(), object());
    bench.server.0.lock().unwrap().objects.clear();
    assert!(bench.write(&route(), Some(parents(&["g"]))).await.is_empty(), "404 is done");
    bench.server.put(&route(), object());
    let mut another = object();
    another["metadata"]["uid"] = "v".into();
    bench.server.0.lock().unwrap().meanwhile.push((route(), another));
    assert_eq!(bench.write(&route(), Some(parents(&["g"]))).await.len(), 1);
    assert_eq!(bench.server.status(&route()), Value::Null);
}

#[tokio::test]
async fn a_watch_that_lags_causes_no_second_write() {
    let bench = Bench::new();
    bench.server.put(&route(), object());
    bench.server.0.lock().unwrap().lagging = true;
    let writer = bench.writer(|| at(1));
    for _ in 0..3 {
        writer.sync(bench.leadership.permit().unwrap(), &route(), Some(&Arc::new(parents(&["g"])))).await.unwrap();
    }
    assert_eq!(bench.server.patches().len(), 1);
    let want = Arc::new(parents(&["g", "h"]));
    writer.sync(bench.leadership.permit().unwrap(), &route(), Some(&want)).await.unwrap();
    assert_eq!(bench.server.patches().len(), 1, "compared with our own write, not with what the watch shows");
    assert_eq!(writer.counters().figures(), Figures { written: 2, unchanged: 2, ..Figures::default() });
}

fn gateway() -> (ObjectKey, Value) {
    let spec = json!({"gatewayClassName": "c", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]});
    (ObjectKey::new(Kind::Gateway, "ns", "gw"), json!({"metadata": {"uid": "u", "generation": 4}, "spec": spec}))
}

fn gateway_status(conditions: Vec<Condition>) -> Status {
    let listener = ListenerStatus {
        name: "http".into(),
        supported_kinds: vec![("gateway.networking.k8s.io".into(), "HTTPRoute".into())],
        attached_routes: 1,
        conditions: vec![condition("Accepted", true, 4)],
        port: None,
    };
    Status::Gateway { conditions, listeners: vec![listener], attached_listener_sets: None }
}

fn by_type(status: &Value) -> BTreeMap<String, String> {
    let text = |c: &Value, f: &str| c[f].as_str().unwrap().to_owned();
    let all = status["conditions"].as_array().unwrap().iter();
    all.map(|c| (text(c, "type"), format!("{} {}", text(c, "status"), text(c, "reason")))).collect()
}

#[tokio::test]
async fn a_gateway_without_facts_is_accepted_but_not_programmed() {
    let bench = Bench::new();
    let (key, mut object) = gateway();
    let waiting = |kind: &str| {
        json!({"type": kind, "status": "Unknown", "reason": "Pending", "message": "Waiting for controller",
        "lastTransitionTime": "1970-01-01T00:00:00Z"})
    };
    let foreign = json!({"type": "example.test/Checked", "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    object["status"] = json!({"conditions": [waiting("Accepted"), foreign, waiting("Programmed")]});
    bench.server.put(&key, object);
    bench.write(&key, Some(gateway_status(vec![]))).await;
    let status = bench.server.status(&key);
    let wanted =
        [("Accepted", "True Accepted"), ("Programmed", "False AddressNotAssigned"), ("example.test/Checked", "True R")];
    assert_eq!(by_type(&status), wanted.map(|(t, s)| (t.to_owned(), s.to_owned())).into());
    assert_eq!(status["conditions"][1], foreign);
    assert_eq!(status["conditions"][0]["observedGeneration"], 4);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], "1970-01-01T00:01:40Z");
    assert_eq!(status["listeners"][0]["attachedRoutes"], 1);
    assert!(bench.write(&key, Some(gateway_status(vec![]))).await.is_empty());
    // A fault that translation found is told, and goes again.
    bench
        .write(&key, Some(gateway_status(vec![condition("Accepted", false, 4), condition("ResolvedRefs", false, 4)])))
        .await;
    let status = bench.server.status(&key);
    assert_eq!(by_type(&status)["Accepted"], "False Because");
    assert_eq!(by_type(&status)["Programmed"], "False Invalid");
    bench.write(&key, Some(gateway_status(vec![]))).await;
    assert!(!by_type(&bench.server.status(&key)).contains_key("ResolvedRefs"));
}

#[tokio::test]
async fn facts_of_the_fleet_become_addresses_and_programmed() {
    let bench = Bench::new();
    let (key, object) = gateway();
    bench.server.put(&key, object);
    let facts = |addresses: &[&str]| FleetFacts {
        addresses: addresses.iter().map(|a| Address { kind: "IPAddress", value: (*a).to_owned() }).collect(),
        status: if addresses.is_empty() { ConditionStatus::False } else { ConditionStatus::True },
        reason: if addresses.is_empty() { "AddressNotAssigned" } else { "Programmed" },
        message: "told".to_owned(),
    };
    bench.facts.publish(key.clone(), Some(facts(&["192.0.2.1"])));
    bench.write(&key, Some(gateway_status(vec![]))).await;
    let status = bench.server.status(&key);
    assert_eq!(status["addresses"], json!([{"type": "IPAddress", "value": "192.0.2.1"}]));
    assert_eq!(by_type(&status)["Programmed"], "True Programmed");
    // A process that has just started knows nothing yet and takes nothing away.
    let restarted = Facts::new(Wanted::new());
    let writer = StatusWriter::new(bench.server.clone(), bench.server.clone(), OURS, restarted);
    let want = Arc::new(gateway_status(vec![]));
    writer.sync(bench.leadership.permit().unwrap(), &key, Some(&want)).await.unwrap();
    assert!(bench.server.patches().is_empty());
    // The address is lost.
    bench.facts.publish(key.clone(), Some(facts(&[])));
    bench.write(&key, Some(gateway_status(vec![]))).await;
    let status = bench.server.status(&key);
    assert_eq!((by_type(&status)["Programmed"].as_str(), status.get("addresses")), ("False AddressNotAssigned", None));
}

/// Whether a Gateway is accepted follows from its listeners where nothing else speaks against it; one that is not is not
/// programmed, whatever its fleet does. More addresses than the API server takes are cut.
#[tokio::test]
async fn a_gateway_is_accepted_as_far_as_its_listeners_are() {
    let bench = Bench::new();
    let (key, object) = gateway();
    bench.server.put(&key, object);
    let address = |i: u8| Address { kind: "IPAddress", value: format!("192.0.2.{i}") };
    let facts = FleetFacts {
        addresses: (0..20).map(address).collect(),
        status: ConditionStatus::True,
        reason: "Programmed",
        message: "told".to_owned(),
    };
    bench.facts.publish(key.clone(), Some(facts));
    for (listeners, wanted) in [
        (vec![], ["True Accepted", "True Programmed"]),
        (vec![true, true], ["True Accepted", "True Programmed"]),
        (vec![true, false], ["True ListenersNotValid", "True Programmed"]),
        (vec![false, false], ["False ListenersNotValid", "False Invalid"]),
    ] {
        let listener = |(i, accepted): (usize, &bool)| ListenerStatus {
            name: format!("l{i}").into(),
            supported_kinds: vec![],
            attached_routes: 0,
            conditions: vec![condition("Accepted", *accepted, 4)],
            port: None,
        };
        let listeners = listeners.iter().enumerate().map(listener).collect();
        let status = Status::Gateway { conditions: vec![], listeners, attached_listener_sets: None };
        bench.write(&key, Some(status)).await;
        let status = bench.server.status(&key);
        let conditions = by_type(&status);
        assert_eq!([&conditions["Accepted"], &conditions["Programmed"]], wanted);
        assert_eq!(status["addresses"].as_array().unwrap().len(), 16);
    }
    let message = bench.server.status(&key)["conditions"][0]["message"].clone();
    assert_eq!(message, "No listener is valid; see the conditions of l0, l1");
}

#[tokio::test]
async fn new_facts_have_the_status_looked_at_again() {
    let statuses: Wanted<ObjectKey, Arc<Status>> = Wanted::new();
    let facts = Facts::new(statuses.clone());
    let bench = Bench::new();
    let (key, object) = gateway();
    bench.server.put(&key, object);
    let writer = StatusWriter::new(bench.server.clone(), bench.server.clone(), OURS, facts.clone());
    let role = RoleWatch::always_leader();
    let gate = reconcile::Gated::new(writer, statuses.clone(), role, reconcile::Backoff::default());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(gate.run(async { drop(stopped.await) }));
    statuses.publish([(key.clone(), Some(Arc::new(gateway_status(vec![]))))]);
    statuses.complete();
    let until = async |wanted: &str| {
        while bench.server.status(&key).is_null() || by_type(&bench.server.status(&key))["Programmed"] != wanted {
            tokio::task::yield_now().await;
        }
    };
    until("False AddressNotAssigned").await;
    let told =
        FleetFacts { addresses: vec![], status: ConditionStatus::False, reason: "NoResources", message: "m".into() };
    facts.publish(key.clone(), Some(told));
    until("False NoResources").await;
    drop(stop);
    while tasks.join_next().await.is_some() {}
}

#[tokio::test]
async fn a_class_tells_its_features_and_keeps_its_finalizer_while_it_is_used() {
    let bench = Bench::new();
    let key = ObjectKey::new(Kind::GatewayClass, "", "c");
    let class = |controller: &str| json!({"metadata": {"uid": "u", "finalizers": ["other"]}, "spec": {"controllerName": controller}});
    bench.server.put(&key, class(OURS));
    bench.write(&key, Some(Status::GatewayClass { conditions: vec![condition("Accepted", true, 1)] })).await;
    let status = bench.server.status(&key);
    assert_eq!(status["supportedFeatures"].as_array().unwrap().len(), SUPPORTED_FEATURES.len());
    assert!(
        bench
            .write(&key, Some(Status::GatewayClass { conditions: vec![condition("Accepted", true, 1)] }))
            .await
            .is_empty()
    );

    assert_eq!(classes_in_use(&bench.server, OURS), [].into());
    let (gateway, object) = gateway();
    bench.server.put(&gateway, object);
    assert_eq!(classes_in_use(&bench.server, OURS), [key.clone()].into());
    assert_eq!(classes_in_use(&bench.server, THEIRS), [].into());
    let finalizers = Finalizers::new(bench.server.clone(), bench.server.clone(), OURS);
    let held = || seen(&key, &bench.server.0.lock().unwrap().objects[&key]).finalizers.to_vec();
    let permit = || bench.leadership.permit().unwrap();
    assert_eq!(finalizers.owned(permit()).await.unwrap(), []);
    for _ in 0..2 {
        finalizers.sync(permit(), &key, Some(&())).await.unwrap();
    }
    assert_eq!((held(), bench.server.patches().len()), (vec!["other".to_owned(), GATEWAYS_EXIST.to_owned()], 1));
    assert_eq!(finalizers.owned(permit()).await.unwrap(), *std::slice::from_ref(&key));
    finalizers.sync(permit(), &key, None).await.unwrap();
    assert_eq!(held(), ["other"]);
    // Neither on the class of another controller nor on one that is being deleted.
    bench.server.put(&key, class(THEIRS));
    finalizers.sync(permit(), &key, Some(&())).await.unwrap();
    let mut deleted = class(OURS);
    deleted["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z".into();
    bench.server.put(&key, deleted);
    finalizers.sync(permit(), &key, Some(&())).await.unwrap();
    assert_eq!(held(), ["other"]);
}

#[tokio::test]
async fn a_new_leader_finds_entries_that_nobody_wants() {
    let bench = Bench::new();
    for (name, controller) in [("ours", OURS), ("theirs", THEIRS)] {
        let mut object = object();
        object["status"] =
            json!({"parents": [{"parentRef": {"name": "g"}, "controllerName": controller, "conditions": []}]});
        bench.server.put(&ObjectKey::new(Kind::HttpRoute, "ns", name), object);
    }
    let owned = bench.writer(|| at(0)).owned(bench.leadership.permit().unwrap()).await.unwrap();
    assert_eq!(owned, [ObjectKey::new(Kind::HttpRoute, "ns", "ours")]);
}

#[tokio::test]
async fn a_message_that_is_too_long_is_cut() {
    let bench = Bench::new();
    bench.server.put(&route(), object());
    let mut long = entry("g", true, 1);
    long.conditions[0].message = "ä".repeat(40_000);
    bench.write(&route(), Some(Status::Route { parents: vec![long.clone()] })).await;
    let message = bench.server.status(&route())["parents"][0]["conditions"][0]["message"].clone();
    let message = message.as_str().unwrap();
    assert!(message.len() <= 32_768 && message.ends_with("ä..."), "{}", message.len());
    assert!(bench.write(&route(), Some(Status::Route { parents: vec![long] })).await.is_empty());
}

fn class_with(claim: Option<&str>) -> Value {
    let annotations = claim.map(|c| json!({CLAIM: c})).unwrap_or_else(|| json!({}));
    json!({"metadata": {"uid": "u", "generation": 1, "annotations": annotations}, "spec": {"controllerName": OURS}})
}

/// Two control planes at one class: each claims it seldom, both know of each other, and one that is left alone forgets.
#[tokio::test(start_paused = true)]
async fn two_control_planes_of_one_name_are_told_of_each_other() {
    let (server, key) = (Server::default(), ObjectKey::new(Kind::GatewayClass, "", "c"));
    server.put(&key, class_with(None));
    let mut tasks = tokio::task::JoinSet::new();
    let mut start = |namespace: &str| {
        let facts = Facts::new(Wanted::new());
        let claims = Claims::new(server.clone(), server.clone(), OURS, namespace, facts.clone());
        let (rivals, stop) = (claims.rivals(), tokio::sync::watch::Sender::new(false));
        let mut stopped = stop.subscribe();
        tasks.spawn(claims.run(RoleWatch::always_leader(), async move {
            let _ = stopped.wait_for(|s| *s).await;
        }));
        (facts, rivals, stop)
    };
    let claim = || server.0.lock().unwrap().objects[&key]["metadata"]["annotations"][CLAIM].clone();
    let second = || tokio::time::sleep(std::time::Duration::from_secs(1));
    let (facts_a, rivals_a, stop_a) = start("ns-a");
    second().await;
    second().await;
    assert_eq!((claim(), server.patches().len()), (json!("ns-a"), 1));
    for _ in 0..300 {
        second().await;
    }
    assert_eq!(server.patches().len(), 0, "at rest");
    let (facts_b, rivals_b, stop_b) = start("ns-b");
    for _ in 0..30 {
        second().await;
    }
    let told = facts_a.contested(&key).unwrap();
    assert!(told.contains("namespaces ns-a, ns-b all have the controller name"), "{told}");
    assert_eq!(facts_b.contested(&key), Some(told), "in the same words");
    assert!(rivals_a.borrow().contains("ns-b") && rivals_b.borrow().contains("ns-a"));
    server.patches();
    for _ in 0..600 {
        second().await;
    }
    assert!(server.patches().len() <= 14, "in the end at most once a minute");
    assert!(facts_a.contested(&key).is_some() && facts_b.contested(&key).is_some(), "for as long as it is so");
    stop_a.send_replace(true);
    for _ in 0..300 {
        second().await;
    }
    assert_eq!((claim(), facts_b.contested(&key)), (json!("ns-b"), None));
    stop_b.send_replace(true);
    while tasks.join_next().await.is_some() {}
}

#[tokio::test]
async fn a_contested_class_says_so_while_it_is() {
    let (server, key) = (Server::default(), ObjectKey::new(Kind::GatewayClass, "", "c"));
    server.put(&key, class_with(None));
    let facts = Facts::new(Wanted::new());
    let writer = StatusWriter::new(server.clone(), server.clone(), OURS, facts.clone());
    let condition = Condition {
        kind: "Accepted",
        status: ConditionStatus::True,
        reason: "Accepted",
        message: "fine".into(),
        observed_generation: Some(1),
    };
    let status = Arc::new(Status::GatewayClass { conditions: vec![condition] });
    let role = RoleWatch::always_leader();
    let Role::Leader(leadership) = role.current() else { panic!("leads") };
    let types = || {
        let status = server.status(&key);
        let all = status["conditions"].as_array().unwrap();
        all.iter().map(|c| c["type"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (message, wanted) in
        [(Some("why"), &["Accepted", "gateway.envoyproxy.io/ControllerConflict"][..]), (None, &["Accepted"])]
    {
        facts.contest(&key, message);
        writer.sync(leadership.permit().unwrap(), &key, Some(&status)).await.unwrap();
        assert_eq!(types(), wanted);
    }
}

#[tokio::test(start_paused = true)]
async fn what_somebody_undoes_each_time_is_left_for_a_while() {
    let (server, key) = (Server::default(), ObjectKey::new(Kind::GatewayClass, "", "c"));
    let writer = StatusWriter::new(server.clone(), server.clone(), OURS, Facts::new(Wanted::new()));
    let status = Arc::new(Status::GatewayClass { conditions: vec![] });
    let role = RoleWatch::always_leader();
    let Role::Leader(leadership) = role.current() else { panic!("leads") };
    let mut writes = 0;
    for _ in 0..200 {
        server.put(&key, class_with(None));
        let outcome = writer.sync(leadership.permit().unwrap(), &key, Some(&status)).await;
        writes += usize::from(outcome.is_ok());
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    }
    assert!((8..=14).contains(&writes), "{writes} writes in 200 s");
    assert_eq!(writer.contested().count(), 1);
}

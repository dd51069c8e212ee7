//! The state by its rules: events in, batches out.

use resources::{Observed, Store};
use serde_json::{Value, json};

use super::{handle::Served, *};

const KINDS: [Kind; 6] =
    [Kind::Gateway, Kind::HttpRoute, Kind::Service, Kind::EndpointSlice, Kind::Secret, Kind::Namespace];

fn feed(kind: Kind) -> Feed {
    Feed { kind, namespace: None }
}

fn item(value: Value) -> Item {
    let kind = Kind::find(value["apiVersion"].as_str().unwrap(), value["kind"].as_str().unwrap()).unwrap();
    let object: DynamicObject = serde_json::from_value(value).unwrap();
    if decode::is_lazy(kind) {
        decode::meta(kind, &object.metadata)
    } else {
        decode::full(kind, &kind.api_version(), object)
    }
}

fn whole(value: Value) -> Item {
    decode::full(Kind::Secret, "v1", serde_json::from_value(value).unwrap())
}

fn meta(namespace: &str, name: &str, version: u32) -> Value {
    json!({"name": name, "namespace": namespace, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()})
}

fn gateway(secret: &str, version: u32) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": meta("ns", "gw", version),
        "spec": {"gatewayClassName": "c", "listeners": [{"name": "https", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": secret}]}}]}})
}

fn route(backend: &str, version: u32) -> Value {
    json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": meta("ns", "r", version),
        "spec": {"rules": [{"backendRefs": [{"name": backend, "port": 80}]}]}})
}

fn service(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": meta("ns", name, version)})
}

fn slice(service: &str, address: &str, version: u32) -> Value {
    let mut meta = meta("ns", &format!("{service}-1"), version);
    meta["labels"] = json!({"kubernetes.io/service-name": service});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta,
        "addressType": "IPv4", "endpoints": [{"addresses": [address]}]})
}

fn secret(name: &str, content: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta("ns", name, version), "stringData": {"x": content}})
}

fn state() -> State {
    let mut state = State::new(None, None, &BTreeSet::new());
    state.take(Event::Feeds { feeds: KINDS.into_iter().map(feed).collect(), complete: true });
    state
}

/// Lists all kinds with these objects.
fn list(state: &mut State, objects: &[Value]) {
    for kind in KINDS {
        let items = objects.iter().filter(|o| o["kind"] == kind.as_str()).cloned().map(item).collect();
        state.take(Event::Listed(feed(kind), items));
    }
}

fn synced(objects: &[Value]) -> State {
    let mut state = state();
    list(&mut state, objects);
    assert_eq!(state.next_fetches(), [], "what needs fetching has tests of its own");
    assert!(matches!(state.flush().last(), Some(Change::Synced)));
    state
}

/// A batch in words.
fn told(batch: Vec<Change>) -> Vec<String> {
    let word = |c: &Change| match c {
        Change::Upsert(key, _) => format!("+{key}"),
        Change::Remove(key) => format!("-{key}"),
        Change::Synced => "synced".to_owned(),
        other => panic!("no source says {other:?}"),
    };
    batch.iter().map(word).collect()
}

fn secret_key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Secret, "ns", name)
}

fn fetched(state: &mut State, name: &str, content: &str, version: u32) {
    let asked: Arc<str> = version.to_string().into();
    let got = Some(whole(secret(name, content, version)));
    state.take(Event::Fetched { key: secret_key(name), asked, got });
}

#[test]
fn nothing_is_told_before_every_kind_has_been_listed_and_every_secret_fetched() {
    let mut state = state();
    state.take(Event::Listed(feed(Kind::Gateway), vec![item(gateway("cert", 1))]));
    assert!(told(state.flush()).is_empty());
    for kind in KINDS.into_iter().filter(|k| !matches!(k, Kind::Gateway | Kind::Secret)) {
        state.take(Event::Listed(feed(kind), vec![]));
        assert!(told(state.flush()).is_empty(), "{kind} was not the last one");
    }
    state.take(Event::Listed(feed(Kind::Secret), vec![item(secret("cert", "a", 4)), item(secret("other", "b", 5))]));
    assert_eq!(state.next_fetches(), [(secret_key("cert"), "4".into())]);
    assert_eq!(state.next_fetches(), [], "it is asked for once");
    assert!(told(state.flush()).is_empty());
    fetched(&mut state, "cert", "a", 4);
    assert_eq!(told(state.flush()), ["+Gateway ns/gw", "+Secret ns/cert", "synced"]);
}

#[test]
fn kinds_of_which_it_is_not_known_whether_they_are_there_are_waited_for() {
    let mut state = State::new(None, None, &BTreeSet::new());
    state.take(Event::Feeds { feeds: [feed(Kind::Gateway)].into(), complete: false });
    state.take(Event::Listed(feed(Kind::Gateway), vec![item(gateway("none", 1))]));
    assert!(told(state.flush()).is_empty());
    state.take(Event::Feeds { feeds: [feed(Kind::Gateway), feed(Kind::Secret)].into(), complete: true });
    assert!(told(state.flush()).is_empty(), "now another kind is there");
    state.take(Event::Listed(feed(Kind::Secret), vec![]));
    assert_eq!(told(state.flush()), ["+Gateway ns/gw", "synced"]);
    // Not known again: nothing is taken back.
    state.take(Event::Feeds { feeds: [feed(Kind::Gateway)].into(), complete: false });
    assert!(told(state.flush()).is_empty());
}

#[test]
fn what_nothing_refers_to_is_not_told() {
    let mut state = synced(&[route("web", 1), service("web", 1), service("idle", 1), slice("idle", "10.0.0.9", 1)]);
    assert_eq!(state.told(), 2);
    for version in 2..9 {
        state.take(Event::Applied(item(slice("idle", "10.0.0.8", version))));
        state.take(Event::Applied(item(secret("idle", "x", version))));
        assert_eq!(state.next_fetches(), []);
        assert!(told(state.flush()).is_empty());
    }
    state.take(Event::Applied(item(slice("web", "10.0.0.1", 3))));
    assert_eq!(told(state.flush()), ["+EndpointSlice ns/web-1"]);
    // A reference brings the Service with its slices, and takes the others away.
    state.take(Event::Applied(item(route("idle", 4))));
    let mut batch = told(state.flush());
    batch.sort();
    let wanted = [
        "+EndpointSlice ns/idle-1",
        "+HTTPRoute ns/r",
        "+Service ns/idle",
        "-EndpointSlice ns/web-1",
        "-Service ns/web",
    ];
    assert_eq!(batch, wanted);
}

#[test]
fn a_relist_swaps_at_once_and_tells_only_differences() {
    let mut state = synced(&[route("web", 1), service("web", 1)]);
    list(&mut state, &[route("web", 7), service("web", 9)]);
    assert!(told(state.flush()).is_empty(), "other versions of the same content");
    state.take(Event::Listed(feed(Kind::HttpRoute), vec![]));
    assert_eq!(told(state.flush()), ["-HTTPRoute ns/r", "-Service ns/web"]);
}

#[test]
fn an_object_that_cannot_be_read_keeps_its_last_good_version() {
    let mut state = synced(&[route("web", 1), service("web", 1)]);
    let mut bad = route("web", 2);
    bad["spec"]["rules"] = "none".into();
    state.take(Event::Applied(item(bad.clone())));
    assert!(told(state.flush()).is_empty());
    assert_eq!(state.broken().len(), 1);
    state.take(Event::Listed(feed(Kind::HttpRoute), vec![item(bad.clone())]));
    assert!(told(state.flush()).is_empty(), "a list that holds it does not take it away either");
    // Of another object of that name there is no good version.
    state.take(Event::Deleted(ObjectKey::new(Kind::HttpRoute, "ns", "r")));
    bad["metadata"]["uid"] = "another".into();
    state.take(Event::Applied(item(bad)));
    assert_eq!(told(state.flush()), ["-HTTPRoute ns/r", "-Service ns/web"]);
    state.take(Event::Applied(item(route("web", 4))));
    assert_eq!(told(state.flush()), ["+HTTPRoute ns/r", "+Service ns/web"]);
    assert!(state.broken().is_empty());
}

#[test]
fn a_new_reference_is_told_together_with_what_it_refers_to() {
    let mut state = state();
    list(&mut state, &[gateway("old", 1), secret("old", "a", 1), secret("new", "b", 2)]);
    assert_eq!(state.next_fetches(), [(secret_key("old"), "1".into())]);
    fetched(&mut state, "old", "a", 1);
    assert_eq!(told(state.flush()), ["+Gateway ns/gw", "+Secret ns/old", "synced"]);

    state.take(Event::Applied(item(gateway("new", 3))));
    state.take(Event::Applied(item(route("web", 3))));
    assert_eq!(state.next_fetches(), [(secret_key("new"), "2".into())]);
    assert_eq!(told(state.flush()), ["+HTTPRoute ns/r"], "the Gateway waits, and its old Secret stays; others go on");
    fetched(&mut state, "new", "b", 2);
    let mut batch = told(state.flush());
    batch.sort();
    assert_eq!(batch, ["+Gateway ns/gw", "+Secret ns/new", "-Secret ns/old"], "in one batch");

    // Another version: the one in force stays until it is here.
    state.take(Event::Applied(item(secret("new", "", 5))));
    assert_eq!(state.next_fetches(), [(secret_key("new"), "5".into())]);
    assert!(told(state.flush()).is_empty());
    fetched(&mut state, "new", "c", 5);
    assert_eq!(told(state.flush()), ["+Secret ns/new"]);
    // Removed and created again before anybody looked: no gap.
    state.take(Event::Deleted(secret_key("new")));
    let mut again = secret("new", "", 8);
    again["metadata"]["uid"] = "another".into();
    state.take(Event::Applied(item(again.clone())));
    assert_eq!(state.next_fetches().len(), 1);
    assert!(told(state.flush()).is_empty());
    again["stringData"]["x"] = "d".into();
    state.take(Event::Fetched { key: secret_key("new"), asked: "8".into(), got: Some(whole(again)) });
    assert_eq!(told(state.flush()), ["+Secret ns/new"]);
    // Not there after all.
    state.take(Event::Deleted(secret_key("new")));
    assert_eq!(told(state.flush()), ["-Secret ns/new"]);
}

#[test]
fn a_selector_lets_namespaces_come_and_go() {
    let selector: LabelSelector = serde_json::from_value(json!({"matchLabels": {"team": "a"}})).unwrap();
    let Scope::Selected(selected) = Scope::selected(selector, "system").unwrap() else { panic!("selected") };
    let mut state = State::new(Some((selected.selector, selected.own)), None, &BTreeSet::new());
    state.take(Event::Feeds { feeds: KINDS.into_iter().map(feed).collect(), complete: true });
    let namespace = |labels: Value| {
        json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "ns", "uid": "n", "resourceVersion": "1", "labels": labels}})
    };
    let mut own = route("none", 1);
    own["metadata"]["namespace"] = "system".into();
    list(&mut state, &[route("web", 1), service("web", 1), own, namespace(json!({}))]);
    assert_eq!(told(state.flush()), ["+HTTPRoute system/r", "+Namespace ns", "synced"]);
    state.take(Event::Applied(item(namespace(json!({"team": "a"})))));
    assert_eq!(told(state.flush()), ["+HTTPRoute ns/r", "+Service ns/web", "+Namespace ns"]);
    state.take(Event::Applied(item(namespace(json!({"team": "b"})))));
    assert_eq!(told(state.flush()), ["-HTTPRoute ns/r", "-Service ns/web", "+Namespace ns"]);
}

#[test]
fn what_is_always_relevant_is_fetched_and_told() {
    let mut state = State::new(None, None, &[secret_key("hmac")].into());
    state.take(Event::Feeds { feeds: KINDS.into_iter().map(feed).collect(), complete: true });
    list(&mut state, &[secret("hmac", "", 1)]);
    assert_eq!(state.next_fetches().len(), 1);
    fetched(&mut state, "hmac", "x", 1);
    assert_eq!(told(state.flush()), ["+Secret ns/hmac", "synced"]);
}

/// Whatever the order of the events and the points at which batches go out: in the end the engine has the same.
#[test]
fn batches_add_up_to_the_same_whatever_their_cut() {
    let events = |state: &mut State, cut: &mut dyn FnMut(&mut State)| {
        let steps: Vec<Event> = vec![
            Event::Applied(item(route("b", 2))),
            Event::Applied(item(service("b", 2))),
            Event::Applied(item(slice("b", "10.0.0.2", 2))),
            Event::Deleted(ObjectKey::new(Kind::Service, "ns", "a")),
            Event::Applied(item(route("a", 3))),
            Event::Applied(item(service("a", 4))),
            Event::Listed(feed(Kind::EndpointSlice), vec![item(slice("a", "10.0.0.3", 5))]),
            Event::Deleted(ObjectKey::new(Kind::Service, "ns", "b")),
        ];
        for step in steps {
            state.take(step);
            cut(state);
        }
    };
    let mut ends = Vec::new();
    for mask in 0..256_u32 {
        let mut state = synced(&[route("a", 1), service("a", 1), slice("a", "10.0.0.1", 1)]);
        let mut store = Store::new();
        for (key, object) in state.told_objects() {
            store.apply(Change::Upsert(key.clone(), object.clone()));
        }
        let mut step = 0;
        events(&mut state, &mut |state| {
            if mask & (1 << step) != 0 {
                state.flush().into_iter().for_each(|c| {
                    store.apply(c);
                });
            }
            step += 1;
        });
        state.flush().into_iter().for_each(|c| {
            store.apply(c);
        });
        let all: Vec<String> = store.iter().map(|(k, o)| format!("{k} {}", o.to_value().unwrap())).collect();
        ends.push(all);
    }
    assert_eq!(ends[0].len(), 3, "{:?}", ends[0]);
    assert!(ends.iter().all(|e| *e == ends[0]));
}

#[tokio::test]
async fn the_handle_tells_what_was_touched_once_for_each_object() {
    let handle = ClusterHandle::default();
    let served = Served { api_version: "gateway.networking.k8s.io/v1".into(), plural: "httproutes".into() };
    let key = ObjectKey::new(Kind::HttpRoute, "ns", "r");
    handle.listed(&feed(Kind::HttpRoute), &[item(route("a", 1))], &served);
    assert_eq!(handle.touched().await, [key.clone()].into());
    let mut with_status = route("a", 2);
    with_status["status"] = json!({"parents": []});
    for version in 2..20 {
        with_status["metadata"]["resourceVersion"] = version.to_string().into();
        handle.applied(&item(with_status.clone()), &served);
    }
    assert_eq!(handle.touched().await, [key.clone()].into());
    let seen = handle.observed(&key).unwrap();
    assert_eq!((&*seen.resource_version, seen.status.as_deref()), ("19", Some(r#"{"parents":[]}"#)));
    assert_eq!(handle.keys(Kind::HttpRoute), *std::slice::from_ref(&key));
    with_status["metadata"]["resourceVersion"] = "30".into();
    with_status["metadata"]["labels"] = json!({"a": "b"});
    handle.applied(&item(with_status), &served);
    let nothing = tokio::time::timeout(Duration::from_millis(20), handle.touched()).await;
    assert!(nothing.is_err(), "a label is nothing to a writer of statuses");
    handle.listed(&feed(Kind::HttpRoute), &[], &served);
    assert_eq!(handle.touched().await, [key.clone()].into());
    assert!(handle.observed(&key).is_none());
}

/// Only what hangs on a class of ours is told, and only changes of that cost anything.
#[test]
fn what_belongs_to_other_controllers_is_not_told() {
    let mut state = State::new(None, Some("ours".into()), &BTreeSet::new());
    let kinds = KINDS.into_iter().chain([Kind::GatewayClass, Kind::ReferenceGrant]);
    state.take(Event::Feeds { feeds: kinds.map(feed).collect(), complete: true });
    let class = |controller: &str, version: u32| {
        let mut meta = meta("", "c", version);
        meta["namespace"] = Value::Null;
        item(json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": meta,
            "spec": {"controllerName": controller}}))
    };
    let namespace = |name: &str, label: &str| {
        item(json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"l": label}}}))
    };
    let attached = |version: u32| {
        let mut value = route("web", version);
        value["spec"]["parentRefs"] = json!([{"name": "gw"}]);
        item(value)
    };
    state.take(Event::Listed(feed(Kind::ReferenceGrant), vec![]));
    state.take(Event::Listed(feed(Kind::GatewayClass), vec![class("theirs", 1)]));
    list(&mut state, &[gateway("cert", 1), secret("cert", "a", 1), service("web", 1), slice("web", "10.0.0.1", 1)]);
    state.take(Event::Listed(feed(Kind::HttpRoute), vec![attached(1)]));
    state.take(Event::Listed(feed(Kind::Namespace), vec![namespace("ns", "a"), namespace("other", "a")]));
    assert_eq!(state.next_fetches(), [], "their Secrets are not ours to read");
    assert_eq!(told(state.flush()), ["synced"]);
    state.take(Event::Applied(attached(2)));
    state.take(Event::Applied(namespace("ns", "b")));
    assert!(told(state.flush()).is_empty());
    // The class becomes ours.
    state.take(Event::Applied(class("ours", 2)));
    assert_eq!(state.next_fetches(), [(secret_key("cert"), "1".into())]);
    fetched(&mut state, "cert", "a", 1);
    let everything = [
        "EndpointSlice ns/web-1",
        "Gateway ns/gw",
        "GatewayClass c",
        "HTTPRoute ns/r",
        "Namespace ns",
        "Secret ns/cert",
        "Service ns/web",
    ];
    let mut batch = told(state.flush());
    batch.sort();
    assert_eq!(batch, everything.map(|k| format!("+{k}")));
    state.take(Event::Applied(namespace("other", "b")));
    assert!(told(state.flush()).is_empty(), "nothing of ours is in it");
    state.take(Event::Applied(namespace("ns", "c")));
    assert_eq!(told(state.flush()), ["+Namespace ns"]);
    // And theirs again.
    state.take(Event::Applied(class("theirs", 3)));
    let mut batch = told(state.flush());
    batch.sort();
    assert_eq!(batch, everything.map(|k| format!("-{k}")));
    assert_eq!(state.told(), 0);
}

#[test]
fn labels_that_nobody_reads_are_no_change() {
    let mut state = synced(&[route("web", 1), service("web", 1), slice("web", "10.0.0.1", 1)]);
    let labelled = |mut value: Value| {
        value["metadata"]["labels"]["a"] = "b".into();
        value["metadata"]["annotations"]["endpoints.kubernetes.io/last-change-trigger-time"] = "now".into();
        item(value)
    };
    state.take(Event::Applied(labelled(slice("web", "10.0.0.1", 2))));
    let mut web = service("web", 2);
    web["metadata"]["labels"] = json!({"a": "b"});
    state.take(Event::Applied(item(web)));
    assert!(told(state.flush()).is_empty());
}

#[test]
fn what_a_cluster_is_told_first_can_be_asked_without_one() {
    let mut class = json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
        "metadata": {"name": "c"}, "spec": {"controllerName": "ours"}});
    let mut attached = route("web", 1);
    attached["spec"]["parentRefs"] = json!([{"name": "gw"}]);
    let first = |class: &Value, scope: Scope| {
        let all = [
            class.clone(),
            gateway("cert", 1),
            attached.clone(),
            service("web", 1),
            service("idle", 1),
            secret("cert", "a", 1),
        ];
        let objects = all.into_iter().map(|o| serde_json::from_value(o).unwrap());
        let options = ClusterOptions { scope, controller: Some("ours".into()), always: BTreeSet::new() };
        let mut words: Vec<String> = super::told(objects, &options)
            .iter()
            .map(|c| match c {
                Change::Upsert(key, _) => key.to_string(),
                other => format!("{other:?}"),
            })
            .collect();
        words.sort();
        words
    };
    let everything =
        ["Gateway ns/gw", "GatewayClass c", "HTTPRoute ns/r", "Secret ns/cert", "Service ns/web", "Synced"];
    assert_eq!(first(&class, Scope::All), everything);
    assert_eq!(first(&class, Scope::Namespaces(["other".to_owned()].into())), ["GatewayClass c", "Synced"]);
    class["spec"]["controllerName"] = "theirs".into();
    assert_eq!(first(&class, Scope::All), ["Synced"]);
}

#[test]
fn what_was_seen_is_equal_for_the_same_versions_in_whatever_order() {
    let mut one = synced(&[route("web", 1)]);
    let mut other = synced(&[route("web", 7)]);
    assert!(one.seen().is_some());
    assert_ne!(one.seen(), other.seen(), "another version");
    one.take(Event::Applied(item(route("web", 7))));
    assert_eq!(one.seen(), None, "it is on its way");
    one.flush();
    assert_eq!(one.seen(), other.seen(), "a version that changes nothing was seen, too");
    // What nobody refers to is not told, and was not seen.
    for state in [&mut one, &mut other] {
        let before = state.seen();
        state.take(Event::Applied(item(secret("idle", "x", 8))));
        state.flush();
        assert_eq!(state.seen(), before);
    }
    // A Secret that is told: seen once it has been fetched.
    let before = other.seen();
    for state in [&mut one, &mut other] {
        state.take(Event::Applied(item(secret("cert", "a", 9))));
        state.take(Event::Applied(item(gateway("cert", 10))));
        assert_eq!(state.next_fetches().len(), 1);
        state.flush();
        assert_eq!(state.seen(), None, "it is being fetched");
        fetched(state, "cert", "a", 9);
        state.flush();
    }
    assert_eq!(one.seen(), other.seen());
    assert_ne!(one.seen(), before);
    other.take(Event::Deleted(item(route("web", 7)).key));
    other.flush();
    assert_ne!(one.seen(), other.seen());
}

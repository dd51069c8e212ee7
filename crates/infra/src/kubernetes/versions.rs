//! Tests of the hand-over between versions of the control plane.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use tokio::time::sleep;

use super::{
    compare,
    tests::{Leader, Server, fleet, options},
    *,
};

fn version(text: &str) -> Options {
    Options { version: text.parse().expect("a version"), ..options() }
}

fn as_version(server: &Server, text: &str) -> Leader {
    Leader::start_as(server, version(text), |_| false)
}

/// Replicas, and something beside the Deployment.
fn shaped(replicas: u32) -> ir::Proxy {
    let kubernetes = json!({"envoyDeployment": {"replicas": replicas}, "envoyPDB": {"minAvailable": 1}});
    fleet("web", json!({"provider": {"type": "Kubernetes", "kubernetes": kubernetes}}))
}

fn find(server: &Server, kind: ObjectKind) -> (ObjectRef, Live) {
    let world = server.world();
    let (at, live) = world.there.iter().find(|(at, _)| at.kind == kind).expect("there");
    (at.clone(), live.clone())
}

fn versions(server: &Server) -> Vec<String> {
    let world = server.world();
    let mut all: Vec<_> = world.there.values().filter_map(|l| l.label(compare::VERSION).map(str::to_owned)).collect();
    all.dedup();
    all
}

#[tokio::test(start_paused = true)]
async fn an_older_one_that_leads_does_not_undo_what_a_newer_one_wrote() {
    let server = Server::default();
    let newer = as_version(&server, "0.3.0+build.7");
    newer.want(&[shaped(2)]).await;
    newer.stop().await;
    assert_eq!(versions(&server), ["0.3.0"], "labels take no build metadata");
    server.log();

    let older = as_version(&server, "0.2.0");
    older.want(&[shaped(3)]).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(server.log(), Vec::<String>::new());
    let trouble = older.trouble().expect("told");
    assert!(trouble.withheld && !trouble.lasting, "{trouble:?}");
    for part in ["(Deployment)", "0.3.0", "0.2.0", compare::VERSION] {
        assert!(trouble.message.contains(part), "{part}: {}", trouble.message);
    }
    assert_eq!(older.troubles.withheld(), 1);
    // What serves is not called broken, but it is told.
    let service = json!({"metadata": {"uid": "u", "resourceVersion": "1"}, "spec": {"type": "ClusterIP", "clusterIPs": ["10.1.1.1"]}});
    let pods = json!({"kind": "Deployment", "metadata": {"uid": "u", "resourceVersion": "1"}, "status": {"availableReplicas": 1, "replicas": 1}});
    let at = |kind| ObjectRef { kind, namespace: "system".into(), name: "x".into() };
    let serving = BTreeMap::from([
        (at(ObjectKind::Service), Live::from_tree(service).expect("an object")),
        (at(ObjectKind::Deployment), Live::from_tree(pods).expect("an object")),
    ]);
    let told = facts(&shaped(3), &serving, &[], Some(&trouble));
    assert!(told.programmed && told.message.contains("Changes are withheld"), "{told:?}");
    let told = facts(&shaped(3), &BTreeMap::new(), &[], Some(&trouble));
    assert_eq!(told.reason, "AddressNotAssigned", "the reason is not that");

    // A port that clients miss is no detail.
    let mut more = shaped(3);
    more.ports.push(ir::ProxyPort { service_port: 81, name: "http-81".into(), ..more.ports[0].clone() });
    older.want(std::slice::from_ref(&more)).await;
    let trouble = older.trouble().expect("told");
    assert!(trouble.lasting && !facts(&more, &serving, &[], Some(&trouble)).programmed, "{trouble:?}");
    assert_eq!(server.log(), Vec::<String>::new());
    older.stop().await;

    // The newer one leads again.
    let newer = as_version(&server, "0.3.0");
    newer.want(std::slice::from_ref(&more)).await;
    assert_eq!(server.log(), ["apply Deployment", "apply Service"]);
    assert_eq!(newer.troubles.withheld(), 0);
    newer.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_release_writes_nothing_because_it_is_one() {
    let server = Server::default();
    let older = as_version(&server, "0.2.0");
    older.want(&[shaped(2)]).await;
    older.stop().await;
    server.log();
    let newer = as_version(&server, "1.0.0");
    newer.want(&[shaped(2)]).await;
    assert_eq!(server.log(), Vec::<String>::new());
    assert_eq!(versions(&server), ["0.2.0"]);
    newer.stop().await;
    // So the older one may go on, as nothing of it was changed.
    let older = as_version(&server, "0.2.0");
    older.want(&[shaped(3)]).await;
    assert_eq!(server.log(), ["apply Deployment"]);
    older.stop().await;
}

#[tokio::test(start_paused = true)]
async fn taking_the_label_off_hands_it_to_the_older_one() {
    let server = Server::default();
    let newer = as_version(&server, "0.3.0");
    newer.want(&[shaped(2)]).await;
    newer.stop().await;
    server.log();
    let older = as_version(&server, "0.3.0-rc.1");
    older.want(&[shaped(3)]).await;
    assert_eq!((server.log().len(), older.troubles.withheld()), (0, 1));
    let there = server.world().there.clone();
    for (at, live) in there {
        let mut tree = (*live.tree).clone();
        if let Some(labels) = tree["metadata"]["labels"].as_object_mut() {
            labels.remove(compare::VERSION);
        }
        let now = server.store(&at, tree, Some(&live.uid));
        older.fleets.note(at, now);
    }
    older.wanted.recheck(&["app/web".to_owned()]);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(server.log(), ["apply Deployment"]);
    assert_eq!((older.troubles.withheld(), older.trouble()), (0, None));
    older.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_newer_one_wrote_goes_when_nothing_has_it_any_more() {
    let server = Server::default();
    let newer = as_version(&server, "0.3.0");
    newer.want(&[fleet("web", json!({})), fleet("other", json!({}))]).await;
    newer.stop().await;
    server.log();
    // An older one that understands neither; the Gateway of one of them is there.
    let older = Leader::start_as(&server, version("0.2.0"), |key| key.as_str() == "app/other");
    older.want(&[]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.log().len(), 4, "the fleet without a Gateway is deleted");
    let left: Vec<_> = server.world().there.values().filter_map(FleetKey::of_object).collect();
    assert!(left.len() == 4 && left.iter().all(|key| key.as_str() == "app/other"), "{left:?}");
    assert!(older.trouble().expect("told").message.contains("fleet app/other is kept"));
    older.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_fleet_cannot_serve_without_is_made_again() {
    let server = Server::default();
    let newer = as_version(&server, "0.3.0");
    newer.want(&[shaped(2)]).await;
    newer.stop().await;
    for kind in [ObjectKind::Service, ObjectKind::PodDisruptionBudget] {
        let (at, _) = find(&server, kind);
        server.world().there.remove(&at);
    }
    server.log();
    let older = as_version(&server, "0.2.0");
    older.want(&[shaped(2)]).await;
    assert_eq!(server.log(), ["create Service"]);
    assert!(older.trouble().expect("told").message.contains("(PodDisruptionBudget)"));
    older.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_behind_does_not_hide_the_newer_version() {
    let server = Server::default();
    let older = as_version(&server, "0.2.0");
    older.want(&[shaped(2)]).await;
    server.log();
    // A newer one has led meanwhile, and nobody told.
    let (at, live) = find(&server, ObjectKind::Deployment);
    let mut tree = (*live.tree).clone();
    tree["metadata"]["labels"][compare::VERSION] = "0.3.0".into();
    tree["spec"]["replicas"] = 5.into();
    server.store(&at, tree, Some(&live.uid));
    older.want(&[shaped(3)]).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(server.log(), ["apply Deployment", "read Deployment"], "refused as it names the version that was seen");
    assert_eq!(find(&server, ObjectKind::Deployment).1.tree["spec"]["replicas"], 5);
    assert!(older.trouble().expect("told").withheld);
    older.stop().await;
}

#[tokio::test(start_paused = true)]
async fn beside_its_gateway_a_fleet_is_of_the_control_plane_that_made_it() {
    let server = Server::default();
    let of = |namespace: &str| Options { namespace: namespace.to_owned(), gateway_namespaces: true, ..options() };
    let first = Leader::start_as(&server, of("system"), |_| false);
    first.want(&[shaped(2)]).await;
    assert_eq!(first.trouble(), None);
    server.log();
    let second = Leader::start_as(&server, of("elsewhere"), |_| false);
    second.want(&[shaped(3)]).await;
    let told = second.trouble().expect("told");
    assert!(told.lasting && told.message.contains("another control plane has it"), "{told:?}");
    assert_eq!(server.log(), Vec::<String>::new(), "they do not fight");
    first.stop().await;
    second.stop().await;
}

#[test]
fn versions_are_compared_as_semantic_versioning_says() {
    let wrote = |text: &str| {
        let tree = json!({"metadata": {"uid": "u", "resourceVersion": "1", "labels": {compare::VERSION: text}}});
        version("0.10.0").newer(&Live::from_tree(tree).expect("an object")).is_some()
    };
    for newer in ["0.10.1", "0.11.0-rc.1", "1.0.0", "0.10.0-0"] {
        assert_eq!(wrote(newer), newer != "0.10.0-0", "{newer}");
    }
    for not in ["0.9.9", "0.10.0", "0.10.0-rc.1", "0.10.0+later", "", "latest", "v9.0.0"] {
        assert!(!wrote(not), "{not}");
    }
}

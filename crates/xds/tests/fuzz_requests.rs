//! Requests that make no sense never bring the server down, never end it in a panic, and never disturb another stream.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "a test may say so and fail so")]

mod support;

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest},
    },
    google::rpc::Status as RpcStatus,
};
use proptest::prelude::*;
use support::{Rig, SotwPeer, cluster, leaf, table};
use xds::TypeUrl;

const CASES: u32 = 96;

fn types() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => prop::sample::select(TypeUrl::ALL.to_vec()).prop_map(|kind| kind.as_str().to_owned()),
        1 => Just(String::new()),
        1 => Just("type.googleapis.com/envoy.service.runtime.v3.Runtime".to_owned()),
        1 => "\\PC{0,60}",
    ]
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let name = prop_oneof![
        6 => prop::sample::select(vec!["a", "b", "r", "l", "s", "*", "", "a/b", "xdstp://x/y?z"]).prop_map(str::to_owned),
        1 => "\\PC{0,30}",
        1 => (1..40_000_usize).prop_map(|length| "n".repeat(length)),
    ];
    prop::collection::vec(name, 0..6)
}

fn nonces() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just(String::new()),
        6 => (0..30_u64).prop_map(|nonce| nonce.to_string()),
        1 => any::<u64>().prop_map(|nonce| nonce.to_string()),
        1 => "\\PC{0,20}",
    ]
}

fn errors() -> impl Strategy<Value = Option<RpcStatus>> {
    let error =
        ("\\PC{0,2000}", any::<i32>()).prop_map(|(message, code)| RpcStatus { code, message, ..Default::default() });
    prop::option::weighted(0.3, error)
}

fn nodes() -> impl Strategy<Value = Option<Node>> {
    let node = prop_oneof![
        8 => Just(("id".to_owned(), "group".to_owned())),
        1 => ("\\PC{0,30}", "\\PC{0,30}"),
        1 => Just(("x".repeat(10_000), "y".repeat(10_000))),
    ];
    let node = (node, prop::sample::select(vec!["", "envoy", "x"]));
    prop::option::weighted(
        0.9,
        node.prop_map(|((id, cluster), agent)| Node {
            id,
            cluster,
            user_agent_name: agent.to_owned(),
            ..Default::default()
        }),
    )
}

fn delta() -> impl Strategy<Value = DeltaDiscoveryRequest> {
    let initial = prop::collection::hash_map("[abrl*]{0,2}", "[0-9a-f]{0,32}", 0..4);
    (nodes(), types(), names(), names(), initial, nonces(), errors()).prop_map(
        |(node, type_url, subscribe, unsubscribe, initial, nonce, error)| DeltaDiscoveryRequest {
            node,
            type_url,
            resource_names_subscribe: subscribe,
            resource_names_unsubscribe: unsubscribe,
            initial_resource_versions: initial,
            response_nonce: nonce,
            error_detail: error,
            ..Default::default()
        },
    )
}

fn sotw() -> impl Strategy<Value = DiscoveryRequest> {
    (nodes(), types(), names(), "[0-9a-f~]{0,36}", nonces(), errors()).prop_map(
        |(node, type_url, names, version, nonce, error)| DiscoveryRequest {
            node,
            type_url,
            resource_names: names,
            version_info: version,
            response_nonce: nonce,
            error_detail: error,
            ..Default::default()
        },
    )
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

fn fill(rig: &Rig, group: &str, round: u32) {
    let body = format!("{round}");
    rig.set(
        group,
        [
            (TypeUrl::Cluster, "a", Some(cluster("a", &body))),
            (TypeUrl::Cluster, "b", (!round.is_multiple_of(3)).then(|| cluster("b", &body))),
            (TypeUrl::ClusterLoadAssignment, "a", round.is_multiple_of(2).then(|| leaf(&body))),
            (TypeUrl::Listener, "l", (!round.is_multiple_of(5)).then(|| leaf(&body))),
            (TypeUrl::RouteConfiguration, "r", Some(table(&body, &["a"]))),
            (TypeUrl::Secret, "s", Some(leaf(&body))),
        ],
    );
}

#[test]
fn fuzz_requests() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        before(panic);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut rig = runtime.block_on(Rig::plain());
    fill(&rig, "group", 0);
    rig.set("bystander", []);
    let mut bystander = runtime.block_on(rig.delta("bystander"));
    runtime.block_on(async {
        bystander.ask(TypeUrl::Cluster, &[]).await;
        bystander.accept(TypeUrl::Cluster, &[]).await;
    });
    let round = Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let histories = (prop::collection::vec(delta(), 1..30), prop::collection::vec(sotw(), 1..30));
    let bystander = tokio::sync::Mutex::new(bystander);
    let result = runner.run(&histories, |(deltas, sotws)| {
        round.set(round.get() + 1);
        let round = round.get();
        runtime.block_on(async {
            let bystander = &mut *bystander.lock().await;
            let peer = rig.delta("unused").await;
            for (at, request) in deltas.into_iter().enumerate() {
                // The server may have ended the stream, and rightly so.
                if peer.requests.send(request).await.is_err() {
                    break;
                }
                if at % 7 == 3 {
                    fill(&rig, "group", round * 31 + at as u32);
                }
            }
            let other = SotwPeer::open(rig.channel().await, "unused").await;
            for request in sotws {
                if other.requests.send(request).await.is_err() {
                    break;
                }
            }
            // What it is told is as good as anything; that somebody else is served is what counts.
            bystander.nothing().await;
            let name = format!("c{round}");
            rig.set("bystander", [(TypeUrl::Cluster, &name, Some(cluster(&name, "1")))]);
            bystander.accept(TypeUrl::Cluster, &[&name]).await;
            bystander.accept(TypeUrl::ClusterLoadAssignment, &[&name]).await;
            drop((peer, other));
        });
        prop_assert_eq!(PANICS.load(Ordering::SeqCst), 0);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
    assert!(rig.is_serving());
    println!("fuzz_requests: {CASES} histories, {:?}", rig.server.metrics().snapshot());
}

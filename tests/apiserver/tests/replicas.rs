//! Replicas of one control plane, and two control planes that have one name: real processes on a real API server.

#![allow(clippy::print_stdout, reason = "tests say what they skip and measure")]

use std::{
    net::{IpAddr, UdpSocket},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use apiserver::{
    envoy::{Envoy, asked, envoy_bin},
    server::Server,
    world::{World, until},
};
use serde_json::{Value, json};
use testkit::{
    apiserver::{free_port, kube_bin},
    proxy::{Answers, HttpProxy},
};
use tokio::time::{Instant, sleep};

const GATEWAY: &str = "gateway.networking.k8s.io/v1";
const CONTROLLER: &str = "gateway.envoyproxy.io/gatewayclass-controller";
const SYSTEM: &str = "envoy-gateway-system";
const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";
const CLAIM: &str = "gateway.envoyproxy.io/controller-namespace";
const CONFLICT: &str = "gateway.envoyproxy.io/ControllerConflict";
const CONFIG: &str = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\nprovider: {type: Kubernetes}\n";
const HOST: &str = "a.example.test";
const SOON: Duration = Duration::from_secs(30);

/// A server with our definitions, these namespaces with a Lease that nobody holds, a class and a Gateway on that port.
async fn set(bin: PathBuf, users: &[&str], namespaces: &[&str], port: u16) -> Result<World> {
    let world = World::start(bin, users, &[]).await?;
    world.define(|_| true).await?;
    world.namespace("app", json!({})).await?;
    for namespace in namespaces {
        world.namespace(namespace, json!({})).await?;
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE, "namespace": namespace},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 0}});
        world.create(&[lease]).await?;
    }
    world.create(&[class(), gateway(port), route("good", HOST, "fine")]).await?;
    Ok(world)
}

fn class() -> Value {
    json!({"apiVersion": GATEWAY, "kind": "GatewayClass", "metadata": {"name": "eg"}, "spec": {"controllerName": CONTROLLER}})
}

fn gateway(port: u16) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "Gateway", "metadata": {"name": "gw", "namespace": "app"},
        "spec": {"gatewayClassName": "eg", "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]}})
}

/// Answers by itself, with a header of that value.
fn route(name: &str, host: &str, value: &str) -> Value {
    json!({"apiVersion": GATEWAY, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "app"},
        "spec": {"hostnames": [host], "parentRefs": [{"name": "gw"}], "rules": [{"filters": [
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "x-value", "value": value}]}},
            {"type": "RequestRedirect", "requestRedirect": {"hostname": "elsewhere.example.test"}}]}]}})
}

/// A condition of a list: status, reason and message.
fn condition(all: &Value, kind: &str) -> Option<(String, String, String)> {
    let found = all.as_array()?.iter().find(|c| c["type"] == kind)?;
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason"), text("message")))
}

async fn accepted(world: &World, route: &Value) -> Result<Option<(String, String, String)>> {
    Ok(condition(&world.get(route).await?["status"]["parents"][0]["conditions"], "Accepted"))
}

async fn leads(server: &Server) -> Result<bool> {
    let (_, text) = server.get("health", "/readyz").await.context("readyz")?;
    Ok(serde_json::from_str::<Value>(&text)?["leadership"]["role"] == "leader")
}

/// An address of this machine by which it reaches itself and that an EndpointSlice takes; nothing is sent for it.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

/// Part of the Service's EndpointSlices: one replica.
fn slice(name: &str, address: IpAddr, port: u16) -> Value {
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": SYSTEM, "labels": {"kubernetes.io/service-name": "envoy-gateway"}},
        "addressType": "IPv4", "ports": [{"name": "peers", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": true}}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_find_each_other_and_the_leader_tells_what_a_followers_proxy_refused() -> Result<()> {
    let (Some(bin), Some(envoy)) = (kube_bin(), envoy_bin()) else { return Ok(()) };
    let Some(address) = own_address() else {
        println!("skipped: this machine has no address but those of loopback");
        return Ok(());
    };
    let port = free_port()?;
    let world = set(bin, &["leader", "follower"], &[SYSTEM], port).await?;
    let places = [free_port()?, free_port()?];
    world.create(&[slice("envoy-gateway-1", address, places[0])]).await?;
    let kubeconfig = |user: &str| world.server.kubeconfig(user, &world.server.url());
    let leader = Server::start_with(&kubeconfig("leader"), CONFIG, &[format!("--peer-port={}", places[0])]).await?;
    until(SOON, "the first leads", async || leads(&leader).await).await.with_context(|| leader.log_tail())?;
    let args = [format!("--peer-port={}", places[1]), format!("--certs-dir={}", leader.own_certificates().display())];
    let follower = Server::start_with(&kubeconfig("follower"), CONFIG, &args).await?;
    // The follower finds the leader, which does not know of it yet.
    let heard = async |server: &Server| Ok(server.metric("replicas_heard").await > 0.5);
    until(SOON, "the follower has heard the leader", async || heard(&follower).await)
        .await
        .with_context(|| follower.log_tail())?;
    ensure!(!heard(&leader).await?, "nobody told the leader");
    let from = Instant::now();
    world.create(&[slice("envoy-gateway-2", address, places[1])]).await?;
    until(SOON, "the leader has heard the follower", async || heard(&leader).await)
        .await
        .with_context(|| leader.log_tail())?;
    let found = from.elapsed();
    ensure!(!leads(&follower).await?);

    // A proxy of the follower refuses what a route asks for.
    let _proxy = Envoy::connected(&envoy, &leader.certificates(), follower.xds_port()?, "app/gw", "of-the-follower")?;
    let answers = async |host: &str| Ok(asked(port, host, "/").await.is_some_and(|a| a.status == 302));
    until(SOON, "the proxy answers", async || answers(HOST).await).await.with_context(|| follower.log_tail())?;
    ensure!(leader.metric("xds_streams").await < 0.5, "it is no proxy of the leader");
    let bad = route("bad", "bad.example.test", "%START_TIME(%n)%");
    let from = Instant::now();
    world.create(std::slice::from_ref(&bad)).await?;
    until(SOON, "the cluster is told what was refused", async || {
        Ok(accepted(&world, &bad).await?.is_some_and(|(status, ..)| status == "False"))
    })
    .await
    .with_context(|| format!("{}\n---\n{}", leader.log_tail(), follower.log_tail()))?;
    let told = from.elapsed();
    let (_, reason, message) = accepted(&world, &bad).await?.context("told")?;
    ensure!(reason == "UnsupportedValue" && message.contains("newline"), "{reason}: {message}");
    let by = |user: &str| -> Result<usize> {
        Ok(world.written(user)?.iter().filter(|w| w.what == "httproutes app/bad/status" && w.code == 200).count())
    };
    ensure!(by("leader")? > 0 && by("follower")? == 0, "{} {}", by("leader")?, by("follower")?);
    ensure!(answers(HOST).await?, "everything else goes on");
    until(SOON, "both leave it out", async || {
        Ok(leader.metric("replicas_differing").await < 0.5 && follower.metric("replicas_differing").await < 0.5)
    })
    .await?;
    // Mended, it comes back everywhere.
    world.patch(&bad, "", json!({"spec": route("bad", "bad.example.test", "good")["spec"]})).await?;
    until(SOON, "it is served", async || answers("bad.example.test").await).await?;
    until(SOON, "it is accepted", async || {
        Ok(accepted(&world, &bad).await?.is_some_and(|(status, ..)| status == "True"))
    })
    .await
    .with_context(|| format!("{}\n---\n{}", leader.log_tail(), follower.log_tail()))?;
    println!(
        "found through its EndpointSlice after {:.1} s; refused at the follower, in the route's status after {:.1} s",
        found.as_secs_f64(),
        told.as_secs_f64()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_control_planes_of_one_name_are_told_and_do_not_fight() -> Result<()> {
    const PLANES: [&str; 2] = ["plane-one", "plane-two"];
    const QUARREL: Duration = Duration::from_secs(20);
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = set(bin, &PLANES, &PLANES, 80).await?;
    let start = async |namespace: &str| -> Result<Server> {
        let kubeconfig = world.server.kubeconfig(namespace, &world.server.url());
        let mut server = Server::launch_in(namespace, &kubeconfig, CONFIG, &[])?;
        server.becomes_ready().await?;
        Ok(server)
    };
    let one = start(PLANES[0]).await?;
    let claim = async || Ok::<_, anyhow::Error>(world.get(&class()).await?["metadata"]["annotations"][CLAIM].clone());
    until(SOON, "it is claimed", async || Ok(claim().await? == PLANES[0])).await.with_context(|| one.log_tail())?;
    // Alone it says nothing, and claims once.
    sleep(Duration::from_secs(3)).await;
    let conditions = async || Ok::<_, anyhow::Error>(world.get(&class()).await?["status"]["conditions"].clone());
    ensure!(condition(&conditions().await?, CONFLICT).is_none() && one.metric("controller_rivals").await < 0.5);
    let claims = |user: &str| -> Result<usize> {
        Ok(world.written(user)?.iter().filter(|w| w.what == "gatewayclasses /eg" && w.code == 200).count())
    };
    // One patch is the finalizer's.
    ensure!(claims(PLANES[0])? <= 2, "{:?}", world.written(PLANES[0])?);

    let two = start(PLANES[1]).await?;
    let from = Instant::now();
    let minute = Duration::from_secs(60);
    until(minute, "both know of each other", async || {
        Ok(one.metric("controller_rivals").await > 0.5 && two.metric("controller_rivals").await > 0.5)
    })
    .await
    .with_context(|| format!("{}\n---\n{}", one.log_tail(), two.log_tail()))?;
    until(SOON, "the class says so", async || Ok(condition(&conditions().await?, CONFLICT).is_some())).await?;
    let told = from.elapsed();
    let (status, reason, message) = condition(&conditions().await?, CONFLICT).context("told")?;
    ensure!(status == "True" && reason == "ControllerNameInUse", "{status} {reason}");
    ensure!(message.contains("namespaces plane-one, plane-two all have the controller name"), "{message}");
    ensure!(condition(&conditions().await?, "Accepted").is_some_and(|c| c.0 == "True"), "the class goes on");

    // Each has a fleet, and so addresses of its own, for the same Gateway.
    for (i, namespace) in PLANES.iter().enumerate() {
        serves(&world, namespace, &format!("192.0.2.{}", i + 1)).await?;
    }
    let writes = || -> Result<usize> {
        let of = |user: &str| world.written(user);
        let all = of(PLANES[0])?.into_iter().chain(of(PLANES[1])?);
        Ok(all.filter(|w| w.what == "gateways app/gw/status" && w.code == 200).count())
    };
    until(SOON, "the quarrel is noticed", async || {
        Ok(one.metric("status_contested").await + two.metric("status_contested").await > 0.5)
    })
    .await
    .with_context(|| format!("{}\n---\n{}", one.log_tail(), two.log_tail()))?;
    let before = writes()?;
    sleep(QUARREL).await;
    let in_quarrel = writes()? - before;
    ensure!(in_quarrel <= 30, "{in_quarrel} writes of one status in {QUARREL:?}");
    for (user, server) in PLANES.into_iter().zip([one, two]) {
        ensure!(claims(user)? <= 8, "{user} wrote the class {} times", claims(user)?);
        let status = server.terminate().await?;
        ensure!(status.success(), "{status}");
    }
    println!("told {:.1} s after the start; {in_quarrel} writes of one status in {QUARREL:?}", told.as_secs_f64());
    Ok(())
}

/// As controllers of Deployments and Services would say of the fleet in that namespace.
async fn serves(world: &World, namespace: &str, ip: &str) -> Result<()> {
    let owned = "labelSelector=gateway.envoyproxy.io%2Fowning-gateway-name%3Dgw";
    for (root, plural, status) in [
        ("apis/apps/v1", "deployments", json!({"replicas": 1, "availableReplicas": 1, "readyReplicas": 1})),
        ("api/v1", "services", json!({"loadBalancer": {"ingress": [{"ip": ip}]}})),
    ] {
        let path = format!("/{root}/namespaces/{namespace}/{plural}");
        let mut name = String::new();
        until(SOON, &format!("{plural} in {namespace}"), async || {
            let request = http::Request::get(format!("{path}?{owned}")).body(Vec::new())?;
            let list = world.client().request::<Value>(request).await?;
            name = list["items"][0]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            Ok(!name.is_empty())
        })
        .await?;
        let request = http::Request::patch(format!("{path}/{name}/status"));
        let request = request.header("content-type", "application/merge-patch+json");
        let body = json!({"status": status}).to_string().into_bytes();
        world.client().request::<Value>(request.body(body)?).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_hangs_while_the_server_answers_is_opened_again() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = set(bin, &["gateway"], &[SYSTEM], 80).await?;
    let http = HttpProxy::start(world.server.port(), world.server.ca_pem()).await?;
    let kubeconfig = world.server.kubeconfig("gateway", &format!("http://127.0.0.1:{}", http.port()));
    let args = [format!("--peer-port={}", free_port()?)];
    let server = Server::start_with(&kubeconfig, CONFIG, &args).await?;
    let is_known = async |name: &str| {
        let dump = server.admin("/api/config_dump?kind=HTTPRoute").await?;
        Ok(dump["HTTPRoute"].as_array().into_iter().flatten().any(|r| r["name"] == name))
    };
    until(SOON, "it knows the route", async || is_known("good").await).await.with_context(|| server.log_tail())?;
    // From here on nothing comes on the watches that are open now; everything else passes, new watches after a moment too.
    http.set(Answers::LateWatches(Duration::from_secs(3600)));
    world.create(&[route("later", "later.example.test", "x")]).await?;
    sleep(Duration::from_secs(2)).await;
    http.set(Answers::Pass);
    let from = Instant::now();
    ensure!(!is_known("later").await?, "the watch hangs");
    ensure!(server.metric("replica_in_touch_age_seconds").await < 5.0, "the server answers all the while");
    until(Duration::from_secs(75), "it knows the later route", async || is_known("later").await)
        .await
        .with_context(|| server.log_tail())?;
    println!("a watch that hung was opened again within {:.1} s", from.elapsed().as_secs_f64());
    Ok(())
}

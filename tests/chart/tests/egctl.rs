//! `egctl` against a real API server; a stand-in for the kubelet forwards ports to an admin server of the test.

use std::{collections::BTreeMap, net::SocketAddr, process::ExitCode, sync::Arc};

use anyhow::{Context, Result, ensure};
use apiserver::world::World;
use clap::Parser as _;
use egctl::cli::{Cli, Streams};
use futures::{SinkExt, StreamExt};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::apiserver::kube_bin;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};
use tokio_tungstenite::tungstenite::{
    Message,
    handshake::server::{Request, Response},
    http::HeaderValue,
};

const SYSTEM: &str = "envoy-gateway-system";
/// The subprotocol of forwarded ports: the first byte of a frame is the channel, two for each port.
const CHANNELS: &str = "v4.channel.k8s.io";

struct Done {
    ok: bool,
    out: String,
    err: String,
}

/// Runs egctl in this process, beside the test.
async fn egctl(kubeconfig: &str, args: &[&str]) -> Result<Done> {
    let all = [&["egctl"], args, &["--kubeconfig", kubeconfig]].concat();
    let cli = Cli::try_parse_from(all)?;
    let run = move || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = egctl::cli::run(cli, Streams { input: &mut std::io::empty(), out: &mut out, err: &mut err });
        let ok = format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS);
        (ok, out, err)
    };
    let (ok, out, err) = tokio::task::spawn_blocking(run).await?;
    Ok(Done { ok, out: String::from_utf8(out)?, err: String::from_utf8(err)? })
}

/// Files with kubeconfigs by user.
struct Users {
    folder: TempDir,
    world: World,
}

impl Users {
    fn file(&self, user: &str) -> Result<String> {
        let path = self.folder.path().join(user);
        std::fs::write(&path, self.world.server.kubeconfig(user, &self.world.server.url()))?;
        Ok(path.display().to_string())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_of_a_cluster() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = World::start(bin, &[], &["limited"]).await?;
    let users = Users { folder: TempDir::new()?, world };
    let (admin, limited) = (users.file("admin")?, users.file("limited")?);

    // Before there are definitions.
    let done = egctl(&admin, &["status", "httproute"]).await?;
    ensure!(!done.ok && done.err.contains("the cluster does not have HTTPRoute"), "{}", done.err);
    users.world.define(|kind| matches!(kind, "GatewayClass" | "Gateway" | "HTTPRoute")).await?;
    let gateway = |namespace: &str| {
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": format!("gw-{namespace}"), "namespace": namespace}, "spec": {"gatewayClassName": "eg",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}})
    };
    for namespace in ["default", "app"] {
        users.world.namespace(namespace, json!({})).await?;
        users.world.create(&[gateway(namespace)]).await?;
    }
    let condition = json!({"type": "Accepted", "status": "False", "reason": "Invalid", "message": "why",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    users.world.patch(&gateway("app"), "/status", json!({"status": {"conditions": [condition]}})).await?;

    let done = egctl(&admin, &["x", "status", "gw", "-n", "app", "-v"]).await?;
    ensure!(done.ok && done.err.is_empty(), "{}", done.err);
    let row: Vec<&str> = done.out.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    ensure!(row == ["Gateway", "app", "gw-app", "Accepted", "False", "Invalid", "why"], "{}", done.out);
    // That of the context.
    let done = egctl(&admin, &["status", "gateway"]).await?;
    ensure!(done.ok && done.out.contains("gw-default") && !done.out.contains("gw-app"), "{}", done.out);
    let done = egctl(&admin, &["status", "gateways", "-A", "-o", "json"]).await?;
    let all: Value = serde_json::from_str(&done.out)?;
    ensure!(all.as_array().is_some_and(|a| a.len() == 2) && all[0]["kind"] == "Gateway", "{all}");
    // Some kinds are not there.
    let done = egctl(&admin, &["status", "all", "-A"]).await?;
    ensure!(done.ok && done.out.contains("gw-app"), "{}", done.err);
    ensure!(
        done.err.contains("left out: the cluster does not have GRPCRoute (gateway.networking.k8s.io)"),
        "{}",
        done.err
    );

    // Without rights.
    let done = egctl(&limited, &["status", "gateway", "-n", "app"]).await?;
    let words = "the API server does not let you list gateways in namespace app; `kubectl auth can-i list gateways -n app` tells";
    ensure!(
        !done.ok && done.err.contains(words) && done.err.contains("gateways.gateway.networking.k8s.io is forbidden"),
        "{}",
        done.err
    );
    let done = egctl(&limited, &["config", "envoy-proxy", "all"]).await?;
    ensure!(
        !done.ok && done.err.contains("does not let you list pods in namespace envoy-gateway-system"),
        "{}",
        done.err
    );
    let done = egctl(&users.file("stranger")?, &["status", "gateway"]).await?;
    ensure!(!done.ok && done.err.contains("does not accept your credentials"), "{}", done.err);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn configurations_through_forwarded_ports() -> Result<()> {
    let Some(bin) = kube_bin() else { return Ok(()) };
    let world = World::start(bin, &[], &[]).await?;
    let users = Users { folder: TempDir::new()?, world };
    let admin = users.file("admin")?;
    users.world.namespace(SYSTEM, json!({})).await?;

    let done = egctl(&admin, &["config", "envoy-proxy", "route"]).await?;
    let words = "no pod has the labels app.kubernetes.io/managed-by=envoy-gateway,app.kubernetes.io/component=proxy in namespace envoy-gateway-system; -n and -A look elsewhere";
    ensure!(!done.ok && done.err.contains(words), "{}", done.err);
    let done = egctl(&admin, &["config", "envoy-gateway", "all", "ghost"]).await?;
    ensure!(!done.ok && done.err.contains("there is no pod ghost in namespace envoy-gateway-system"), "{}", done.err);

    let of = |name: &str| json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{name}"), "name": name});
    let answers = BTreeMap::from([
        ("/config_dump?include_eds", json!({"configs": [of("BootstrapConfigDump"), of("RoutesConfigDump")]})),
        ("/api/config_dump?resource=all&kind=HTTPRoute", json!({"HTTPRoute": [{"metadata": {"name": "r"}}]})),
        ("/api/info", json!({"version": "9.9.9", "gatewayApiVersion": "v1.6.1"})),
    ]);
    let mut tasks = JoinSet::new();
    let kubelet = kubelet(&mut tasks, answers).await?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}});
    users.world.create(std::slice::from_ref(&node)).await?;
    let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}}}});
    users.world.patch(&node, "/status", status).await?;
    let proxy = json!({"app.kubernetes.io/managed-by": "envoy-gateway", "app.kubernetes.io/component": "proxy"});
    for (name, labels) in
        [("proxy-1", &proxy), ("proxy-2", &proxy), ("plane", &json!({"control-plane": "envoy-gateway"}))]
    {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": SYSTEM, "labels": labels},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
        users.world.create(std::slice::from_ref(&pod)).await?;
        if name != "proxy-2" {
            users.world.patch(&pod, "/status", json!({"status": {"phase": "Running"}})).await?;
        }
    }

    let done = egctl(&admin, &["config", "envoy-proxy", "route", "proxy-1"]).await?;
    ensure!(done.ok, "{}", done.err);
    let tree: Value = serde_json::from_str(&done.out)?;
    ensure!(tree == json!({SYSTEM: {"proxy-1": of("RoutesConfigDump")}}), "{tree}");
    // Those that answer are shown, the others told.
    let done = egctl(&admin, &["config", "envoy-proxy", "all", "-o", "yaml", "-A"]).await?;
    ensure!(!done.ok && done.out.contains("BootstrapConfigDump"), "{}{}", done.out, done.err);
    ensure!(done.err.contains("left out: pod envoy-gateway-system/proxy-2 does not run: Pending"), "{}", done.err);
    let done = egctl(&admin, &["config", "envoy-gateway", "hr"]).await?;
    ensure!(
        done.ok
            && serde_json::from_str::<Value>(&done.out)?[SYSTEM]["plane"]["HTTPRoute"][0]["metadata"]["name"] == "r",
        "{}",
        done.err
    );
    let done = egctl(&admin, &["version", "--remote"]).await?;
    ensure!(
        done.ok && done.out.ends_with("envoy-gateway-system/plane 9.9.9 (Gateway API v1.6.1)\n"),
        "{}{}",
        done.out,
        done.err
    );
    // A port that nobody listens on, and a path that is not known.
    let done = egctl(&admin, &["config", "envoy-proxy", "all", "proxy-1", "--admin-port", "1"]).await?;
    ensure!(!done.ok && done.err.contains("asking port 1 of pod envoy-gateway-system/proxy-1"), "{}", done.err);
    let done = egctl(&admin, &["config", "envoy-gateway", "gateway", "plane"]).await?;
    ensure!(!done.ok && done.err.contains("404"), "{}", done.err);

    // The kubelet is gone.
    tasks.shutdown().await;
    let done = egctl(&admin, &["config", "envoy-proxy", "all", "proxy-1"]).await?;
    ensure!(
        !done.ok && done.err.contains("the API server does not create pods/portforward in namespace"),
        "{}",
        done.err
    );
    Ok(())
}

/// Serves forwarded ports as a kubelet does: port 19000 leads to an admin server with these answers, others nowhere.
async fn kubelet(tasks: &mut JoinSet<()>, answers: BTreeMap<&'static str, Value>) -> Result<SocketAddr> {
    let admin = TcpListener::bind("127.0.0.1:0").await?;
    let admin_address = admin.local_addr()?;
    let answers = Arc::new(answers);
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = admin.accept().await {
            let answers = answers.clone();
            connections.spawn(async move { drop(answer(stream, &answers).await) });
        }
    });

    let key = KeyPair::generate()?;
    let cert = CertificateParams::new(vec!["kubelet".to_owned()])?.self_signed(&key)?;
    let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move { drop(forward(acceptor, stream, admin_address).await) });
        }
    });
    Ok(address)
}

async fn forward(acceptor: TlsAcceptor, stream: TcpStream, admin: SocketAddr) -> Result<()> {
    let mut port: u16 = 0;
    #[allow(clippy::result_large_err, reason = "the library's own type")]
    let callback = |request: &Request, mut response: Response| {
        let asked = request
            .uri()
            .query()
            .unwrap_or_default()
            .split('&')
            .find_map(|p| p.strip_prefix("port=").or_else(|| p.strip_prefix("ports=")));
        port = asked.and_then(|p| p.parse().ok()).unwrap_or_default();
        response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(CHANNELS));
        Ok(response)
    };
    let mut socket = tokio_tungstenite::accept_hdr_async(acceptor.accept(stream).await?, callback).await?;
    for channel in [0, 1] {
        let [low, high] = port.to_le_bytes();
        socket.send(Message::binary(vec![channel, low, high])).await?;
    }
    if port != 19000 {
        let mut frame = vec![1];
        frame.extend_from_slice(b"connection refused");
        socket.send(Message::binary(frame)).await?;
        return Ok(socket.close(None).await?);
    }
    let mut target = TcpStream::connect(admin).await?;
    let mut buffer = vec![0; 4096];
    loop {
        tokio::select! {
            frame = socket.next() => match frame {
                Some(Ok(Message::Binary(frame))) if frame.first() == Some(&0) => target.write_all(&frame[1..]).await?,
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok(()),
            },
            read = target.read(&mut buffer) => {
                let read = read?;
                if read == 0 {
                    return Ok(socket.close(None).await?);
                }
                let mut frame = vec![0];
                frame.extend_from_slice(&buffer[..read]);
                socket.send(Message::binary(frame)).await?;
            }
        }
    }
}

async fn answer(mut stream: TcpStream, answers: &BTreeMap<&'static str, Value>) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let path = head.split(' ').nth(1).context("no path")?;
    let (status, body) = match answers.get(path) {
        Some(body) => ("200 OK", body.to_string()),
        None => ("404 Not Found", String::new()),
    };
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await?;
    Ok(())
}

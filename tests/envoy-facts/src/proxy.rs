//! An Envoy process.

use std::{
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::{client::H1, until};

/// The `node.cluster` of every proxy here.
pub const GROUP: &str = "ns/gw";

/// How a proxy asks for its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Differences.
    Delta,
    /// Whole lists.
    StateOfTheWorld,
}

/// How to start an Envoy.
#[derive(Clone, Debug)]
pub struct Setup {
    /// How it asks.
    pub api: Api,
    /// Ports of its control planes, in order of preference.
    pub control_planes: Vec<u16>,
    /// `--drain-time-s`.
    pub drain: Duration,
}

impl Setup {
    /// Delta from one control plane; connections drain for a second.
    #[must_use]
    pub fn new(control_plane: u16) -> Self {
        Self { api: Api::Delta, control_planes: vec![control_plane], drain: Duration::from_secs(1) }
    }

    /// Starts it, without waiting for anything.
    #[must_use]
    pub fn start(&self, envoy: &Envoy) -> Proxy {
        let dir = TempDir::new().expect("a scratch folder");
        let admin = free_port();
        let config = dir.path().join("envoy.json");
        std::fs::write(&config, self.bootstrap(admin).to_string()).expect("the scratch folder can be written");
        let child = Command::new(&envoy.0)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "info"])
            .args(["--drain-strategy", "immediate", "--drain-time-s", &self.drain.as_secs().to_string()])
            .arg("--config-path")
            .arg(&config)
            .arg("--log-path")
            .arg(dir.path().join("envoy.log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ENVOY_BIN can be started");
        Proxy { admin, child, dir }
    }

    fn bootstrap(&self, admin: u16) -> Value {
        let api = match self.api {
            Api::Delta => "DELTA_GRPC",
            Api::StateOfTheWorld => "GRPC",
        };
        let address = |port: u16| json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
        let endpoints: Vec<Value> =
            self.control_planes.iter().map(|port| json!({ "endpoint": { "address": address(*port) } })).collect();
        json!({
            "node": { "id": "envoy-under-test", "cluster": GROUP },
            "admin": { "address": address(admin) },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": api,
                    "transport_api_version": "V3",
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "control-plane" } }],
                },
                "cds_config": { "ads": {}, "resource_api_version": "V3" },
                "lds_config": { "ads": {}, "resource_api_version": "V3" },
            },
            "static_resources": { "clusters": [{
                "name": "control-plane",
                "connect_timeout": "1s",
                "type": "STATIC",
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": { "http2_protocol_options": {} },
                    },
                },
                "load_assignment": { "cluster_name": "control-plane", "endpoints": [{ "lb_endpoints": endpoints }] },
            }] },
        })
    }
}

/// The Envoy to test with.
#[derive(Clone, Debug)]
pub struct Envoy(PathBuf);

impl Envoy {
    /// The binary that `ENVOY_BIN` names; without one the test says so and is to end.
    #[must_use]
    pub fn find() -> Option<Self> {
        let path = std::env::var_os("ENVOY_BIN").map(PathBuf::from);
        if path.is_none() {
            println!("skipped: no Envoy (ENVOY_BIN is not set)");
        }
        path.map(Self)
    }
}

/// A running Envoy; it ends with the value.
#[derive(Debug)]
pub struct Proxy {
    admin: u16,
    child: Child,
    dir: TempDir,
}

impl Proxy {
    /// What the administration interface answers, `None` while it does not.
    pub async fn admin(&self, path: &str) -> Option<String> {
        let answer = H1::open(self.admin).await.ok()?.get(path).await.ok()?;
        (answer.status == 200).then_some(answer.body)
    }

    /// A gauge or counter; 0 when Envoy has none of that name.
    pub async fn stat(&self, name: &str) -> u64 {
        let text = self.admin(&format!("/stats?filter=^{name}$")).await.unwrap_or_default();
        text.trim().rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Waits until a gauge or counter has this value.
    pub async fn stat_is(&self, name: &str, value: u64) {
        until(&format!("{name} is {value}"), async || self.stat(name).await == value).await;
    }

    /// Whether Envoy has this cluster, warm or warming.
    pub async fn has_cluster(&self, name: &str) -> bool {
        let text = self.admin("/clusters").await.unwrap_or_default();
        text.lines().any(|line| line.starts_with(&format!("{name}::")))
    }

    /// Its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("envoy.log")).unwrap_or_default()
    }

    /// Stops the process where it is, or lets it go on.
    ///
    /// # Panics
    /// When it is gone.
    pub fn pause(&self, stop: bool) {
        let pid = Pid::from_raw(self.child.id().try_into().expect("a process id"));
        signal::kill(pid, if stop { Signal::SIGSTOP } else { Signal::SIGCONT }).expect("Envoy runs");
    }

    /// Ends the process.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("Envoy's log:\n{}", self.log());
        }
    }
}

/// A port that was free a moment ago.
#[must_use]
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port of loopback is free");
    listener.local_addr().expect("it is bound").port()
}

/// Waits until a port takes connections.
pub async fn opens(port: u16) {
    until("the port opens", async || TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
}

/// Whether a port takes connections now.
pub async fn is_open(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).await.is_ok()
}

/// Waits until a port takes no more connections.
pub async fn closes(port: u16) {
    until("the port closes", async || TcpStream::connect(("127.0.0.1", port)).await.is_err()).await;
}

/// Waits until `/` on a port answers 200.
pub async fn serves(port: u16) {
    until("the port serves", async || match H1::open(port).await {
        Ok(mut client) => client.get("/").await.is_ok_and(|answer| answer.status == 200),
        Err(_) => false,
    })
    .await;
}

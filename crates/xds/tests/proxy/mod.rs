//! A real Envoy, backends for it, traffic through it, and the configuration that it is given.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use envoy_types::pb::{
    envoy::{
        config::{
            cluster::v3::{
                Cluster,
                cluster::{
                    ClusterDiscoveryType, DiscoveryType, EdsClusterConfig, LbConfig, LbPolicy, RingHashLbConfig,
                },
            },
            core::v3::{
                Address, AggregatedConfigSource, ApiVersion, ConfigSource, HealthCheck, SocketAddress, address,
                config_source, health_check, socket_address,
            },
            endpoint::v3::{ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint},
            listener::v3::{Filter, FilterChain, Listener, filter},
            route::v3::{
                Route, RouteAction, RouteConfiguration, RouteMatch, VirtualHost, route, route_action, route_match,
            },
        },
        extensions::filters::{
            http::router::v3::Router,
            network::http_connection_manager::v3::{
                HttpConnectionManager, HttpFilter, Rds, http_connection_manager, http_filter,
            },
        },
        r#type::matcher::v3::RegexMatcher,
    },
    google::protobuf::{Any, Duration as ProtoDuration, UInt32Value, UInt64Value},
};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{Request, Response, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use prost::Message;
use tempfile::TempDir;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::timeout,
};
use xds::{Cache, Hints, NodeGroup, Resource, TypeUrl};

use crate::support::{PATIENCE, list};

const GROUP: &str = "ns/gw";

pub(crate) fn group() -> NodeGroup {
    NodeGroup::from(GROUP)
}

/// The Envoy to test with, if there is one.
pub(crate) fn binary() -> Option<PathBuf> {
    let path = std::env::var_os("ENVOY_BIN").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: no Envoy (ENVOY_BIN is not set)");
    }
    path
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// How the proxy asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    Delta,
    StateOfTheWorld,
}

/// A running Envoy; ends with the value.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    admin: u16,
    child: Child,
    dir: TempDir,
}

impl Proxy {
    /// Starts Envoy and waits until it serves.
    pub(crate) async fn start(binary: &Path, api: Api, xds: u16, port: u16) -> Self {
        let dir = TempDir::new().unwrap();
        let admin = free_port();
        let api = match api {
            Api::Delta => "DELTA_GRPC",
            Api::StateOfTheWorld => "GRPC",
        };
        let bootstrap = serde_json::json!({
            "node": { "id": "envoy-under-test", "cluster": GROUP },
            "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": admin } } },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": api,
                    "transport_api_version": "V3",
                    "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
                },
                "cds_config": { "ads": {}, "resource_api_version": "V3" },
                "lds_config": { "ads": {}, "resource_api_version": "V3" },
            },
            "static_resources": {
                "clusters": [{
                    "name": "xds",
                    "connect_timeout": "1s",
                    "type": "STATIC",
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                            "explicit_http_config": { "http2_protocol_options": {} },
                        },
                    },
                    "load_assignment": {
                        "cluster_name": "xds",
                        "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": {
                            "socket_address": { "address": "127.0.0.1", "port_value": xds },
                        } } }] }],
                    },
                }],
            },
        });
        let config = dir.path().join("envoy.json");
        std::fs::File::create(&config).unwrap().write_all(bootstrap.to_string().as_bytes()).unwrap();
        let log = dir.path().join("envoy.log");
        let child = Command::new(binary)
            .args(["--use-dynamic-base-id", "--concurrency", "1", "--log-level", "info", "--drain-time-s", "3"])
            .arg("--config-path")
            .arg(&config)
            .arg("--log-path")
            .arg(&log)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("ENVOY_BIN can be started");
        let proxy = Self { port, admin, child, dir };
        if timeout(PATIENCE, serves(port)).await.is_err() {
            panic!("Envoy does not serve:\n{}", proxy.log());
        }
        proxy
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("envoy.log")).unwrap_or_default()
    }

    /// A gauge or counter.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let path = format!("/stats?filter=^{name}$");
        let (_, text) = get(self.admin, &path).await.expect("the admin interface answers");
        let value = text.trim().rsplit(' ').next().unwrap_or_default();
        value.parse().unwrap_or_else(|_| panic!("no such stat: {name}: {text}"))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("Envoy's log:\n{}", self.log());
        }
    }
}

async fn get(port: u16, path: &str) -> Result<(u16, String), String> {
    let mut client = Client::new(port);
    client.send(hyper::Method::GET, path).await
}

/// Waits until a port answers 200.
pub(crate) async fn serves(port: u16) {
    while get(port, "/").await.map(|(status, _)| status) != Ok(200) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a port takes no more connections.
pub(crate) async fn refuses(port: u16) {
    let refused = timeout(PATIENCE, async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    refused.await.expect("the port closes in time");
}

/// A backend that answers with its name.
pub(crate) struct Backend {
    pub(crate) port: u16,
    asked: watch::Receiver<u64>,
    _tasks: JoinSet<()>,
}

impl Backend {
    pub(crate) async fn start(name: &'static str) -> Self {
        Self::start_slow(name, Duration::ZERO).await
    }

    /// One whose health checks take this long.
    pub(crate) async fn start_slow(name: &'static str, check: Duration) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (count, asked) = watch::channel(0);
        let count = Arc::new(count);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                let count = count.clone();
                let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
                    let count = count.clone();
                    async move {
                        count.send_modify(|count| *count += 1);
                        if request.uri().path() == "/health" {
                            tokio::time::sleep(check).await;
                        }
                        let _ = request.into_body().collect().await;
                        Ok::<_, hyper::Error>(Response::new(Full::new(Bytes::from(name))))
                    }
                });
                connections.spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        });
        Self { port, asked, _tasks: tasks }
    }

    /// Waits until somebody has asked it anything.
    pub(crate) async fn asked(&self) {
        let mut asked = self.asked.clone();
        let some = timeout(PATIENCE, asked.wait_for(|count| *count > 0));
        some.await.expect("somebody asks in time").expect("the backend lives");
    }
}

/// One connection that is used until the server says that it closes it. Nothing is ever sent again.
struct Client {
    port: u16,
    connection: Option<http1::SendRequest<Empty<Bytes>>>,
    tasks: JoinSet<()>,
}

impl Client {
    fn new(port: u16) -> Self {
        Self { port, connection: None, tasks: JoinSet::new() }
    }

    async fn send(&mut self, method: hyper::Method, path: &str) -> Result<(u16, String), String> {
        if self.connection.is_none() {
            let socket = TcpStream::connect(("127.0.0.1", self.port)).await.map_err(|e| format!("connect: {e}"))?;
            let (sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(|e| e.to_string())?;
            self.tasks.spawn(async move {
                let _ = connection.await;
            });
            self.connection = Some(sender);
        }
        let sender = self.connection.as_mut().ok_or("no connection")?;
        let request = Request::builder().method(method).uri(path).header("host", "test.example");
        let request = request.body(Empty::new()).map_err(|e| e.to_string())?;
        let response = timeout(PATIENCE, sender.send_request(request)).await.map_err(|e| e.to_string())?;
        let response = response.map_err(|e| format!("request: {e}"))?;
        let closes = response.headers().get("connection").is_some_and(|value| value == "close");
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|e| format!("body: {e}"))?.to_bytes();
        if closes {
            self.connection = None;
        }
        Ok((status, String::from_utf8_lossy(&body).into_owned()))
    }
}

/// POST requests, one after another on each of several connections.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    failed: Arc<Mutex<Vec<String>>>,
    heard: watch::Receiver<BTreeMap<String, u64>>,
    tasks: JoinSet<()>,
}

impl Traffic {
    pub(crate) fn start(port: u16, workers: usize) -> Self {
        let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let failed = Arc::new(Mutex::new(Vec::new()));
        let (tell, heard) = watch::channel(BTreeMap::new());
        let tell = Arc::new(tell);
        let mut tasks = JoinSet::new();
        for _ in 0..workers {
            let (stop, sent, failed, tell) = (stop.clone(), sent.clone(), failed.clone(), tell.clone());
            tasks.spawn(async move {
                let mut client = Client::new(port);
                while !stop.load(Ordering::Relaxed) {
                    match client.send(hyper::Method::POST, "/").await {
                        Ok((200, body)) => tell.send_modify(|heard: &mut BTreeMap<String, u64>| {
                            *heard.entry(body).or_default() += 1;
                        }),
                        other => {
                            failed.lock().unwrap().push(format!("{other:?}"));
                            client = Client::new(port);
                        }
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
        }
        Self { stop, sent, failed, heard, tasks }
    }

    /// Waits until this backend has answered once more.
    pub(crate) async fn hear(&self, backend: &str, within: Duration) {
        let mut heard = self.heard.clone();
        let before = heard.borrow().get(backend).copied().unwrap_or_default();
        let more = heard.wait_for(|heard| heard.get(backend).copied().unwrap_or_default() > before);
        timeout(within, more)
            .await
            .unwrap_or_else(|_| panic!("{backend} does not answer; failed: {:?}", self.failed.lock().unwrap()))
            .expect("the workers live");
    }

    /// Waits until so many more requests were sent.
    pub(crate) async fn more(&self, count: u64) {
        let enough = self.sent.load(Ordering::Relaxed) + count;
        while self.sent.load(Ordering::Relaxed) < enough {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends it and tells how many requests were sent and what went wrong.
    pub(crate) async fn stop(mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a worker does not panic");
        }
        let failed = self.failed.lock().unwrap().clone();
        (self.sent.load(Ordering::Relaxed), failed)
    }
}

/// What the proxy is to have.
pub(crate) struct World {
    pub(crate) port: u16,
    pub(crate) clusters: BTreeMap<String, ClusterSpec>,
    routes: BTreeMap<String, String>,
    pub(crate) stat_prefix: String,
    pub(crate) first_listener: bool,
    pub(crate) second_listener: Option<u16>,
    pub(crate) bad_regex: bool,
    published: BTreeSet<(TypeUrl, Arc<str>)>,
}

pub(crate) struct ClusterSpec {
    backend: u16,
    pub(crate) timeout_ms: u32,
    pub(crate) health_check: bool,
    /// Refused by Envoy, together with its whole response.
    pub(crate) invalid: bool,
    /// Never warm.
    pub(crate) stuck: bool,
    /// Whether the order is told the truth about it.
    pub(crate) honest: bool,
}

impl World {
    pub(crate) fn new(port: u16) -> Self {
        Self {
            port,
            clusters: BTreeMap::new(),
            routes: BTreeMap::new(),
            stat_prefix: "in".into(),
            first_listener: true,
            second_listener: None,
            bad_regex: false,
            published: BTreeSet::new(),
        }
    }

    pub(crate) fn cluster(&mut self, name: &str, backend: &Backend) {
        let spec = ClusterSpec {
            backend: backend.port,
            timeout_ms: 1_000,
            health_check: false,
            invalid: false,
            stuck: false,
            honest: true,
        };
        self.clusters.insert(name.to_owned(), spec);
    }

    pub(crate) fn route(&mut self, prefix: &str, cluster: &str) {
        self.routes.insert(prefix.to_owned(), cluster.to_owned());
    }

    pub(crate) fn publish(&mut self, cache: &Cache) {
        let mut all: BTreeMap<(TypeUrl, Arc<str>), Option<Resource>> = BTreeMap::new();
        for (name, spec) in &self.clusters {
            let hints = Hints::Cluster {
                warms: spec.honest && (spec.health_check || spec.stuck),
                endpoints: Some(name.as_str().into()),
                secrets: list(&[]),
            };
            let cluster = Resource::new(cluster(name, spec).encode_to_vec(), hints);
            all.insert((TypeUrl::Cluster, name.as_str().into()), Some(cluster));
            let endpoints = Resource::new(assignment(name, spec.backend).encode_to_vec(), Hints::Unknown);
            all.insert((TypeUrl::ClusterLoadAssignment, name.as_str().into()), Some(endpoints));
        }
        let honest = self.clusters.values().all(|spec| spec.honest);
        let used: Vec<&str> = self.routes.values().map(String::as_str).filter(|_| honest).collect();
        let table = Resource::new(self.table().encode_to_vec(), Hints::RouteConfiguration { clusters: list(&used) });
        all.insert((TypeUrl::RouteConfiguration, "table".into()), Some(table));
        let first = self.first_listener.then_some(("first", self.port));
        let second = self.second_listener.map(|port| ("second", port));
        for (name, port) in first.into_iter().chain(second) {
            let hints = Hints::Listener { routes: list(&["table"]), secrets: list(&[]), clusters: list(&[]) };
            let listener = Resource::new(self.listener(name, port).encode_to_vec(), hints);
            all.insert((TypeUrl::Listener, name.into()), Some(listener));
        }
        let now: BTreeSet<_> = all.keys().cloned().collect();
        for gone in self.published.difference(&now) {
            all.insert(gone.clone(), None);
        }
        self.published = now;
        cache.update(group(), all);
    }

    fn table(&self) -> RouteConfiguration {
        let mut routes: Vec<Route> = self
            .routes
            .iter()
            .map(|(prefix, cluster)| Route {
                r#match: Some(RouteMatch {
                    path_specifier: Some(route_match::PathSpecifier::Prefix(prefix.clone())),
                    ..Default::default()
                }),
                action: Some(route::Action::Route(RouteAction {
                    cluster_specifier: Some(route_action::ClusterSpecifier::Cluster(cluster.clone())),
                    ..Default::default()
                })),
                ..Default::default()
            })
            .collect();
        if self.bad_regex {
            let mut bad = routes[0].clone();
            let regex = RegexMatcher { regex: "*.foo".into(), ..Default::default() };
            bad.r#match = Some(RouteMatch {
                path_specifier: Some(route_match::PathSpecifier::SafeRegex(regex)),
                ..Default::default()
            });
            routes.insert(0, bad);
        }
        RouteConfiguration {
            name: "table".into(),
            virtual_hosts: vec![VirtualHost {
                name: "all".into(),
                domains: vec!["*".into()],
                routes,
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    fn listener(&self, name: &str, port: u16) -> Listener {
        let manager = HttpConnectionManager {
            stat_prefix: self.stat_prefix.clone(),
            route_specifier: Some(http_connection_manager::RouteSpecifier::Rds(Rds {
                config_source: Some(ads()),
                route_config_name: "table".into(),
            })),
            http_filters: vec![HttpFilter {
                name: "envoy.filters.http.router".into(),
                config_type: Some(http_filter::ConfigType::TypedConfig(any(&Router::default()))),
                ..Default::default()
            }],
            ..Default::default()
        };
        Listener {
            name: name.into(),
            address: Some(address(port)),
            filter_chains: vec![FilterChain {
                filters: vec![Filter {
                    name: "envoy.filters.network.http_connection_manager".into(),
                    config_type: Some(filter::ConfigType::TypedConfig(any(&manager))),
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
    }
}

fn cluster(name: &str, spec: &ClusterSpec) -> Cluster {
    let checks = spec.health_check.then(|| HealthCheck {
        timeout: Some(seconds(5)),
        interval: Some(seconds(1)),
        unhealthy_threshold: Some(UInt32Value { value: 3 }),
        healthy_threshold: Some(UInt32Value { value: 1 }),
        health_checker: Some(health_check::HealthChecker::HttpHealthCheck(health_check::HttpHealthCheck {
            path: "/health".into(),
            ..Default::default()
        })),
        ..Default::default()
    });
    let ring = spec.stuck.then(|| {
        LbConfig::RingHashLbConfig(RingHashLbConfig {
            minimum_ring_size: Some(UInt64Value { value: 4_096 }),
            maximum_ring_size: Some(UInt64Value { value: 1_024 }),
            ..Default::default()
        })
    });
    let mut timeout = ProtoDuration { seconds: 0, nanos: 0 };
    timeout.seconds = i64::from(spec.timeout_ms / 1_000);
    timeout.nanos = (spec.timeout_ms % 1_000) as i32 * 1_000_000;
    if spec.invalid {
        timeout.seconds = -1;
    }
    Cluster {
        name: name.into(),
        connect_timeout: Some(timeout),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        eds_cluster_config: Some(EdsClusterConfig { eds_config: Some(ads()), ..Default::default() }),
        health_checks: checks.into_iter().collect(),
        lb_policy: if spec.stuck { LbPolicy::RingHash.into() } else { LbPolicy::RoundRobin.into() },
        lb_config: ring,
        ..Default::default()
    }
}

fn assignment(name: &str, port: u16) -> ClusterLoadAssignment {
    let endpoint = Endpoint { address: Some(address(port)), ..Default::default() };
    ClusterLoadAssignment {
        cluster_name: name.into(),
        endpoints: vec![LocalityLbEndpoints {
            lb_endpoints: vec![LbEndpoint {
                host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(endpoint)),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn seconds(seconds: i64) -> ProtoDuration {
    ProtoDuration { seconds, nanos: 0 }
}

fn address(port: u16) -> Address {
    Address {
        address: Some(address::Address::SocketAddress(SocketAddress {
            address: "127.0.0.1".into(),
            port_specifier: Some(socket_address::PortSpecifier::PortValue(port.into())),
            ..Default::default()
        })),
    }
}

fn ads() -> ConfigSource {
    ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(config_source::ConfigSourceSpecifier::Ads(AggregatedConfigSource {})),
        ..Default::default()
    }
}

fn any<M: Message + prost::Name>(message: &M) -> Any {
    Any { type_url: format!("type.googleapis.com/{}", M::full_name()), value: message.encode_to_vec() }
}

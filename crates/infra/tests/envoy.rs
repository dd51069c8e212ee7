//! The same with a real Envoy: `ENVOY_BIN=/path/to/envoy cargo test -p infra --test envoy`.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on panics, and says what it measured"
)]

mod support;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use infra::local::{AdminAddress, EnvoyBinary, Phase, Ports, Proxy};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use support::{Fixture, KEY, alive, kill, options, within};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The Envoy to test with.
fn envoy() -> Option<PathBuf> {
    let path = std::env::var_os("ENVOY_BIN").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: ENVOY_BIN is not set");
    }
    path
}

/// A bootstrap with one listener that answers every request with `text`, after `x-envoy-fault-delay-request` ms.
fn bootstrap(port: u16, text: &str) -> String {
    format!(
        r#"
admin: {{address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}}}
static_resources:
  listeners:
  - name: web
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          access_log:
          - name: stdout
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog}}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                direct_response: {{status: 200, body: {{inline_string: "{text}"}}}}
          http_filters:
          - name: fault
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault
              delay: {{header_delay: {{}}, percentage: {{numerator: 100}}}}
          - name: router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
"#
    )
}

fn proxy(port: u16, text: &str) -> Proxy {
    let mut proxy = Proxy::new(bootstrap(port, text));
    proxy.service_cluster = Some("test".to_owned());
    proxy.service_node = Some("test".to_owned());
    proxy.concurrency = Some(2);
    proxy.log_level = "info".to_owned();
    proxy.drain.timeout = Duration::from_secs(2);
    proxy
}

fn free_port(ports: &Ports) -> u16 {
    ports.choose(IpAddr::V4(Ipv4Addr::LOCALHOST), 0).unwrap()
}

type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

/// A client that never tries again: what fails is an error, also on a kept connection. It leaves when it is told to.
struct Client {
    to: SocketAddr,
    sender: Option<Sender>,
    connections: JoinSet<hyper::Result<()>>,
}

impl Client {
    fn new(port: u16) -> Self {
        Self { to: (Ipv4Addr::LOCALHOST, port).into(), sender: None, connections: JoinSet::new() }
    }

    async fn post(&mut self, keep: bool, delay: Duration) -> Result<String, String> {
        let mut sender = match self.sender.take() {
            Some(sender) => sender,
            None => {
                let stream = TcpStream::connect(self.to).await.map_err(|e| format!("connect: {e}"))?;
                let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|e| format!("handshake: {e}"))?;
                self.connections.spawn(connection);
                sender
            }
        };
        let request = Request::post("/")
            .header("host", "web.test")
            .header("x-envoy-fault-delay-request", delay.as_millis().to_string())
            .body(Full::from("x".repeat(1000)))
            .map_err(|e| e.to_string())?;
        let response = sender.send_request(request).await.map_err(|e| format!("request: {e:?}"))?;
        let status = response.status();
        let leave = response.headers().get(header::CONNECTION).is_some_and(|v| v == "close");
        let body = response.into_body().collect().await.map_err(|e| format!("body: {e:?}"))?.to_bytes();
        if status != 200 {
            return Err(format!("status {status}"));
        }
        if keep && !leave {
            self.sender = Some(sender);
        }
        while self.connections.try_join_next().is_some() {}
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// Clients that send POST requests one after the other until they are told to stop.
struct Traffic {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    clients: JoinSet<Vec<String>>,
}

impl Traffic {
    /// New connections, kept ones, and slow requests.
    fn start(port: u16) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let mut clients = JoinSet::new();
        let kinds = [(false, 0), (false, 0), (true, 0), (true, 0), (true, 5), (false, 300), (true, 300), (true, 700)];
        for (keep, delay) in kinds {
            let (stop, sent) = (stop.clone(), sent.clone());
            clients.spawn(async move {
                let mut client = Client::new(port);
                let mut failed = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    sent.fetch_add(1, Ordering::Relaxed);
                    if let Err(why) = client.post(keep, Duration::from_millis(delay)).await {
                        failed.push(format!("keep {keep}, delay {delay}: {why}"));
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                failed
            });
        }
        Self { stop, sent, clients }
    }

    /// The number of requests and those that failed.
    async fn stop(mut self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        let mut failed = Vec::new();
        while let Some(client) = within("the clients", self.clients.join_next()).await {
            failed.extend(client.unwrap());
        }
        (self.sent.load(Ordering::Relaxed), failed)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_a_proxy_fails_no_request() {
    let Some(envoy) = envoy() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut local = Fixture::new(options(dir.path(), &envoy));
    let port = free_port(&Ports::new());
    local.want(KEY, proxy(port, "v0"));
    local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    let traffic = Traffic::start(port);
    for version in 1..=4u64 {
        let text = format!("v{version}");
        let began = std::time::Instant::now();
        local.want(KEY, proxy(port, &text));
        let replaced = local.until(KEY, "replaced", |s| s.phase == Phase::Running && s.generation == version + 1).await;
        assert_eq!(Client::new(port).post(false, Duration::ZERO).await.unwrap(), text);
        println!("replaced in {:?}", began.elapsed());
        assert_eq!((replaced.crashes, replaced.problem), (0, None));
        let finished = local.until(KEY, "the old process to finish", |s| s.old_process.is_none()).await;
        println!("old process finished after {:?}", began.elapsed());
        assert_eq!(finished.crashes, 0);
    }
    let (sent, failed) = traffic.stop().await;
    println!("{sent} requests, {} failed, 4 replacements", failed.len());
    assert!(failed.is_empty(), "{} of {sent} failed: {failed:#?}", failed.len());
    assert!(sent > 1000, "{sent} requests are no load");
    local.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_lets_requests_finish_and_leaves_nothing_behind() {
    let Some(envoy) = envoy() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut local = Fixture::new(options(dir.path(), &envoy));
    let port = free_port(&Ports::new());
    local.want(KEY, proxy(port, "v0"));
    let status = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    let base_id = std::fs::read_to_string(dir.path().join("run/default_web/base-id.1")).unwrap();
    let memory = PathBuf::from(format!("/dev/shm/envoy_shared_memory_{base_id}0"));
    assert!(memory.exists(), "{}", memory.display());

    let admin = status.admin.clone().unwrap();
    let mut slow = Client::new(port);
    let request = slow.post(true, Duration::from_secs(1));
    let stop = async {
        within("the request to arrive", async {
            while admin.connections().await.unwrap() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        local.begin_stop();
        local.stopped().await;
    };
    let (answer, ()) = tokio::join!(request, stop);
    assert_eq!(answer.unwrap(), "v0");
    assert!(!alive(status.pid.unwrap()));
    assert!(!memory.exists(), "shared memory is removed");
    assert!(!dir.path().join("run/default_web").exists());
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_instances_run_on_one_host_with_ports_that_the_system_picks() {
    let Some(envoy) = envoy() else { return };
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut instances: Vec<Fixture> = dirs.iter().map(|d| Fixture::new(options(d.path(), &envoy))).collect();
    let mut seen = std::collections::BTreeSet::new();
    for instance in &mut instances {
        for key in ["default/a", "default/b"] {
            instance.want(key, proxy(0, key));
        }
        for key in ["default/a", "default/b"] {
            let status = instance.until(key, "ready", |s| s.phase == Phase::Running).await;
            let admin = status.admin.unwrap();
            let AdminAddress::Tcp(address) = &admin else { panic!("{admin}") };
            let listeners = admin.listeners().await.unwrap();
            let listener: SocketAddr = listeners["web"][0].parse().unwrap();
            assert_ne!(listener.port(), 0);
            assert!(seen.insert(address.port()) && seen.insert(listener.port()));
            assert_eq!(Client::new(listener.port()).post(false, Duration::ZERO).await.unwrap(), key);
        }
    }
    for instance in &mut instances {
        instance.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_envoy_is_back_soon_and_its_logs_are_apart() {
    let Some(envoy) = envoy() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut local = Fixture::new(options(dir.path(), &envoy));
    let port = free_port(&Ports::new());
    local.want(KEY, proxy(port, "v0"));
    let status = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    let began = std::time::Instant::now();
    kill(status.pid.unwrap());
    let back = local.until(KEY, "back", |s| s.phase == Phase::Running && s.generation == 2).await;
    println!("serves again {:?} after the kill", began.elapsed());
    assert!(back.last_crash.unwrap().starts_with("killed by SIGKILL"));
    assert_eq!(Client::new(port).post(false, Duration::ZERO).await.unwrap(), "v0");
    local.stop().await;
    let access = std::fs::read_to_string(&status.access_log).unwrap();
    assert_eq!(access.matches("\"POST / HTTP/1.1\" 200").count(), 1, "{access}");
    let log = std::fs::read_to_string(&status.log).unwrap();
    assert!(log.contains("starting main dispatch loop") && !log.contains("POST /"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_bootstrap_is_told_in_envoys_words_and_the_running_one_serves() {
    let Some(envoy) = envoy() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut local = Fixture::new(options(dir.path(), &envoy));
    let port = free_port(&Ports::new());
    let mut wrong = proxy(port, "v1");
    wrong.bootstrap = bootstrap(port, "v1").replace("stat_prefix: http", "stat_prefix: {").into();

    // With nothing running: told, tried again.
    local.want(KEY, wrong.clone());
    let told = local.until(KEY, "told", |s| s.last_crash.is_some()).await;
    println!("{}", told.last_crash.unwrap());

    local.want(KEY, proxy(port, "v0"));
    let running = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    local.want(KEY, wrong);
    let told = local.until(KEY, "told", |s| s.problem.is_some()).await;
    let problem = told.problem.unwrap();
    assert!(problem.starts_with("bootstrap refused by Envoy: "), "{problem}");
    assert_eq!(told.pid, running.pid);

    // Right, but impossible: the admin port is taken. Envoy finds out only when it runs.
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let admin = format!("port_value: {}", taken.local_addr().unwrap().port());
    let mut impossible = proxy(port, "v2");
    impossible.bootstrap = bootstrap(port, "v2").replacen("port_value: 0", &admin, 1).into();
    local.want(KEY, impossible);
    let told = local.until(KEY, "told", |s| s.problem.as_ref().is_some_and(|p| p.contains("in use"))).await;
    assert_eq!((told.pid, told.crashes), (running.pid, running.crashes));
    assert_eq!(Client::new(port).post(false, Duration::ZERO).await.unwrap(), "v0");

    // And the next good one still gets through.
    local.want(KEY, proxy(port, "v3"));
    local.until(KEY, "replaced", |s| s.phase == Phase::Running && s.pid != running.pid).await;
    assert_eq!(Client::new(port).post(false, Duration::ZERO).await.unwrap(), "v3");
    local.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopping_just_after_a_replacement_cuts_no_request_of_the_old_process() {
    let Some(envoy) = envoy() else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut local = Fixture::new(options(dir.path(), &envoy));
    let port = free_port(&Ports::new());
    let with = |text: &str| {
        let mut proxy = proxy(port, text);
        proxy.drain.timeout = Duration::from_secs(15);
        proxy
    };
    local.want(KEY, with("v0"));
    let first = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    let admin = first.admin.unwrap();
    let mut slow = Client::new(port);
    let request = slow.post(true, Duration::from_secs(4));
    let stop = async {
        within("the request to arrive", async {
            while admin.connections().await.unwrap() == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        local.want(KEY, with("v1"));
        local.until(KEY, "replaced", |s| s.phase == Phase::Running && s.generation == 2).await;
        let began = std::time::Instant::now();
        local.stop().await;
        began.elapsed()
    };
    let (answer, took) = tokio::join!(request, stop);
    assert_eq!(answer.unwrap(), "v0");
    println!("stopped after {took:?}");
    assert!(took < Duration::from_secs(13), "{took:?}: the end of the old process's connections is not seen");
}

#[tokio::test]
async fn the_executable_tells_its_version() {
    let Some(envoy) = envoy() else { return };
    let cache = tempfile::tempdir().unwrap();
    let found = EnvoyBinary::locate(Some(envoy), cache.path().into()).await.unwrap();
    println!("{found}");
    assert!(found.version.split('.').next().unwrap().parse::<u32>().unwrap() >= 1);
}

//! Supervision, shown with a shell script in place of Envoy and an admin interface in the test's hand.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on panics, and says what it measured"
)]

mod support;

use http_body_util::Full;
use hyper_util::rt::TokioIo;
use infra::local::{Phase, Proxy};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Fixture, KEY, alive, kill, options, within};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// An Envoy of shell: writes what Envoy writes, notes its arguments, dies when its bootstrap says so.
const SCRIPT: &str = r#"#!/bin/sh
echo "$*" >> DIR/calls
all="$*"
while [ $# -gt 0 ]; do
  case "$1" in
    -c) bootstrap="$2" ;;
    --admin-address-path) admin="$2" ;;
    --base-id-path) base="$2" ;;
  esac
  shift
done
case "$all" in *"--mode validate"*)
  if grep -q invalid "$bootstrap"; then echo "[x][critical][main] error initializing: no such field" >&2; exit 1; fi
  exit 0 ;;
esac
if grep -q crash "$bootstrap"; then echo "[x][critical][main] cannot bind '0.0.0.0:80'" >&2; exit 7; fi
echo "GET / 200"
if [ -n "$base" ]; then printf 4242 > "$base"; fi
if grep -q stubborn "$bootstrap"; then trap '' TERM; printf ADMIN > "$admin"; while :; do sleep 0.05; done; fi
printf ADMIN > "$admin"
exec sleep 600
"#;

/// The admin interface that every stub process names as its own.
struct Admin {
    address: String,
    calls: Arc<Mutex<Vec<String>>>,
    called: Arc<Notify>,
    connections: Arc<AtomicU64>,
    ready: Arc<AtomicBool>,
    _task: JoinSet<()>,
}

impl Admin {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let calls: Arc<Mutex<Vec<String>>> = Arc::default();
        let called = Arc::new(Notify::new());
        let connections = Arc::new(AtomicU64::new(0));
        let ready = Arc::new(AtomicBool::new(true));
        let mut task = JoinSet::new();
        let (seen, open, is_ready, tell) = (calls.clone(), connections.clone(), ready.clone(), called.clone());
        task.spawn(async move {
            let mut exchanges = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, open, is_ready, tell) = (seen.clone(), open.clone(), is_ready.clone(), tell.clone());
                let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    let path = request.uri().path().to_owned();
                    let (status, body) = match path.as_str() {
                        "/ready" if !is_ready.load(Ordering::SeqCst) => (503, String::new()),
                        "/stats" => {
                            (200, format!("listener.x.downstream_cx_active: {}\n", open.load(Ordering::SeqCst)))
                        }
                        _ => (200, String::new()),
                    };
                    if path != "/ready" {
                        seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri()));
                        tell.notify_one();
                    }
                    let response = http::Response::builder().status(status).body(Full::new(bytes::Bytes::from(body)));
                    std::future::ready(response)
                });
                exchanges.spawn(async move {
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
        Self { address, calls, called, connections, ready, _task: task }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    async fn called(&self, what: &str) {
        within(what, async {
            while !self.calls().iter().any(|c| c.contains(what)) {
                self.called.notified().await;
            }
        })
        .await;
    }
}

struct Stub {
    dir: tempfile::TempDir,
    envoy: PathBuf,
    admin: Admin,
}

impl Stub {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let admin = Admin::start().await;
        let envoy = dir.path().join("envoy");
        let script = SCRIPT.replace("DIR", &dir.path().display().to_string()).replace("ADMIN", &admin.address);
        std::fs::write(&envoy, script).unwrap();
        std::fs::set_permissions(&envoy, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir, envoy, admin }
    }

    fn fixture(&self) -> Fixture {
        Fixture::new(options(self.dir.path(), &self.envoy))
    }

    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn a_proxy_is_started_and_its_words_go_to_files_of_its_own() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    local.want(KEY, Proxy::new("one"));
    let status = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    assert_eq!(status.admin.unwrap().to_string(), format!("http://{}", stub.admin.address));
    assert!(alive(status.pid.unwrap()));
    assert_eq!(read(&status.access_log), "GET / 200\n");
    assert_eq!(read(&status.log), "");
    local.want_gone(KEY);
    local.gone(KEY).await;
    assert!(!alive(status.pid.unwrap()));
    assert!(!stub.dir.path().join("run/default_web").exists(), "files of running processes are removed");
    assert!(Path::new(&status.access_log).exists(), "logs stay");
}

#[tokio::test]
async fn a_proxy_that_dies_is_started_again_and_the_reason_is_told() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    local.want(KEY, Proxy::new("one"));
    let first = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    kill(first.pid.unwrap());
    let second = local.until(KEY, "restarted", |s| s.phase == Phase::Running && s.generation == 2).await;
    assert_ne!(second.pid, first.pid);
    assert_eq!((second.crashes, second.last_crash.as_deref()), (1, Some("killed by SIGKILL")));
}

#[tokio::test]
async fn a_proxy_that_always_dies_is_tried_again_with_growing_delays() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    let began = std::time::Instant::now();
    local.want(KEY, Proxy::new("crash"));
    let status = local.until(KEY, "five deaths", |s| s.crashes == 5 && s.phase == Phase::BackingOff).await;
    assert_eq!(status.last_crash.as_deref(), Some("exit status 7: [x][critical][main] cannot bind '0.0.0.0:80'"));
    assert_eq!((status.pid, status.admin), (None, None));
    let (slept, least) = (began.elapsed(), Duration::from_millis(20 + 40 + 80 + 160));
    assert!(slept >= least, "tried again after {slept:?} in all, {least:?} is due");
    // A change of what is wanted does not wait for the delay.
    local.want(KEY, Proxy::new("one"));
    local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
}

#[tokio::test]
async fn a_changed_bootstrap_is_taken_over_by_hot_restart() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    let mut proxy = Proxy::new("one");
    proxy.drain.timeout = Duration::from_secs(1);
    local.want(KEY, proxy.clone());
    let first = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    proxy.bootstrap = "two".into();
    local.want(KEY, proxy.clone());
    let second = local.until(KEY, "replaced", |s| s.phase == Phase::Running && s.generation == 2).await;
    assert_eq!(second.old_process, first.pid, "the old process finishes what it has");
    let calls = stub.calls();
    assert!(calls[0].contains("--use-dynamic-base-id --base-id-path"), "{calls:#?}");
    assert!(calls[1].starts_with("--mode validate --disable-hot-restart"), "{calls:#?}");
    assert!(calls[2].contains("--base-id 4242 --restart-epoch 1"), "{calls:#?}");

    // The stub does not end by itself as Envoy does: it is ended when its time is over, and only then is the next
    // change made, the latest one at that.
    for bootstrap in ["three", "four"] {
        proxy.bootstrap = bootstrap.into();
        local.want(KEY, proxy.clone());
    }
    let waiting = local.until(KEY, "the change seen", |s| s.old_process.is_some()).await;
    assert_eq!(waiting.generation, 2);
    let third = local.until(KEY, "replaced again", |s| s.phase == Phase::Running && s.generation == 3).await;
    assert!(!alive(first.pid.unwrap()));
    assert_eq!(third.old_process, second.pid);
    assert!(stub.calls().last().unwrap().contains("--base-id 4242 --restart-epoch 2"));
    local.stop().await;
    assert!(!alive(second.pid.unwrap()) && !alive(third.pid.unwrap()));
}

#[tokio::test]
async fn a_bootstrap_that_envoy_refuses_leaves_the_running_proxy_alone() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    local.want(KEY, Proxy::new("one"));
    let first = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    local.want(KEY, Proxy::new("invalid"));
    let told = local.until(KEY, "told", |s| s.problem.is_some()).await;
    let expected = "bootstrap refused by Envoy: [x][critical][main] error initializing: no such field";
    assert_eq!(told.problem.as_deref(), Some(expected));
    assert_eq!((told.pid, told.phase, told.crashes), (first.pid, Phase::Running, 0));
    // One that dies only when it runs is no better.
    local.want(KEY, Proxy::new("crash"));
    let told = local.until(KEY, "told", |s| s.problem.as_ref().is_some_and(|p| p.contains("cannot bind"))).await;
    assert_eq!((told.pid, told.crashes), (first.pid, 0));
    local.want(KEY, Proxy::new("one"));
    let back = local.until(KEY, "no problem", |s| s.problem.is_none()).await;
    assert_eq!((back.pid, back.phase), (first.pid, Phase::Running));
}

#[tokio::test]
async fn stopping_drains_first_and_ends_when_the_last_connection_does() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    local.want(KEY, Proxy::new("one"));
    let status = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    stub.admin.connections.store(2, Ordering::SeqCst);
    local.want_gone(KEY);
    stub.admin.called("/stats").await;
    let draining = local.until(KEY, "draining", |s| s.phase == Phase::Draining).await;
    assert_eq!(draining.pid, status.pid);
    assert!(alive(status.pid.unwrap()));
    let calls = stub.admin.calls();
    assert_eq!(calls[..2], ["POST /healthcheck/fail", "POST /drain_listeners?graceful&skip_exit"]);
    stub.admin.connections.store(0, Ordering::SeqCst);
    local.gone(KEY).await;
    assert!(!alive(status.pid.unwrap()));
}

#[tokio::test]
async fn stopping_is_bounded_even_for_a_process_that_does_not_listen() {
    let stub = Stub::new().await;
    let mut options = options(stub.dir.path(), &stub.envoy);
    options.kill_after = Duration::from_millis(200);
    let mut local = Fixture::new(options);
    let mut proxy = Proxy::new("stubborn");
    proxy.drain.timeout = Duration::from_secs(1);
    local.want(KEY, proxy);
    let status = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    stub.admin.connections.store(1, Ordering::SeqCst);
    let began = std::time::Instant::now();
    local.stop().await;
    assert!(!alive(status.pid.unwrap()));
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1200) && took < Duration::from_secs(4), "{took:?}");
}

#[tokio::test]
async fn a_proxy_wanted_again_while_it_drains_starts_at_once() {
    let stub = Stub::new().await;
    let mut local = stub.fixture();
    local.want(KEY, Proxy::new("one"));
    let first = local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    stub.admin.connections.store(1, Ordering::SeqCst);
    local.want_gone(KEY);
    local.until(KEY, "draining", |s| s.phase == Phase::Draining).await;
    local.want(KEY, Proxy::new("one"));
    let second = local.until(KEY, "a new one", |s| s.phase == Phase::Running).await;
    assert_ne!(second.pid, first.pid);
    assert_eq!(second.old_process, first.pid);
    assert!(alive(first.pid.unwrap()), "its connections are still served");
    stub.admin.connections.store(0, Ordering::SeqCst);
    local.stop().await;
    assert!(!alive(first.pid.unwrap()) && !alive(second.pid.unwrap()));
}

#[tokio::test]
async fn a_proxy_is_not_said_to_serve_before_it_is_ready() {
    let stub = Stub::new().await;
    stub.admin.ready.store(false, Ordering::SeqCst);
    let mut local = stub.fixture();
    local.want(KEY, Proxy::new("one"));
    local.until(KEY, "starting", |s| s.phase == Phase::Starting && s.pid.is_some()).await;
    // What never became ready is not hot-restarted: it is started anew.
    local.want(KEY, Proxy::new("two"));
    let second = local.until(KEY, "the other one", |s| s.generation == 2).await;
    assert_eq!((second.phase, second.crashes), (Phase::Starting, 0));
    stub.admin.ready.store(true, Ordering::SeqCst);
    local.until(KEY, "ready", |s| s.phase == Phase::Running).await;
    assert!(stub.calls().iter().all(|c| !c.contains("--restart-epoch")));
}

#[tokio::test]
async fn two_instances_need_two_directories() {
    let stub = Stub::new().await;
    let _first = stub.fixture();
    let refused = infra::local::new(options(stub.dir.path(), &stub.envoy)).unwrap_err().to_string();
    assert!(refused.contains("in use by process"), "{refused}");
}

/// A process killed with SIGKILL takes its proxies along.
#[tokio::test]
async fn proxies_do_not_outlive_a_killed_parent() {
    let stub = Stub::new().await;
    let bootstrap = stub.dir.path().join("bootstrap.yaml");
    std::fs::write(&bootstrap, "one").unwrap();
    let mut parent = tokio::process::Command::new(env!("CARGO_BIN_EXE_infra-launcher"))
        .arg("run")
        .args([&stub.envoy, &bootstrap])
        .arg(stub.dir.path())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let parent_pid = parent.id().unwrap();
    let child = within("the proxy to run", async {
        loop {
            if let Some(pid) = child_of(parent_pid, "sleep") {
                return pid;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    kill(parent_pid);
    parent.wait().await.unwrap();
    within("the proxy to be killed", async {
        while alive(child) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// The child of `parent` that runs `program`.
fn child_of(parent: u32, program: &str) -> Option<u32> {
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(") ") else { continue };
        let is_child = rest.split(' ').nth(1) == Some(parent.to_string().as_str());
        if is_child && name.ends_with(&format!("({program}")) {
            return Some(pid);
        }
    }
    None
}

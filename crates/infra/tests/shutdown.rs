//! The way out of a pod, against an administration interface in this process.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::{body::Bytes, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use infra::shutdown::{self, Drain, Manager};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

/// Envoy as far as a drain asks it.
struct Admin {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    open: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Admin {
    async fn start(open: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, open) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(open)));
        let (log, number) = (asked.clone(), open.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (log, number) = (log.clone(), number.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let line = format!("{} {}", request.method(), request.uri());
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                    let open = number.load(Ordering::SeqCst);
                    let body = if request.uri().path() == "/stats" {
                        format!(
                            "listener.0.0.0.0_10080.downstream_cx_active: {open}\n\
                             listener.0.0.0.0_10080.worker_0.downstream_cx_active: {open}\n\
                             listener.0.0.0.0_19003.downstream_cx_active: 2\nlistener.0.0.0.0_19001.downstream_cx_active: 1\n\
                             listener.admin.downstream_cx_active: 1\nhttp.http-10080.downstream_cx_active: {open}\n"
                        )
                    } else {
                        "OK\n".to_owned()
                    };
                    async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(body)))) }
                });
                http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
            }
        });
        Self { address, asked, open, _tasks: tasks }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn drain(admin: SocketAddr, folder: &tempfile::TempDir) -> Drain {
    Drain {
        admin,
        timeout: Duration::from_secs(20),
        least: Duration::from_millis(100),
        ready_file: folder.path().join("ready"),
        ..Drain::default()
    }
}

#[tokio::test]
async fn a_drain_ends_when_clients_have_left() {
    let (admin, folder) = (Admin::start(3).await, tempfile::tempdir().unwrap());
    let drain = drain(admin.address, &folder);
    let work = tokio::join!(shutdown::drain(&drain), async {
        while admin.asked().iter().filter(|a| a.contains("/stats")).count() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!drain.ready_file.exists(), "clients are there");
        admin.open.store(0, Ordering::SeqCst);
    });
    work.0.unwrap();
    assert!(drain.ready_file.exists());
    assert_eq!(admin.asked()[..2], ["POST /healthcheck/fail", "POST /drain_listeners?graceful&skip_exit"]);
}

#[tokio::test]
async fn a_drain_ends_when_its_time_is_over() {
    let (admin, folder) = (Admin::start(3).await, tempfile::tempdir().unwrap());
    let drain = Drain { timeout: Duration::from_millis(1500), ..drain(admin.address, &folder) };
    let from = Instant::now();
    shutdown::drain(&drain).await.unwrap();
    assert!(drain.ready_file.exists() && from.elapsed() >= drain.timeout, "{:?}", from.elapsed());
}

#[tokio::test]
async fn few_connections_can_count_as_none_and_health_checks_can_fail_later() {
    let (admin, folder) = (Admin::start(2).await, tempfile::tempdir().unwrap());
    let drain = Drain { exit_at: 2, delay: Duration::from_millis(50), ..drain(admin.address, &folder) };
    shutdown::drain(&drain).await.unwrap();
    assert_eq!(admin.asked()[..2], ["POST /drain_listeners?graceful&skip_exit", "POST /healthcheck/fail"]);
}

#[tokio::test]
async fn an_envoy_that_is_gone_holds_nothing_up() {
    let folder = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let drain = Drain { timeout: Duration::from_millis(300), ..drain(closed, &folder) };
    shutdown::drain(&drain).await.unwrap();
    assert!(drain.ready_file.exists());
}

async fn get(address: SocketAddr, path: &str) -> u16 {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(connection.await) });
    let request = Request::get(path).header("host", "x").body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    response.into_body().collect().await.unwrap();
    status
}

#[tokio::test]
async fn envoy_may_stop_once_the_drain_is_over_even_if_the_manager_is_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ready");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let manager = Manager { ready_timeout: Duration::from_secs(20), ready_file: file.clone() };
    let (stop, stopped) = oneshot::channel::<()>();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        shutdown::manager(listener, manager, async { drop(stopped.await) }).await.unwrap();
    });
    assert_eq!(get(address, "/healthz").await, 200);
    assert_eq!(get(address, "/else").await, 404);
    let mut asking = JoinSet::new();
    asking.spawn(async move { get(address, "/shutdown/ready").await });
    assert!(tokio::time::timeout(Duration::from_millis(300), asking.join_next()).await.is_err(), "not drained yet");
    stop.send(()).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), asking.join_next()).await.is_err(), "still waits");
    std::fs::write(&file, []).unwrap();
    assert_eq!(asking.join_next().await.unwrap().unwrap(), 200);
    tasks.join_next().await.unwrap().unwrap();
}

#[tokio::test]
async fn envoy_may_stop_after_the_time_in_any_case() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let manager = Manager { ready_timeout: Duration::from_millis(200), ready_file: folder.path().join("never") };
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { drop(shutdown::manager(listener, manager, std::future::pending()).await) });
    assert_eq!(get(address, "/shutdown/ready").await, 500);
}

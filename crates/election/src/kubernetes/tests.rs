//! The Kubernetes half against a small API server in memory: a tower service that keeps one Lease and the Events.

use super::{store::read, *};
use crate::{
    Clock, Elector, Identity, Leadership, LeaseStore, Moment, OnLostLease, Outcome, Policy, Record, Role, RoleWatch,
    StoreError, Term, Timings, WriteError, mutant::Planted, role::TermState,
};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    sync::Notify,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, Layer, Service};

const NAME: &str = "5b9825d2.gateway.envoyproxy.io";

/// Keeps what was sent to it.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    requests: Vec<(Method, String)>,
    events: Vec<Value>,
    /// Answers every request with this status.
    status: Option<u16>,
}

impl Server {
    fn client(&self) -> Client {
        Client::new(self.clone(), "system")
    }

    fn store(&self) -> KubernetesLease {
        KubernetesLease::with_client(self.client(), "system", NAME).unwrap()
    }

    fn lease(&self) -> Value {
        self.0.lock().unwrap().lease.clone().expect("a lease")
    }

    fn put(&self, spec: Value) {
        let mut state = self.0.lock().unwrap();
        state.version += 1;
        let metadata = json!({"name": NAME, "namespace": "system", "resourceVersion": state.version.to_string(),
            "labels": {"kept": "yes"}, "uid": "u"});
        state.lease =
            Some(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}));
    }

    fn requests(&self, method: &Method) -> Vec<String> {
        self.0.lock().unwrap().requests.iter().filter(|(m, _)| m == method).map(|(_, path)| path.clone()).collect()
    }
}

fn status(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}),
    )
}

impl State {
    fn answer(&mut self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        self.requests.push((method.clone(), path.to_owned()));
        if let Some(code) = self.status {
            return status(code, "Asked");
        }
        if path.ends_with("/events") {
            self.events.push(body.clone());
            return (201, body);
        }
        if !path.contains("/leases") {
            return (200, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}));
        }
        let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
        match (method.as_str(), &self.lease) {
            ("GET", None) => status(404, "NotFound"),
            ("GET", Some(lease)) => (200, lease.clone()),
            ("POST", Some(_)) => status(409, "AlreadyExists"),
            ("PUT", None) => status(404, "NotFound"),
            ("PUT", Some(lease)) if version(lease) != version(&body) => status(409, "Conflict"),
            _ => {
                let mut lease = body;
                self.version += 1;
                lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
                self.lease = Some(lease.clone());
                (200, lease)
            }
        }
    }
}

impl Service<Request<Body>> for Server {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            if parts.uri.query().unwrap_or_default().contains("watch=true") {
                std::future::pending::<()>().await;
            }
            let bytes = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let (code, answer) = server.0.lock().unwrap().answer(&parts.method, parts.uri.path(), body);
            let response = Response::builder().status(code).header("content-type", "application/json");
            Ok(response.body(Body::from(serde_json::to_vec(&answer)?))?)
        })
    }
}

/// What client-go's `leaderelection` writes.
fn client_go(holder: &str, transitions: i32) -> Value {
    json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "2025-06-01T10:00:00.000000Z",
        "renewTime": "2025-06-01T10:00:02.123456Z", "leaseTransitions": transitions})
}

fn elector(server: &Server) -> (Elector<KubernetesLease>, RoleWatch) {
    let identity = Identity::with_suffix("pod-a", "1").unwrap();
    let (elector, role) = Elector::new(server.store(), identity, Timings::default()).unwrap();
    (elector.with_clock(Clock::tokio()), role)
}

#[test]
fn rule_10_a_record_of_client_go_is_read_and_written_in_its_shape() {
    let lease: Lease = serde_json::from_value(json!({"metadata": {}, "spec": client_go("go_1", 7)})).unwrap();
    let record = read(&lease);
    assert_eq!(
        (record.holder.as_deref(), record.term, record.duration),
        (Some("go_1"), Term(7), Duration::from_secs(15))
    );
    assert_eq!(record.renewed.unwrap().0 - record.acquired.unwrap().0, 2_123_456);
    assert!(!record.is_placeholder());
    for free in [json!({"holderIdentity": ""}), json!({}), json!({"leaseTransitions": -3, "leaseDurationSeconds": -1})]
    {
        let lease: Lease = serde_json::from_value(json!({"metadata": {}, "spec": free})).unwrap();
        assert_eq!(read(&lease), Record::default());
    }
}

#[tokio::test(start_paused = true)]
async fn rule_10_the_lease_is_written_as_client_go_writes_it() {
    let server = Server::default();
    server.put(client_go("", 7));
    let (elector, mut role) = elector(&server);
    let stopper = elector.stopper();
    let mut tasks = JoinSet::new();
    tasks.spawn(elector.run());
    let leadership =
        timeout(Duration::from_secs(5), role.elected(None)).await.expect("a released lease is taken at once");
    assert_eq!(leadership.term(), Term(8));
    let lease = server.lease();
    let spec = lease["spec"].as_object().unwrap();
    let fields: Vec<&str> = spec.keys().map(String::as_str).collect();
    assert_eq!(fields, ["acquireTime", "holderIdentity", "leaseDurationSeconds", "leaseTransitions", "renewTime"]);
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"], &spec["leaseTransitions"]),
        (&json!("pod-a_1"), &json!(15), &json!(8))
    );
    for field in ["acquireTime", "renewTime"] {
        let time = spec[field].as_str().unwrap();
        assert!(
            time.len() == "2025-06-01T10:00:00.000000Z".len() && time.ends_with('Z'),
            "{time}: MicroTime has six digits"
        );
    }
    assert_eq!(lease["metadata"]["labels"]["kept"], "yes", "what others keep in the object stays");
    stopper.stop();
    assert_eq!(tasks.join_next().await.unwrap().unwrap(), Outcome::Released { term: Term(8) });
    let spec = &server.lease()["spec"];
    assert_eq!(
        (&spec["holderIdentity"], &spec["leaseDurationSeconds"], &spec["leaseTransitions"]),
        (&json!(""), &json!(1), &json!(8))
    );
}

#[tokio::test(start_paused = true)]
async fn rule_10_a_living_client_go_leader_is_respected() {
    let server = Server::default();
    server.put(client_go("go_1", 7));
    let (elector, role) = elector(&server);
    let mut tasks = JoinSet::new();
    tasks.spawn(elector.run());
    for second in 0..60 {
        let mut spec = client_go("go_1", 7);
        spec["renewTime"] = json!(format!("2025-06-01T10:00:{second:02}.000000Z"));
        server.put(spec);
        sleep(Duration::from_secs(2)).await;
        assert!(!matches!(role.current(), Role::Leader(_)));
    }
    assert!(matches!(role.current(), Role::Follower { leader: Some(l) } if &*l == "go_1"));
    assert!(server.requests(&Method::PUT).is_empty());
}

#[test]
fn rule_10_a_missing_namespace_or_name_is_an_error() {
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    assert_eq!(KubernetesLease::new(config.clone(), "", NAME).unwrap_err(), MissingLeaseName("namespace"));
    assert_eq!(KubernetesLease::new(config.clone(), "system", " ").unwrap_err(), MissingLeaseName("name"));
    assert_eq!(format!("{:?}", KubernetesLease::new(config, "system", NAME).unwrap()), format!("Lease system/{NAME}"));
}

#[tokio::test(start_paused = true)]
async fn rule_11_each_transition_makes_one_event() {
    let server = Server::default();
    server.put(client_go("", 2));
    let (elector, mut role) = elector(&server);
    let mut tasks = JoinSet::new();
    tasks.spawn(elector.with_policy(Policy { on_lost_lease: OnLostLease::Exit, max_recovery: None }).run());
    role.elected(None).await;
    // The API server is away while the first Event is due; it arrives all the same.
    server.0.lock().unwrap().status = Some(503);
    sleep(Duration::from_secs(7)).await;
    server.0.lock().unwrap().status = None;
    sleep(Duration::from_secs(10)).await;
    server.put(client_go("go_1", 9));
    assert_eq!(tasks.join_next().await.unwrap().unwrap().exit_code(), 3);
    let events = server.0.lock().unwrap().events.clone();
    let messages: Vec<&str> = events.iter().map(|e| e["message"].as_str().unwrap()).collect();
    assert_eq!(
        messages,
        [
            "pod-a_1 became leader (term 3): the lease was free",
            "pod-a_1 stopped leading (term 3): the lease is held by go_1"
        ]
    );
    for event in &events {
        assert_eq!((&event["reason"], &event["type"]), (&json!("LeaderElection"), &json!("Normal")));
        assert_eq!(
            (&event["involvedObject"]["kind"], &event["involvedObject"]["name"]),
            (&json!("Lease"), &json!(NAME))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn statuses_mean_what_they_say() {
    let server = Server::default();
    let store = server.store();
    assert_eq!(store.load().await.unwrap(), None);
    let created = store.store(Record { holder: Some("a".into()), ..Record::default() }, None).await.unwrap();
    assert_eq!(store.store(Record::default(), None).await, Err(StoreError::Conflict), "already there");
    server.put(client_go("b", 1));
    assert_eq!(store.store(Record::default(), Some(created.clone())).await, Err(StoreError::Conflict), "changed");
    server.0.lock().unwrap().lease = None;
    assert_eq!(store.store(Record::default(), Some(created)).await, Err(StoreError::Conflict), "deleted");
    for (code, refused) in
        [(401, true), (403, true), (422, true), (429, false), (500, false), (503, false), (504, false)]
    {
        server.0.lock().unwrap().status = Some(code);
        let error = store.load().await.unwrap_err();
        assert_eq!(matches!(error, StoreError::Refused(_)), refused, "{code}: {error}");
        assert!(error.to_string().contains(&code.to_string()));
    }
    server.0.lock().unwrap().status = Some(404);
    let error = store.store(Record::default(), None).await.unwrap_err();
    assert!(matches!(&error, StoreError::Refused(why) if why.contains("namespace system")), "{error}");
}

// === the client layers ===

/// A leadership of 10 s without an elector.
fn leadership() -> (Arc<TermState>, Leadership) {
    let clock = Clock::tokio();
    let end = clock.now().plus(Duration::from_secs(10));
    let state = TermState::new(Term(4), end, clock, Planted::default());
    (state.clone(), Leadership::new(state))
}

fn write_request(path: &str) -> Request<Vec<u8>> {
    Request::builder().method("PATCH").uri(path).body(Vec::new()).unwrap()
}

async fn send(client: &Client, path: &str) -> Result<Value, kube::Error> {
    client.request::<Value>(write_request(path)).await
}

fn refusal(error: &kube::Error) -> Refusal {
    let kube::Error::Service(error) = error else { panic!("not refused: {error}") };
    error.downcast_ref::<WriteRefused>().unwrap_or_else(|| panic!("not refused: {error}")).why
}

const OBJECT: &str = "/api/v1/namespaces/a/configmaps/b";

#[tokio::test(start_paused = true)]
async fn rule_03_no_write_leaves_without_a_permit() {
    let (server, layer) = (Server::default(), PermitLayer::new(Duration::from_secs(3)));
    let client = Client::new(layer.layer(server.clone()), "system");
    let (state, leadership) = leadership();
    assert_eq!(refusal(&send(&client, OBJECT).await.unwrap_err()), Refusal::NoPermit);
    for method in ["POST", "PUT", "DELETE"] {
        let request = Request::builder().method(method).uri(OBJECT).body(Vec::new()).unwrap();
        assert_eq!(refusal(&client.request::<Value>(request).await.unwrap_err()), Refusal::NoPermit);
    }
    let read = Request::builder().uri(OBJECT).body(Vec::new()).unwrap();
    client.request::<Value>(read).await.expect("reading needs no permit");
    for path in ["/apis/coordination.k8s.io/v1/namespaces/a/leases/b", "/apis/authentication.k8s.io/v1/tokenreviews"] {
        let _ = send(&client, path).await;
    }
    assert_eq!(layer.counts(), Counts { permitted: 0, refused: 4, exempt: 2 });

    leadership.permit().unwrap().run(send(&client, OBJECT)).await.expect("within a permit it leaves");
    // A task of its own does not inherit the permit.
    let spawned = leadership.permit().unwrap().run(async {
        let (client, mut tasks) = (client.clone(), JoinSet::new());
        tasks.spawn(async move { send(&client, OBJECT).await });
        tasks.join_next().await.unwrap().unwrap()
    });
    let Err(WriteError::Write(error)) = spawned.await else { panic!("not refused") };
    assert_eq!(refusal(&error), Refusal::NoPermit);
    assert_eq!(layer.counts(), Counts { permitted: 1, refused: 5, exempt: 2 });
    assert_eq!((state.ledger.in_flight(), state.ledger.unanswered()), (0, 0));
    let sent = server.0.lock().unwrap().requests.iter().filter(|(m, p)| m == Method::PATCH && p == OBJECT).count();
    assert_eq!(sent, 1);

    let (server, layer) = (Server::default(), ReadOnlyLayer::new());
    let client = Client::new(layer.layer(server.clone()), "system");
    let done = leadership.permit().unwrap().run(send(&client, OBJECT)).await;
    let Err(WriteError::Write(error)) = done else { panic!("not refused") };
    assert_eq!(refusal(&error), Refusal::ReadOnly, "not even within a permit");
    assert!(server.requests(&Method::PATCH).is_empty());
}

type Wait = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A service that is ready only when told so, and ends a leadership just before.
#[derive(Clone)]
struct Waiting {
    server: Server,
    ends: Option<Arc<TermState>>,
    gate: Arc<Notify>,
    waiting: Arc<Mutex<Option<Wait>>>,
}

impl Service<Request<Body>> for Waiting {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = <Server as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        let gate = self.gate.clone();
        let mut waiting = self.waiting.lock().unwrap();
        let wait = waiting.get_or_insert_with(|| Box::pin(async move { gate.notified().await }));
        if wait.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        *waiting = None;
        if let Some(state) = &self.ends {
            state.end_now();
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.server.call(request)
    }
}

#[tokio::test(start_paused = true)]
async fn rule_03_a_write_that_waited_until_the_leadership_was_over_does_not_leave() {
    // The leadership ends between the wait and the departure: the layer sees it.
    let (state, leadership) = leadership();
    let waiting =
        Waiting { server: Server::default(), ends: Some(state), gate: Arc::default(), waiting: Arc::default() };
    let layer = PermitLayer::new(Duration::from_secs(30));
    let client = Client::new(layer.layer(waiting.clone()), "system");
    waiting.gate.notify_one();
    let done = leadership.permit().unwrap().run(send(&client, OBJECT)).await;
    let Err(WriteError::Write(error)) = done else { panic!("{done:?}") };
    assert_eq!(refusal(&error), Refusal::Over(Term(4)));
    assert!(waiting.server.0.lock().unwrap().requests.is_empty());
    assert_eq!(layer.counts().permitted, 0);

    // The leadership ends during the wait: it is not waited for any longer.
    let (_, leadership) = self::leadership();
    let waiting = Waiting { ends: None, ..waiting };
    let client = Client::new(layer.layer(waiting.clone()), "system");
    let begun = Instant::now();
    let done = leadership.permit().unwrap().run(send(&client, OBJECT)).await;
    assert!(matches!(done, Err(WriteError::Overrun)));
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    waiting.gate.notify_one();
    sleep(Duration::from_secs(60)).await;
    assert!(waiting.server.0.lock().unwrap().requests.is_empty());
}

#[tokio::test(start_paused = true)]
async fn rule_09_the_layer_knows_which_writes_were_answered() {
    let (server, layer) = (Server::default(), PermitLayer::new(Duration::from_secs(3)));
    let client = Client::new(layer.layer(server.clone()), "system");
    for (code, unanswered) in [(200, 0), (409, 0), (422, 0), (500, 1), (504, 1)] {
        let (state, leadership) = leadership();
        server.0.lock().unwrap().status = (code != 200).then_some(code);
        let _ = leadership.permit().unwrap().run(send(&client, OBJECT)).await;
        assert_eq!(state.ledger.unanswered(), unanswered, "{code}");
        assert_eq!(state.ledger.in_flight(), 0);
    }
    // A time-out is no answer.
    let (state, leadership) = leadership();
    let hung = Client::new(
        layer.layer(tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>())),
        "system",
    );
    let begun = Instant::now();
    let done = leadership.permit().unwrap().run(send(&hung, OBJECT)).await;
    let Err(WriteError::Write(error)) = done else { panic!("not timed out") };
    assert_eq!(refusal(&error), Refusal::TimedOut(Duration::from_secs(3)));
    assert_eq!((begun.elapsed(), state.ledger.unanswered()), (Duration::from_secs(3), 1));
    assert!(state.ledger.last_given_up() > Some(Moment::default()));
}

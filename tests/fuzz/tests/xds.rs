//! Requests that no proxy would send, to a real xDS server: it goes on serving those who ask properly.
//!
//! `FUZZ_REQUESTS` messages (20,000) from seed `FUZZ_SEED` (1), over streams of both protocol variants: random fields,
//! nonces that were sent and nonces that were not, damaged messages, damaged framing, cuts; the cache changes meanwhile.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use envoy_types::pb::{
    envoy::{
        config::core::v3::Node,
        service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse},
    },
    google::rpc::Status,
};
use futures::channel::mpsc;
use http_body_util::{BodyExt, StreamBody};
use hyper::{body::Frame, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::{sleep, timeout},
};
use xds::{Cache, Hints, NodeGroup, Resource, Server, TypeUrl};

type Body = StreamBody<mpsc::UnboundedReceiver<Result<Frame<Bytes>, std::convert::Infallible>>>;

const BOUND: Duration = Duration::from_secs(30);
const NAMES: &[&str] = &["a", "b", "c", "*", "", "default/web", "ü", "xdstp://x/y?z", "\u{0}"];
const GROUPS: &[&str] = &["known", "other", "", "nobody", "known/", "ü"];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

fn state(round: u64) -> BTreeMap<(TypeUrl, xds::Name), Option<Resource>> {
    let names = ["a", "b", "c", "default/web"];
    let all = TypeUrl::ALL.into_iter().flat_map(|t| names.iter().map(move |n| (t, *n)));
    all.map(|(t, n)| {
        let gone = n == "c" && round % 3 == 1;
        let body = if n == "a" { format!("{t} {n} {round}") } else { format!("{t} {n}") };
        ((t, n.into()), (!gone).then(|| Resource::new(body.into_bytes(), Hints::Unknown)))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_ends_the_server() -> Result<()> {
    let (wanted, seed) = (setting("FUZZ_REQUESTS", 20_000), setting("FUZZ_SEED", 1));
    static PANICS: AtomicU64 = AtomicU64::new(0);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        before(info);
    }));
    let cache = Cache::new();
    cache.update(NodeGroup::from("known"), state(0));
    let (server, mut facts) = Server::new(cache.clone(), xds::Config::default());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let (connections, metrics) = (server.connections(), server.metrics());
    let (stop, stopped) = oneshot::channel::<()>();
    let mut tasks = JoinSet::new();
    tasks.spawn(server.serve(listener, None, async move { drop(stopped.await) }));
    // Somebody listens to what proxies tell, or nothing would be told.
    tasks.spawn(async move { while facts.recv().await.is_some() {} });

    let begin = Instant::now();
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut sent, mut answers, mut round) = (0, 0, 0);
    while sent < wanted {
        round += 1;
        let mut sender = connect(address).await?;
        let mut streams = JoinSet::new();
        for _ in 0..rng.random_range(1..12) {
            let stream = open(&mut sender, StdRng::seed_from_u64(rng.random()));
            streams.spawn(timeout(BOUND, stream));
        }
        cache.update(NodeGroup::from("known"), state(round));
        if rng.random_ratio(1, 10) {
            cache.remove(&NodeGroup::from("known"));
            cache.update(NodeGroup::from("known"), state(round + 1));
        }
        while let Some(done) = streams.join_next().await {
            let (requests, responses) = done?.context("a stream takes too long")?;
            sent += requests;
            answers += responses;
        }
    }
    // Who asks properly is answered, with everything.
    cache.update(NodeGroup::from("known"), state(0));
    let clusters = timeout(BOUND, ask(address)).await.context("no answer to a proper request")??;
    assert_eq!(clusters, ["a", "b", "c", "default/web"]);
    let from = Instant::now();
    while !connections.is_empty() {
        ensure!(from.elapsed() < BOUND, "{} streams are left", connections.len());
        sleep(Duration::from_millis(10)).await;
    }
    drop(stop);
    while timeout(BOUND, tasks.join_next()).await.context("the server does not end")?.is_some() {}
    let panics = PANICS.load(Ordering::Relaxed);
    println!("{answers} answers; the server counted {} requests; {:?}", metrics.snapshot().requests, begin.elapsed());
    println!("fuzz: {sent} xDS requests, {panics} panics");
    assert_eq!(panics, 0);
    assert!(answers > sent / 50, "most requests were not even looked at: {answers} answers");
    Ok(())
}

async fn connect(address: std::net::SocketAddr) -> Result<SendRequest<Body>> {
    let stream = TcpStream::connect(address).await?;
    let (sender, driver) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    #[expect(clippy::disallowed_methods, reason = "ends with its connection")]
    tokio::spawn(async move { drop(driver.await) });
    Ok(sender)
}

fn request(delta: bool, body: Body) -> http::Request<Body> {
    let method = if delta { "DeltaAggregatedResources" } else { "StreamAggregatedResources" };
    http::Request::post(format!("http://xds/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .expect("invariant: a request")
}

fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(message.len() + 5);
    out.put_u8(0);
    out.put_u32(u32::try_from(message.len()).expect("invariant: messages are small"));
    out.put_slice(message);
    out.freeze()
}

/// One stream: how many requests went out, and how many answers came back.
fn open(sender: &mut SendRequest<Body>, mut rng: StdRng) -> impl Future<Output = (u64, u64)> + Send + 'static {
    let delta = rng.random();
    let (frames, body) = mpsc::unbounded();
    let response = sender.send_request(request(delta, StreamBody::new(body)));
    async move {
        let nonces = Arc::new(Mutex::new(Vec::new()));
        let mut reader = JoinSet::new();
        reader.spawn(read(response, delta, nonces.clone()));
        let count = rng.random_range(1..20);
        let mut requests = 0;
        for _ in 0..count {
            let known = nonces.lock().expect("no reader panicked").clone();
            let message = damaged(framed(&message(delta, &known, &mut rng)), &mut rng);
            requests += 1;
            if frames.unbounded_send(Ok(Frame::data(message))).is_err() {
                break;
            }
            match rng.random_range(0..4) {
                0 => sleep(Duration::from_millis(rng.random_range(0..4))).await,
                _ => tokio::task::yield_now().await,
            }
        }
        sleep(Duration::from_millis(2)).await;
        if rng.random() {
            // Cut off; otherwise said to be over, which the server answers by the end of the stream.
            reader.abort_all();
        }
        drop(frames);
        drop(reader.join_next().await);
        let answers = nonces.lock().expect("no reader panicked").len();
        (requests, answers as u64)
    }
}

/// Reads answers and notes their nonces.
async fn read(
    response: impl Future<Output = hyper::Result<http::Response<hyper::body::Incoming>>>,
    delta: bool,
    nonces: Arc<Mutex<Vec<String>>>,
) {
    let Ok(response) = response.await else { return };
    let mut body = response.into_body();
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d));
        while let Some(message) = unframed(&mut buffer) {
            let nonce = if delta {
                DeltaDiscoveryResponse::decode(message).expect("an answer can be read").nonce
            } else {
                DiscoveryResponse::decode(message).expect("an answer can be read").nonce
            };
            nonces.lock().expect("nobody panicked").push(nonce);
        }
    }
}

fn unframed(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = usize::try_from(u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?)).ok()?;
    if buffer.len() < length + 5 {
        return None;
    }
    buffer.advance(5);
    Some(buffer.split_to(length).freeze())
}

fn pick(list: &[&str], rng: &mut StdRng) -> String {
    match rng.random_range(0..30) {
        0 => (0..rng.random_range(0..20)).map(|_| rng.random::<char>()).collect(),
        1 => "x".repeat(rng.random_range(0..5_000)),
        _ => list.choose(rng).copied().unwrap_or_default().to_owned(),
    }
}

fn several(rng: &mut StdRng) -> Vec<String> {
    (0..rng.random_range(0..4)).map(|_| pick(NAMES, rng)).collect()
}

fn message(delta: bool, nonces: &[String], rng: &mut StdRng) -> Vec<u8> {
    let urls: Vec<&str> = TypeUrl::ALL.iter().map(|t| t.as_str()).collect();
    let type_url = if rng.random_ratio(1, 12) { pick(&["", "type.googleapis.com/x"], rng) } else { pick(&urls, rng) };
    let node = rng.random_ratio(2, 3).then(|| Node {
        id: pick(NAMES, rng),
        cluster: if rng.random_ratio(3, 4) { "known".to_owned() } else { pick(GROUPS, rng) },
        ..Node::default()
    });
    let nonce = match rng.random_range(0..4) {
        0 => String::new(),
        1 => pick(&["1", "0", "-1", "99999999999999999999", "x"], rng),
        _ => nonces.choose(rng).cloned().unwrap_or_default(),
    };
    let error =
        rng.random_ratio(1, 5).then(|| Status { code: rng.random(), message: pick(NAMES, rng), details: vec![] });
    if delta {
        let initial = several(rng).into_iter().map(|n| (n, pick(&["", "1", "x"], rng))).collect();
        DeltaDiscoveryRequest {
            node,
            type_url,
            resource_names_subscribe: several(rng),
            resource_names_unsubscribe: several(rng),
            initial_resource_versions: initial,
            response_nonce: nonce,
            error_detail: error,
            ..DeltaDiscoveryRequest::default()
        }
        .encode_to_vec()
    } else {
        DiscoveryRequest {
            version_info: pick(&["", "1", "x"], rng),
            node,
            type_url,
            resource_names: several(rng),
            response_nonce: nonce,
            error_detail: error,
            ..DiscoveryRequest::default()
        }
        .encode_to_vec()
    }
}

/// One message in eight is damaged, its frame included.
fn damaged(message: Bytes, rng: &mut StdRng) -> Bytes {
    if !rng.random_ratio(1, 8) {
        return message;
    }
    let mut bytes = message.to_vec();
    for _ in 0..rng.random_range(1..5) {
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..4) {
            0 => bytes[at] = rng.random(),
            1 => bytes.insert(at, rng.random()),
            2 => bytes.truncate(at.max(1)),
            _ => bytes[at] ^= 1 << rng.random_range(0..8),
        }
    }
    bytes.into()
}

/// All clusters of the group, as a proxy asks for them.
async fn ask(address: std::net::SocketAddr) -> Result<Vec<String>> {
    let mut sender = connect(address).await?;
    let (frames, body) = mpsc::unbounded();
    let first = DeltaDiscoveryRequest {
        node: Some(Node { id: "proper".to_owned(), cluster: "known".to_owned(), ..Node::default() }),
        type_url: TypeUrl::Cluster.as_str().to_owned(),
        ..DeltaDiscoveryRequest::default()
    };
    frames.unbounded_send(Ok(Frame::data(framed(&first.encode_to_vec()))))?;
    let response = sender.send_request(request(true, StreamBody::new(body))).await?;
    let mut body = response.into_body();
    let (mut buffer, mut names) = (BytesMut::new(), Vec::new());
    while names.len() < 4 {
        let frame = body.frame().await.context("the stream ended")??;
        buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |d| d));
        while let Some(message) = unframed(&mut buffer) {
            names.extend(DeltaDiscoveryResponse::decode(message)?.resources.into_iter().map(|r| r.name));
        }
    }
    names.sort();
    Ok(names)
}

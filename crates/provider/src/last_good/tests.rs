use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use proptest::prelude::*;
use resources::{Change, Kind, Object, ObjectKey};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, advance, sleep, timeout},
};

use super::{content, seal, *};

const AFTER: Duration = Duration::from_secs(5);

fn object(value: Value) -> (ObjectKey, Object) {
    Object::from_value(value).unwrap()
}

fn secret_object(name: &str, value: &str) -> (ObjectKey, Object) {
    object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "ns", "uid": "u"},
        "type": "kubernetes.io/tls", "data": {"tls.key": value}}))
}

fn samples() -> BTreeMap<ObjectKey, Object> {
    let meta = json!({"name": "x", "namespace": "ns", "uid": "7", "generation": 3,
        "creationTimestamp": "2026-01-02T03:04:05Z", "labels": {"a": "b"}});
    [
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "gc"}, "spec": {"controllerName": "c/d"}}),
        json!({"apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": meta,
            "spec": {"gatewayClassName": "gc", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}}),
        json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "HTTPRoute", "metadata": meta,
            "spec": {"hostnames": ["a.example.test"], "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [{"name": "web", "port": 80, "weight": 3}], "timeouts": {"request": "10s"}}]}}),
        json!({"apiVersion": "gateway.networking.k8s.io/v1alpha2", "kind": "TLSRoute", "metadata": meta,
            "spec": {"hostnames": ["a.example.test"], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}}),
        json!({"apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "BackendTrafficPolicy", "metadata": meta,
            "spec": {"targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "x"}],
                "retry": {"numRetries": 3}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": meta,
            "spec": {"ports": [{"port": 80, "targetPort": "http"}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": meta, "addressType": "IPv4",
            "ports": [{"port": 3000}], "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"k": "v"}, "binaryData": {"b": "AQID"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "labels": {"team": "a"}}}),
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}}),
    ]
    .into_iter()
    .map(object)
    .chain([secret_object("cert", "c2VjcmV0LWtleQ==")])
    .collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A source that tells what the test tells it to.
struct Told(mpsc::Receiver<Vec<Change>>);

impl Source for Told {
    async fn run(mut self, out: mpsc::Sender<Vec<Change>>) {
        while let Some(batch) = self.0.recv().await {
            if out.send(batch).await.is_err() {
                return;
            }
        }
    }
}

/// A control plane's worth of parts around a folder.
struct Stage {
    tell: mpsc::Sender<Vec<Change>>,
    engine: mpsc::Receiver<Vec<Change>>,
    state: LastGood,
    signs: Arc<AtomicU64>,
    secret: watch::Sender<Vec<u8>>,
    stop: oneshot::Sender<()>,
    tasks: JoinSet<()>,
}

impl Stage {
    fn new(folder: &Path) -> Self {
        let (tell, told) = mpsc::channel(8);
        let (out, engine) = mpsc::channel(8);
        let (signs, secret) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(b"the key".to_vec()));
        let (seen, current) = (signs.clone(), secret.subscribe());
        let options = Options {
            folder: folder.to_owned(),
            after: AFTER,
            controller: "example.test/controller".into(),
            secret: Arc::new(move || current.borrow().clone()),
            clock: || at(1_700_000_000),
        };
        let (source, saver, state) = remember_any(Told(told), move || seen.load(Ordering::Relaxed), options);
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(source.run(out));
        tasks.spawn(saver.run(async move { drop(stopped.await) }));
        Self { tell, engine, state, signs, secret, stop, tasks }
    }

    async fn tell(&self, objects: impl IntoIterator<Item = (ObjectKey, Object)>, more: &[Change]) {
        let upserts = objects.into_iter().map(|(k, o)| Change::Upsert(k, o));
        self.tell.send(upserts.chain(more.iter().cloned()).collect()).await.unwrap();
    }

    async fn batch(&mut self) -> Vec<Change> {
        timeout(Duration::from_secs(600), self.engine.recv()).await.expect("a batch").expect("it runs")
    }

    /// Stops the saver, which saves what is due, and ends the source.
    async fn end(self) {
        let Self { tell, stop, mut tasks, .. } = self;
        stop.send(()).unwrap();
        drop(tell);
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    }

    async fn until_saved(&self, times: u64) {
        let limit = Instant::now() + Duration::from_secs(600);
        while self.state.figures().saves < times {
            assert!(Instant::now() < limit, "{:?}", self.state.figures());
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn saved(folder: &Path) -> Option<Saved> {
        load(folder, "example.test/controller", b"the key").unwrap()
    }
}

fn words(batch: &[Change]) -> Vec<String> {
    let word = |c: &Change| match c {
        Change::Upsert(k, _) => format!("+{k}"),
        Change::Remove(k) => format!("-{k}"),
        Change::Synced => "synced".to_owned(),
        other => format!("{other:?}"),
    };
    batch.iter().map(word).collect()
}

async fn saved_folder(objects: &BTreeMap<ObjectKey, Object>) -> TempDir {
    let folder = TempDir::new().unwrap();
    let stage = Stage::new(folder.path());
    stage.tell(objects.clone(), &[Change::Synced]).await;
    stage.until_saved(1).await;
    stage.end().await;
    folder
}

#[tokio::test(start_paused = true)]
async fn what_is_saved_comes_back_and_the_file_tells_nothing() {
    let folder = saved_folder(&samples()).await;
    let saved = Stage::saved(folder.path()).expect("it was saved");
    assert_eq!(saved, Saved { at: at(1_700_000_000), objects: samples() });
    let path = folder.path().join(FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&path).unwrap();
    for word in ["HTTPRoute", "example.test", "c2VjcmV0LWtleQ", "tls.key"] {
        assert!(!bytes.windows(word.len()).any(|w| w == word.as_bytes()), "{word}");
    }
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the file and the lock: {names:?}");
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    let objects: BTreeMap<_, _> = [secret_object("cert", "c2VjcmV0LWtleQ==")].into();
    let file = seal::seal(b"k", content::encode("c", at(1), &objects).unwrap()).unwrap();
    let read = |file: &[u8]| seal::open(b"k", file).and_then(|c| content::decode("c", &c));
    assert_eq!(read(&file).unwrap().objects, objects);
    for length in 0..file.len() {
        let error = read(&file[..length]).unwrap_err();
        assert!(matches!(error, Refused::Foreign | Refused::Torn { .. }), "{length}: {error}");
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(matches!(read(&longer), Err(Refused::Torn { .. })));
    for bit in 0..file.len() * 8 {
        let mut flipped = file.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(read(&flipped).is_err(), "bit {bit}");
    }
}

/// Makes the digest fit again: what is left to notice a change is the seal.
fn with_digest(mut file: Vec<u8>) -> Vec<u8> {
    let mut all = file[..20].to_vec();
    all.extend_from_slice(&file[52..]);
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &all);
    file[20..52].copy_from_slice(digest.as_ref());
    file
}

proptest! {
    #[test]
    fn whatever_is_done_to_a_file_it_is_whole_or_refused(
        content in proptest::collection::vec(any::<u8>(), 0..300),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
        mend in any::<bool>(),
    ) {
        let file = seal::seal(b"k", content.clone()).unwrap();
        let mut other = file.clone();
        for (index, byte) in edits {
            let i = index.index(other.len());
            other[i] = byte;
        }
        if let Some(cut) = cut {
            other.truncate(cut.index(file.len()) + 1);
        }
        if mend && other.len() >= 52 {
            other = with_digest(other);
        }
        match seal::open(b"k", &other) {
            Ok(read) => {
                prop_assert_eq!(read, content);
                prop_assert_eq!(other, file);
            }
            Err(_) => prop_assert_ne!(other, file),
        }
    }
}

#[test]
fn each_reason_is_named() {
    let file = seal::seal(b"k", content::encode("c", at(1), &BTreeMap::new()).unwrap()).unwrap();
    let read = |file: &[u8], key: &[u8]| seal::open(key, file).unwrap_err().to_string();
    assert_eq!(read(b"apiVersion: v1", b"k"), "it is no saved state");
    let mut version = file.clone();
    version[11] = 9;
    assert_eq!(read(&version, b"k"), "it has version 9, and this release reads version 1");
    assert!(read(&file[..60], b"k").starts_with("it is torn: "));
    let mut flipped = file.clone();
    *flipped.last_mut().unwrap() ^= 1;
    assert_eq!(read(&flipped, b"k"), "it is corrupt: its SHA-256 is another one");
    assert!(read(&file, b"other").contains("sealed with another key"));
    assert!(read(&with_digest(flipped), b"k").contains("sealed with another key"));
    assert!(read(&file, b"").contains("no key"));
    let content = seal::open(b"k", &file).unwrap();
    assert!(content::decode("d", &content).unwrap_err().to_string().contains("saved by controller c"));
    let unknown = json!({"program": "9", "controller": "c", "saved": at(1),
        "objects": [{"apiVersion": "x/v9", "kind": "New", "metadata": {"name": "n"}}]});
    assert!(content::decode("c", unknown.to_string().as_bytes()).unwrap_err().to_string().contains("kind New"));
    assert!(seal::seal(b"", Vec::new()).is_err());
    assert!(load(Path::new("no/such/folder"), "c", b"k").unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn without_the_source_the_saved_state_is_told_and_the_live_one_replaces_it_at_once() {
    let folder = saved_folder(&samples()).await;
    let mut stage = Stage::new(folder.path());
    let from = Instant::now();
    let batch = stage.batch().await;
    assert!(from.elapsed() >= AFTER && from.elapsed() < AFTER * 2, "{:?}", from.elapsed());
    assert!(matches!(batch.last(), Some(Change::Synced)));
    let told: BTreeMap<_, _> =
        batch.into_iter().filter_map(|c| if let Change::Upsert(k, o) = c { Some((k, o)) } else { None }).collect();
    assert_eq!(told, samples());
    assert_eq!(stage.state.origin(), Origin::Stale { since: at(1_700_000_000) });
    assert_eq!(stage.state.stale_batches(), 1);
    // A saved state is not saved again.
    advance(Duration::from_secs(120)).await;
    assert_eq!(stage.state.figures().saves, 0);
    // The source is back with one object less, one more and one changed.
    let mut live = samples();
    live.remove(&ObjectKey::new(Kind::Service, "ns", "x"));
    live.extend([secret_object("new", "AQ=="), secret_object("cert", "Ag==")]);
    stage.tell(live.clone(), &[Change::Synced]).await;
    let batch = stage.batch().await;
    assert_eq!(words(&batch)[0], "-Service ns/x");
    assert_eq!(words(&batch)[1..].iter().filter(|w| w.starts_with('-')).count(), 0);
    assert!(matches!(batch.last(), Some(Change::Synced)));
    assert_eq!(stage.state.origin(), Origin::Live);
    stage.until_saved(1).await;
    assert_eq!(Stage::saved(folder.path()).unwrap().objects, live);
    // From then on batches pass as they are.
    stage.tell([secret_object("later", "AQ==")], &[]).await;
    assert_eq!(words(&stage.batch().await), ["+Secret ns/later"]);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_in_time_is_all_that_is_told() {
    let folder = saved_folder(&samples()).await;
    let mut stage = Stage::new(folder.path());
    sleep(AFTER - Duration::from_secs(1)).await;
    stage.tell([secret_object("cert", "AQ==")], &[Change::Synced]).await;
    assert_eq!(words(&stage.batch().await), ["+Secret ns/cert", "synced"]);
    assert_eq!((stage.state.origin(), stage.state.stale_batches()), (Origin::Live, 0));
    sleep(LONGEST * 2).await;
    assert!(stage.engine.try_recv().is_err(), "nothing stale comes after it");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_source_is_waited_for_but_not_for_ever() {
    let folder = saved_folder(&samples()).await;
    let mut stage = Stage::new(folder.path());
    let signs = stage.signs.clone();
    stage.tasks.spawn(async move {
        for _ in 0..100 {
            sleep(Duration::from_secs(2)).await;
            signs.fetch_add(1, Ordering::Relaxed);
        }
    });
    let from = Instant::now();
    sleep(AFTER * 4).await;
    assert!(stage.engine.try_recv().is_err(), "it lives");
    stage.batch().await;
    assert!(from.elapsed() >= LONGEST && from.elapsed() < LONGEST + AFTER, "{:?}", from.elapsed());
    assert!(matches!(stage.state.origin(), Origin::Stale { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_refused_file_is_said_and_nothing_of_it_told() {
    let folder = saved_folder(&samples()).await;
    let path = folder.path().join(FILE);
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() / 2);
    fs::write(&path, bytes).unwrap();
    let mut stage = Stage::new(folder.path());
    sleep(LONGEST * 2).await;
    assert!(stage.engine.try_recv().is_err());
    assert_eq!((stage.state.origin(), stage.state.stale_batches()), (Origin::Nothing, 0));
    assert!(stage.state.figures().refused.unwrap().contains("torn"));
    stage.tell([secret_object("cert", "AQ==")], &[Change::Synced]).await;
    assert_eq!(words(&stage.batch().await), ["+Secret ns/cert", "synced"]);
    stage.until_saved(1).await;
    assert_eq!(Stage::saved(folder.path()).unwrap().objects.len(), 1, "it is replaced");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_or_saved_before_the_source_is_complete() {
    let folder = TempDir::new().unwrap();
    let mut stage = Stage::new(folder.path());
    stage.tell([secret_object("a", "AQ==")], &[]).await;
    sleep(Duration::from_secs(1)).await;
    assert!(stage.engine.try_recv().is_err());
    stage.tell([secret_object("b", "AQ==")], &[Change::Synced]).await;
    assert_eq!(words(&stage.batch().await), ["+Secret ns/a", "+Secret ns/b", "synced"]);
    stage.end().await;
    assert_eq!(Stage::saved(folder.path()).unwrap().objects.len(), 2, "the last save is at the end");
}

#[tokio::test(start_paused = true)]
async fn saves_are_few_and_the_last_change_is_not_lost() {
    let folder = TempDir::new().unwrap();
    let mut stage = Stage::new(folder.path());
    stage.tell([], &[Change::Synced]).await;
    stage.batch().await;
    let from = Instant::now();
    for i in 0..600 {
        stage.tell([secret_object("cert", &format!("{i:04}"))], &[]).await;
        stage.batch().await;
        sleep(Duration::from_millis(50)).await;
    }
    let saves = stage.state.figures().saves;
    let most = from.elapsed().as_secs() / INTERVAL.as_secs() + 1;
    assert!((2..=most).contains(&saves), "{saves} saves in {:?}", from.elapsed());
    stage.tell([], &[Change::Remove(ObjectKey::new(Kind::Secret, "ns", "cert"))]).await;
    stage.batch().await;
    stage.until_saved(saves + 1).await;
    assert!(Stage::saved(folder.path()).unwrap().objects.is_empty());
    // Nothing changes: nothing is written.
    let saves = stage.state.figures().saves;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(stage.state.figures().saves, saves);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewed_key_seals_the_state_again() {
    let folder = TempDir::new().unwrap();
    let stage = Stage::new(folder.path());
    stage.tell(samples(), &[Change::Synced]).await;
    stage.until_saved(1).await;
    stage.secret.send_replace(b"renewed".to_vec());
    sleep(RETRY + INTERVAL * 2).await;
    let saved = load(folder.path(), "example.test/controller", b"renewed").unwrap();
    assert_eq!(saved.unwrap().objects, samples());
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_folder_that_cannot_be_written_is_tried_again() {
    let scratch = TempDir::new().unwrap();
    let folder = scratch.path().join("state");
    fs::write(&folder, "in the way").unwrap();
    let stage = Stage::new(&folder);
    stage.tell(samples(), &[Change::Synced]).await;
    sleep(INTERVAL).await;
    let figures = stage.state.figures();
    assert_eq!((figures.saves, figures.save_errors), (0, 1), "{figures:?}");
    assert!(figures.last_error.unwrap().contains("cannot be written"));
    fs::remove_file(&folder).unwrap();
    // What a crash left behind is in nobody's way.
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("last-good.tmp"), "half").unwrap();
    stage.until_saved(1).await;
    assert_eq!(stage.state.figures().last_error, None);
    assert_eq!(Stage::saved(&folder).unwrap().objects, samples());
    // Another process with the same folder does not write to it.
    let other = Stage::new(&folder);
    other.tell([], &[Change::Synced]).await;
    sleep(INTERVAL).await;
    assert!(other.state.figures().last_error.unwrap().contains("another process"));
    stage.end().await;
    other.until_saved(1).await;
    assert!(Stage::saved(&folder).unwrap().objects.is_empty());
    other.end().await;
}

#[test]
fn something_else_is_kept_beside_the_state_in_the_same_way() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("made");
    assert!(recall(&folder, "keys", b"secret").unwrap().is_none());
    keep(&folder, "keys", b"secret", b"first".to_vec()).unwrap();
    keep(&folder, "keys", b"secret", b"second".to_vec()).unwrap();
    assert_eq!(recall(&folder, "keys", b"secret").unwrap().unwrap(), b"second");
    assert!(matches!(recall(&folder, "keys", b"other"), Err(Refused::OtherKey)));
    assert!(matches!(keep(&folder, "keys", b"", b"third".to_vec()), Err(SaveError::NoKey(_))));
    let names: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(names, ["keys.sealed"]);
    // It is no state, and says so.
    assert!(load(&folder, "controller", b"secret").unwrap().is_none());
}

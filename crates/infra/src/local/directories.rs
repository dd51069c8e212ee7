//! Where a proxy's files are.

use crate::local::logs::LogFile;
use crate::local::proxy::Options;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Longest directory name made of a key; longer ones are cut and made unique by a digest.
const NAME: usize = 200;

/// Keeps other processes out of a runtime directory for as long as it lives.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "held, not used")] File);

/// Locks `dir`, which is made if it is not there.
pub(super) fn lock(dir: &Path) -> io::Result<Lock> {
    make(dir)?;
    let path = dir.join("lock");
    let mut file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::Error(e)) => return Err(e),
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder).ok();
            return Err(io::Error::other(format!(
                "{} is in use by process {}; give this one another directory",
                dir.display(),
                holder.trim()
            )));
        }
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())?;
    Ok(Lock(file))
}

/// The files of one proxy.
#[derive(Clone, Debug)]
pub(super) struct Files {
    runtime: PathBuf,
    pub(super) log: LogFile,
    pub(super) access_log: LogFile,
    pub(super) validation_log: LogFile,
}

/// The files of one process of it.
#[derive(Clone, Debug)]
pub(super) struct ProcessFiles {
    pub(super) bootstrap: PathBuf,
    pub(super) admin_address: PathBuf,
    pub(super) base_id: PathBuf,
}

impl Files {
    /// The files of proxy `key`; makes the directories.
    pub(super) fn new(options: &Options, key: &str) -> io::Result<Self> {
        let name = directory_name(key);
        let runtime = options.runtime_dir.join(&name);
        let state = options.state_dir.join(&name);
        make(&runtime)?;
        make(&state)?;
        Ok(Self {
            log: LogFile::new(state.join("envoy.log"), options.log_limit),
            access_log: LogFile::new(state.join("access.log"), options.log_limit),
            validation_log: LogFile::new(runtime.join("validate.log"), 64 * 1024),
            runtime,
        })
    }

    /// The files of process number `generation`, with its bootstrap written.
    pub(super) fn process(&self, generation: u64, bootstrap: &[u8]) -> io::Result<ProcessFiles> {
        let files = ProcessFiles {
            bootstrap: self.runtime.join(format!("bootstrap.{generation}.yaml")),
            admin_address: self.runtime.join(format!("admin-address.{generation}")),
            base_id: self.runtime.join(format!("base-id.{generation}")),
        };
        files.remove();
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&files.bootstrap)?;
        file.write_all(bootstrap)?;
        Ok(files)
    }

    /// Removes the runtime directory of a proxy that is gone; its logs stay.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_dir_all(&self.runtime) {
            tracing::debug!(directory = %self.runtime.display(), %error, "not removed");
        }
    }
}

impl ProcessFiles {
    /// Removes the files of a process that is gone, or leftovers under its number.
    pub(super) fn remove(&self) {
        for path in [&self.bootstrap, &self.admin_address, &self.base_id] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    tracing::debug!(file = %path.display(), %error, "not removed");
                }
                _ => {}
            }
        }
    }
}

fn make(dir: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", dir.display())))
}

/// A directory name for a key, different for different keys: `/` becomes `_`, which Kubernetes names do not have.
fn directory_name(key: &str) -> String {
    use std::fmt::Write;
    let mut name = String::with_capacity(key.len());
    for (at, byte) in key.bytes().enumerate() {
        match byte {
            b'/' => name.push('_'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => name.push(char::from(byte)),
            b'.' if at > 0 => name.push('.'),
            other => write!(name, "%{other:02X}").expect("invariant: a String takes everything"),
        }
    }
    if name.is_empty() {
        name.push('%');
    }
    if name.len() > NAME {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
        let hex: String = digest.as_ref().iter().take(8).map(|b| format!("{b:02x}")).collect();
        name.truncate(NAME);
        name.push('%');
        name.push_str(&hex);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_names_are_readable_safe_and_different() {
        assert_eq!(directory_name("default/web.example"), "default_web.example");
        assert_eq!(directory_name(".."), "%2E.");
        assert_eq!(directory_name("a_b"), "a%5Fb");
        assert_eq!(directory_name(""), "%");
        let long = |end: &str| directory_name(&format!("{}{end}", "x".repeat(300)));
        assert_ne!(long("1"), long("2"));
        assert!(long("1").len() < 255);
    }

    #[test]
    fn a_runtime_directory_has_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        let refused = lock(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&format!("in use by process {}", std::process::id())), "{refused}");
        drop(first);
        lock(dir.path()).unwrap();
    }
}

//! Certificates as files.

use crate::{Ensured, Error, Fault, Found, Identity, Material, Set, Spec, UnixTime, settle};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) const CA: &str = "ca.crt";
pub(crate) const CERT: &str = "tls.crt";
pub(crate) const KEY: &str = "tls.key";
pub(crate) const HMAC_DIR: &str = "envoy-oidc-hmac";
pub(crate) const HMAC: &str = "hmac-secret";

/// A directory of certificates: `<identity>/{ca.crt,tls.crt,tls.key}` for each [`Identity`] and
/// `envoy-oidc-hmac/hmac-secret`. Several processes may share it: changes are made under a file lock.
#[derive(Clone, Debug)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// Certificates under `root`, usually `<configHome>/certs`. Nothing is touched yet.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of one identity's files.
    #[must_use]
    pub fn dir(&self, identity: Identity) -> PathBuf {
        self.root.join(identity.name())
    }

    /// Makes sure that good certificates for every identity are on disk. What is good is kept unless `overwrite`.
    /// Each replacement is logged with its reason.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be used; [`Error::Issue`], [`Error::Randomness`].
    pub fn ensure(&self, spec: &Spec, now: UnixTime, overwrite: bool) -> Result<Ensured, Error> {
        make_dir(&self.root)?;
        let lock_path = self.root.join(".lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(Error::io(&lock_path))?;
        lock.lock().map_err(Error::io(&lock_path))?;

        let mut found = Found { hmac: self.read_hmac()?, ..Found::default() };
        for identity in Identity::ALL {
            found.material.insert(identity, self.read(identity)?);
        }
        let done = settle(found, spec, now, overwrite)?;
        if done.new_hmac {
            self.write_hmac(&done.set.hmac)?;
        }
        if !done.replaced.is_empty() {
            self.write(&done.set)?;
        }
        for what in &done.replaced {
            tracing::info!(directory = %self.dir(what.identity).display(), reason = %what.fault, "made certificate {}", what.identity);
        }
        Ok(done)
    }

    /// Reads what is there, without judging it beyond being there.
    ///
    /// # Errors
    /// [`Error::Unusable`] when something is missing, [`Error::Io`].
    pub fn load(&self) -> Result<Set, Error> {
        let mut material = BTreeMap::new();
        for identity in Identity::ALL {
            let found = self
                .read(identity)?
                .map_err(|fault| Error::Unusable { place: self.dir(identity).display().to_string(), fault })?;
            material.insert(identity, found);
        }
        let hmac = self.read_hmac()?.ok_or_else(|| Error::Unusable {
            place: self.root.join(HMAC_DIR).display().to_string(),
            fault: Fault::Missing(HMAC.to_owned()),
        })?;
        Ok(Set { material, hmac })
    }

    /// One identity's files. A missing one is a fault, one that cannot be read for another reason is an error: nothing
    /// is replaced because of, say, a permission.
    pub(crate) fn read(&self, identity: Identity) -> Result<Result<Material, Fault>, Error> {
        read_material(&self.dir(identity))
    }

    fn read_hmac(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.root.join(HMAC_DIR).join(HMAC);
        match fs::read(&path) {
            Ok(bytes) if bytes.is_empty() => Ok(None),
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io(path)(e)),
        }
    }

    fn write_hmac(&self, hmac: &[u8]) -> Result<(), Error> {
        let dir = self.root.join(HMAC_DIR);
        make_dir(&dir)?;
        write_atomically(&dir, HMAC, hmac, 0o600)
    }

    /// Writes a set: every CA bundle first, so that a peer that already sees the new bundle accepts both old and new
    /// certificates; then key before certificate.
    fn write(&self, set: &Set) -> Result<(), Error> {
        for (identity, material) in &set.material {
            let dir = self.dir(*identity);
            make_dir(&dir)?;
            write_atomically(&dir, CA, material.ca.as_bytes(), 0o644)?;
        }
        for (identity, material) in &set.material {
            let dir = self.dir(*identity);
            write_atomically(&dir, KEY, material.key.as_bytes(), 0o600)?;
            write_atomically(&dir, CERT, material.cert.as_bytes(), 0o644)?;
        }
        Ok(())
    }
}

pub(crate) fn read_material(dir: &Path) -> Result<Result<Material, Fault>, Error> {
    let mut texts = Vec::with_capacity(3);
    for file in [CA, CERT, KEY] {
        let path = dir.join(file);
        match fs::read(&path) {
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => texts.push(text),
                Err(e) => return Ok(Err(Fault::Broken { what: file.to_owned(), why: e.to_string() })),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Err(Fault::Missing(file.to_owned()))),
            Err(e) => return Err(Error::io(path)(e)),
        }
    }
    let key = texts.pop().unwrap_or_default();
    let cert = texts.pop().unwrap_or_default();
    let ca = texts.pop().unwrap_or_default();
    Ok(Ok(Material { ca, cert, key }))
}

fn make_dir(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(Error::io(dir))
}

/// Replaces `dir/name` in one step: readers see the old or the new content, never a part; a crash leaves the old one.
fn write_atomically(dir: &Path, name: &str, content: &[u8], mode: u32) -> Result<(), Error> {
    let temporary = dir.join(format!(".{name}.{}", std::process::id()));
    let path = dir.join(name);
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io(temporary)(e)),
        _ => {}
    }
    let mut file =
        OpenOptions::new().create_new(true).write(true).mode(mode).open(&temporary).map_err(Error::io(&temporary))?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(Error::io(&temporary))?;
    fs::rename(&temporary, &path).map_err(Error::io(&path))?;
    File::open(dir).and_then(|d| d.sync_all()).map_err(Error::io(dir))
}

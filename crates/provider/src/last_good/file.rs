//! The folder: one file, replaced whole.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
};

use super::{
    content::{self, Saved},
    save::SaveError,
    seal::{self, Refused},
};

/// Name of the file in its folder.
pub const FILE: &str = "last-good.state";
/// What is being written has this in the place of its ending; never read.
const TEMPORARY: &str = "tmp";
/// Held by the process whose folder it is.
const LOCK: &str = "last-good.lock";

/// Reads the saved state of a folder; none if nothing was saved there.
///
/// # Errors
/// [`Refused`] says why what is there is not used.
pub fn load(folder: &Path, controller: &str, secret: &[u8]) -> Result<Option<Saved>, Refused> {
    let file = match fs::read(folder.join(FILE)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    content::decode(controller, &seal::open(secret, &file)?).map(Some)
}

/// Makes the folder and takes it for this process, until the value is dropped or the process ends; none when another one
/// has it.
pub(super) fn take(folder: &Path) -> io::Result<Option<File>> {
    make(folder)?;
    let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(fs::TryLockError::WouldBlock) => Ok(None),
        Err(fs::TryLockError::Error(e)) => Err(e),
    }
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Keeps something else in the folder beside the state, in the same form: sealed, and replaced whole. `name` is that of the file,
/// without an ending. The folder is made if it is not there.
///
/// # Errors
/// When the folder cannot be written, or there is no secret.
pub fn keep(folder: &Path, name: &str, secret: &[u8], content: Vec<u8>) -> Result<(), SaveError> {
    make(folder)?;
    Ok(replace_as(folder, &kept(name), &seal::seal(secret, content)?)?)
}

/// Reads what [`keep`] wrote; none if nothing was.
///
/// # Errors
/// [`Refused`] says why what is there is not used.
pub fn recall(folder: &Path, name: &str, secret: &[u8]) -> Result<Option<Vec<u8>>, Refused> {
    match fs::read(folder.join(kept(name))) {
        Ok(file) => seal::open(secret, &file).map(Some),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn kept(name: &str) -> String {
    format!("{name}.sealed")
}

/// Replaces the file of the state.
pub(super) fn replace(folder: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_as(folder, FILE, bytes)
}

/// Replaces a file: after a crash at any moment there is the old one or the new one.
fn replace_as(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = folder.join(name).with_extension(TEMPORARY);
    // One that a crash left behind may have another mode.
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, folder.join(name))?;
    File::open(folder)?.sync_all()
}

//! The memory that Envoy's processes share for hot restarts, `/dev/shm/envoy_shared_memory_<base id * 10>`.
//!
//! Envoy makes it when a process starts under a new base id, and leaves it behind. A process that is to take over sets a
//! flag in it until it is done; if it dies before that, nobody clears the flag and the running process could never be
//! replaced again. Observed with Envoy 1.40 (hot restart version 11.104): 104 bytes, which begin with their number and
//! the version 11, two mutexes follow, the flags are the last 8.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const LEN: u64 = 104;
const VERSION: u64 = 11;
const FLAGS_AT: u64 = 96;
const INITIALIZING: u64 = 1;

fn path(base_id: u32) -> PathBuf {
    // Envoy keeps ten names for each base id and uses the first.
    PathBuf::from(format!("/dev/shm/envoy_shared_memory_{}", u64::from(base_id) * 10))
}

/// Removes it. Only for a base id whose processes are all gone.
pub(super) fn remove(base_id: u32) {
    let path = path(base_id);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::debug!(path = %path.display(), %error, "not removed");
        }
        _ => {}
    }
}

/// Clears the flag of a take-over whose process has died, so that the next one can begin. Only when no process of this
/// base id is starting. Does nothing where the memory is not laid out as expected: then the running process goes on, and
/// Envoy refuses further take-overs in its own words.
pub(super) fn forget_takeover(base_id: u32) {
    if let Err(error) = clear_flag(&path(base_id)) {
        tracing::debug!(base_id, %error, "the mark of a failed take-over is not cleared");
    }
}

fn clear_flag(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let number = |at: u64| -> io::Result<u64> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    };
    let known = file.metadata()?.len() == LEN && number(0)? == LEN && number(8)? == VERSION;
    if known && number(FLAGS_AT)? == INITIALIZING {
        file.write_all_at(&0u64.to_ne_bytes(), FLAGS_AT)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_flag_is_cleared_and_only_where_the_layout_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let memory = |version: u64, flags: u64| {
            let mut bytes = vec![7; 104];
            bytes[..8].copy_from_slice(&104u64.to_ne_bytes());
            bytes[8..16].copy_from_slice(&version.to_ne_bytes());
            bytes[96..].copy_from_slice(&flags.to_ne_bytes());
            bytes
        };
        for (before, after) in [
            (memory(11, 1), memory(11, 0)),
            (memory(11, 0), memory(11, 0)),
            (memory(11, 5), memory(11, 5)),
            (memory(12, 1), memory(12, 1)),
            ([memory(11, 1), vec![0]].concat(), [memory(11, 1), vec![0]].concat()),
        ] {
            fs::write(&path, &before).unwrap();
            clear_flag(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), after);
        }
    }
}

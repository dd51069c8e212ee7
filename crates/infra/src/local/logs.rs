//! A proxy's own log files: bounded, and readable when it dies.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes at the end of the log in which the reason of a death is looked for.
const TAIL: u64 = 16 * 1024;
/// Longest reason that is told.
const REASON: usize = 600;

/// One log file and its predecessor (`<path>.1`), each at most about `limit` bytes.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    limit: u64,
}

impl LogFile {
    pub(super) fn new(path: PathBuf, limit: u64) -> Self {
        Self { path, limit }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it for a new process, after [`trim`](Self::trim). In append mode, so that several processes can share it
    /// while one replaces the other, and so that trimming under them leaves no hole.
    pub(super) fn open(&self) -> io::Result<File> {
        self.trim()?;
        OpenOptions::new().append(true).create(true).mode(0o640).open(&self.path)
    }

    /// If it is over its limit, copies its last part to `<path>.1` and empties it. What is written meanwhile is lost: a
    /// few lines of a file that would otherwise fill the disk.
    pub(super) fn trim(&self) -> io::Result<()> {
        let len = match fs::metadata(&self.path) {
            Ok(meta) => meta.len(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        if len <= self.limit {
            return Ok(());
        }
        let mut source = File::open(&self.path)?;
        source.seek(SeekFrom::Start(len - self.limit))?;
        let mut kept = File::create(self.path.with_added_extension("1"))?;
        io::copy(&mut source.take(self.limit), &mut kept)?;
        OpenOptions::new().write(true).open(&self.path)?.set_len(0)
    }

    /// Where the next line will be written: what a process starting now says begins there.
    pub(super) fn position(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |m| m.len())
    }

    /// The line that best tells why the process that began writing at `from` ended: the last critical one, else the
    /// last error, else the last line.
    pub(super) fn reason(&self, from: u64) -> Option<String> {
        let mut file = File::open(&self.path).ok()?;
        let len = file.metadata().ok()?.len();
        let start = if from > len { 0 } else { from }.max(len.saturating_sub(TAIL));
        file.seek(SeekFrom::Start(start)).ok()?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes).ok()?;
        pick_reason(&String::from_utf8_lossy(&bytes))
    }
}

fn pick_reason(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let marked = |mark: &str| lines.iter().rposition(|l| l.contains(mark));
    let at = marked("[critical]").or_else(|| marked("[error]")).or_else(|| lines.len().checked_sub(1))?;
    // An error may go on in lines that do not begin like a log line.
    let more = lines[at + 1..].iter().take_while(|l| !l.starts_with('['));
    let mut reason = lines[at].to_owned();
    for line in more {
        reason.push(' ');
        reason.push_str(line);
    }
    if reason.len() > REASON {
        let cut = (0..=REASON).rev().find(|i| reason.is_char_boundary(*i)).unwrap_or(0);
        reason.truncate(cut);
        reason.push('…');
    }
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_stay_within_their_limit_and_writers_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::new(dir.path().join("envoy.log"), 100);
        let mut writer = log.open().unwrap();
        for round in 0..50 {
            writeln!(writer, "line {round:04} 0123456789").unwrap();
            log.trim().unwrap();
            assert!(fs::metadata(log.path()).unwrap().len() <= 122);
        }
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("envoy.log.1").len() <= 100);
        let all = read("envoy.log.1") + &read("envoy.log");
        assert!(all.ends_with("line 0048 0123456789\nline 0049 0123456789\n") && !all.contains('\0'), "{all:?}");
    }

    #[test]
    fn the_reason_is_the_worst_of_the_last_lines() {
        let log = "[t][info] starting\n[t][critical][main] error initializing configuration 'x': Unable to parse\nmore of it\n[t][info] exiting\n";
        assert_eq!(
            pick_reason(log).unwrap(),
            "[t][critical][main] error initializing configuration 'x': Unable to parse more of it"
        );
        assert_eq!(pick_reason("[t][error] a\n[t][error] b\n[t][info] c").unwrap(), "[t][error] b");
        assert_eq!(pick_reason("plain\nlast\n\n").unwrap(), "last");
        assert_eq!(pick_reason(""), None);
        assert!(pick_reason(&"ä".repeat(1000)).unwrap().len() < 610);
    }

    #[test]
    fn the_reason_is_not_taken_from_an_earlier_process() {
        let dir = tempfile::tempdir().unwrap();
        let log = LogFile::new(dir.path().join("envoy.log"), 10_000);
        writeln!(log.open().unwrap(), "[critical] old").unwrap();
        let from = log.position();
        assert_eq!(log.reason(from), None);
        writeln!(log.open().unwrap(), "new").unwrap();
        assert_eq!(log.reason(from).unwrap(), "new");
    }
}

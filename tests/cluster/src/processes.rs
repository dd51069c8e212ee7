//! Processes of pods, as this machine sees them.

use std::path::Path;

use anyhow::{Result, ensure};
use nix::{
    sys::signal::{Signal, kill as send},
    unistd::Pid,
};

/// Sends SIGKILL to the processes of a pod that run this program.
///
/// # Errors
/// When there is none.
pub fn kill(pod_uid: &str, program: &str) -> Result<()> {
    let mut killed = 0;
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        if runs(&entry.path(), program) && is_in(&entry.path(), pod_uid) {
            send(Pid::from_raw(pid), Signal::SIGKILL)?;
            killed += 1;
        }
    }
    ensure!(killed > 0, "the pod {pod_uid} runs no {program}");
    Ok(())
}

fn runs(process: &Path, program: &str) -> bool {
    let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let first = command.split(|b| *b == 0).next().unwrap_or_default();
    Path::new(String::from_utf8_lossy(first).as_ref()).file_name().is_some_and(|n| n == program)
}

/// The kubelet puts the containers of a pod into cgroups below one that is named after the pod's UID.
fn is_in(process: &Path, pod_uid: &str) -> bool {
    let group = format!("/pod{pod_uid}/");
    std::fs::read_to_string(process.join("cgroup")).is_ok_and(|c| c.contains(&group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known_and_in_no_pod() {
        let me = Path::new("/proc/self");
        let name = std::env::current_exe().unwrap();
        assert!(runs(me, name.file_name().unwrap().to_str().unwrap()));
        assert!(!runs(me, "envoy-gateway"));
        assert!(!is_in(me, "4eaf5bb1-8a91-437f-9fe7-0d8275d3ce8b"));
        assert!(kill("4eaf5bb1-8a91-437f-9fe7-0d8275d3ce8b", name.file_name().unwrap().to_str().unwrap()).is_err());
    }
}

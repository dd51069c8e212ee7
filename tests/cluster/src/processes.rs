//! Processes of pods, as this machine sees them.

use std::path::Path;

use anyhow::{Context, Result, ensure};
pub use nix::sys::signal::Signal;
use nix::{sys::signal::kill as send, unistd::Pid};

/// Sends SIGKILL to the processes of a pod that run this program.
///
/// # Errors
/// When there is none.
pub fn kill(pod_uid: &str, program: &str) -> Result<()> {
    signal(pod_uid, program, Signal::SIGKILL)
}

/// Sends a signal to the processes of a pod that run this program.
///
/// # Errors
/// When there is none.
pub fn signal(pod_uid: &str, program: &str, signal: Signal) -> Result<()> {
    let all = of(pod_uid, program)?;
    ensure!(!all.is_empty(), "the pod {pod_uid} runs no {program}");
    all.into_iter().try_for_each(|pid| Ok(send(Pid::from_raw(pid), signal)?))
}

/// A process of the pod that runs this program; by it, commands enter the network of the pod.
///
/// # Errors
/// When there is none.
pub fn one(pod_uid: &str, program: &str) -> Result<i32> {
    of(pod_uid, program)?.first().copied().with_context(|| format!("the pod {pod_uid} runs no {program}"))
}

/// Processes of a pod that run this program.
///
/// # Errors
/// When processes cannot be looked at.
pub fn of(pod_uid: &str, program: &str) -> Result<Vec<i32>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        if runs(&entry.path(), program) && is_in(&entry.path(), pod_uid) {
            all.push(pid);
        }
    }
    Ok(all)
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

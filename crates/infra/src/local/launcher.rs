//! Starting a process that cannot outlive us.
//!
//! Linux kills a child when its parent dies if the child has asked for it (`PR_SET_PDEATHSIG`). A child can ask only for
//! itself, before it becomes the wanted program; so the program is started through our own executable, which asks, makes
//! sure that its parent is still there, and turns into the program (`exec`): same process id, no process in between.

use nix::sys::signal::Signal;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// First argument that makes an executable with [`run_if_asked`] act as launcher.
const ARGUMENT: &str = "__launch-bound-to-parent";

/// Exit status when the parent was gone before the program could start.
const ORPHAN: i32 = 125;
/// Exit status when the program could not be started, as shells use it.
const CANNOT_EXEC: i32 = 127;

/// How child processes are started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Through this executable, whose `main` begins with [`run_if_asked`]: children die with us, however we die.
    Bound(PathBuf),
    /// Directly: a child goes on when we are killed. For tests only.
    Direct,
}

impl Launcher {
    /// Bound children, by the running executable. Its `main` must begin with [`run_if_asked`].
    #[must_use]
    pub fn this_executable() -> Self {
        // The link and not what it points to: it stays good when an upgrade replaces the file.
        Self::Bound(PathBuf::from("/proc/self/exe"))
    }

    /// The command that starts `program` in this way, still without the program's arguments.
    #[must_use]
    pub fn command(&self, program: &OsStr) -> Command {
        match self {
            Self::Direct => Command::new(program),
            Self::Bound(executable) => {
                let mut command = Command::new(executable);
                command.arg(ARGUMENT).arg(std::process::id().to_string()).arg(program);
                command
            }
        }
    }
}

/// Acts as launcher if this process was started as one, and does not return then. The first thing that `main` does in an
/// executable given to [`Launcher::Bound`], before any thread is started.
pub fn run_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().as_deref() != Some(OsStr::new(ARGUMENT)) {
        return;
    }
    let (Some(parent), Some(program)) = (arguments.next(), arguments.next()) else {
        std::process::exit(CANNOT_EXEC);
    };
    match launch(&parent, &program, arguments) {
        Ok(never) => match never {},
        Err(Failure::Orphan) => std::process::exit(ORPHAN),
        Err(Failure::System(why)) => {
            #[expect(clippy::print_stderr, reason = "standard error is the proxy's log file here")]
            {
                eprintln!("cannot start {}: {why}", program.display());
            }
            std::process::exit(CANNOT_EXEC);
        }
    }
}

enum Failure {
    Orphan,
    System(std::io::Error),
}

fn launch(parent: &OsStr, program: &OsStr, arguments: impl Iterator<Item = OsString>) -> Result<Infallible, Failure> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(|e| Failure::System(e.into()))?;
    // The parent may have died before the request; then nobody would ever send the signal.
    if nix::unistd::getppid().to_string().as_str() != parent {
        return Err(Failure::Orphan);
    }
    Err(Failure::System(Command::new(program).args(arguments).exec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_commands_name_the_parent_and_the_program() {
        let command = Launcher::this_executable().command(OsStr::new("/opt/envoy"));
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        assert_eq!(command.get_program(), "/proc/self/exe");
        assert_eq!(arguments, [ARGUMENT, &std::process::id().to_string(), "/opt/envoy"]);
    }
}

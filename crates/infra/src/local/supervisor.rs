//! The life of one proxy: start, restart, replace, drain.

use crate::local::admin::AdminAddress;
use crate::local::backoff::Tries;
use crate::local::directories::Files;
use crate::local::generation::{Generation, drain, drain_old, ended, read_base_id, ready};
use crate::local::process::{Exit, Spawner};
use crate::local::proxy::{Options, PARENT_EXTRA, Proxy};
use crate::local::shared_memory;
use crate::local::status::{Phase, Status};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between looks at the size of the log files.
const TRIM: Duration = Duration::from_secs(10);
/// A process learns how many connections the one that it replaced still has at its statistics' interval, 5 s.
const PARENT_KNOWN: Duration = Duration::from_secs(6);
/// Longest time to validate a bootstrap.
const VALIDATE: Duration = Duration::from_secs(30);

/// Supervises one proxy until it is no longer wanted and gone.
#[derive(Debug)]
pub(super) struct Supervisor {
    key: String,
    wanted: watch::Receiver<Option<Arc<Proxy>>>,
    options: Arc<Options>,
    spawner: Spawner,
    files: Files,
    statuses: watch::Sender<BTreeMap<String, Status>>,
    /// The process that serves or is to serve.
    current: Option<Generation>,
    /// The process that is to replace it.
    next: Option<Generation>,
    /// The process that was replaced and finishes what it has.
    old: Option<Generation>,
    tries: Tries,
    /// Nothing is started before.
    not_before: Option<Instant>,
    generations: u64,
    crashes: u64,
    last_crash: Option<String>,
    problem: Option<String>,
}

#[derive(Debug)]
enum Event {
    Wanted,
    CurrentReady(AdminAddress),
    NextReady(AdminAddress),
    CurrentEnded(Exit),
    NextEnded(Exit),
    OldEnded(Exit),
    NextOverdue,
    OldOverdue,
    Retry,
    Trim,
}

/// How a stop ended.
enum Stopped {
    Gone,
    WantedAgain,
}

impl Supervisor {
    pub(super) fn new(
        key: String,
        wanted: watch::Receiver<Option<Arc<Proxy>>>,
        options: Arc<Options>,
        spawner: Spawner,
        files: Files,
        statuses: watch::Sender<BTreeMap<String, Status>>,
    ) -> Self {
        Self {
            tries: Tries::new(options.backoff),
            key,
            wanted,
            options,
            spawner,
            files,
            statuses,
            current: None,
            next: None,
            old: None,
            not_before: None,
            generations: 0,
            crashes: 0,
            last_crash: None,
            problem: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            match wanted {
                Some(proxy) => self.start_what_is_due(proxy).await,
                // A take-over under way is finished first: the process that hands over can no longer be drained.
                None if self.next.is_some() => {}
                None => match self.stop().await {
                    Stopped::WantedAgain => continue,
                    Stopped::Gone => break,
                },
            }
            self.report(None);
            let event = self.event().await;
            self.handle(event).await;
        }
        self.files.remove();
        self.statuses.send_modify(|all| drop(all.remove(&self.key)));
        tracing::info!(proxy = self.key, "proxy stopped");
    }

    // --- events ---

    async fn event(&mut self) -> Event {
        let probe = |g: Option<&Generation>| g.filter(|g| g.ready.is_none()).map(|g| g.files.admin_address.clone());
        let current_probe = probe(self.current.as_ref());
        let next_probe = probe(self.next.as_ref());
        let overdue = self.next.as_ref().map(|g| g.started + self.options.replace_timeout);
        let old_overdue = self.old.as_ref().map(|g| g.leave_by);
        // A retry is of interest only when there is something to start.
        let retry = self.not_before;
        tokio::select! {
            changed = self.wanted.changed() => match changed {
                Ok(()) => Event::Wanted,
                // The runner is being dropped, and this task with it.
                Err(_) => std::future::pending().await,
            },
            exit = ended(&mut self.current) => Event::CurrentEnded(exit),
            exit = ended(&mut self.next) => Event::NextEnded(exit),
            exit = ended(&mut self.old) => Event::OldEnded(exit),
            admin = ready(current_probe) => Event::CurrentReady(admin),
            admin = ready(next_probe) => Event::NextReady(admin),
            () = at(overdue) => Event::NextOverdue,
            () = at(old_overdue) => Event::OldOverdue,
            () = at(retry) => Event::Retry,
            () = tokio::time::sleep(TRIM) => Event::Trim,
        }
    }

    async fn handle(&mut self, event: Event) {
        match event {
            Event::Wanted => {
                self.tries.reset();
                self.not_before = None;
                self.problem = None;
            }
            Event::Retry => self.not_before = None,
            Event::CurrentReady(admin) => {
                if let Some(current) = &mut self.current {
                    tracing::info!(proxy = self.key, pid = current.process.pid(), %admin, "proxy ready");
                    current.admin = Some(admin);
                    current.ready = Some(Instant::now());
                }
            }
            Event::NextReady(admin) => {
                if let Some(mut next) = self.next.take() {
                    tracing::info!(proxy = self.key, pid = next.process.pid(), %admin, "proxy replaced");
                    next.admin = Some(admin);
                    next.ready = Some(Instant::now());
                    let kept = next.proxy.drain.timeout + PARENT_EXTRA + self.options.kill_after;
                    if let Some(mut old) = self.current.replace(next) {
                        old.leave_by = Instant::now() + kept;
                        old.admin = None; // closed by the take-over
                        self.old = Some(old);
                    }
                    self.problem = None;
                }
            }
            Event::CurrentEnded(exit) => {
                if let Some(current) = self.current.take() {
                    let served = current.ready.map_or(Duration::ZERO, |r| r.elapsed());
                    let why = self.why(&current, &exit);
                    self.retire(current);
                    self.crashes += 1;
                    self.last_crash = Some(why.clone());
                    self.current = self.next.take();
                    let delay = self.tries.failed(served);
                    self.not_before = Some(Instant::now() + delay);
                    let delay = if self.current.is_some() {
                        "its replacement goes on".to_owned()
                    } else {
                        format!("next try in {delay:?}")
                    };
                    tracing::warn!(proxy = self.key, reason = why, "proxy ended by itself, {delay}");
                }
            }
            Event::NextEnded(exit) => {
                if let Some(next) = self.next.take() {
                    let why = self.why(&next, &exit);
                    self.takeover_failed(next, why).await;
                }
            }
            Event::NextOverdue => {
                if let Some(mut next) = self.next.take() {
                    next.process.kill().await;
                    self.takeover_failed(next, format!("not ready within {:?}", self.options.replace_timeout)).await;
                }
            }
            Event::OldEnded(exit) => {
                if let Some(old) = self.old.take() {
                    tracing::debug!(proxy = self.key, pid = old.process.pid(), %exit, "replaced process has finished");
                    self.retire(old);
                }
            }
            Event::OldOverdue => {
                if let Some(mut old) = self.old.take() {
                    old.process.terminate(self.options.kill_after).await;
                    self.retire(old);
                }
            }
            Event::Trim => {
                for log in [&self.files.log, &self.files.access_log] {
                    if let Err(error) = log.trim() {
                        tracing::warn!(proxy = self.key, file = %log.path().display(), %error, "cannot bound the log file");
                    }
                }
            }
        }
    }

    // --- starting ---

    /// Starts what is wanted, if it does not run and may be started now.
    async fn start_what_is_due(&mut self, proxy: Arc<Proxy>) {
        if self.not_before.is_some() || self.next.is_some() {
            return;
        }
        match &mut self.current {
            None => self.cold_start(proxy).await,
            Some(current) if current.proxy.same_process(&proxy) => current.proxy = proxy,
            Some(current) if current.ready.is_none() => {
                // It serves nobody yet.
                current.process.terminate(self.options.kill_after).await;
                if let Some(current) = self.current.take() {
                    self.retire(current);
                }
                self.cold_start(proxy).await;
            }
            Some(_) if self.old.is_none() => self.replace(proxy).await,
            // One replacement at a time: Envoy would cut the oldest process's connections.
            Some(_) => {}
        }
    }

    async fn cold_start(&mut self, proxy: Arc<Proxy>) {
        match self.spawn(proxy, None).await {
            Ok(generation) => self.current = Some(generation),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// Starts the process that will take the sockets over from the current one.
    async fn replace(&mut self, proxy: Arc<Proxy>) {
        let Some(current) = &self.current else { return };
        let (base_id_file, epoch) = (current.base_id.clone(), current.epoch + 1);
        let Some(base_id) = read_base_id(&base_id_file) else {
            return self.refuse(format!("{} holds no base id", base_id_file.display()));
        };
        // A process that dies of its bootstrap would already have told the running one to close its admin interface.
        if let Err(why) = self.validate(&proxy).await {
            return self.refuse(format!("bootstrap refused by Envoy: {why}"));
        }
        match self.spawn(proxy, Some(Takeover { base_id, base_id_file, epoch })).await {
            Ok(generation) => self.next = Some(generation),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// The process that was to replace the current one is gone before it did.
    async fn takeover_failed(&mut self, next: Generation, why: String) {
        if let Some(base_id) = read_base_id(&next.base_id) {
            shared_memory::forget_takeover(base_id);
        }
        self.retire(next);
        if let Some(current) = &mut self.current
            && let Some(admin) = &current.admin
            && !admin.ready().await
        {
            // It closed its admin interface for the one that was to replace it.
            current.admin = None;
        }
        self.refuse(why);
    }

    /// Notes that what is wanted could not be had; it is tried again after a delay.
    fn refuse(&mut self, why: String) {
        let delay = self.tries.failed(Duration::ZERO);
        let serving = if self.current.is_some() { "the running one goes on" } else { "none is running" };
        tracing::warn!(
            proxy = self.key,
            reason = why,
            "cannot start the wanted proxy, {serving}; next try in {delay:?}"
        );
        self.problem = Some(why);
        self.not_before = Some(Instant::now() + delay);
    }

    async fn spawn(&mut self, proxy: Arc<Proxy>, takeover: Option<Takeover>) -> io::Result<Generation> {
        self.generations += 1;
        let files = self.files.process(self.generations, &proxy.bootstrap)?;
        let mut command = self.command();
        command.arg("-c").arg(&files.bootstrap).arg("--admin-address-path").arg(&files.admin_address);
        let (epoch, base_id) = match takeover {
            None => {
                command.arg("--use-dynamic-base-id").arg("--base-id-path").arg(&files.base_id);
                (0, files.base_id.clone())
            }
            Some(Takeover { base_id, base_id_file, epoch }) => {
                command.arg("--base-id").arg(base_id.to_string()).arg("--restart-epoch").arg(epoch.to_string());
                (epoch, base_id_file)
            }
        };
        command.args(proxy.arguments());
        command.stdout(self.files.access_log.open()?).stderr(self.files.log.open()?);
        let log_from = self.files.log.position();
        let process = self.spawner.spawn(command).await?;
        tracing::info!(proxy = self.key, pid = process.pid(), epoch, "proxy started");
        let now = Instant::now();
        Ok(Generation {
            process,
            proxy,
            files,
            base_id,
            epoch,
            log_from,
            started: now,
            admin: None,
            ready: None,
            leave_by: now,
        })
    }

    /// Has Envoy judge the bootstrap without starting anything.
    async fn validate(&mut self, proxy: &Proxy) -> Result<(), String> {
        let judged = async {
            let files = self.files.process(0, &proxy.bootstrap)?;
            let log = &self.files.validation_log;
            let mut command = self.command();
            command.args(["--mode", "validate", "--disable-hot-restart", "-c"]).arg(&files.bootstrap);
            command.args(proxy.arguments());
            command.stdout(Stdio::null()).stderr(log.open()?);
            let from = log.position();
            let mut process = self.spawner.spawn(command).await?;
            let exit = match tokio::time::timeout(VALIDATE, process.wait()).await {
                Ok(exit) => exit,
                Err(_) => process.kill().await,
            };
            files.remove();
            io::Result::Ok((exit, log.reason(from)))
        };
        match judged.await {
            Ok((exit, _)) if exit.success() => Ok(()),
            Ok((exit, reason)) => Err(reason.unwrap_or_else(|| exit.to_string())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Envoy as a process that has nothing of ours: not our standard input, not our terminal's signals.
    fn command(&self) -> std::process::Command {
        let mut command = self.options.launcher.command(self.options.envoy.as_os_str());
        command.stdin(Stdio::null()).process_group(0);
        command
    }

    // --- ending ---

    /// Drains what runs and ends it, unless it is wanted again meanwhile: then it goes on draining beside a new process.
    async fn stop(&mut self) -> Stopped {
        if let Some(mut current) = self.current.take() {
            self.report(Some(&current));
            current.leave_by = Instant::now() + current.proxy.drain.timeout;
            let mut least = current.proxy.drain.min;
            if self.old.as_ref().is_some_and(|old| old.admin.is_none()) {
                least = least.max(PARENT_KNOWN);
            }
            let interruptible = self.old.is_none();
            let both =
                async { tokio::join!(drain(&mut current, least, &self.key), drain_old(&mut self.old, &self.key)) };
            let drained = tokio::select! {
                ((), ()) = both => true,
                () = wanted_again(&mut self.wanted), if interruptible => false,
            };
            if !drained {
                self.old = Some(current);
                return Stopped::WantedAgain;
            }
            current.process.terminate(self.options.kill_after).await;
            self.retire(current);
        }
        if let Some(mut old) = self.old.take() {
            old.process.terminate(self.options.kill_after).await;
            self.retire(old);
        }
        self.not_before = None;
        self.tries.reset();
        if self.wanted.borrow().is_some() { Stopped::WantedAgain } else { Stopped::Gone }
    }

    /// Removes what a process that has ended leaves behind.
    fn retire(&self, gone: Generation) {
        let others = [&self.current, &self.next, &self.old];
        let last_of_its_base = !others.iter().any(|g| g.as_ref().is_some_and(|g| g.base_id == gone.base_id));
        let base_id = read_base_id(&gone.base_id);
        for path in [&gone.files.bootstrap, &gone.files.admin_address] {
            std::fs::remove_file(path).ok();
        }
        if last_of_its_base && let Some(base_id) = base_id {
            shared_memory::remove(base_id);
            std::fs::remove_file(&gone.base_id).ok();
        }
    }

    fn why(&self, gone: &Generation, exit: &Exit) -> String {
        match self.files.log.reason(gone.log_from) {
            Some(reason) => format!("{exit}: {reason}"),
            None => exit.to_string(),
        }
    }

    // --- telling ---

    fn report(&self, draining: Option<&Generation>) {
        let shown = draining.or(self.current.as_ref());
        let phase = match shown {
            _ if draining.is_some() => Phase::Draining,
            None => Phase::BackingOff,
            Some(g) if g.ready.is_none() => Phase::Starting,
            Some(_) if self.next.is_some() => Phase::Replacing,
            Some(_) => Phase::Running,
        };
        let status = Status {
            phase,
            pid: shown.map(|g| g.process.pid()),
            admin: shown.and_then(|g| g.admin.clone()),
            generation: self.generations,
            crashes: self.crashes,
            last_crash: self.last_crash.clone(),
            problem: self.problem.clone(),
            old_process: self.old.as_ref().map(|g| g.process.pid()),
            log: self.files.log.path().display().to_string(),
            access_log: self.files.access_log.path().display().to_string(),
        };
        self.statuses.send_if_modified(|all| {
            let changed = all.get(&self.key) != Some(&status);
            if changed {
                all.insert(self.key.clone(), status);
            }
            changed
        });
    }
}

/// What a process needs to take over from another.
struct Takeover {
    base_id: u32,
    base_id_file: PathBuf,
    epoch: u32,
}

async fn wanted_again(wanted: &mut watch::Receiver<Option<Arc<Proxy>>>) {
    if wanted.wait_for(Option::is_some).await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

//! Random faults, each of which ends by itself or is ended here; the memory of replicas meanwhile.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use apiserver::{
    ensemble::{Ensemble, LEASE, SYSTEM},
    envoy::Envoy,
    reigns::Held,
    stage::now,
    world::World,
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, api::DeleteParams};
use nix::sys::signal::Signal;
use rand::{Rng, rngs::StdRng, seq::SliceRandom};
use testkit::proxy::{Answers, Network};
use tokio::time::{Instant, sleep_until};

use crate::{churn::GATEWAYS, memory::Life};

/// Pause from one fault to the next, in milliseconds.
const PAUSE: std::ops::Range<u64> = 1_500..6_000;
/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_secs(1);
/// The replica that is never killed: its memory is that of the whole run, and the second proxy is connected to it alone.
pub(crate) const KEPT: usize = 2;

/// Everything that faults happen to.
pub(crate) struct Scene {
    /// The cluster.
    pub(crate) world: World,
    /// The replicas.
    pub(crate) replicas: Ensemble,
    /// The proxies, one for each Gateway.
    pub(crate) proxies: Vec<Envoy>,
    /// The program of the latter.
    pub(crate) envoy: PathBuf,
}

/// What happens to a replica, to all, or to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// SIGKILL, and a new process.
    Kill,
    /// SIGSTOP, later SIGCONT.
    Stop,
    /// Connections to the API server end, new ones are refused.
    Cut,
    /// No byte passes in either direction; what was held comes later.
    Stall,
    /// Requests pass, answers do not.
    BlackHole,
    /// Everything comes late.
    Slow,
    /// Requests are answered 429.
    Throttled,
    /// Every second request is answered 500.
    Errors,
    /// The Lease is deleted.
    LeaseDeleted,
    /// The API server is restarted.
    ApiRestarted,
    /// The API server is away for all replicas.
    ApiAway,
    /// A proxy is killed, a new one starts.
    ProxyReplaced,
}

/// All of them; a deck is shuffled and played to its end, so that each comes.
const DECK: [Fault; 13] = [
    Fault::Kill,
    Fault::Kill,
    Fault::Stop,
    Fault::Cut,
    Fault::Stall,
    Fault::BlackHole,
    Fault::Slow,
    Fault::Throttled,
    Fault::Errors,
    Fault::LeaseDeleted,
    Fault::ApiRestarted,
    Fault::ApiAway,
    Fault::ProxyReplaced,
];

struct Active {
    ends: Instant,
    fault: Fault,
    seats: Vec<usize>,
    since: i64,
}

/// Who makes faults.
pub(crate) struct Faults {
    random: StdRng,
    /// Longest fault, in milliseconds.
    longest: u64,
    start: Instant,
    active: Vec<Active>,
    /// Faults so far, by kind.
    pub(crate) counts: BTreeMap<Fault, usize>,
    /// When bytes of a user were held back.
    pub(crate) held: Held,
    /// Lives of processes; the last of each user goes on.
    pub(crate) lives: Vec<Life>,
}

// === impl Faults ===

impl Faults {
    /// Nothing has happened yet; faults last `longest` at most.
    pub(crate) fn new(random: StdRng, longest: Duration) -> Self {
        Self {
            random,
            longest: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX),
            start: Instant::now(),
            active: Vec::new(),
            counts: BTreeMap::new(),
            held: Held::new(),
            lives: Vec::new(),
        }
    }

    /// Faults until then, none of which lasts longer.
    ///
    /// # Errors
    /// When a process cannot be started or the API server does not come back.
    pub(crate) async fn run(&mut self, scene: &mut Scene, until: Instant) -> Result<()> {
        let mut deck: Vec<Fault> = Vec::new();
        let (mut next, mut sample) = (Instant::now(), Instant::now());
        while Instant::now() < until {
            let ends = self.active.iter().map(|a| a.ends).min().unwrap_or(until);
            sleep_until(next.min(sample).min(ends).min(until)).await;
            let at = Instant::now();
            while let Some(i) = self.active.iter().position(|a| a.ends <= at) {
                let over = self.active.remove(i);
                self.end(scene, over)?;
            }
            if at >= sample {
                self.sample(scene);
                sample = at + SAMPLE;
            }
            if at >= next {
                if deck.is_empty() {
                    deck.extend(DECK);
                    deck.shuffle(&mut self.random);
                }
                if let Some(fault) = deck.pop() {
                    self.begin(scene, fault).await?;
                }
                next = Instant::now() + Duration::from_millis(self.random.random_range(PAUSE));
            }
        }
        self.end_all(scene)
    }

    /// Ends all that goes on.
    ///
    /// # Errors
    /// When a process has ended.
    pub(crate) fn end_all(&mut self, scene: &mut Scene) -> Result<()> {
        for over in std::mem::take(&mut self.active) {
            self.end(scene, over)?;
        }
        Ok(())
    }

    /// Looks at the memory of all replicas.
    pub(crate) fn sample(&mut self, scene: &Scene) {
        let second = self.start.elapsed().as_secs();
        for seat in &scene.replicas.seats {
            let Ok(memory) = seat.server.memory() else { continue };
            match self.lives.iter_mut().rev().find(|l| l.user == seat.user) {
                Some(life) => life.samples.push((second, memory.now)),
                None => self.lives.push(Life { user: seat.user.clone(), samples: vec![(second, memory.now)] }),
            }
        }
    }

    async fn begin(&mut self, scene: &mut Scene, fault: Fault) -> Result<()> {
        let seats = match fault {
            Fault::LeaseDeleted | Fault::ApiRestarted | Fault::ProxyReplaced => Vec::new(),
            Fault::ApiAway => {
                self.end_all(scene)?;
                (0..scene.replicas.seats.len()).collect()
            }
            _ => match self.seat(scene, fault).await {
                Some(seat) => vec![seat],
                // Something happens to each of them already.
                None => return Ok(()),
            },
        };
        let millis = self.random.random_range(2_000..self.longest);
        println!("{:>6.1}s {fault:?} {seats:?}", self.start.elapsed().as_secs_f64());
        let replicas = &mut scene.replicas;
        match fault {
            Fault::Kill => {
                let seat = &mut replicas.seats[seats[0]];
                seat.server.kill().await?;
                seat.server.launch_again()?;
                self.lives.push(Life { user: seat.user.clone(), samples: Vec::new() });
            }
            Fault::Stop => replicas.seats[seats[0]].server.signal(Signal::SIGSTOP)?,
            Fault::Cut => replicas.seats[seats[0]].network.set(Network::Cut),
            Fault::Stall => replicas.seats[seats[0]].network.set(Network::Stall),
            Fault::BlackHole => replicas.seats[seats[0]].network.set(Network::LoseAnswers),
            Fault::Slow => replicas.seats[seats[0]].network.set(Network::Slow(Duration::from_millis(300))),
            Fault::Throttled => replicas.seats[seats[0]].http.set(Answers::Status { code: 429, every: 1 }),
            Fault::Errors => replicas.seats[seats[0]].http.set(Answers::Status { code: 500, every: 2 }),
            Fault::ApiAway => {
                let how = if self.random.random_bool(0.5) { Network::Cut } else { Network::Stall };
                replicas.seats.iter().for_each(|s| s.network.set(how));
            }
            Fault::LeaseDeleted => {
                let leases: Api<Lease> = Api::namespaced(scene.world.client(), SYSTEM);
                // It may be gone already, or the API server be away.
                let _ = leases.delete(LEASE, &DeleteParams::default()).await;
            }
            Fault::ApiRestarted => scene.world.server.restart().await?,
            Fault::ProxyReplaced => {
                let i = self.random.random_range(0..GATEWAYS.len());
                scene.proxies.remove(i).kill().await?;
                let new = scene.proxy(i)?;
                scene.proxies.insert(i, new);
            }
        }
        *self.counts.entry(fault).or_default() += 1;
        if matches!(fault, Fault::Kill | Fault::LeaseDeleted | Fault::ApiRestarted | Fault::ProxyReplaced) {
            return Ok(());
        }
        let ends = Instant::now() + Duration::from_millis(millis);
        self.active.push(Active { ends, fault, seats, since: now() });
        Ok(())
    }

    /// A replica to which nothing happens, the leader more often than others.
    async fn seat(&mut self, scene: &Scene, fault: Fault) -> Option<usize> {
        let busy: Vec<usize> = self.active.iter().flat_map(|a| a.seats.iter().copied()).collect();
        let free = |i: &usize| !busy.contains(i) && (fault != Fault::Kill || *i != KEPT);
        let all: Vec<usize> = (0..scene.replicas.seats.len()).filter(free).collect();
        let leader = if self.random.random_bool(0.75) {
            scene.replicas.leaders(&busy).await.into_iter().find(free)
        } else {
            None
        };
        if leader.is_some() || all.is_empty() {
            return leader;
        }
        Some(all[self.random.random_range(0..all.len())])
    }

    fn end(&mut self, scene: &mut Scene, over: Active) -> Result<()> {
        for i in over.seats {
            let seat = &scene.replicas.seats[i];
            if over.fault == Fault::Stop {
                seat.server.signal(Signal::SIGCONT).with_context(|| seat.server.log_tail())?;
            }
            scene.replicas.open(i);
            if matches!(over.fault, Fault::Stall | Fault::BlackHole | Fault::Slow | Fault::ApiAway) {
                self.held.entry(seat.user.clone()).or_default().push((over.since, now()));
            }
        }
        Ok(())
    }
}

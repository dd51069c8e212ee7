//! Changes of listeners and certificates.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use rand::{Rng, SeedableRng, rngs::StdRng};
use testkit::echo::Echo;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    client::Place,
    expect::{Served, Want},
    load::Context,
    manifest::{self, Backend},
    pki::Authority,
    target::Target,
};

/// Listeners that keep their host and get new certificates.
const STEADY: [&str; 2] = ["tls-a", "tls-b"];
/// The listener whose host changes.
const MOVING: &str = "tls-c";
/// Listeners that come and go.
const EXTRAS: usize = 3;
/// Longest wait until a listener is gone or a certificate is there.
const SEEN: Duration = Duration::from_secs(20);
/// Longest wait until the last requests are where they are to be.
const ARRIVED: Duration = Duration::from_secs(15);
const FILE: &str = "gateway.json";

/// Ports of the Gateway.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    /// Of the routes.
    pub(crate) http: u16,
    /// Of the encrypted listeners.
    pub(crate) https: u16,
    /// Of the listeners that come and go.
    pub(crate) extras: [u16; EXTRAS],
}

/// Changes one listener or certificate after another.
#[derive(Debug)]
pub(crate) struct ListenerLane {
    number: usize,
    rng: StdRng,
    context: Arc<Context>,
    authority: Authority,
    ports: Ports,
    steady: Vec<Arc<Target>>,
    moving: Arc<Target>,
    moves: u32,
    extras: [Option<Arc<Target>>; EXTRAS],
    served: Served,
    backends: Arc<Vec<Echo>>,
}

impl ListenerLane {
    /// Writes the Gateway, its certificates and the routes of its listeners.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn new(
        number: usize,
        seed: u64,
        context: Arc<Context>,
        authority: Authority,
        ports: Ports,
        (backend, backends): (&Backend, Arc<Vec<Echo>>),
    ) -> Result<Self> {
        let mut objects = Vec::new();
        let extras: Vec<String> = (0..EXTRAS).map(extra).collect();
        let mut served = None;
        for name in STEADY.into_iter().chain([MOVING]).chain(extras.iter().map(String::as_str)) {
            let (of, does) = manifest::fixed(name, backend);
            objects.extend(of);
            served = Some(does);
        }
        context.write("listeners.json", objects)?;
        let served = served.context("there are listeners")?;
        let target = |host: String| {
            let place = Place { port: ports.https, sni: Some(host.as_str().into()) };
            Arc::new(Target::new(place, host, Want::Served(served.clone())))
        };
        let steady: Vec<_> = STEADY.into_iter().map(|name| target(host(name, 0))).collect();
        let moving = target(host(MOVING, 0));
        for (name, target) in STEADY.into_iter().zip(&steady).chain([(MOVING, &moving)]) {
            // That of the moving one is for all hosts that it will have.
            let leaf = authority.leaf(if name == MOVING { "*.tls-c.test" } else { &target.host })?;
            context.write(&format!("{name}.json"), manifest::secret(name, &leaf))?;
        }
        let rng = StdRng::seed_from_u64(seed);
        let extras = std::array::from_fn(|_| None);
        let lane = Self {
            number,
            rng,
            context,
            authority,
            ports,
            steady,
            moving,
            moves: 0,
            extras,
            served: served.clone(),
            backends,
        };
        lane.write()?;
        Ok(lane)
    }

    /// Waits until the encrypted listeners answer.
    ///
    /// # Errors
    /// When they do not in time.
    pub(crate) async fn ready(&self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        for target in self.steady.iter().chain([&self.moving]) {
            while let Err(e) = self.context.client.look(&target.place).await {
                if Instant::now() > deadline {
                    return Err(e).with_context(|| format!("{} does not answer", target.host));
                }
                sleep(Duration::from_millis(20)).await;
            }
            target.answers(Instant::now());
            self.context.board.add(target);
        }
        Ok(())
    }

    /// Changes until told to stop, one change each `pace` at most.
    ///
    /// # Errors
    /// When a change is not seen.
    pub(crate) async fn run(mut self, pace: Duration, stop: watch::Receiver<bool>) -> Result<()> {
        while !*stop.borrow() {
            let next = Instant::now() + pace.mul_f64(self.rng.random_range(0.5..1.5));
            match self.rng.random_range(0..10) {
                0..4 => self.rotate().await?,
                4..6 => self.rename().await?,
                _ => {
                    let which = self.rng.random_range(0..EXTRAS);
                    match self.extras[which].take() {
                        None => self.open(which).await?,
                        Some(target) => self.close(which, target).await?,
                    }
                }
            }
            sleep_until(next).await;
        }
        Ok(())
    }

    /// A new certificate for a host that stays.
    async fn rotate(&mut self) -> Result<()> {
        let which = self.rng.random_range(0..STEADY.len());
        let (name, target) = (STEADY[which], Arc::clone(&self.steady[which]));
        let leaf = self.authority.leaf(&target.host)?;
        self.context.board.heat(self.number, &target);
        self.context.report.begins("certificate", &target.host);
        self.context.write(&format!("{name}.json"), manifest::secret(name, &leaf))?;
        let begin = Instant::now();
        loop {
            match self.context.client.look(&target.place).await {
                Ok(shown) if shown.as_ref() == Some(&leaf.der) => break,
                Ok(_) => {}
                Err(e) => self.context.report.wrong(&format!("{}: handshake: {e:#}", target.host)),
            }
            if begin.elapsed() > SEEN {
                bail!("the new certificate of {name} is not shown");
            }
            sleep(Duration::from_millis(10)).await;
        }
        self.context.report.done("certificate");
        Ok(())
    }

    /// Another host for an encrypted listener. Clients leave the old one first; what is under way there is to finish.
    async fn rename(&mut self) -> Result<()> {
        self.moves += 1;
        let host = host(MOVING, self.moves);
        let place = Place { port: self.ports.https, sni: Some(host.as_str().into()) };
        let want = Want::Served(self.served.clone());
        let target = Arc::new(Target::new(place, host, Want::Closed));
        // The new host is let in a moment before its routes are there.
        target.expect.push(Want::Absent);
        target.expect.push(want.clone());
        let old = std::mem::replace(&mut self.moving, Arc::clone(&target));
        self.leave(&old).await;
        self.context.report.begins("hostname", &format!("{} -> {}", old.host, target.host));
        self.write()?;
        self.context.board.heat(self.number, &target);
        self.context.board.add(&target);
        self.context.seen(&target, &Want::Closed, &want, &mut self.rng).await?;
        let now = Instant::now();
        target.expect.settle(now);
        target.answers(now);
        self.gone(&old).await?;
        self.context.report.done("hostname");
        Ok(())
    }

    /// One more listener on a port of its own.
    async fn open(&mut self, which: usize) -> Result<()> {
        let place = Place { port: self.ports.extras[which], sni: None };
        let want = Want::Served(self.served.clone());
        let target = Arc::new(Target::new(place, format!("{}.test", extra(which)), Want::Closed));
        target.expect.push(want.clone());
        self.extras[which] = Some(Arc::clone(&target));
        self.context.report.begins("listener added", &target.host);
        self.write()?;
        self.context.board.heat(self.number, &target);
        self.context.board.add(&target);
        self.context.seen(&target, &Want::Closed, &want, &mut self.rng).await?;
        let now = Instant::now();
        target.expect.settle(now);
        target.answers(now);
        self.context.report.done("listener added");
        Ok(())
    }

    /// A listener less. Clients leave it first; what is under way there is to finish.
    async fn close(&mut self, which: usize, target: Arc<Target>) -> Result<()> {
        self.extras[which] = None;
        self.leave(&target).await;
        self.context.report.begins("listener removed", &target.host);
        self.write()?;
        self.gone(&target).await?;
        self.context.report.done("listener removed");
        Ok(())
    }

    /// Begins slow requests and sends no more after them; waits until they wait in the backend and what is quick is over.
    async fn leave(&self, target: &Arc<Target>) {
        self.context.begin_slow(target, 6);
        self.context.board.remove(target);
        let begin = Instant::now();
        // Those that fail never arrive; the report tells of them.
        while begin.elapsed() < ARRIVED {
            let arrived: u64 = self.backends.iter().map(|b| b.delayed(&target.host)).sum();
            if target.quick() == 0 && arrived >= target.slow() {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    async fn gone(&self, target: &Target) -> Result<()> {
        let begin = Instant::now();
        while self.context.client.look(&target.place).await.is_ok() {
            if begin.elapsed() > SEEN {
                bail!("{} is still there", target.host);
            }
            sleep(Duration::from_millis(10)).await;
        }
        // Whoever goes on using an old connection is served by what is draining, whose routes may have lost their clusters.
        self.context.client.leave(&target.place);
        Ok(())
    }

    fn write(&self) -> Result<()> {
        let Ports { http, https, extras } = &self.ports;
        let mut listeners = vec![manifest::http("http", *http)];
        for (name, target) in STEADY.into_iter().zip(&self.steady).chain([(MOVING, &self.moving)]) {
            listeners.push(manifest::https(name, *https, &target.host));
        }
        for (which, port) in extras.iter().enumerate().filter(|(which, _)| self.extras[*which].is_some()) {
            listeners.push(manifest::http(&extra(which), *port));
        }
        self.context.write(FILE, manifest::gateway(listeners))
    }
}

fn extra(which: usize) -> String {
    format!("extra-{which}")
}

fn host(name: &str, number: u32) -> String {
    format!("h{number}.{name}.test")
}

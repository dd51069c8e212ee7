//! Changes of routes and of what is behind them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    client::Place,
    expect::Want,
    load::Context,
    manifest::{Pools, Shape, Upstream},
    target::Target,
};

/// Places for routes in a lane.
const SLOTS: usize = 4;
/// Kinds of changes of a route that is there, each as often as its number says.
const KINDS: [(&str, u32); 7] = [
    ("backend", 20),
    ("endpoints", 20),
    ("filter", 20),
    ("weights", 14),
    ("split", 10),
    ("upstream", 18),
    ("remove", 16),
];

/// Changes one route after another.
#[derive(Debug)]
pub(crate) struct RouteLane {
    number: usize,
    slots: Vec<Slot>,
    rng: StdRng,
    context: Arc<Context>,
    pools: Arc<Pools>,
    port: u16,
    serial: u32,
}

#[derive(Debug)]
struct Slot {
    name: String,
    now: Option<(Shape, Arc<Target>)>,
}

impl RouteLane {
    /// A lane whose routes are on this port.
    #[must_use]
    pub(crate) fn new(number: usize, seed: u64, context: Arc<Context>, pools: Arc<Pools>, port: u16) -> Self {
        let slots = (0..SLOTS).map(|i| Slot { name: format!("route-{number}-{i}"), now: None }).collect();
        Self { number, slots, rng: StdRng::seed_from_u64(seed), context, pools, port, serial: 0 }
    }

    /// Changes until told to stop, one change each `pace` at most.
    ///
    /// # Errors
    /// When a change is not seen.
    pub(crate) async fn run(mut self, pace: Duration, stop: watch::Receiver<bool>) -> Result<()> {
        while !*stop.borrow() {
            let next = Instant::now() + pace.mul_f64(self.rng.random_range(0.5..1.5));
            let slot = self.rng.random_range(0..self.slots.len());
            match self.slots[slot].now.clone() {
                None => self.add(slot).await?,
                Some((shape, target)) => self.change(slot, shape, target).await?,
            }
            sleep_until(next).await;
        }
        Ok(())
    }

    async fn add(&mut self, slot: usize) -> Result<()> {
        self.serial += 1;
        let name = self.slots[slot].name.clone();
        let host = format!("{name}-{}.test", self.serial);
        let upstream = [Upstream::Plain, Upstream::Plain, Upstream::H2c, Upstream::Tls, Upstream::Dns];
        let upstream = *upstream.choose(&mut self.rng).unwrap_or(&Upstream::Plain);
        let none = BTreeSet::new();
        let shape = Shape {
            upstream,
            weights: *[[1, 0], [0, 1], [1, 1]].choose(&mut self.rng).unwrap_or(&[1, 0]),
            mention_idle: self.rng.random(),
            checked: self.rng.random(),
            endpoints: [self.endpoints(upstream, 0, &none), self.endpoints(upstream, 1, &none)],
            header: self.serial,
            split: self.rng.random_bool(0.3).then_some(0),
        };
        let want = Want::Served(shape.served(&self.pools));
        let place = Place { port: self.port, sni: None };
        let target = Arc::new(Target::new(place, host, Want::Absent));
        let context = Arc::clone(&self.context);
        context.report.begins("add", &format!("{} {upstream:?}", target.host));
        target.expect.push(want.clone());
        context.write(&format!("{name}.json"), shape.objects(&name, &target.host, &self.pools))?;
        context.board.heat(self.number, &target);
        context.board.add(&target);
        context.seen(&target, &Want::Absent, &want, &mut self.rng).await?;
        let now = Instant::now();
        target.expect.settle(now);
        target.answers(now);
        context.report.done("add");
        self.slots[slot].now = Some((shape, target));
        Ok(())
    }

    async fn change(&mut self, slot: usize, old: Shape, target: Arc<Target>) -> Result<()> {
        let context = Arc::clone(&self.context);
        let name = self.slots[slot].name.clone();
        context.board.heat(self.number, &target);
        if self.rng.random_bool(0.5) {
            context.begin_slow(&target, 2);
            sleep(Duration::from_millis(15)).await;
        }
        let Some((kind, new)) = self.next(&old) else { bail!("no kind of change") };
        let was = Want::Served(old.served(&self.pools));
        let Some(new) = new else {
            context.report.begins(kind, &target.host);
            target.expect.push(Want::Absent);
            context.remove(&format!("{name}.json"))?;
            context.seen(&target, &was, &Want::Absent, &mut self.rng).await?;
            target.expect.settle(Instant::now());
            context.board.remove(&target);
            context.report.done(kind);
            self.slots[slot].now = None;
            return Ok(());
        };
        let want = Want::Served(new.served(&self.pools));
        context.report.begins(kind, &format!("{} {old:?} -> {new:?}", target.host));
        target.expect.push(want.clone());
        context.write(&format!("{name}.json"), new.objects(&name, &target.host, &self.pools))?;
        context.seen(&target, &was, &want, &mut self.rng).await?;
        target.expect.settle(Instant::now());
        context.report.done(kind);
        self.slots[slot].now = Some((new, target));
        Ok(())
    }

    /// What to change next; no shape means removal.
    fn next(&mut self, old: &Shape) -> Option<(&'static str, Option<Shape>)> {
        let (kind, _) = *KINDS.choose_weighted(&mut self.rng, |k| k.1).ok()?;
        let mut new = old.clone();
        self.serial += 1;
        match kind {
            "backend" => {
                // From one Service to the other; from both to one counts as a change of weights.
                new.weights = match old.weights {
                    [0, _] => [1, 0],
                    [_, 0] => [0, 1],
                    _ => return Some(("weights", Some(Shape { weights: [0, 1], ..new }))),
                };
                new.mention_idle = false;
            }
            "endpoints" => {
                for side in 0..2 {
                    if old.weights[side] > 0 {
                        new.endpoints[side] = self.endpoints(old.upstream, side, &old.endpoints[side]);
                    }
                }
            }
            "filter" => new.header = self.serial,
            "weights" => {
                let shares: [[u32; 2]; 5] = [[1, 0], [0, 1], [1, 1], [1, 3], [5, 2]];
                let idle = |w: [u32; 2]| [w[0] == 0, w[1] == 0];
                let others: Vec<_> = shares.into_iter().filter(|w| idle(*w) != idle(old.weights)).collect();
                new.weights = *others.choose(&mut self.rng)?;
                new.mention_idle = true;
            }
            "split" => new.split = if old.split.is_some() { None } else { Some(self.serial) },
            "upstream" => {
                let all = [Upstream::Plain, Upstream::H2c, Upstream::Tls, Upstream::Dns];
                let others: Vec<_> = all.into_iter().filter(|u| *u != old.upstream).collect();
                new.upstream = *others.choose(&mut self.rng)?;
                new.checked = self.rng.random();
                for side in 0..2 {
                    new.endpoints[side] = self.endpoints(new.upstream, side, &old.endpoints[side]);
                }
            }
            _ => return Some((kind, None)),
        }
        Some((kind, Some(new)))
    }

    /// Some endpoints for a side, with at least one that is new where there is one.
    fn endpoints(&mut self, upstream: Upstream, side: usize, old: &BTreeSet<usize>) -> BTreeSet<usize> {
        let all: Vec<usize> = (0..self.pools.of(upstream).len()).filter(|i| i % 2 == side).collect();
        let fresh: Vec<usize> = all.iter().copied().filter(|i| !old.contains(i)).collect();
        let first = fresh.choose(&mut self.rng).or_else(|| all.choose(&mut self.rng));
        let mut out: BTreeSet<usize> = first.copied().into_iter().collect();
        out.extend(all.iter().filter(|_| self.rng.random_bool(0.3)));
        if out == *old {
            // All are in use: leave with one.
            return first.copied().into_iter().collect();
        }
        out
    }
}

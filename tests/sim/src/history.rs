//! One history: events in order of true time, and the rules checked after each.

use crate::{
    plan::{Kind, Plan, SECOND},
    process::Process,
    rng::Rng,
    world::{Coverage, Event, Shared},
};
use election::Mutant;

/// How a history went.
#[derive(Debug)]
pub struct Verdict {
    /// Its seed.
    pub seed: u64,
    /// Rules that were broken, with the time.
    pub violations: Vec<String>,
    /// What was seen.
    pub coverage: Coverage,
    /// What happened, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs the history of `seed`, with a planted bug if there is one.
#[must_use]
pub fn run(seed: u64, bug: Option<Mutant>, traced: bool) -> Verdict {
    let plan = Plan::draw(seed);
    let world = Shared::new(seed, plan.candidates.len(), plan.bound, traced);
    let mut processes: Vec<Process> = plan.candidates.iter().enumerate().map(|(n, c)| Process::new(n, *c)).collect();
    {
        let mut world = world.lock();
        if plan.lease_exists {
            world.preset_lease();
        }
        for (number, candidate) in plan.candidates.iter().enumerate() {
            world.note(|| format!("p{number}: {candidate:?}"));
            world.at(candidate.start, Event::Start(number));
        }
        for (number, fault) in plan.faults.iter().enumerate() {
            world.at(fault.from, Event::Begin(number));
            world.at(fault.to, Event::End(number));
        }
        world.at(plan.end, Event::Finish);
    }
    let mut active = vec![false; plan.faults.len()];
    loop {
        let timer = processes.iter().map(|p| p.timer).min().unwrap_or(u64::MAX);
        let (event, now) = {
            let mut world = world.lock();
            (world.next(timer), world.now)
        };
        for process in &mut processes {
            process.tick(now);
        }
        match event {
            Some(Event::Finish) => break,
            Some(Event::Start(process)) => {
                processes[process].start(&world, seed, now, bug);
                world.lock().disturb();
            }
            Some(Event::Begin(number)) => active[number] = begin(&plan, number, &world, &mut processes),
            Some(Event::End(number)) if active[number] => end(&plan, number, &world, &mut processes, seed, bug),
            Some(Event::Land(call)) => world.lock().land(call),
            Some(Event::Deliver(call)) => world.lock().deliver(call),
            Some(Event::Vacated(process)) => world.lock().notify(process),
            Some(Event::Check(check)) => check_liveness(check, &plan, &world, &processes),
            Some(Event::End(_)) | None => {}
        }
        let mut worked = false;
        for process in &mut processes {
            worked |= process.run(now).unwrap_or_else(|broken| {
                world.lock().violation(broken);
                true
            });
        }
        if worked {
            check_safety(&world, &processes);
        }
        if world.lock().violations.len() >= 3 {
            break;
        }
    }
    let mut world = world.lock();
    world.coverage.time = world.now;
    let rates = plan.candidates.iter().map(|c| c.rate);
    world.coverage.rates = rates.clone().min().zip(rates.max());
    Verdict {
        seed,
        violations: std::mem::take(&mut world.violations),
        coverage: std::mem::take(&mut world.coverage),
        trace: world.trace.take().unwrap_or_default(),
    }
}

/// Begins a fault; false if it does not apply.
fn begin(plan: &Plan, number: usize, world: &Shared, processes: &mut [Process]) -> bool {
    let fault = plan.faults[number];
    let process = &mut processes[fault.process];
    let mut world = world.lock();
    world.note(|| format!("fault begins: {fault:?}"));
    let applies = match fault.kind {
        Kind::Pause | Kind::Crash | Kind::Stop => process.alive() && !process.paused && !process.stopping,
        _ => true,
    };
    if !applies {
        return false;
    }
    world.disturb();
    world.faults += 1;
    if world.turn_weather(fault.kind, fault.process, fault.flavour, true) {
        match fault.kind {
            Kind::Conflicts => world.touch_lease(),
            Kind::Away => world.count("API away"),
            Kind::Partition => world.count("partitions"),
            _ => {}
        }
        return true;
    }
    match fault.kind {
        Kind::Deleted => world.delete_lease(),
        Kind::Pause => {
            world.count("pauses");
            process.paused = true;
            process.set_timer();
        }
        Kind::Crash => {
            world.count("crashes");
            drop(world); // what is dropped may speak to the world
            process.crash();
        }
        Kind::Stop => {
            world.count("stops");
            drop(world);
            process.stop();
        }
        Kind::WallJump => {
            world.count("wall clock jumps");
            process.jump(i64::try_from(fault.flavour % 600_000_000).unwrap_or(0) - 300_000_000);
        }
        _ => {}
    }
    true
}

/// Ends a fault.
fn end(plan: &Plan, number: usize, world: &Shared, processes: &mut [Process], seed: u64, bug: Option<Mutant>) {
    let fault = plan.faults[number];
    let process = &mut processes[fault.process];
    let now = {
        let mut world = world.lock();
        world.note(|| format!("fault ends: {fault:?}"));
        world.disturb();
        world.faults -= 1;
        if world.turn_weather(fault.kind, fault.process, fault.flavour, false) {
            return;
        }
        world.now
    };
    match fault.kind {
        Kind::Pause => {
            process.paused = false;
            process.set_timer();
        }
        Kind::Crash | Kind::Stop => {
            process.crash(); // one that has not stopped by now is killed
            process.start(world, seed, now, bug);
        }
        _ => {}
    }
}

/// At most one process would get a permit, by its own clock.
fn check_safety(world: &Shared, processes: &[Process]) {
    let mut leaders = processes.iter().filter_map(|p| p.leads().map(|term| (p.number, term)));
    let Some(one) = leaders.next() else { return };
    let mut world = world.lock();
    world.led_at = world.now;
    if let Some(two) = leaders.next() {
        let (a, b) = (one.1.0, two.1.0);
        world.violation(format!("two valid permits: p{} with term {a} and p{} with term {b}", one.0, two.0));
    }
}

/// After a time without disturbance somebody leads.
fn check_liveness(check: u64, plan: &Plan, world: &Shared, processes: &[Process]) {
    let mut world = world.lock();
    if !world.is_due(check) {
        return;
    }
    world.count("liveness checks");
    // A leader that changes to a higher term is without one for the time of a call.
    if world.now < world.led_at + SECOND {
        return;
    }
    let present = processes.iter().any(Process::alive);
    if present && processes.iter().all(|p| p.leads().is_none()) {
        let bound = plan.bound as f64 / SECOND as f64;
        world.violation(format!("nobody leads {bound:.1} s after the last disturbance"));
    }
}

/// A seed for the histories of a run: `number` of the run with seed `run`.
#[must_use]
pub fn seed_of(run: u64, number: u64) -> u64 {
    Rng::new(run, number).draw() >> 1
}

//! `FUZZ_INPUTS` inputs (20,000) from seed `FUZZ_SEED` (1): no panic, none too slow. `FUZZ_ONE=N` runs and prints one.
//!
//! What ends the process without a panic (a stack that overflows) leaves the numbers of the inputs under way in
//! `target/tmp/fuzz-worker-*`.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use fuzz::{
    LONGEST,
    mutate::Mutator,
    pipeline::{Outcome, Pipeline},
    seeds,
};

fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

#[derive(Debug, Default)]
struct Findings {
    outcome: Outcome,
    /// Why the encoder refused something, with the first input that led there.
    refusals: BTreeMap<String, u64>,
    panics: Vec<(u64, String)>,
    slowest: (Duration, u64),
}

#[test]
fn nothing_that_a_file_says_ends_the_process() {
    let mutator = Mutator::new(seeds::all().expect("seeds"), setting("FUZZ_SEED", 1));
    if let Ok(one) = std::env::var("FUZZ_ONE") {
        let number = one.parse().expect("a number");
        let input = mutator.input(number);
        println!("{}", input.text);
        println!("{:?}", Pipeline::new().run(number, &input, &mut |text| println!("refused by the encoder: {text}")));
        return;
    }
    let inputs = setting("FUZZ_INPUTS", 20_000);
    let begin = Instant::now();
    let (next, findings) = (AtomicU64::new(0), Mutex::new(Findings::default()));
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let (mutator, next, findings) = (&mutator, &next, &findings);
            scope.spawn(move || work(worker, mutator, inputs, next, findings));
        }
    });
    let f = findings.into_inner().expect("no worker panicked");
    let o = f.outcome;
    println!(
        "{} seeds; {} texts unreadable, {} objects refused, {} translated; {} resources encoded, {} refused by the encoder; \
         slowest input {} took {:?}; {:?} in all",
        mutator.seeds(),
        o.unreadable,
        o.refused,
        o.translated,
        o.encoded,
        o.not_encoded,
        f.slowest.1,
        f.slowest.0,
        begin.elapsed()
    );
    for (cause, number) in f.refusals.iter().take(20) {
        println!("the encoder refuses, first for FUZZ_ONE={number}: {cause}");
    }
    for (number, message) in f.panics.iter().take(20) {
        println!("FUZZ_ONE={number}: {message}");
    }
    println!("fuzz: {inputs} inputs, {} panics", f.panics.len());
    assert!(f.panics.is_empty(), "{} inputs panicked", f.panics.len());
    assert!(f.slowest.0 < LONGEST, "input {} took {:?}", f.slowest.1, f.slowest.0);
    // Inputs that never get far would prove nothing.
    assert!(o.translated > 2 * inputs && o.encoded > 2 * inputs && o.refused > inputs / 10, "{o:?}");
}

fn work(worker: usize, mutator: &Mutator, inputs: u64, next: &AtomicU64, findings: &Mutex<Findings>) {
    let pipeline = Pipeline::new();
    let mut own = Findings::default();
    let trace = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-worker-{worker}"));
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= inputs {
            break;
        }
        std::fs::write(&trace, number.to_string()).expect("target/tmp can be written");
        let begin = Instant::now();
        let mut say = |text: String| {
            // Names differ from input to input; the cause does not.
            let cause: String = text.rsplit(": ").next().unwrap_or_default().chars().take(100).collect();
            own.refusals.entry(cause).or_insert(number);
        };
        match catch_unwind(AssertUnwindSafe(|| pipeline.run(number, &mutator.input(number), &mut say))) {
            Ok(outcome) => own.outcome.add(outcome),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
                own.panics.push((number, text.unwrap_or_default().chars().take(600).collect()));
            }
        }
        own.slowest = own.slowest.max((begin.elapsed(), number));
    }
    std::fs::remove_file(&trace).expect("target/tmp can be written");
    let mut all = findings.lock().expect("no worker panicked");
    all.outcome.add(own.outcome);
    for (cause, number) in own.refusals {
        let first = all.refusals.entry(cause).or_insert(number);
        *first = number.min(*first);
    }
    all.panics.extend(own.panics);
    all.panics.sort();
    all.slowest = all.slowest.max(own.slowest);
}

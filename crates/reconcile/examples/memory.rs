//! A follower's memory after 1,000 and after 100,000 updates of wanted values: `cargo run -p reconcile --example memory`.
#![expect(clippy::print_stdout, reason = "it shows")]

use reconcile::Wanted;

fn main() {
    let wanted = Wanted::<String, Vec<u8>>::new();
    let mut update = 0u64;
    for until in [1_000u64, 10_000, 100_000] {
        while update < until {
            let key = format!("namespace/route-{}", update % 200);
            wanted.publish([(key, Some(vec![u8::try_from(update % 251).unwrap_or(0); 4096]))]);
            // A route that comes and goes, under a new name each time.
            let passing = format!("namespace/passing-{update}");
            wanted.publish([(passing.clone(), Some(vec![0; 4096]))]);
            wanted.publish([(passing, None)]);
            update += 1;
        }
        println!("{until:>7} updates: {} keys, resident memory {} KiB", wanted.len(), resident());
    }
}

/// `VmRSS` in KiB; zero where there is no `/proc`.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").trim().parse().unwrap_or_default()
}

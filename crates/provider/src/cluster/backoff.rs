//! How long to wait after failures in a row.

use std::time::Duration;

use rand::Rng;

const FIRST: Duration = Duration::from_millis(200);
const CAP: Duration = Duration::from_secs(30);

/// 200 ms, doubled with each failure up to 30 s; of that, a random part between a half and the whole, so that replicas
/// and watches do not all come at once.
pub(super) fn after(failures: u32) -> Duration {
    let full = FIRST.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1).min(20))).min(CAP);
    full.mul_f64(rand::rng().random_range(0.5..=1.0))
}

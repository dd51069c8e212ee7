//! A replica is cut from the API server while another one is not: what it decides, second by second.
//!
//! `cargo run -p peers --example decide`

use std::time::Duration;

use peers::{Decider, Peer, Rule};

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() {
    let mut decider = Decider::new(Rule::default());
    let fresh = Peer { age: Some(Duration::from_millis(800)), serving: true };
    for second in 0..20 {
        let now = Duration::from_secs(second);
        // Cut in the third second, back in the twelfth.
        let own = if (3..12).contains(&second) { Duration::from_secs(second - 2) } else { Duration::from_millis(500) };
        let hands_over = decider.decide(now, Some(own), [fresh]);
        println!("{second:2} s: in touch {own:?} ago, {}", if hands_over { "hands over" } else { "takes proxies" });
    }
}

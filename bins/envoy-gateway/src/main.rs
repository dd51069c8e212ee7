//! The gateway's control plane.
fn main() {}

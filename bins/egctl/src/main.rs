//! The user's command line.

fn main() {}

//! Latest wanted value per key, and the leader-gated loop that writes it.
mod backoff;
mod gate;
mod wanted;

pub use backoff::Backoff;
pub use gate::{Gated, Sync};
pub use wanted::{KeyState, Wanted};

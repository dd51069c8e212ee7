//! The seam between sources and the engine.

use std::future::Future;

use resources::Change;
use tokio::sync::mpsc;

/// A source of objects. One batch is one consistent step: the engine applies all of it or none.
pub trait Source: Send + 'static {
    /// Tells everything that is there, then [`Change::Synced`], then each difference; ends when the receiver is gone.
    fn run(self, out: mpsc::Sender<Vec<Change>>) -> impl Future<Output = ()> + Send;
}

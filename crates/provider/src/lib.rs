//! Where resources come from: watches of a cluster, or files on disk, told as batches of [`resources::Change`].
//!
//! Contract: a batch is consistent; what was told is the last *good* version of each object; an error (a broken file, an
//! unreadable folder, a refused object) is reported as a [`Problem`] and never as an absence. The provider writes nothing.
//!
//! Limits: objects from files have no creation time and no generation.

pub mod cluster;
mod document;
mod files;
pub mod last_good;
mod problem;
mod source;
mod watch;

pub use document::{Document, parse};
pub use files::{Files, Scan, load};
pub use problem::Problem;
pub use source::Source;
pub use watch::{FileSource, Problems};

//! Writes statuses: compare, then write.

mod render;

pub use render::{object, render};

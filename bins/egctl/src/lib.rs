//! The user's command line, as a library so that tests drive it in-process.

pub mod offline;

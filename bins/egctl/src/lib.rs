//! The user's command line, as a library so that tests drive it in-process.
//!
//! Contract: what was asked for goes to standard output and nothing else does; what is wrong with the input goes to
//! standard error with file, line, object and field. The exit code is 0 when nothing was wrong, 1 when some of the input
//! was left out or the command failed, 2 for wrong usage.

mod admin;
pub mod cli;
pub mod cluster;
mod config;
mod fill;
pub mod input;
pub mod offline;
pub mod output;
mod status;
mod translate;
mod validate;
mod version;

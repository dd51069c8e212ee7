//! Builders, fakes and real servers for tests. Development only: nothing that ships depends on it.
//!
//! Contract: everything runs on loopback, on ports that were free, and ends with the test that started it.

#![allow(clippy::print_stdout, reason = "tests say what they skip")]

pub mod apiserver;
pub mod proxy;

pub mod echo;
